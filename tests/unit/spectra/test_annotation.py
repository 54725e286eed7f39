"""Peaks explained by sub-formulas; fragments are made here from formulas, never measured."""

import tracemalloc

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.chem.elements import MASSES_DA, METALS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import Feature, Hypothesis
from tests.made_spectra import ion_mz, made_spectrum


def spectrum(*peaks, **fields):
    return made_spectrum(*np.array(sorted(peaks)).reshape(-1, 2).T, **fields)


def explain(formula, adduct, *spectra, **settings):
    hypothesis = Hypothesis(Feature(spectra), Formula.parse(formula), parse_adduct(adduct))
    return annotate(hypothesis, AnnotationSettings(**settings))


def aspirin(*spectra, **settings):
    return explain("C9H8O4", "[M+H]+", *spectra, **settings)


def atoms_of(found):
    return [str(Formula(tuple(row.tolist()))) for row in found.subformula]


def test_fragments_are_named_with_their_mass_errors_and_others_counted():
    peaks = [(ion_mz("C7H5O2", ppm=3.0), 1.0), (ion_mz("C6H7O", ppm=-2.0), 0.25)]

    found = aspirin(spectrum(*peaks, (100.9, 0.75), (500.0, 0.5)))
    empty = aspirin(spectrum())

    assert atoms_of(found) == ["C6H7O", "C7H5O2"]
    np.testing.assert_allclose(found.ppm, [-2.0, 3.0], atol=1e-3)
    rows = [found.intensity.tolist(), found.share.tolist(), found.carrier.tolist()]
    assert rows == [[0.25, 1.0], [1.0, 1.0], [0, 0]]
    assert (found.n_peaks, found.n_explained, found.explained_intensity) == (4, 2, 0.5)
    assert empty.subformula.shape == (0, N_ELEMENTS)
    assert (empty.n_peaks, empty.n_explained, empty.explained_intensity) == (0, 0, 0.0)


SODIUM = METALS["Na"][0]
ONE_PPM = {"ppm": 1.0, "candidates": 1}
WHOLE = {"ppm": 10.0}
# Formula, adduct, m/z of fragments, settings, and what explains them: atoms and carrier.
EXPLAINED = {
    "an anion gains the electron that a cation lost": ("C9H8O4", "[M-H]-",
        [ion_mz("C7H5O3", charge=-1)], {}, [("C7H5O3", 0)]),
    "a fragment of a sodium adduct keeps the sodium or loses it": ("C12H22O11", "[M+Na]+",
        [ion_mz("C4H7O2"), ion_mz("C6H10O5", metal_da=SODIUM)], {"ppm": 2.0},
        [("C4H7O2", 0), ("C6H10O5", 1)]),
    # The acylium; [M+H]+; 2M without C2H4O2; the whole. Nothing has carbon of both molecules.
    "fragments of a dimer are those of one molecule or hold a whole one": ("C9H8O4", "[2M+H]+",
        [*map(ion_mz, ("C7H5O2", "C9H9O4", "C15H11O3", "C16H13O6", "C18H17O8"))], {},
        [("C7H5O2", 0), ("C9H9O4", 0), ("C16H13O6", 1), ("C18H17O8", 1)]),
    "fragments of a doubly charged ion have both charges": ("C20H28N2O7", "[M+2H]2+",
        [ion_mz("C10H13O4"), ion_mz("C19H28N2O6", 2) / 2, ion_mz("C20H30N2O7", 2) / 2], ONE_PPM,
        [("C19H28N2O6", 1), ("C10H13O4", 0), ("C20H30N2O7", 1)]),
    "fragments of two metals keep each number of them": ("C12H14O12", "[M+2Na-H]+",
        [ion_mz("C6H9O6"), ion_mz("C6H8O6", metal_da=SODIUM), ion_mz("C6H7O6", 1, 2 * SODIUM)],
        ONE_PPM, [("C6H9O6", 0), ("C6H8O6", 1), ("C6H7O6", 2)]),
    "the precursor peak is the whole ion and nothing else": ("C12H22O11", "[M+H]+",
        [ion_mz("C12H23O11", ppm=4.0)], WHOLE, [("C12H23O11", 0)]),
    "with its metal too": ("C12H22O11", "[M+Na]+",
        [ion_mz("C12H22O11", metal_da=SODIUM, ppm=4.0)], WHOLE, [("C12H22O11", 1)]),
    "impossibly saturated sub-formulas are refused": ("C9H20O", "[M+H]+",
        [ion_mz("C2H9")], {"ppm": 1.0}, []),
    "beside a metal a fragment is a neutral molecule": ("C9H20O", "[M+Na]+",
        [ion_mz("C2H7", metal_da=SODIUM)], {"ppm": 1.0}, []),
    "saturated cations are possible": ("C2H7NO", "[M+H]+",
        [ion_mz("NH4"), ion_mz("H3O")], {}, [("H4N", 0), ("H3O", 0)]),
}  # fmt: skip


