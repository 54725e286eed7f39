"""Graph features against brute force: breadth-first search, walks counted one by one."""

import itertools
import math

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import HEAVY
from duallgd_cli.model.duallgd import (
    BOND_ORDERS,
    MAX_HOPS,
    MIN_PROBABILITY,
    USUAL_VALENCES,
    graph_features,
    keep_bits,
)
from duallgd_cli.model.layers import line_graph

CPU = torch.device("cpu")


def features(bond_class, atom_class, real=None, hydrogens=0.0):
    n = len(atom_class)
    real = torch.ones(1, n, dtype=torch.bool) if real is None else real[None]
    given = (bond_class[None], atom_class[None], real, torch.tensor([hydrogens]))
    return graph_features(*given, line_graph(n, CPU))


def random_bonds(n, seed, density):
    generator = torch.Generator().manual_seed(seed)
    m = n * (n - 1) // 2
    bonded = torch.rand(m, generator=generator) < density
    return torch.where(bonded, torch.randint(1, 5, (m,), generator=generator), 0)


def hops_between(adjacency):
    """By breadth-first search, capped."""
    hops = np.full(adjacency.shape, MAX_HOPS)
    for start in range(len(adjacency)):
        reached, distance = {start}, 0
        while reached and distance < MAX_HOPS:
            for atom in reached:
                hops[start, atom] = min(hops[start, atom], distance)
            distance += 1
            around = {int(other) for atom in reached for other in np.flatnonzero(adjacency[atom])}
            reached = {atom for atom in around if hops[start, atom] == MAX_HOPS}
    return hops


def n_walks(adjacency, start, end, length):
    if length == 0:
        return int(start == end)
    around = np.flatnonzero(adjacency[start])
    return sum(n_walks(adjacency, other, end, length - 1) for other in around)


def chain(n):
    return torch.tensor([int(j == i + 1) for i, j in itertools.combinations(range(n), 2)])


CASES = [(n, seed, density) for n in (2, 5, 9, 14) for seed in (1, 2) for density in (0.12, 0.35)]


@pytest.mark.parametrize("bonds", [*(random_bonds(*case) for case in CASES), chain(MAX_HOPS + 3)])
def test_features_are_those_of_a_search_and_of_sums_over_bonds(bonds):
    n = math.isqrt(2 * len(bonds)) + 1
    low, high = np.triu_indices(n, 1)
    square = np.zeros((n, n), int)
    square[low, high] = square[high, low] = bonds
    adjacency, atom_class = square > 0, torch.arange(n) % len(HEAVY)

    seen = features(bonds, atom_class)

    token = bonds.numpy() * (MAX_HOPS + 1) + hops_between(adjacency)[low, high]
    assert seen.pair_token[0].tolist() == token.tolist()
    valence = np.array(BOND_ORDERS)[square].sum(1)
    free = np.array(USUAL_VALENCES)[atom_class] - valence
    expected = np.stack([adjacency.sum(1), valence, free, (square == 4).sum(1)], 1)
    np.testing.assert_allclose(seen.atoms[0, :, :4].numpy(), expected)
    if n > 5:
        return
    for m, (i, j) in enumerate(zip(low, high, strict=True)):
        counts = [n_walks(adjacency, i, j, length) for length in (2, 3, 4, 5)]
        np.testing.assert_allclose(seen.walks[0, m], np.log1p(counts), rtol=1e-6)
    for i in range(n):
        closed = [n_walks(adjacency, i, i, length) for length in (3, 4, 5)]
        closed.append(sum(n_walks(adjacency, i, j, 3) ** 2 for j in range(n)))
        np.testing.assert_allclose(seen.atoms[0, i, 4:], np.log1p(closed), rtol=1e-6)


@pytest.mark.parametrize(
    ("bonds", "atoms", "hydrogens", "totals"),
    [
        # C, C, O: two single bonds, six hydrogens.
        ([1, 0, 1], [0, 0, 2], 6.0, [2 / 3, 2 / 3, 0, 0, 0, 0]),
        # O bonded twice to one carbon and twice to the other: two valences too many; N is alone.
        ([0, 0, 2, 0, 2, 0], [0, 0, 1, 2], 0.0, [2 / 4, 1, 5 / 4, -2 / 4, 6 / 16, 1 / 4]),
    ],
)
def test_totals_see_bonds_free_valences_and_atoms_apart(bonds, atoms, hydrogens, totals):
    seen = features(torch.tensor(bonds), torch.tensor(atoms), hydrogens=hydrogens).totals[0]

    np.testing.assert_allclose(seen[[0, 1, 2, 3, 5]], np.array(totals)[[0, 1, 2, 3, 5]], atol=1e-6)


def test_the_most_probable_bits_are_kept_and_improbable_ones_shut_out():
    probability = torch.tensor([[0.1, 0.9, 0.0, 0.5], [0.3, 0.2, 0.25, 0.01]], requires_grad=True)
    low = torch.tensor([[0.5, MIN_PROBABILITY, MIN_PROBABILITY * 0.99, 0.0]])

    bit, log_prob = keep_bits(probability, 2)
    every, shut = keep_bits(low, 10)

    assert bit.tolist() == [[1, 3], [0, 2]]
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[0.9, 0.5], [0.3, 0.25]]))
    assert every.shape == (1, 4)
    assert shut[0].isfinite().tolist() == [True, True, False, False]
    keep_bits(probability, 4)[1].exp().sum().backward()
    assert probability.grad.isfinite().all()
    assert probability.grad[0, 2] == 0
