"""Graph features against brute force: breadth-first search, walks counted one by one."""

import itertools
import math
from collections import deque

import pytest
import torch

from duallgd_cli.chem.elements import HEAVY, VALENCES
from duallgd_cli.model.duallgd import (
    BOND_ORDERS,
    MAX_HOPS,
    MIN_PROBABILITY,
    N_ATOM_FEATURES,
    N_GLOBAL_FEATURES,
    N_PAIR_TOKENS,
    USUAL_VALENCES,
    graph_features,
    keep_bits,
)
from duallgd_cli.model.line_graph import line_graph

CPU = torch.device("cpu")


def features(bond_class, atom_class=None, real=None, hydrogens=0.0, n=None):
    n = n or len(atom_class)
    atom_class = torch.zeros(1, n, dtype=torch.long) if atom_class is None else atom_class[None]
    real = torch.ones(1, n, dtype=torch.bool) if real is None else real[None]
    return graph_features(
        bond_class[None], atom_class, real, torch.tensor([hydrogens]), line_graph(n, CPU)
    )


def random_bonds(n, seed, density):
    generator = torch.Generator().manual_seed(seed)
    m = n * (n - 1) // 2
    bonded = torch.rand(m, generator=generator) < density
    return torch.where(bonded, torch.randint(1, 5, (m,), generator=generator), 0)


def neighbours(bond_class, n):
    pairs = list(itertools.combinations(range(n), 2))
    found = {i: set() for i in range(n)}
    for (i, j), bond in zip(pairs, bond_class.tolist(), strict=True):
        if bond:
            found[i].add(j)
            found[j].add(i)
    return pairs, found


def hops_from(start, found):
    distance, waiting = {start: 0}, deque([start])
    while waiting:
        atom = waiting.popleft()
        for other in found[atom] - distance.keys():
            distance[other] = distance[atom] + 1
            waiting.append(other)
    return distance


def n_walks(start, end, length, found):
    if length == 0:
        return int(start == end)
    return sum(n_walks(other, end, length - 1, found) for other in found[start])


def chain(n):
    pairs = itertools.combinations(range(n), 2)
    return torch.tensor([int(j == i + 1) for i, j in pairs])


CASES = [(n, seed, density) for n in (2, 5, 9, 14) for seed in (1, 2) for density in (0.12, 0.35)]


@pytest.mark.parametrize("bonds", [*(random_bonds(*case) for case in CASES), chain(MAX_HOPS + 3)])
def test_hops_are_those_of_breadth_first_search_capped(bonds):
    n = math.isqrt(2 * len(bonds)) + 1
    pairs, found = neighbours(bonds, n)

    token = features(bonds, n=n).pair_token[0]

    for m, (i, j) in enumerate(pairs):
        hops = min(hops_from(i, found).get(j, MAX_HOPS), MAX_HOPS)
        assert int(token[m]) == int(bonds[m]) * (MAX_HOPS + 1) + hops
    assert int(token.max()) < N_PAIR_TOKENS


@pytest.mark.parametrize(("n", "seed", "density"), CASES[:8])
def test_walks_are_counted_as_one_by_one(n, seed, density):
    bonds = random_bonds(n, seed, density)
    pairs, found = neighbours(bonds, n)
    seen = features(bonds, n=n)

    for m, (i, j) in enumerate(pairs):
        counts = torch.tensor([n_walks(i, j, length, found) for length in (2, 3, 4, 5)])
        torch.testing.assert_close(seen.walks[0, m], torch.log1p(counts.float()))
    for i in range(n):
        closed = [n_walks(i, i, length, found) for length in (3, 4, 5)]
        squared = sum(n_walks(i, j, 3, found) ** 2 for j in range(n))
        expected = torch.log1p(torch.tensor([*closed, squared]).float())
        torch.testing.assert_close(seen.atoms[0, i, 4:], expected)