@pytest.mark.parametrize("title", EXPLAINED)
def test_what_explains_a_peak_and_what_it_keeps(title):
    formula, adduct, peaks, settings, explained = EXPLAINED[title]

    found = explain(formula, adduct, spectrum(*((mz, 1.0) for mz in peaks)), **settings)

    assert [*zip(atoms_of(found), found.carrier.tolist(), strict=True)] == explained
    np.testing.assert_allclose(found.ppm, 4.0 if settings is WHOLE else 0.0, atol=2e-3)


def test_several_explanations_of_a_peak_share_it_and_stay_few():
    crowded = spectrum((ion_mz("C12H14N2O6S"), 1.0))

    found = explain("C20H26N6O10S2F2P2", "[M+H]+", crowded, ppm=20.0, candidates=3)

    np.testing.assert_allclose(found.share, [1 / 3] * 3)


def test_each_spectrum_keeps_its_energy_and_its_own_base_peak():
    low = spectrum((ion_mz("C9H9O4"), 1.0), collision_energy_ev=10.0)
    high = spectrum((ion_mz("C7H5O2"), 1.0), (ion_mz("C6H5"), 0.1))

    found = aspirin(low, high)

    np.testing.assert_allclose(found.intensity, [1.0, 0.1, 1.0])
    np.testing.assert_array_equal(found.energy_ev, [10.0, np.nan, np.nan])


def test_the_most_intense_peaks_stay_when_rows_are_capped():
    atoms = ["C9H9O4", "C9H7O3", "C8H9O3", "C7H7O3", "C7H5O2", "C6H7O", "C6H5"]
    peaks = [(ion_mz(text), 1.0 / (rank + 1)) for rank, text in enumerate(atoms)]

    found = aspirin(spectrum(*peaks), max_rows=3, ppm=5.0)

    assert atoms_of(found) == ["C8H9O3", "C9H7O3", "C9H9O4"]
    assert (found.n_peaks, found.n_explained) == (3, 3)


@pytest.mark.parametrize(
    ("atoms", "instrument", "settings", "n"),
    [
        ("C7H5O2", "", {}, 0),
        ("C7H5O2", "orbitrap", {}, 0),
        ("C7H5O2", "qtof", {}, 1),
        # In Da it stops shrinking below the floor.
        ("C3H3", "", {"floor_mz": 0.0}, 0),
        ("C3H3", "", {"floor_mz": 100.0}, 1),
    ],
)
def test_the_tolerance_follows_instrument_and_mz(atoms, instrument, settings, n):
    off = spectrum((ion_mz(atoms, ppm=15.0), 1.0), instrument=instrument)

    assert aspirin(off, **settings).n_explained == n


@pytest.mark.parametrize(
    ("formula", "first", "second", "ppm"),
    [
        # C3 and SH4 differ by 3.4 mDa, 11 ppm at m/z 300: half of it is off for both.
        ("C20H36O4S2", "C20H29O2", "C17H33O2S", 10.0),
        # A pair of electrons outweighs a small mass error.
        ("C20H20N2O2", "C13H9O", "C12H9N2", 60.0),
    ],
)
def test_of_two_equal_masses_the_plainer_composition_comes_first(formula, first, second, ppm):
    between = (ion_mz(first) + ion_mz(second)) / 2

    found = explain(formula, "[M+H]+", spectrum((between, 1.0)), ppm=ppm, floor_mz=0.0)

    if ppm < 20:
        assert atoms_of(found) == [first, second]
    # Closed shells come first.
    assert 2 * Formula.parse(atoms_of(found)[0]).unsaturation % 2 == 1


def test_an_ion_with_two_hundred_million_subformulas_needs_little_memory():
    formula = Formula.parse("C30H60N8O12S3Cl3Br2F6P2")
    halves = np.array(formula.counts) // np.arange(2, 42)[:, None]
    peaks = [(float(row @ MASSES_DA) + 50, 1 / rank) for rank, row in enumerate(halves, 1)]
    heavy = spectrum(*peaks, instrument="qtof")

    tracemalloc.start()
    found = explain(str(formula), "[M+H]+", heavy)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found.n_explained > 0
    assert len(found.share) <= AnnotationSettings().max_rows
    assert peak_bytes < 100e6
