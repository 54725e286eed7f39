"""Formulas of masses, and of spectra that were made from chemistry, ranked."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, INDEX
from duallgd_cli.chem.formula import Formula
from duallgd_cli.formulas import (
    FormulaSettings,
    possible_formulas,
    predicted_formulas,
    rank_formulas,
    remarks,
)
from duallgd_cli.formulas.composition import FormulaSpace, known_formulas
from duallgd_cli.formulas.peaks import explain, peaks_of
from duallgd_cli.spectra.annotation import SubformulaTable
from duallgd_cli.spectra.types import Feature
from tests.made_spectra import ion_mz, made_spectrum

ASPIRIN = ("C9H8O4", "[M+H]+", "C9H7O3 C7H5O2 C6H5O C7H7O3")
CITRATE = ("C6H8O7", "[M-H]-", "C6H5O6 C5H3O3 C4H3O2 C5H7O3")
CAFFEINE = ("C8H10N4O2", "[M+H]+", "C6H8N3O C5H8N3 C4H7N2 C3H6N")
EACH = pytest.mark.parametrize("molecule", [ASPIRIN, CITRATE, CAFFEINE])


def spectrum_of(molecule, ppm=0.0, instrument="orbitrap", **fields):
    """A spectrum whose precursor is off by some ppm."""
    formula, adduct, fragments = molecule
    ion = parse_adduct(adduct)
    mz = np.sort([ion_mz(text, ion.charge) for text in fragments.split()])
    of_ion = precursor_mz(Formula.parse(formula), ion) * (1 + ppm * 1e-6)
    named = {"precursor_mz": of_ion, "adduct_text": adduct, "polarity": ion.polarity}
    heights = np.linspace(0.2, 1.0, mz.size)
    return made_spectrum(mz, heights, instrument=instrument, **named | fields)


def ranked(spectrum, **settings):
    return rank_formulas(Feature((spectrum,)), FormulaSettings(**settings))


def formulas_of(found):
    return [str(one.formula) for one in found]


def said_of(spectrum, **settings):
    return "; ".join(remarks(Feature((spectrum,)), ranked(spectrum, **settings)))


@EACH
@pytest.mark.parametrize("ppm", [-2.0, 0.0, 3.0])
def test_the_formula_of_a_common_molecule_is_first_and_probable(molecule, ppm):
    found = ranked(spectrum_of(molecule, ppm))

    first, *_ = found
    assert (str(first.formula), first.adduct.name, first.explained_peaks) == (*molecule[:2], 4)
    assert (first.ppm, first.explained_intensity) == pytest.approx((ppm, 1.0), abs=1e-3)
    assert first.known_structures > 0
    probabilities = [one.probability for one in found]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > 0.8 > probabilities[1]
    assert 0.9 < sum(probabilities) < 1.0  # some is left for what is not listed
    assert said_of(spectrum_of(molecule, ppm)) == ""


@pytest.mark.parametrize(
    "adduct",
    [
        *("[2M+H]+", "[2M+Na]+", "[2M-H]-", "[M+2H]2+", "[M+H+Na]2+", "[M+ACN+H]+", "[M-2H2O+H]+"),
        *("[M-H2O-H]-", "[M+Br]-", "[M+Li]+", "[M+CF3COO]-", "[M+ACN+Na]+", "[M+K-2H]-"),
    ],
)
def test_the_formula_is_found_for_adducts_that_nothing_was_fitted_on(adduct):
    formula, _, fragments = ASPIRIN if adduct[-1] == "+" else CITRATE

    found = ranked(spectrum_of((formula, adduct, fragments), 1.0))

    right = found[formulas_of(found[:3]).index(formula)]
    assert right.adduct.name == adduct
    assert right.ppm == pytest.approx(1.0, abs=1e-3)
    assert right.explained_peaks >= 2


def test_without_an_adduct_all_of_the_polarity_are_tried_together():
    found = ranked(replace(spectrum_of(ASPIRIN), adduct_text=""))

    assert (str(found[0].formula), found[0].adduct.name) == ("C9H8O4", "[M+H]+")
    assert {one.adduct.polarity for one in found} == {1}
    assert len({one.adduct.name for one in found}) > 2
    assert len({(str(one.formula), one.adduct.name) for one in found}) == len(found)
    assert sum(one.probability for one in found) < 1.0


def test_spectra_of_one_ion_are_read_together():
    both = spectrum_of(ASPIRIN)
    parts = (slice(0, 2), slice(1, 4))
    halves = [replace(both, mz=both.mz[part], intensity=both.intensity[part]) for part in parts]

    found = rank_formulas(Feature(tuple(halves)), FormulaSettings())

    assert found[0].explained_peaks == 4


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"precursor_mz": None}, "no_precursor", "no usable precursor m/z"),
        ({"adduct_text": "[M]+."}, "unsupported_adduct", "a radical ion is not supported"),
        ({"adduct_text": "", "charge": 2}, "unsupported_adduct", "charge +2"),
        ({"precursor_mz": 2500.0}, "no_formula", "2000 Da at most"),
        ({"precursor_mz": 1.5}, "no_formula", "fits m/z 1.5000 within 5 ppm as"),
        ({"precursor_mz": 181.0, "precursor_rounding_da": 0.5}, "unsupported_measurement",
         "m/z 181 is a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_ranked_is_one_sentence(change, status, words):
    failure = ranked(replace(spectrum_of(ASPIRIN), **change))

    assert (failure.status, words in failure.message) == (status, True)


def test_the_tolerance_follows_the_instrument_or_the_user_and_leaves_room_for_what_it_cuts_off():
    off, exact = spectrum_of(ASPIRIN, ppm=7.0), spectrum_of(ASPIRIN, instrument="qtof")

    for spectrum, settings, is_within in (
        *((off, {}, False), (off, {"precursor_ppm": 8.0}, True)),
        (replace(off, instrument="qtof"), {}, True),
    ):
        assert ("C9H8O4" in formulas_of(ranked(spectrum, **settings))) == is_within
    narrow, wide = (
        sum(one.probability for one in ranked(exact, precursor_ppm=ppm)) for ppm in (3.0, 10.0)
    )
    assert narrow < 0.70  # one standard deviation holds 68 %
    assert wide > 0.95


@pytest.mark.parametrize(
    ("adduct", "mebibytes"), [("[M+H]+", 80), pytest.param("", 200, id="any adduct")]
)
def test_a_thousand_dalton_take_little_memory(adduct, mebibytes):
    heavy = ("C50H78O20", "[M+H]+", "C44H66O15 C38H56O10 C12H20O9 C6H10O4 C8H8O")
    spectrum = spectrum_of(heavy, instrument="", adduct_text=adduct)
    ranked(spectrum)  # the tables are built once
    tracemalloc.start()

    found = ranked(spectrum)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < mebibytes * 2**20
    assert "C50H78O20" in formulas_of(found[:5])


def test_explanations_of_many_formulas_are_those_of_each_alone():
    spectrum, adduct = spectrum_of(CAFFEINE), parse_adduct("[M+H]+")
    peaks = peaks_of((spectrum,), spectrum.precursor_mz)
    formulas = [Formula.parse(text) for text in ("C8H10N4O2", "C9H8O4", "C7H14O3S", "C10H13ClN2")]

    together = explain(peaks, np.array([f.counts for f in formulas], np.int16), adduct)

    columns = (together.candidate, together.peak, *together.fragment.T)
    alone = set()
    for row, formula in enumerate(formulas):
        table = SubformulaTable((formula.array + np.array(adduct.change)).tolist(), 300.0)
        matches = table.find(peaks.mz + ELECTRON_MASS_DA, peaks.tolerance_da)
        rows = zip(matches.owner, *matches.counts.T, strict=True)
        alone |= {(row, *map(int, one)) for one in rows}
    assert {tuple(map(int, one)) for one in zip(*columns, strict=True)} == alone


@pytest.mark.parametrize(
    ("contradiction", "words"),
    [
        ({"charge": -1, "polarity": -1}, "charge -1 contradicts [M+H]+"),
        ({"charge": 2}, "charge +2 contradicts [M+H]+"),
        ({"polarity": -1}, "ion mode negative contradicts [M+H]+"),
    ],
)
def test_an_adduct_that_its_own_file_contradicts_halves_all_probabilities(contradiction, words):
    contradicted = spectrum_of(ASPIRIN, **contradiction)
    by_option = replace(contradicted, adduct_source="option")  # who names one knows of it
    plain = [one.probability for one in ranked(spectrum_of(ASPIRIN))]

    assert [2 * one.probability for one in ranked(contradicted)] == pytest.approx(plain)
    assert ranked(by_option)[0].probability == plain[0]
    assert words in said_of(by_option)
    assert "halved" not in said_of(by_option)
    trusted = f"{words}; the adduct is trusted; "
    assert f"{trusted}probabilities are halved, since one of the two is" in said_of(contradicted)


@EACH
@pytest.mark.parametrize("decimals", [2, 1])
def test_a_rounded_precursor_makes_all_that_it_may_be_as_likely(molecule, decimals):
    exact = spectrum_of(molecule)
    rounded = replace(
        exact,
        precursor_mz=round(exact.precursor_mz, decimals),
        precursor_rounding_da=0.5 * 10.0**-decimals,
    )

    found, of_exact = ranked(rounded), ranked(exact)

    right = found[formulas_of(found[:5]).index(molecule[0])]
    assert right.probability < of_exact[0].probability
    assert sum(one.probability for one in found) < 1.0
    assert len(found) > len(of_exact)


@EACH
def test_without_a_peak_that_is_explained_mass_and_known_structures_count_alone(molecule):
    measured = spectrum_of(molecule)
    bare = replace(measured, mz=np.zeros(0), intensity=np.zeros(0))
    # Halfway between two nominal masses lies no fragment.
    strange = replace(measured, mz=np.floor(measured.mz) + 0.6)

    alone, other = (
        {str(one.formula): one.probability for one in ranked(spectrum)}
        for spectrum in (bare, strange)
    )

    assert [*alone.items()] == [*other.items()]
    assert next(iter(alone)) == "C8H10N4O2" or molecule != CAFFEINE
    assert alone[molecule[0]] < ranked(measured)[0].probability
    assert said_of(bare).startswith("there are no peaks to explain: ranked by mass and by known")
    assert said_of(strange).startswith("no formula explains a peak: ranked by mass and by known")


def test_of_an_isotope_the_formulas_are_those_of_its_monoisotopic_ion():
    chosen = spectrum_of(CAFFEINE)
    mono = chosen.precursor_mz
    isotope = replace(chosen, precursor_mz=mono + 1.00336, monoisotopic_mz=mono)

    first = ranked(isotope)[0]
    (proposed, *_) = predicted_formulas(Feature((isotope,)), FormulaSettings(), 100, 5)

    assert formulas_of([first, proposed]) == ["C8H10N4O2"] * 2
    assert first.ppm == pytest.approx(0.0, abs=0.01)
    assert proposed.feature.first.precursor_mz == mono
    assert f"formulas are those of m/z {mono:.4f}" in proposed.notes


SPACE = FormulaSpace(known_formulas().rarer)
# Glycine, caffeine, ATP, penicillin G, iopamidol, chlorpyrifos, PFOA, vancomycin, and two more.
MOLECULES = """C2H5NO2 C8H10N4O2 C10H16N5O13P3 C16H18N2O4S C17H22I3N3O8 C9H11Cl3NO3PS C8HF15O2
    C66H75Cl2N9O24 C19H25BN4O4 C13H9NOSe"""


@pytest.mark.parametrize("text", MOLECULES.split())
def test_the_formula_of_a_molecule_is_among_those_of_its_mass(text):
    formula = Formula.parse(text)

    found = SPACE.find(formula.mass * (1 + 2e-6), 5e-6 * formula.mass)

    assert (found == formula.array).all(axis=1).sum() == 1


def test_permanent_cations_and_atoms_that_an_adduct_takes_away():
    choline, permanent = Formula.parse("C5H14NO+"), parse_adduct("[M]+")
    mz = precursor_mz(choline, permanent)
    (cation,) = possible_formulas(mz, "orbitrap", [permanent], FormulaSettings())
    water = parse_adduct("[M-H2O+H]+")
    ((_, formulas),) = possible_formulas(163.0601, "", [water], FormulaSettings())

    assert (cation[1] == choline.array).all(axis=1).any()
    assert (formulas[:, INDEX["O"]] >= 1).all()
