"""Networks without one of their parts: what is gone is gone, and nothing else."""

from dataclasses import replace

import pytest
import torch
from networks import VARIANTS, build
from torch.nn.functional import cross_entropy

from duallgd_cli.errors import UsageError
from duallgd_cli.model.duallgd import KNOWN
from duallgd_cli.model.layers import Masks, PairAttention
from duallgd_cli.model.line_graph import AtomsFromPairs, PairsFromAtoms, line_graph
from tests.made_graphs import condition, noisy_bonds, pad_bonds, real_pairs, rows_of, small_settings

OURS = [name for name in VARIANTS if name != "published"]
SMALL, LARGE = "C4H7NO2S", "C6H12O6"  # 8 and 12 heavy atoms


def stirred(variant, **sizes):
    """A network none of whose parameters is zero."""
    torch.manual_seed(1)
    model = build(replace(small_settings(**({"layers": 3} | sizes)), variant=variant))
    with torch.no_grad():
        for parameter in model.denoiser.parameters():
            parameter += 0.3 * torch.randn_like(parameter) / max(1, parameter.shape[-1]) ** 0.5
    return model.eval()


def logits(model, bonds, t, known):
    denoiser = model.denoiser
    return denoiser(bonds, torch.full((len(bonds),), t), denoiser.context(known))


def layer_and_states(variant):
    """The first layer of a network, and made states of six atoms without padding."""
    layer = stirred(variant).denoiser.layers[0]
    graph = line_graph(6, torch.device("cpu"))
    generator = torch.Generator().manual_seed(3)
    atoms = torch.randn(1, 6, 24, generator=generator)
    pairs = torch.randn(1, 15, 16, generator=generator)
    return layer, atoms, pairs, Masks.of(torch.ones(1, 6, dtype=torch.bool), graph), graph


@pytest.mark.parametrize("variant", OURS)
def test_gradients_reach_every_parameter(variant):
    model = stirred(variant)
    known = condition((LARGE, "C9H8O4"))
    size = known.atom_class.shape[1]
    clean = torch.stack([noisy_bonds(12, size, 1), noisy_bonds(size, size, 2)])
    bonds = clean.clone()
    bonds[:, :3] += KNOWN

    for t in (200, 450):
        loss = cross_entropy(logits(model, bonds, t, known).flatten(0, 1), clean.flatten())
        loss.backward()

    dead = [
        name
        for name, parameter in model.denoiser.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().sum() > 0
    ]
    assert not dead


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_graph_gets_the_same_logits_beside_a_larger_one(variant):
    model = stirred(variant)
    both = condition((SMALL, LARGE))
    alone = replace(
        rows_of(both, [0]),
        atom_class=both.atom_class[:1, :8],
        atom_mask=both.atom_mask[:1, :8],
    )
    bonds = noisy_bonds(8)

    got = logits(model, torch.stack([pad_bonds(bonds, 8, 12), noisy_bonds(12)]), 300, both)[0]

    torch.testing.assert_close(
        real_pairs(got, 8, 12), logits(model, bonds[None], 300, alone)[0], atol=1e-4, rtol=1e-4
    )


def test_the_single_stream_has_no_line_graph_an_edge_learns_of_its_two_atoms_alone():
    layer, atoms, pairs, _, graph = layer_and_states("single-stream")
    dual = (PairAttention, AtomsFromPairs, PairsFromAtoms)
    assert not any(isinstance(part, dual) for part in layer.modules())
    moved = atoms.clone()
    moved[0, 0] += 1.0

    before, after = (layer.edges(x, pairs, graph)[0] for x in (atoms, moved))

    touched = (graph.first == 0) | (graph.second == 0)
    assert torch.equal(before[~touched], after[~touched])
    assert (before[touched] != after[touched]).any(1).all()


@pytest.mark.parametrize(
    ("variant", "atoms_listen", "pairs_listen"),
    [
        ("full", True, True),
        ("no-cross-attention", False, False),
        ("atoms-to-bonds", False, True),
        ("bonds-to-atoms", True, False),
        ("no-incidence-mask", True, True),
    ],
)
def test_streams_are_told_what_the_variant_lets_them_be_told(variant, atoms_listen, pairs_listen):
    layer, atoms, pairs, masks, graph = layer_and_states(variant)

    new_atoms, new_pairs = layer.synchronise(atoms, pairs, masks, graph)

    assert torch.equal(new_atoms, atoms) is not atoms_listen
    assert torch.equal(new_pairs, pairs) is not pairs_listen


@pytest.mark.parametrize(("variant", "mixes"), [("full", False), ("no-incidence-mask", True)])
def test_atoms_and_pairs_hear_of_what_is_not_their_own_only_without_the_mask(variant, mixes):
    layer, atoms, pairs, masks, graph = layer_and_states(variant)
    far = ((graph.first == 3) & (graph.second == 4)).nonzero().item()
    other_atoms, other_pairs = atoms.clone(), pairs.clone()
    other_atoms[0, 5] *= -1
    other_pairs[0, far] *= -1

    before = layer.synchronise(atoms, pairs, masks, graph)
    new_atoms, _ = layer.synchronise(atoms, other_pairs, masks, graph)
    _, new_pairs = layer.synchronise(other_atoms, pairs, masks, graph)

    assert torch.equal(new_atoms[0, 0], before[0][0, 0]) is not mixes
    assert torch.equal(new_pairs[0, 0], before[1][0, 0]) is not mixes


@pytest.mark.parametrize(("variant", "blind"), [("no-positions", True), ("full", False)])
def test_only_without_positions_like_atoms_may_change_places(variant, blind):
    model, known, bonds = stirred(variant), condition((LARGE,)), noisy_bonds(12)
    order = torch.tensor([1, 0, *range(2, 12)])  # both are carbon
    place = torch.zeros(12, 12, dtype=torch.long)
    low, high = torch.triu_indices(12, 12, 1)
    place[low, high] = place[high, low] = torch.arange(66)
    moved = place[order[low], order[high]]

    before = logits(model, bonds[None], 450, known)[0]
    after = logits(model, bonds[moved][None], 450, known)[0]

    assert torch.allclose(before[moved], after, atol=1e-4) is blind


def test_the_published_network_folds_the_fingerprint_as_a_shorter_one_is_made():
    model, known = stirred("published"), condition((LARGE,))
    bit = torch.tensor([[5, 5 + 2048, 4095]])
    known = replace(known, bit=bit, bit_log_prob=torch.tensor([[0.5, 1.0, 0.25]]).log())

    fingerprint = model.denoiser.context(known).fingerprint

    assert fingerprint.shape == (1, 2048)
    assert fingerprint.nonzero()[:, 1].tolist() == [5, 2047]
    torch.testing.assert_close(fingerprint[0, [5, 2047]], torch.tensor([1.0, 0.25]))


def test_a_network_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="no network 'huge'; there are full, single-stream"):
        build(replace(small_settings(), variant="huge"))
