"""What formulas and structures say of peaks: losses, fragments, and isotopes."""

import pytest

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.parts import molecule
from duallgd_cli.predict.explanation import fragments_of, isotopes_of, neutral_loss
from duallgd_cli.results import ExplainedPeak, HypothesisResult
from duallgd_cli.spectra.types import IsotopePattern
from tests.made_spectra import annotated

PARACETAMOL = "CC(=O)Nc1ccc(O)cc1"


def fragments(smiles, adduct, *formulas):
    peaks = [ExplainedPeak(100.0, 1.0, formula, 0.0) for formula in formulas]
    return fragments_of(molecule(smiles), adduct, peaks)


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


@pytest.mark.parametrize(
    ("adduct", "formulas"),
    [("[M+2H]2+", ["C6H10O5", "C6H10O5+2"]), ("[M+Na]+", ["C6H10O5", "C6H10O5Na"])],
)
def test_an_explained_peak_names_the_metal_and_the_charge_that_is_not_one(adduct, formulas):
    rows = [Formula.parse("C6H10O5").counts] * 2

    tried = HypothesisResult.of(annotated(rows, "C6H12O6", adduct, carrier=[0, 1]))

    assert [peak.formula for peak in tried.peaks] == formulas


@pytest.mark.parametrize(
    ("smiles", "formulas", "explained"),
    [
        # m/z 110.0600 of paracetamol is protonated 4-aminophenol: the acetyl group has gone.
        (PARACETAMOL, ["C6H8NO", "C2H3O", "C5H5S"], [(0, [*range(3, 11)]), (1, [0, 1, 2])]),
        ("NC(=O)Oc1ccccc1", ["C2H3O"], []),  # there is no such piece beside the ring
        ("nonsense", ["C6H8NO"], []),
        ("O", ["H3O"], []),
        (PARACETAMOL, ["<b>", ""], []),
    ],
)
def test_atoms_of_a_fragment_are_those_that_are_left(smiles, formulas, explained):
    assert fragments(smiles, "[M+H]+", *formulas) == explained


def test_isotopes_stand_beside_those_of_the_formula():
    pattern = IsotopePattern((100.0, 0.0, 0.0, 9.0, 33.0, 0.0), 0.5)  # chlorobenzoic acid

    shown = isotopes_of(pattern, "C7H5ClO2", "[M+H]+")

    offsets, here, there = zip(*shown.pop("bars"), strict=True)
    assert shown == {"formula": "C7H5ClO2", "adduct": "[M+H]+"}
    assert (offsets, here) == ((0, 1, 2), (1.0, 0.09, 0.33))
    assert there == pytest.approx([1, 0.077, 0.327], abs=0.003)


@pytest.mark.parametrize(
    ("pattern", "formula", "adduct"),
    [
        (None, "C6H6", "[M+H]+"),
        *((IsotopePattern((1.0,) * 6, 0.1), formula, "[M+H]+") for formula in ("", "<b>")),
        (IsotopePattern((1.0,) * 6, 0.1), "C6H6", "[M+Foo]+"),
    ],
)
def test_without_a_pattern_or_an_ion_there_are_no_isotopes(pattern, formula, adduct):
    assert isotopes_of(pattern, formula, adduct) is None
