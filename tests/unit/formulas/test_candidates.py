"""Formulas of a mass, and what may be asked for."""

import pytest

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import INDEX
from duallgd_cli.chem.formula import Formula
from duallgd_cli.formulas import FormulaSettings, possible_formulas
from duallgd_cli.formulas.composition import FormulaSpace, known_formulas

MOLECULES = {
    "glycine": "C2H5NO2",
    "caffeine": "C8H10N4O2",
    "ATP": "C10H16N5O13P3",
    "penicillin G": "C16H18N2O4S",
    "iopamidol": "C17H22I3N3O8",
    "chlorpyrifos": "C9H11Cl3NO3PS",
    "perfluorooctanoic acid": "C8HF15O2",
    "vancomycin": "C66H75Cl2N9O24",
    "bortezomib": "C19H25BN4O4",
    "ebselen": "C13H9NOSe",
}


@pytest.fixture(scope="module")
def space():
    return FormulaSpace(known_formulas().rarer)


@pytest.mark.parametrize("text", MOLECULES.values(), ids=list(MOLECULES))
def test_the_formula_of_a_molecule_is_among_those_of_its_mass(space, text):
    formula = Formula.parse(text)

    found = space.find(formula.mass * (1 + 2e-6), 5e-6 * formula.mass)

    assert (found == formula.array).all(axis=1).sum() == 1


def test_permanent_cations_and_atoms_that_an_adduct_takes_away():
    choline = Formula.parse("C5H14NO+")
    (cation,) = possible_formulas(
        precursor_mz(choline, parse_adduct("[M]+")),
        "orbitrap",
        [parse_adduct("[M]+")],
        FormulaSettings(),
    )
    water = parse_adduct("[M-H2O+H]+")
    ((_, formulas),) = possible_formulas(163.0601, "", [water], FormulaSettings())

    assert (cation[1] == choline.array).all(axis=1).any()
    assert (formulas[:, INDEX["O"]] >= 1).all()
