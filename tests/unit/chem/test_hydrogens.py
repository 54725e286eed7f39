"""States of atoms, Kekule forms, and hydrogens and charges that add up to a formula's."""

import itertools

import pytest

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, INDEX
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import complete
from duallgd_cli.chem.valence import PROTON_MOVED, USUAL, Skeleton, bonds_of, match, states
from tests.made_molecules import disassembled


def costs(symbols, bonds, tier):
    """Cost of each state of each atom, by charge and hydrogens."""
    skeleton = Skeleton.of([INDEX[symbol] for symbol in symbols], bonds)
    return [{(s.charge, s.hydrogens): s.cost for s in row} for row in states(skeleton, tier)]


def test_what_is_likelier_costs_less():
    acid = [(0, 1, 1), (1, 2, BOND_DOUBLE), (1, 3, 1), (0, 4, 1)]
    of_acid = costs("CCOOO", acid, PROTON_MOVED)
    pyrrole, pyridine = (
        costs("C" * (n - 1) + "N", [(i, (i + 1) % n, BOND_AROMATIC) for i in range(n)], USUAL)
        for n in (5, 6)
    )

    assert of_acid[3][-1, 0] < of_acid[4][-1, 0]  # the acid's proton goes before the alcohol's
    assert pyrrole[-1][0, 1] < pyridine[-1][0, 1]


@pytest.mark.parametrize(
    "smiles",
    [
        "Nc1ncnc2[nH]cnc12",
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
    assert found == sorted(found)
    for answer in answers:
        assert (sum(answer.hydrogens), sum(answer.charge)) == (parts.formula.hydrogens, 0)


def pairs_exist(atoms, bonds):
    if not atoms:
        return True
    atom = min(atoms)
    partners = {a if b == atom else b for a, b in bonds if atom in (a, b)} & atoms
    return any(pairs_exist(atoms - {atom, partner}, bonds) for partner in partners - {atom})


def test_a_first_choice_that_fails_is_taken_back():
    """Two rings joined by a bond that a greedy pairing may not use."""
    ring = [(i, (i + 1) % 6) for i in range(6)]
    bonds = [*ring, *((a + 6, b + 6) for a, b in ring), (0, 6)]
    masks = [0] * 12
    for a, b in bonds:
        masks[a] |= 1 << b
        masks[b] |= 1 << a

    for excluded in itertools.combinations(range(12), 2):
        atoms = set(range(12)) - set(excluded)
        found = match(sum(1 << atom for atom in atoms), masks)
        assert (found is not None) == pairs_exist(atoms, bonds)
        assert found is None or {atom for pair in found for atom in pair} == atoms


@pytest.mark.parametrize(
    ("required", "optional", "pairs"), [(0b0101, 0b1010, 2), (0b0001, 0b0010, 1), (0b0101, 0, None)]
)
def test_optional_partners_may_be_left_alone(required, optional, pairs):
    chain = [0b0010, 0b0101, 0b1010, 0b0100]

    found = match(required, chain, optional)

    assert (found and len(found)) == pairs


def test_formulas_of_one_skeleton_differ_in_hydrogens_and_charge_alone():
    skeleton = Skeleton.of([0, 0, 0, 1, 2], [(0, 3, 1), (1, 3, 1), (2, 3, 1), (3, 4, 1)])

    oxide, ion = (
        complete(skeleton, formula.hydrogens, formula.charge)[0]
        for formula in map(Formula.parse, ("C3H9NO", "C3H10NO+"))
    )

    assert (oxide.charge, oxide.hydrogens) == ([0, 0, 0, 1, -1], [3, 3, 3, 0, 0])
    assert (ion.charge, ion.hydrogens) == ([0, 0, 0, 1, 0], [3, 3, 3, 0, 1])
