"""Fragments that explain peaks, and what the ion has lost."""

import pytest

from duallgd_cli.chem.parts import molecule
from duallgd_cli.report.contents import neutral_loss
from duallgd_cli.scores.explanation import explained_by

PARACETAMOL = "CC(=O)Nc1ccc(O)cc1"


@pytest.mark.parametrize(
    ("formula", "adduct", "fragment", "loss"),
    [
        ("C8H9NO2", "[M+H]+", "C6H8NO", "C2H2O"),  # ketene
        ("C8H9NO2", "[M+H]+", "C8H10NO2", ""),
        ("C6H12O6", "[M-H]-", "C6H9O5", "H2O"),
        ("C6H12O6", "[M+Na]+", "C6H10O5Na", "H2O"),
        ("C6H12O6", "[M+Na]+", "C6H11O6", "HNa"),
        ("C8H9NO2", "[M+Foo]+", "C6H8NO", ""),
        ("C8H9NO2", "[M+H]+", "C60", ""),
        ("<script>", "[M+H]+", "C6H8NO", ""),
    ],
)
def test_the_neutral_loss_is_what_the_ion_lacks(formula, adduct, fragment, loss):
    assert neutral_loss(formula, adduct, fragment) == loss


def test_atoms_of_a_fragment_are_those_that_are_left():
    # m/z 110.0600 of paracetamol is protonated 4-aminophenol: the acetyl group has gone.
    found = explained_by(molecule(PARACETAMOL), "[M+H]+", ["C6H8NO", "C2H3O", "C5H5S"])

    assert found == [[0, [3, 4, 5, 6, 7, 8, 9, 10]], [1, [0, 1, 2]]]


def test_a_structure_that_cannot_give_a_fragment_does_not_explain_it():
    # Phenyl carbamate has no C2H3O beside the ring.
    assert explained_by(molecule("NC(=O)Oc1ccccc1"), "[M+H]+", ["C2H3O"]) == []


def test_what_is_no_molecule_explains_nothing():
    assert explained_by(molecule("nonsense"), "[M+H]+", ["C6H8NO"]) == []
    assert explained_by(molecule("O"), "[M+H]+", ["H3O"]) == []
    assert explained_by(molecule(PARACETAMOL), "[M+H]+", ["<b>", ""]) == []
