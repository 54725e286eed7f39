"""Labelling one graph like another: laws, and molecules whose common part is plain to see."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.data.alignment import aligned
from duallgd_cli.data.molecular_graph import graph_of
from tests.made_prepared import molecules_of


def dense(molecules, row):
    """Bond classes, symmetric, and the elements of the atoms."""
    graph = graph_of(molecules, row)
    square = np.zeros((len(graph.element),) * 2, np.int64)
    square[graph.pair[:, 0], graph.pair[:, 1]] = graph.kind
    return square + square.T, graph.element


def shuffled_within(atom_class, rng):
    """A permutation that leaves every atom its element."""
    return np.concatenate(
        [rng.permutation(np.flatnonzero(atom_class == kind)) for kind in np.unique(atom_class)]
    )


def in_common(one, other, order):
    return int(((one > 0) & (one == other[np.ix_(order, order)])).sum() // 2)


@given(st.integers(2, 14), st.integers(0, 10_000))
def test_every_atom_gets_one_of_its_own_element(n, seed):
    rng = np.random.default_rng(seed)
    one, other = (np.triu(rng.integers(0, 5, (n, n)) * (rng.random((n, n)) < 0.3), 1) for _ in "ab")
    atom_class = np.sort(rng.integers(0, 3, n))

    order = aligned(one + one.T, other + other.T, atom_class, rng)

    assert sorted(order.tolist()) == list(range(n))
    assert (atom_class[order] == atom_class).all()


@given(st.integers(0, 200))
def test_a_molecule_with_other_labels_is_found_again(seed):
    rng = np.random.default_rng(seed)
    square, atom_class = dense(molecules_of("CC(=O)Nc1ccc(OCC2CCNC2)cc1Cl"), 0)
    own = shuffled_within(atom_class, rng)
    other = square[np.ix_(own, own)]

    order = aligned(square, other, atom_class, rng)

    assert (other[np.ix_(order, order)] == square).all()


def test_isomers_differ_where_they_differ():
    """A methyl that moves around a ring is one bond given up and one made."""
    molecules = molecules_of("Cc1ccccc1CCN", "Cc1cccc(CCN)c1", "CNCCc1ccccc1")
    graphs = [dense(molecules, row) for row in range(3)]
    (one, atom_class), (other, _), (amine, _) = graphs
    n_bonds = int((one > 0).sum() // 2)
    rng = np.random.default_rng(0)

    assert in_common(one, other, aligned(one, other, atom_class, rng)) == n_bonds - 1
    assert in_common(one, amine, aligned(one, amine, atom_class, rng)) == n_bonds - 1


def test_the_same_numbers_give_the_same_labels():
    molecules = molecules_of("CCOC(=O)CC(C)CC", "CCCCOC(=O)CCC")
    (one, atom_class), (other, _) = dense(molecules, 0), dense(molecules, 1)

    orders = [aligned(one, other, atom_class, np.random.default_rng(5)) for _ in range(2)]

    assert (orders[0] == orders[1]).all()
