"""Peaks explained by sub-formulas; fragments are made here from formulas, never measured."""

import math
import tracemalloc

import numpy as np
import pytest

from duallgd_cli.chem.adduct import BY_NAME, Adduct, parse_adduct
from duallgd_cli.chem.elements import MASSES_DA, METALS, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.types import Feature, Hypothesis, Spectrum
from tests.made_spectra import ion_mz, made_spectrum

PROTONATED, DEPROTONATED, SODIATED = (BY_NAME[n] for n in ("[M+H]+", "[M-H]-", "[M+Na]+"))


def spectrum(*peaks: tuple[float, float], **fields) -> Spectrum:
    return made_spectrum(*np.array(sorted(peaks)).reshape(-1, 2).T, **fields)


def explain(formula: str, adduct: Adduct, *spectra: Spectrum, **settings):
    hypothesis = Hypothesis(Feature(spectra), Formula.parse(formula), adduct)
    return annotate(hypothesis, AnnotationSettings(**settings))


def written(row: np.ndarray) -> str:
    return str(Formula(tuple(int(n) for n in row)))


def test_fragments_of_a_protonated_molecule_are_named_with_their_mass_errors():
    peaks = spectrum((ion_mz("C7H5O2", ppm=3.0), 1.0), (ion_mz("C6H7O", ppm=-2.0), 0.25))

    found = explain("C9H8O4", PROTONATED, peaks)

    assert [written(row) for row in found.subformula] == ["C6H7O", "C7H5O2"]
    np.testing.assert_allclose(found.ppm, [-2.0, 3.0], atol=1e-3)
    np.testing.assert_allclose(found.intensity, [0.25, 1.0])
    np.testing.assert_array_equal(found.share, [1.0, 1.0])
    np.testing.assert_array_equal(found.carrier, [0, 0])
    assert (found.n_peaks, found.n_explained, found.explained_intensity) == (2, 2, 1.0)


def test_an_anion_gains_the_electron_that_a_cation_lost():
    found = explain("C9H8O4", DEPROTONATED, spectrum((ion_mz("C7H5O3", charge=-1), 1.0)))

    assert written(found.subformula[0]) == "C7H5O3"
    assert abs(found.ppm[0]) < 1e-3


def test_a_fragment_of_a_sodium_adduct_may_keep_the_sodium_or_lose_it():
    with_sodium = ion_mz("C6H10O5", metal_da=METALS["Na"][0])
    without_sodium = ion_mz("C4H7O2")

    found = explain(
        "C12H22O11", SODIATED, spectrum((with_sodium, 1.0), (without_sodium, 0.5)), ppm=2.0
    )

    rows = zip(found.subformula, found.carrier, strict=True)
    kept = {(written(row), int(carrier)) for row, carrier in rows}
    assert kept == {("C6H10O5", 1), ("C4H7O2", 0)}


def test_fragments_of_a_dimer_are_those_of_one_molecule_or_hold_a_whole_one():
    one, two = ion_mz("C7H5O2"), ion_mz("C16H13O6")  # the acylium; 2M without C2H4O2
    lone, mixed = ion_mz("C9H9O4"), ion_mz("C15H11O3")  # [M+H]+; carbon of both molecules
    peaks = spectrum(*((mz, 1.0) for mz in (one, two, lone, mixed, ion_mz("C18H17O8"))))

    found = explain("C9H8O4", parse_adduct("[2M+H]+"), peaks)

    assert [written(row) for row in found.subformula] == [
        "C7H5O2", "C9H9O4", "C16H13O6", "C18H17O8"
    ]  # fmt: skip
    assert found.carrier.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(found.ppm, 0, atol=1e-3)


def test_fragments_of_a_doubly_charged_ion_have_both_charges():
    once, twice = ion_mz("C10H13O4", ppm=2.0), ion_mz("C18H26N2O6", charge=2, ppm=3.0) / 2
    whole = ion_mz("C20H30N2O7", charge=2) / 2

    found = explain(
        "C20H28N2O7",
        parse_adduct("[M+2H]2+"),
        spectrum((once, 1.0), (twice, 0.5), (whole, 0.2)),
        ppm=4.0,
    )

    rows = zip((written(row) for row in found.subformula), found.carrier, found.ppm, strict=True)
    kept = {(text, int(carrier)): float(ppm) for text, carrier, ppm in rows}
    assert kept["C10H13O4", 0] == pytest.approx(2.0, abs=1e-3)
    assert kept["C18H26N2O6", 1] == pytest.approx(3.0, abs=1e-3)
    assert kept["C20H30N2O7", 1] == pytest.approx(0.0, abs=1e-3)


def test_fragments_of_two_metals_keep_each_number_of_them():
    sodium = METALS["Na"][0]
    peaks = [
        (ion_mz("C6H9O6"), 1.0),
        (ion_mz("C6H8O6", metal_da=sodium), 1.0),
        (ion_mz("C6H7O6", metal_da=2 * sodium), 1.0),
    ]

    found = explain(
        "C12H14O12", parse_adduct("[M+2Na-H]+"), spectrum(*peaks), ppm=1.0, candidates=1
    )

    rows = zip((written(row) for row in found.subformula), found.carrier.tolist(), strict=True)
    assert set(rows) == {("C6H9O6", 0), ("C6H8O6", 1), ("C6H7O6", 2)}


