"""Cores of molecules that are given in training: connected, and known as far as is said."""

import numpy as np
import pytest

from duallgd_cli.data.batches import MoleculeCollator, known_pairs
from tests.made_prepared import molecules_of


def squares(molecules, size):
    graph = MoleculeCollator(molecules, None).graphs(
        np.arange(len(molecules)), size, np.random.default_rng(0)
    )
    square = np.zeros((len(molecules), size, size), np.int64)
    first, second = np.triu_indices(size, 1)
    square[:, first, second] = square[:, second, first] = graph.bond_class
    return square


@pytest.fixture(params=range(30))
def cores(request):
    """Molecules, their bonds, and what is given of each."""
    molecules = molecules_of()
    square = squares(molecules, 14)
    given = known_pairs(square, molecules.n_heavy, np.random.default_rng(request.param))
    return molecules, square, *given


def test_a_core_is_a_connected_part(cores):
    molecules, square, core, _ = cores

    for row, n in enumerate(molecules.n_heavy):
        atoms = set(np.flatnonzero(core[row]).tolist())
        assert atoms
        assert max(atoms) < n
        reached = {min(atoms)}
        for _ in atoms:
            reached |= {b for a in reached for b in atoms if square[row, a, b]}
        assert reached == atoms


def test_known_are_the_pairs_of_a_core_and_those_of_atoms_that_nothing_else_is_bonded_to(cores):
    _, square, core, known = cores

    inside = core[:, :, None] & core[:, None]
    assert known[inside].all()
    row, one, other = np.nonzero(known & ~inside)
    assert (core[row, one] | core[row, other]).all()
    assert not square[row, one, other].any()


def test_half_of_the_cores_are_rings_and_what_links_them():
    molecules = molecules_of("CCCCc1ccccc1CCN1CCCC1CCC")
    square, counts = squares(molecules, 20), np.zeros(2)
    generator = np.random.default_rng(1)

    for _ in range(200):
        core, _ = known_pairs(square, molecules.n_heavy, generator)
        degree = ((square[0] > 0) & core[0]).sum(1)
        counts += core[0].sum() == 13, (degree[core[0]] > 1).all() and core[0].sum() == 13

    assert 40 < counts[1] <= counts[0] < 100  # a quarter: half of those in rings are whole
