"""Isotope patterns of formulas, and what a measured one is worth."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pyteomics import mass

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.elements import METALS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.formulas.peaks import ABUNDANCES, LOWEST, isotope_ratios, isotope_scores
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern
from tests.unit.formulas.test_ranking import ASPIRIN, ranked, said_of, spectrum_of

PROTON = parse_adduct("[M+H]+")


def counts_of(*formulas):
    return np.array([Formula.parse(text).counts for text in formulas], np.int16)


def pattern_of(formula, faintest=1e3):
    """A pattern as predicted, with isotopes fainter than the faintest peak left out."""
    ratios = isotope_ratios(counts_of(formula), PROTON)[0] * 1e6
    return IsotopePattern((1e6, *np.where(ratios < faintest, 0.0, ratios)), faintest)


def shares_of(symbol):
    """Shares of the isotopes of an element by pyteomics, and the most frequent one."""
    shares = {a: share for a, (_, share) in mass.nist_mass[symbol].items() if a and share}
    return shares, max(shares, key=shares.get)


def by_enumeration(formula, adduct):
    """Every isotopologue by pyteomics, added up by nominal mass."""
    ion = parse_adduct(adduct)
    atoms = mass.Composition(formula=formula) * ion.molecules
    for symbol, n in [*zip(SYMBOLS, ion.change, strict=True), *((m, 1) for m in ion.metals)]:
        atoms[symbol] += n
    atoms = mass.Composition({symbol: n for symbol, n in atoms.items() if n})
    middle = sum(n * shares_of(symbol)[1] for symbol, n in atoms.items())
    shares = Counter()
    for one, share in mass.isotopologues(atoms, report_abundance=True, isotope_threshold=1e-5):
        nominal = sum(int(name.partition("[")[2][:-1]) * n for name, n in one.items())
        shares[nominal - middle] += share
    return [shares[offset] / shares[0] for offset in ISOTOPES]


@pytest.mark.parametrize(
    ("formula", "adduct"),
    [
        *(("C9H8O4", "[M+H]+"), ("C6H5Cl2NO2", "[M-H]-"), ("C5H6Br2N2O", "[M+Na]+")),
        *(("C4H6O2S2", "[M+K]+"), ("C6H7BO2", "[M+H]+"), ("C5H11NO2Se", "[M+H]+")),
        *(("C4H12OSi2", "[M+NH4]+"), ("C3H7NO2", "[2M+Ag]+"), ("C4H6Cl4", "[M+2H]2+")),
        ("C2H5BSe", "[M+Cl]-"),
    ],
)
def test_patterns_are_those_of_all_isotopologues(formula, adduct):
    found = isotope_ratios(counts_of(formula), parse_adduct(adduct))[0]

    np.testing.assert_allclose(found, by_enumeration(formula, adduct), atol=1e-9)


def test_abundances_are_those_of_the_tables():
    for symbol in (*SYMBOLS, *METALS):
        shares, usual = shares_of(symbol)
        expected = {a - usual: share for a, share in shares.items() if share > 5e-5}
        assert ABUNDANCES.get(symbol, {0: 1.0}) == pytest.approx(expected, abs=2e-4), symbol


@pytest.mark.parametrize("formula", ["C9H8O4", "C16H20ClN5O3", "C11H14BrN3O2", "C5H11NO2Se"])
def test_a_pattern_speaks_for_its_own_formula_and_against_others(formula):
    others = ["C9H8O4", "C16H20ClN5O3", "C11H14BrN3O2", "C5H11NO2Se", "C12H10BNO3"]

    scores = isotope_scores(pattern_of(formula), counts_of(*others), PROTON)

    assert scores[others.index(formula)] == pytest.approx(0.0, abs=0.1)
    assert (np.delete(scores, others.index(formula)) < -3).all()
    assert (scores >= LOWEST).all()


def test_a_noisy_pattern_says_less():
    formulas = counts_of("C9H8O4", "C8H6ClN2O")

    clear, faint = (
        isotope_scores(pattern_of("C9H8O4", height), formulas, PROTON)[1] for height in (1e3, 2e5)
    )

    assert clear < -3 < faint < -0.1
    assert isotope_scores(None, formulas, PROTON).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("height", [1e-12, 1e-3, 1.0, 1e9, 1e30, 1e60])
def test_wild_ratios_are_numbers(height):
    formulas = counts_of("C9H8O4", "C11H14BrN3O2", "C5H11NO2Se")
    wild = IsotopePattern((1.0, height, 0.0, height, height, 0.0), 1e-30)

    scores = isotope_scores(wild, formulas, PROTON)

    assert ((scores >= LOWEST) & (scores <= 0)).all()


def test_a_pattern_that_no_formula_has_is_said_to_be_one():
    plain = spectrum_of(ASPIRIN)
    shown, brominated, disturbed = (
        replace(plain, isotopes=pattern)
        for pattern in (
            pattern_of("C9H8O4"),
            pattern_of("C5H9BrO2"),
            IsotopePattern((1e6, 0.0, 0.0, 1e5, 5e6, 0.0), 1e3),
        )
    )

    assert "fits none of the formulas" in said_of(brominated, elements="CHNO")
    assert (said_of(plain), said_of(shown)) == ("", "")
    totals = [sum(one.probability for one in ranked(one)) for one in (plain, shown)]
    assert totals[0] == pytest.approx(totals[1], abs=1e-9)  # what is not listed keeps its share
    assert {one.isotope_score for one in ranked(plain)} == {None}
    # Another ion among the isotopes does not outweigh all else.
    assert str(ranked(disturbed)[0].formula) == "C9H8O4"
    assert ranked(disturbed)[0].isotope_score >= LOWEST