@pytest.mark.parametrize(
    ("adduct", "ion", "metal", "carrier"),
    [(PROTONATED, "C12H23O11", 0.0, 0), (SODIATED, "C12H22O11", METALS["Na"][0], 1)],
)
def test_the_precursor_peak_is_the_whole_ion_and_nothing_else(adduct, ion, metal, carrier):
    peak = (ion_mz(ion, metal_da=metal, ppm=4.0), 1.0)

    found = explain("C12H22O11", adduct, spectrum(peak), ppm=10.0)

    assert [written(row) for row in found.subformula] == [ion]
    assert (int(found.carrier[0]), float(found.share[0])) == (carrier, 1.0)
    assert found.ppm[0] == pytest.approx(4.0, abs=1e-3)


def test_what_no_subformula_explains_is_counted_and_left_out():
    peaks = spectrum((ion_mz("C7H5O2"), 1.0), (100.9, 0.5), (500.0, 0.5))

    found = explain("C9H8O4", PROTONATED, peaks)

    assert (found.n_peaks, found.n_explained) == (3, 1)
    assert found.explained_intensity == pytest.approx(0.5)


def test_a_feature_without_peaks_has_no_rows():
    found = explain("C9H8O4", PROTONATED, spectrum())

    assert found.subformula.shape == (0, N_ELEMENTS)
    assert (found.n_peaks, found.n_explained, found.explained_intensity) == (0, 0, 0.0)


def test_impossibly_saturated_subformulas_are_refused():
    too_many_hydrogens = spectrum((ion_mz("C2H9"), 1.0))

    found = explain("C9H20O", PROTONATED, too_many_hydrogens, ppm=1.0)

    assert found.n_explained == 0


def test_saturated_cations_are_possible():
    found = explain("C2H7NO", PROTONATED, spectrum((ion_mz("NH4"), 1.0), (ion_mz("H3O"), 1.0)))

    assert [written(row) for row in found.subformula] == ["H4N", "H3O"]


def test_several_explanations_of_a_peak_share_it_and_stay_few():
    crowded = spectrum((ion_mz("C12H14N2O6S"), 1.0))

    found = explain("C20H26N6O10S2F2P2", PROTONATED, crowded, ppm=20.0, candidates=3)

    assert len(found.share) == 3
    np.testing.assert_allclose(found.share, 1 / 3)


def test_each_spectrum_keeps_its_energy_and_its_own_base_peak():
    low = spectrum((ion_mz("C9H9O4"), 1.0), collision_energy_ev=10.0)
    high = spectrum((ion_mz("C7H5O2"), 1.0), (ion_mz("C6H5"), 0.1))

    found = explain("C9H8O4", PROTONATED, low, high)

    np.testing.assert_allclose(found.intensity, [1.0, 0.1, 1.0])
    assert found.energy_ev[0] == 10.0
    assert all(math.isnan(energy) for energy in found.energy_ev[1:])


def test_the_most_intense_peaks_stay_when_rows_are_capped():
    atoms = ["C9H9O4", "C9H7O3", "C8H9O3", "C7H7O3", "C7H5O2", "C6H7O", "C6H5"]
    peaks = [(ion_mz(text), 1.0 / (rank + 1)) for rank, text in enumerate(atoms)]

    found = explain("C9H8O4", PROTONATED, spectrum(*peaks), max_rows=3, ppm=5.0)

    assert {written(row) for row in found.subformula} == set(atoms[:3])
    assert (found.n_peaks, found.n_explained) == (3, 3)


def test_the_tolerance_follows_the_instrument():
    off = (ion_mz("C7H5O2", ppm=15.0), 1.0)
    settings = {"ppm": 10.0, "orbitrap_ppm": 5.0, "qtof_ppm": 20.0}

    explained = [
        explain("C9H8O4", PROTONATED, spectrum(off, instrument=name), **settings).n_explained
        for name in ("", "orbitrap", "qtof")
    ]

    assert explained == [0, 0, 1]


def test_the_tolerance_in_da_stops_shrinking_below_the_floor():
    off = spectrum((ion_mz("C3H3", ppm=15.0), 1.0))

    assert explain("C9H8O4", PROTONATED, off, ppm=10.0, floor_mz=0.0).n_explained == 0
    assert explain("C9H8O4", PROTONATED, off, ppm=10.0, floor_mz=100.0).n_explained == 1


def test_of_two_equal_masses_the_plainer_composition_comes_first():
    # C3 and SH4 differ by 3.4 mDa, 11 ppm at m/z 300: half of it is off for both.
    between = (ion_mz("C20H29O2") + ion_mz("C17H33O2S")) / 2
    found = explain("C20H36O4S2", PROTONATED, spectrum((between, 1.0)), ppm=10.0)

    assert [written(row) for row in found.subformula] == ["C20H29O2", "C17H33O2S"]


def test_a_pair_of_electrons_outweighs_a_small_mass_error():
    between = (ion_mz("C13H9O") + ion_mz("C12H9N2")) / 2
    found = explain("C20H20N2O2", PROTONATED, spectrum((between, 1.0)), ppm=60.0, floor_mz=0.0)

    excess = [2 * Formula.parse(written(row)).unsaturation % 2 for row in found.subformula]
    assert excess[0] == 1


def test_an_ion_with_two_hundred_million_subformulas_needs_little_memory():
    formula = Formula.parse("C30H60N8O12S3Cl3Br2F6P2")
    halves = np.array(formula.counts) // np.arange(2, 42)[:, None]
    peaks = [
        (float(row @ np.array(MASSES_DA)) + 50.0, 1.0 / (i + 1)) for i, row in enumerate(halves)
    ]
    heavy = spectrum(*peaks, instrument="qtof")

    tracemalloc.start()
    found = explain(str(formula), PROTONATED, heavy)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found.n_explained > 0
    assert len(found.share) <= AnnotationSettings().max_rows
    assert peak_bytes < 100e6
