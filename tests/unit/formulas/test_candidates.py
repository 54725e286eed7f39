"""Formulas of a mass, and what may be asked for."""

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import INDEX, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import ConfigError
from duallgd_cli.formulas.composition import (
    FormulaSpace,
    known_formulas,
    parse_elements,
)
from duallgd_cli.formulas.ranking import FormulaSettings, possible_formulas

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


def test_all_formulas_of_a_small_mass_are_those_that_counting_finds(space):
    mass, tolerance = Formula.parse("C6H12O6").mass, 0.002
    named = [
        counts
        for c in range(1, 16)
        for n in range(14)
        for o in range(12)
        if 0 <= (h := round((mass - 12 * c - 14.003074 * n - 15.9949146 * o) / 1.00782503)) <= 40
        for counts in [{"C": c, "H": h, "N": n, "O": o}]
    ]
    expected = {
        str(formula)
        for counts in named
        if abs((formula := Formula(tuple(counts.get(s, 0) for s in SYMBOLS))).mass - mass)
        <= tolerance
        and formula.unsaturation >= 0
        and formula.unsaturation % 1 == 0
        and counts["H"] <= 6 * counts["C"] + 2
        and counts["O"] <= 3 * counts["C"] + 2
        and counts["N"] <= 4 * counts["C"] + 2
    }

    only = FormulaSpace(np.zeros((1, 9), int), parse_elements("CHNO"))
    found = {str(Formula(tuple(row.tolist()))) for row in only.find(mass, tolerance)}

    assert found == expected


def test_elements_restrict_what_is_found():
    mz = precursor_mz(Formula.parse("C10H12ClN5O3"), parse_adduct("[M+H]+"))
    adducts = [parse_adduct("[M+H]+")]

    def elements(text):
        settings = FormulaSettings(elements=text)
        ((_, formulas),) = possible_formulas(mz, "orbitrap", adducts, settings)
        return formulas.max(axis=0)

    assert elements("CHNO")[INDEX["Cl"]] == 0
    assert elements("CHNOCl1")[INDEX["Cl"]] == 1
    assert elements("CHNOCl")[INDEX["Cl"]] > 1


@pytest.mark.parametrize("ppm", [0.0, -1.0, float("nan"), 200.0])
def test_a_tolerance_that_makes_no_sense_is_refused(ppm):
    with pytest.raises(ConfigError, match="precursor_ppm must be above 0 and at most 100"):
        FormulaSettings(precursor_ppm=ppm)


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
