"""A screen misses no pattern that is there, and sorts out most of those that are not."""

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.parts import catalogue, find
from duallgd_cli.chem.screening import Screen, sketch_of
from tests.made_molecules import QUESTIONS

ROWS = catalogue()
SMARTS = [row["smarts"] for row in ROWS if row["kind"] != "ring system"]
EXAMPLES = [row[kind] for row in ROWS for kind in ("example", "counterexample") if row[kind]]
MOLECULES = [*EXAMPLES, *QUESTIONS.values(), "[Na+].[Cl-]", "[H][H]", "N->[Cu]", "[13CH4]", "C~C"]


def screened(smarts, smiles):
    """Which patterns may be in which molecules, by a screen, and which are, by RDKit."""
    patterns = [Chem.MolFromSmarts(text) for text in smarts]
    molecules = [Chem.MolFromSmiles(text) for text in smiles]
    possible = Screen(patterns).possible(map(sketch_of, molecules))
    present = np.array([[mol.HasSubstructMatch(one) for one in patterns] for mol in molecules])
    return possible, present


def test_no_pattern_of_the_catalogue_is_missed_and_most_are_sorted_out():
    possible, present = screened(SMARTS, MOLECULES[::2])

    assert not (present & ~possible).any()
    assert possible.mean() < 0.1


@pytest.mark.parametrize(
    "smarts",
    [
        "[CX4;R2]",  # in two rings
        "[#6;r5]",
        "[OX2;!$(OC=O)]",
        "[CH2][CH2][CH2]",
        "C=,:N",
        "[#6]-!@[#6]",
        "*~*~*~*",
        "[$([NX3]C=O)]",
        "[O-,OX2]",
        "a1aaaaa1",
        "[C;D3]",
        "[13C]",
        "[Cu]",
        "N->[Cu]",
        "[C@@H](N)(C)O",
    ],
)
def test_whatever_a_pattern_asks_for_it_is_not_missed(smarts):
    possible, present = screened([smarts], MOLECULES)

    assert not (present & ~possible).any()


@pytest.mark.parametrize(
    ("smarts", "smiles"),
    [("[CH3][CH2][CH2][CH3]", "CCC"), ("FC(F)F", "CC(F)F"), ("C1CCCCC1", "CCCCCC")],
)
def test_as_many_atoms_and_bonds_are_asked_for_as_a_pattern_has(smarts, smiles):
    possible, _ = screened([smarts], [smiles])

    assert not possible.any()


def test_without_molecules_or_atoms_nothing_is_possible():
    screen = Screen([Chem.MolFromSmarts("C")])

    assert screen.possible([]).shape == (0, 1)
    assert not screen.possible([sketch_of(Chem.MolFromSmiles(""))]).any()


def test_ring_systems_are_named_alike_whatever_was_looked_at_before():
    # Indole and its hydrogenated, cut and charged kin share atoms in the same order.
    alike = ["c1ccc2[nH]ccc2c1", "C1CCC2NCCC2C1", "c1ccc2c(c1)cc[nH]2", "c1ccc2n(C)ccc2c1"]

    together = [part.name for part in find([*alike, *reversed(alike)])[0]]
    alone = {part.name for text in alike for part in find([text])[0]}

    assert set(together) == alone
