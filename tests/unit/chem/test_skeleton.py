import numpy as np

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_SINGLE
from duallgd_cli.chem.valence import Skeleton, bonds_of, components, pairs


def test_pairs_are_the_upper_triangle_row_by_row():
    low, high = pairs(4)

    assert list(zip(low.tolist(), high.tolist(), strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3),
    ]  # fmt: skip


def test_bonds_are_read_from_pair_classes():
    bond_class = np.array([0, 2, 0, 0, 0, 4], dtype=np.int8)

    assert bonds_of(4, bond_class) == [(0, 2, BOND_DOUBLE), (2, 3, BOND_AROMATIC)]


def test_aromatic_bonds_count_as_one():
    skeleton = Skeleton.of([0, 0, 2], [(0, 1, BOND_AROMATIC), (1, 2, BOND_DOUBLE)])

    assert skeleton.order_sum == (1, 3, 2)
    assert skeleton.n_aromatic == (1, 1, 0)
    assert skeleton.neighbours[1] == ((0, BOND_AROMATIC), (2, BOND_DOUBLE))


def test_fragments_are_found():
    apart = Skeleton.of([0, 0, 0, 0], [(0, 2, BOND_SINGLE)])

    assert sorted(map(sorted, components(apart.neighbours))) == [[0, 2], [1], [3]]
    assert not apart.is_connected
    assert Skeleton.of([0], []).is_connected


def test_relabelling_renames_atoms_and_bonds_together():
    skeleton = Skeleton.of([0, 1, 2], [(0, 1, BOND_SINGLE), (1, 2, BOND_DOUBLE)])

    renamed = skeleton.relabelled([2, 0, 1])

    assert renamed.element == (1, 2, 0)
    assert renamed.bonds == ((0, 1, BOND_DOUBLE), (0, 2, BOND_SINGLE))
    assert renamed.relabelled([1, 2, 0]) == skeleton