@pytest.mark.parametrize(("n", "seed", "density"), CASES)
def test_degree_valence_and_aromatic_bonds_are_sums_over_bonds(n, seed, density):
    bonds = random_bonds(n, seed, density)
    atom_class = torch.arange(n) % len(HEAVY)
    pairs, _ = neighbours(bonds, n)

    seen = features(bonds, atom_class).atoms[0]

    for i in range(n):
        own = [int(b) for b, pair in zip(bonds, pairs, strict=True) if b and i in pair]
        valence = sum(BOND_ORDERS[b] for b in own)
        usual = USUAL_VALENCES[int(atom_class[i])]
        expected = torch.tensor([len(own), valence, usual - valence, sum(b == 4 for b in own)])
        torch.testing.assert_close(seen[i, :4], expected.float())
    assert seen.shape == (n, N_ATOM_FEATURES)


def test_totals_of_ethanol_leave_no_free_valence():
    # C, C, O: two single bonds, six hydrogens.
    totals = features(torch.tensor([1, 0, 1]), torch.tensor([0, 0, 2]), hydrogens=6.0).totals[0]

    assert totals.shape == (N_GLOBAL_FEATURES,)
    bonds, order, excess, broken, _, isolated = totals.tolist()
    assert bonds == pytest.approx(2 / 3)
    assert order == pytest.approx(2 / 3)
    assert excess == pytest.approx(0, abs=1e-6)
    assert (broken, isolated) == (0, 0)


def test_totals_see_an_atom_without_bonds_and_one_with_too_many():
    # O bonded twice to one carbon and twice to the other: two valences too many; the N is alone.
    bonds = torch.tensor([0, 0, 2, 0, 2, 0])
    totals = features(bonds, torch.tensor([0, 0, 1, 2]), hydrogens=0.0).totals[0]

    assert float(totals[3]) == pytest.approx(-2 / 4)
    assert float(totals[5]) == pytest.approx(1 / 4)


@pytest.mark.parametrize(("n", "seed", "density"), CASES)
def test_padding_changes_no_feature(n, seed, density):
    bonds = random_bonds(n, seed, density)
    atom_class = torch.arange(n) % len(HEAVY)
    alone = features(bonds, atom_class, hydrogens=4.0)
    wide, graph = n + 3, line_graph(n + 3, CPU)
    inside = (graph.first < n) & (graph.second < n)
    padded_bonds = torch.zeros(graph.n_pairs, dtype=torch.long)
    padded_bonds[inside] = bonds
    real = torch.arange(wide) < n

    padded = features(
        padded_bonds, torch.cat([atom_class, torch.zeros(3, dtype=torch.long)]), real, 4.0
    )

    assert torch.equal(padded.pair_token[:, inside], alone.pair_token)
    torch.testing.assert_close(padded.walks[:, inside], alone.walks)
    torch.testing.assert_close(padded.atoms[:, :n], alone.atoms)
    assert not padded.atoms[:, n:].any()
    torch.testing.assert_close(padded.totals, alone.totals)


def test_usual_valences_are_the_smallest_of_the_elements():
    assert [float(options[0]) for options in VALENCES[: len(HEAVY)]] == list(USUAL_VALENCES)


def test_the_most_probable_bits_are_kept_and_improbable_ones_shut_out():
    probability = torch.tensor([[0.1, 0.9, 0.0, 0.5], [0.3, 0.2, 0.25, 0.01]])
    low = torch.tensor([[0.5, MIN_PROBABILITY, MIN_PROBABILITY * 0.99, 0.0]])

    bit, log_prob = keep_bits(probability, 2)
    every, shut = keep_bits(low, 10)

    assert bit.tolist() == [[1, 3], [0, 2]]
    torch.testing.assert_close(log_prob.exp(), torch.tensor([[0.9, 0.5], [0.3, 0.25]]))
    assert every.shape == (1, 4)
    assert shut[0].isfinite().tolist() == [True, True, False, False]


def test_gradients_of_kept_bits_are_finite():
    probability = torch.tensor([[0.5, 0.0, 1.0, 0.02]], requires_grad=True)

    _, log_prob = keep_bits(probability, 4)
    log_prob.exp().sum().backward()

    assert probability.grad.isfinite().all()
    assert probability.grad[0, 1] == 0
