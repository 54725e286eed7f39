"""The reference network: what must hold whatever its weights are."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad
from torch.testing import assert_close

from duallgd_authors_network.denoiser import NoisyGraphs, ReferenceDenoiser
from duallgd_authors_network.encoder import CountEmbedding, FormulaPeaks, ReferenceEncoder
from duallgd_authors_network.features import cycles, laplacian
from duallgd_authors_network.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)
from duallgd_authors_network.weights_file import ReferenceDualLGD
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.model.layers import line_graph, to_square
from plugins.authors_network.tests.made_reference import SETTINGS

SMALL = SETTINGS.denoiser
VARIANTS = {
    **{kernel: replace(SMALL, kernel=kernel) for kernel in ("positive", "waves", "elu", "softmax")},
    **{
        name: replace(SMALL, synchronisation=name)
        for name in ("atoms", "pairs", "none", "unmasked")
    },
    "edges": replace(SMALL, readout="edges"),
    "one stream": replace(SMALL, readout="edges", streams="atoms"),
}


def network(settings, seed=0):
    torch.manual_seed(seed)
    model = ReferenceDenoiser(settings).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("random_features"):
            buffer.normal_(std=0.5)
    return model


def graphs(n, settings=SMALL, batch=1, seed=1):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    bond = torch.randint(0, 5, (batch, n * (n - 1) // 2), generator=generator)
    bond = bond * (draw(*bond.shape) > 0.5)
    mask = torch.ones(batch, n, dtype=torch.bool)
    atoms, whole = draw(batch, n, settings.atom_inputs), draw(batch, settings.global_inputs)
    return NoisyGraphs(atoms, bond, draw(batch, settings.condition_width), whole, mask)


def widened(seen, n, filling):
    """The same graphs with padding to n atoms that holds a number which must not matter."""
    own, line = seen.atom_mask.shape[1], line_graph(n, seen.atoms.device)
    square = to_square(seen.bond_class[..., None], line_graph(own, seen.atoms.device))[..., 0]
    square = pad(square, (0, n - own, 0, n - own))
    return replace(
        seen,
        atoms=pad(seen.atoms, (0, 0, 0, n - own), value=filling),
        bond_class=square[:, line.first, line.second],
        atom_mask=pad(seen.atom_mask, (0, n - own)),
    )


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_padding_and_its_contents_change_nothing(name):
    model, alone = network(VARIANTS[name]), graphs(5)
    line = line_graph(8, alone.atoms.device)
    inside = (line.first < 5) & (line.second < 5)

    expected = model(alone)

    for filling in (0.0, 1e3):
        assert_close(model(widened(alone, 8, filling))[:, inside], expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_order_of_the_atoms_is_seen_as_in_the_released_network():
    # Reference: pair tokens tell the lower atom from the higher one.
    model, seen = network(SMALL), graphs(5)
    order = torch.tensor([4, 3, 2, 1, 0])
    line = line_graph(5, seen.atoms.device)

    def turned(pairs):
        return to_square(pairs, line)[:, order][:, :, order][:, line.first, line.second]

    bond = turned(seen.bond_class[..., None])[..., 0]
    got = model(replace(seen, atoms=seen.atoms[:, order], bond_class=bond))

    assert not torch.allclose(got, turned(model(seen)), atol=1e-4)


@torch.no_grad()
def test_a_network_that_sampled_can_still_be_trained():
    model, seen = network(SMALL), graphs(9)
    with torch.inference_mode():
        model(seen)

    with torch.enable_grad():
        model(seen).sum().backward()

    assert model.mlp_in_X[0].weight.grad is not None


@given(st.integers(0, 500))
def test_cycles_are_those_that_a_search_finds(seed):
    torch.manual_seed(seed)
    n = 6
    upper = torch.triu((torch.rand(n, n) < 0.4).float(), 1)
    square = upper + upper.T

    of_atoms, of_graph = cycles(square[None] * 1.0)

    for column, size in enumerate((3, 4, 5, 6)):
        found = list(closed_paths(square, size))
        assert of_graph[0, column].item() * 10 == pytest.approx(min(len(found), 10), abs=1e-3)
        if size < 6:
            through = [sum(atom in path for path in found) for atom in range(n)]
            expected = [min(count, 10) for count in through]
            assert (of_atoms[0, :, column] * 10).tolist() == pytest.approx(expected, abs=1e-3)


def closed_paths(square, size):
    """Every cycle once: lowest atom first, then in the direction of its lower neighbour."""
    n = len(square)

    def extend(path):
        if len(path) == size:
            if square[path[-1], path[0]] and path[1] < path[-1]:
                yield path
            return
        for atom in range(path[0] + 1, n):
            if atom not in path and square[path[-1], atom]:
                yield from extend((*path, atom))

    for start in range(n):
        yield from extend((start,))


def test_components_and_the_largest_one_are_found():
    square = torch.zeros(1, 5, 5)
    for a, b in ((0, 1), (1, 2), (3, 4)):
        square[0, a, b] = square[0, b, a] = 1

    components, eigenvalues, _, _ = laplacian(square, torch.ones(1, 5, dtype=torch.bool))

    assert components.item() == 2
    assert eigenvalues.shape == (1, 5)
    assert (eigenvalues[0, 3:] == 2).all()  # five atoms have three eigenvalues above zero


@torch.no_grad()
def test_a_spectrum_s_fingerprint_does_not_depend_on_its_batch():
    torch.manual_seed(0)
    model = ReferenceEncoder(SETTINGS.encoder).eval()
    counts = torch.randint(0, 9, (1, 5, 18)).float()
    zero = torch.zeros(1, 5, dtype=torch.long)
    alone = FormulaPeaks(counts, zero, zero, torch.rand(1, 5), torch.tensor([5]))
    wide = FormulaPeaks(
        pad(counts, (0, 0, 0, 3), value=7),
        pad(zero, (0, 3), value=2),
        pad(zero, (0, 3), value=1),
        pad(alone.intensity, (0, 3), value=1),
        alone.n_tokens,
    )

    assert_close(model(wide), model(alone), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_counts_of_255_and_more_share_one_embedding():
    embed = CountEmbedding()
    embed._extra_embeddings.fill_(0.25)

    got = embed(torch.tensor([[254.0] + [255.0] + [400.0] + [0.0] * 15]))

    assert (got[0, 9:27] == 0.25).all()
    assert not (got[0, :9] == 0.25).all()
    assert (got[0, 27:] == 0).all()


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 67_538_757),
        ({"streams": "atoms", "readout": "edges"}, 65_753_349),
        ({"synchronisation": "none"}, 66_508_357),
        ({"synchronisation": "pairs"}, 66_714_437),
        ({"synchronisation": "atoms"}, 67_332_677),
        ({"global_feed": 2048}, 78_029_637),
        ({"kernel": "softmax"}, 67_538_757),
    ],
)
def test_the_denoiser_has_as_many_parameters_as_published(changes, count):
    """67.56 million by the paper's table (label tab:params); its rows that name one module each."""
    with torch.device("meta"):  # shapes alone: no memory, no time
        parts = parameter_counts(ReferenceDenoiser(ReferenceDenoiserSettings(**changes)), depth=1)

    assert sum(parts.values()) == count
    if not changes:
        assert parts["dual_layers"] / 1e6 == pytest.approx(0.58, abs=0.025)
        assert (parts["p_from_d"] + parts["d_from_p"]) / 1e6 == pytest.approx(1.03, abs=0.025)
        assert parts["global_fuse"] / 1e6 == pytest.approx(12.13, abs=0.025)


@pytest.mark.parametrize(
    ("width", "fragment_bits", "count"), [(256, 512, 15_164_196), (512, 2048, 23_364_644)]
)
def test_encoder_and_projection_have_the_released_sizes(width, fragment_bits, count):
    encoder = ReferenceEncoderSettings(width=width, fragment_bits=fragment_bits)

    with torch.device("meta"):
        network = ReferenceDualLGD(ReferenceSettings(encoder=encoder), ("encoder", "projection"))

    assert parameter_counts(network, depth=1) == {"encoder": count, "projection": 8_390_656}
