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
VARIANTS = [
    *({"kernel": kernel} for kernel in ("positive", "waves", "elu", "softmax")),
    *({"synchronisation": way} for way in ("atoms", "pairs", "none", "unmasked")),
    *({"readout": "edges", "streams": streams} for streams in ("both", "atoms")),
]


def network(**variant):
    torch.manual_seed(0)
    model = ReferenceDenoiser(replace(SMALL, **variant)).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("random_features"):
            buffer.normal_(std=0.5)
    return model


def graphs(n):
    """One noisy graph of n atoms."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    bond = torch.randint(0, 5, (1, n * (n - 1) // 2), generator=generator)
    bond, mask = bond * (draw(*bond.shape) > 0.5), torch.ones(1, n, dtype=torch.bool)
    atoms, whole = draw(1, n, SMALL.atom_inputs), draw(1, SMALL.global_inputs)
    return NoisyGraphs(atoms, bond, draw(1, SMALL.condition_width), whole, mask)


def squared(pairs, n):
    """One value of each pair as a symmetric matrix (1, N, N)."""
    return to_square(pairs[..., None], line_graph(n, pairs.device))[..., 0]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: " ".join(variant.values()))
@torch.no_grad()
def test_padding_and_its_contents_change_nothing(variant):
    model, alone, line = network(**variant), graphs(5), line_graph(8, torch.device("cpu"))
    wide = pad(squared(alone.bond_class, 5), (0, 3, 0, 3))[:, line.first, line.second]
    inside = (line.first < 5) & (line.second < 5)

    for filling in (0.0, 1e3):
        atoms = pad(alone.atoms, (0, 0, 0, 3), value=filling)
        mask = pad(alone.atom_mask, (0, 3))
        padded = replace(alone, atoms=atoms, bond_class=wide, atom_mask=mask)
        assert_close(model(padded)[:, inside], model(alone), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_the_order_of_the_atoms_is_seen_as_in_the_released_network():
    # Reference: pair tokens tell the lower atom from the higher one.
    model, seen, line = network(), graphs(5), line_graph(5, torch.device("cpu"))

    def turned(pairs):
        return to_square(pairs, line).flip(1, 2)[:, line.first, line.second]

    bond = turned(seen.bond_class[..., None])[..., 0]
    got = model(replace(seen, atoms=seen.atoms.flip(1), bond_class=bond))

    assert not torch.allclose(got, turned(model(seen)), atol=1e-4)


def test_a_network_that_sampled_can_still_be_trained():
    model, seen = network(), graphs(9)
    with torch.inference_mode():
        model(seen)

    model(seen).sum().backward()

    assert model.mlp_in_X[0].weight.grad is not None


def closed_paths(square, path, size):
    """Every cycle once: lowest atom first, then in the direction of its lower neighbour."""
    if len(path) == size:
        if square[path[-1], path[0]] and path[1] < path[-1]:
            yield path
        return
    for atom in range(path[0] + 1, len(square)):
        if atom not in path and square[path[-1], atom]:
            yield from closed_paths(square, (*path, atom), size)


@given(st.integers(0, 500))
def test_cycles_are_those_that_a_search_finds(seed):
    torch.manual_seed(seed)
    upper = torch.triu((torch.rand(6, 6) < 0.4).float(), 1)
    square = upper + upper.T

    of_atoms, of_graph = cycles(square[None] * 1.0)

    for column, size in enumerate((3, 4, 5, 6)):
        found = [p for start in range(6) for p in closed_paths(square, (start,), size)]
        assert of_graph[0, column].item() * 10 == pytest.approx(min(len(found), 10), abs=1e-3)
        if size < 6:
            through = [min(sum(atom in path for path in found), 10) for atom in range(6)]
            assert (of_atoms[0, :, column] * 10).tolist() == pytest.approx(through, abs=1e-3)


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
    counts, zero = torch.randint(0, 9, (1, 5, 18)).float(), torch.zeros(1, 5, dtype=torch.long)
    alone = FormulaPeaks(counts, zero, zero, torch.rand(1, 5), torch.tensor([5]))

    def wide(values, filling, *sides):
        return pad(values, (*sides, 0, 3), value=filling)

    tokens = wide(zero, 2), wide(zero, 1), wide(alone.intensity, 1)
    padded = FormulaPeaks(wide(counts, 7, 0, 0), *tokens, alone.n_tokens)

    assert_close(model(padded), model(alone), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_counts_of_255_and_more_share_one_embedding():
    embed = CountEmbedding()
    embed._extra_embeddings.fill_(0.25)

    got = embed(torch.tensor([[254.0] + [255.0] + [400.0] + [0.0] * 15]))[0]

    assert (got[9:27] == 0.25).all()
    assert not (got[:9] == 0.25).all()
    assert (got[27:] == 0).all()


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
        rows = (("dual_layers",), ("p_from_d", "d_from_p"), ("global_fuse",))
        millions = [sum(parts[name] for name in row) / 1e6 for row in rows]
        assert millions == pytest.approx([0.58, 1.03, 12.13], abs=0.025)


@pytest.mark.parametrize(
    ("width", "fragment_bits", "count"), [(256, 512, 15_164_196), (512, 2048, 23_364_644)]
)
def test_encoder_and_projection_have_the_released_sizes(width, fragment_bits, count):
    encoder = ReferenceEncoderSettings(width=width, fragment_bits=fragment_bits)

    with torch.device("meta"):
        network = ReferenceDualLGD(ReferenceSettings(encoder=encoder), ("encoder", "projection"))

    assert parameter_counts(network, depth=1) == {"encoder": count, "projection": 8_390_656}
