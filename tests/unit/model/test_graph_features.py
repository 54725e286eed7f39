"""Graph features against shortest paths and powers of the adjacency matrix, in integers."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path

from duallgd_cli.chem.elements import HEAVY, LOWEST_VALENCES
from duallgd_cli.model.duallgd import MAX_HOPS, MIN_PROBABILITY, graph_features, keep_bits
from duallgd_cli.model.layers import line_graph


def features(bonds, atoms, hydrogens=0.0):
    """Of one graph without padding."""
    n = len(atoms)
    whole = torch.ones(1, n, dtype=torch.bool), torch.tensor([hydrogens])
    graph = line_graph(n, torch.device("cpu"))
    seen = graph_features(torch.tensor([bonds]), torch.tensor([atoms]), *whole, graph)
    return [part[0].numpy() for part in seen]


def random_bonds(n, seed, density):
    rng, m = np.random.default_rng(seed), n * (n - 1) // 2
    return np.where(rng.random(m) < density, rng.integers(1, 5, m), 0).tolist()


CHAIN = [int(high == low + 1) for low in range(9) for high in range(low + 1, 9)]
CASES = [(n, seed, density) for n in (2, 5, 9, 14) for seed in (1, 2) for density in (0.12, 0.35)]


@pytest.mark.parametrize("bonds", [*(random_bonds(*case) for case in CASES), CHAIN])
def test_features_are_those_of_paths_walks_and_sums_over_bonds(bonds):
    n = math.isqrt(2 * len(bonds)) + 1
    low, high = np.triu_indices(n, 1)
    square = np.zeros((n, n), int)
    square[low, high] = square[high, low] = bonds
    adjacency, atoms = (square > 0).astype(int), [row % len(HEAVY) for row in range(n)]
    power = [np.linalg.matrix_power(adjacency, length) for length in range(6)]
    hops = np.minimum(shortest_path(adjacency, unweighted=True), MAX_HOPS)[low, high]
    valence = np.array([0, 1, 2, 3, 1.5])[square].sum(1)
    free = np.array(LOWEST_VALENCES)[atoms] - valence
    closed = [*(power[k].diagonal() for k in (3, 4, 5)), (power[3] ** 2).sum(1)]
    sums = [adjacency.sum(1), valence, free, (square == 4).sum(1)]

    pair_token, walks, by_atom, _ = features(bonds, atoms)

    assert pair_token.tolist() == (np.array(bonds) * (MAX_HOPS + 1) + hops).tolist()
    np.testing.assert_allclose(by_atom, np.stack([*sums, *map(np.log1p, closed)], 1), rtol=1e-6)
    between = [np.log1p(power[k][low, high]) for k in (2, 3, 4, 5)]
    np.testing.assert_allclose(walks, np.stack(between, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("bonds", "atoms", "hydrogens", "totals"),
    [
        # C, C, O: two single bonds, six hydrogens. An atom counts as far from itself.
        ([1, 0, 1], [0, 0, 2], 6.0, [2 / 3, 2 / 3, 0, 0, 3 / 9, 0]),
        # O bonded twice to one carbon and twice to the other: two valences too many; N is alone.
        ([0, 0, 2, 0, 2, 0], [0, 0, 1, 2], 0.0, [2 / 4, 1, 5 / 4, -2 / 4, 10 / 16, 1 / 4]),
    ],
)
def test_totals_see_bonds_free_valences_and_atoms_apart(bonds, atoms, hydrogens, totals):
    np.testing.assert_allclose(features(bonds, atoms, hydrogens)[-1], totals, atol=1e-6)


def test_the_most_probable_bits_are_kept_and_improbable_ones_shut_out():
    probability = torch.tensor([[0.1, 0.9, 0.0, 0.5], [0.3, 0.2, 0.25, 0.01]], requires_grad=True)
    low = torch.tensor([[0.5, MIN_PROBABILITY, MIN_PROBABILITY * 0.99, 0.0]])

    bit, log_prob = keep_bits(probability, 2)
    every, shut = keep_bits(low, 10)
    keep_bits(probability, 4)[1].exp().sum().backward()

    assert bit.tolist() == [[1, 3], [0, 2]]
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[0.9, 0.5], [0.3, 0.25]]))
    assert (every.shape, shut[0].isfinite().tolist()) == ((1, 4), [True, True, False, False])
    assert probability.grad.isfinite().all()
    assert probability.grad[0, 2] == 0
