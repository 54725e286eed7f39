"""Kekule forms, and hydrogens and charges that add up to a formula's."""

import pytest

from duallgd_cli.chem.hydrogens import complete
from duallgd_cli.chem.valence import Skeleton, bonds_of, match
from tests.made_molecules import disassembled


@pytest.mark.parametrize(
    "smiles",
    [
        "Nc1ncnc2[nH]cnc12",
        "C[N+](C)(C)CC(O)CC(=O)[O-]",  # or an alkoxide, but not a carbanion
        # Nineteen alcohols and one quaternary nitrogen: any oxygen may be the anion.
        "C[N+](C)(C)" + "C(O)" * 19 + "C[O-]",
    ],
)
def test_answers_come_cheapest_first_and_are_few(smiles):
    parts = disassembled(smiles)
    bonds = bonds_of(parts.atom_class.size, parts.bond_class)
    skeleton = Skeleton.of(parts.atom_class.tolist(), bonds)

    answers = complete(skeleton, parts.formula.hydrogens, parts.formula.charge)

    costs = [answer.cost for answer in answers]
    assert 1 < len(costs) <= 24
    assert costs == sorted(costs)
    assert costs[-1] <= costs[0] + 2
    sums = {(sum(answer.hydrogens), sum(answer.charge)) for answer in answers}
    assert sums == {(parts.formula.hydrogens, 0)}


CHAIN = [(0, 1), (1, 2), (2, 3)]
# The first choice, atom 0 with atom 2, would leave 3 and 5 without a partner.
TAKEN_BACK = [(0, 2), (0, 4), (1, 3), (1, 4), (1, 5), (2, 3), (2, 5)]


@pytest.mark.parametrize(
    ("bonds", "required", "optional", "n_pairs"),
    [
        (TAKEN_BACK, 0b111111, 0, 3), (CHAIN, 0b0101, 0b1010, 2), (CHAIN, 0b0001, 0b0010, 1),
        (CHAIN, 0b0101, 0, None),
    ],
)  # fmt: skip
def test_atoms_are_paired_along_bonds_each_once(bonds, required, optional, n_pairs):
    neighbours = [sum(1 << a + b - atom for a, b in bonds if atom in (a, b)) for atom in range(6)]

    pairs = match(required, neighbours, optional)

    assert (pairs and len(pairs)) == n_pairs
    paired = [atom for pair in pairs or () for atom in pair]
    assert set(pairs or ()) <= set(bonds)
    assert len(paired) == len(set(paired))
    assert pairs is None or all(atom in paired for atom in range(6) if required >> atom & 1)
