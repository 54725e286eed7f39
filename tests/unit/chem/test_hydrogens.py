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

    found = [answer.cost for answer in answers]
    assert 1 < len(found) <= 24
    assert max(found) <= min(found) + 2
    assert found == sorted(found)
    for answer in answers:
        assert (sum(answer.hydrogens), sum(answer.charge)) == (parts.formula.hydrogens, 0)


def test_a_first_choice_that_fails_is_taken_back():
    """Atom 0 with atom 2 would leave 3 and 5 without a partner."""
    bonds = {(0, 2), (0, 4), (1, 3), (1, 4), (1, 5), (2, 3), (2, 5)}
    masks = [sum(1 << a + b - atom for a, b in bonds if atom in (a, b)) for atom in range(6)]

    found = match(0b111111, masks)

    assert bonds.issuperset(found)
    assert sorted(atom for pair in found for atom in pair) == list(range(6))


@pytest.mark.parametrize(
    ("required", "optional", "pairs"), [(0b0101, 0b1010, 2), (0b0001, 0b0010, 1), (0b0101, 0, None)]
)
def test_optional_partners_may_be_left_alone(required, optional, pairs):
    chain = [0b0010, 0b0101, 0b1010, 0b0100]

    found = match(required, chain, optional)

    assert (found and len(found)) == pairs
