"""Indexed cross-attention is the masked dense attention of the paper, written out here."""

import pytest
import torch

from duallgd_cli.model.line_graph import AtomsFromPairs, PairsFromAtoms, incident_mask, line_graph
from tests.made_graphs import dense_attention, incidence

CPU = torch.device("cpu")
ATOM, PAIR, INNER, HEADS, BATCH = 6, 10, 8, 2, 3


def states(n):
    generator = torch.Generator().manual_seed(n)
    atoms = torch.randn(BATCH, n, ATOM, generator=generator, dtype=torch.float64)
    pairs = torch.randn(BATCH, n * (n - 1) // 2, PAIR, generator=generator, dtype=torch.float64)
    return atoms, pairs


def module(cls):
    torch.manual_seed(1)
    widths = (ATOM, PAIR) if cls is AtomsFromPairs else (PAIR, ATOM)
    return cls(*widths, INNER, HEADS).double()


@pytest.mark.parametrize(("n", "n_real"), [(2, 2), (3, 2), (9, 8)])
def test_an_atom_attends_to_its_pairs_as_under_the_dense_mask(n, n_real):
    """But not to those with padded atoms."""
    atoms, pairs = states(n)
    graph, attention = line_graph(n, CPU), module(AtomsFromPairs)
    real = torch.ones(BATCH, n, dtype=torch.bool)
    real[1, n_real:] = False

    got = attention(atoms, pairs, incident_mask(real, graph), graph)

    mask = incidence(n) & (real[:, graph.first] & real[:, graph.second])[:, None, :]
    mask = mask | ~real[:, :, None]  # rows of padded atoms mean nothing, and must not be NaN here
    mixed = dense_attention(
        attention.query(atoms), attention.key(pairs), attention.value(pairs), mask, HEADS
    )
    expected = attention.out(mixed)
    # The softmax itself runs in float32, whatever the states are in.
    torch.testing.assert_close(got[real], expected[real], atol=1e-6, rtol=1e-6)
    assert got.isfinite().all()


@pytest.mark.parametrize("n", [2, 3, 9])
def test_a_pair_attends_to_its_two_atoms_by_a_softmax_over_two(n):
    atoms, pairs = states(n)
    graph, attention = line_graph(n, CPU), module(PairsFromAtoms)

    got = attention(pairs, atoms, graph)

    mixed = dense_attention(
        attention.query(pairs), attention.key(atoms), attention.value(atoms), incidence(n).T, HEADS
    )
    torch.testing.assert_close(got, attention.out(mixed))


def test_a_molecule_without_any_real_pair_gives_no_nan():
    atoms, pairs = states(3)
    graph, attention = line_graph(3, CPU), module(AtomsFromPairs)
    real = torch.tensor([[True, False, False]]).expand(BATCH, 3)

    got = attention(atoms, pairs, incident_mask(real, graph), graph)

    torch.testing.assert_close(got[:, 0], attention.out.bias.expand(BATCH, -1))
