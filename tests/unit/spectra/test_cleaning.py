"""Cleaning of spectra."""

import numpy as np
import pytest

from duallgd_cli.spectra.features import CleaningSettings, clean
from tests.made_spectra import made_spectrum

DEFAULT = CleaningSettings()


def test_bad_peaks_go_and_the_base_peak_becomes_one():
    raw = made_spectrum(
        [40, 50, 60, 70, 80, np.nan, -1, 0, np.inf], [8, np.nan, -1, 0, 4, 5, 5, 5, 5]
    )

    cleaned = clean(raw, DEFAULT)

    np.testing.assert_array_equal(cleaned.mz, [40, 80])
    np.testing.assert_array_equal(cleaned.intensity, [1, 0.5])


def test_equal_masses_add_up_and_the_rest_is_sorted():
    cleaned = clean(made_spectrum([90, 50, 90, 60], [1, 4, 3, 2]), DEFAULT)

    np.testing.assert_array_equal(cleaned.mz, [50, 60, 90])
    np.testing.assert_array_equal(cleaned.intensity, [1, 0.5, 1])


def test_peaks_above_the_precursor_and_its_isotopes_go():
    cleaned = clean(
        made_spectrum([99, 100, 102.9, 103.1, 500], [1, 2, 1, 9, 9], precursor_mz=100.0), DEFAULT
    )

    np.testing.assert_array_equal(cleaned.mz, [99, 100, 102.9])
    assert cleaned.intensity.max() == 1


def test_peaks_above_a_doubly_charged_precursor_stay():
    raw = made_spectrum([99, 199, 204], [1, 2, 9], precursor_mz=100.0, adduct_text="[M+2H]2+")

    np.testing.assert_array_equal(clean(raw, DEFAULT).mz, [99, 199])


def test_the_most_intense_peaks_are_kept_in_order_of_mass():
    cleaned = clean(made_spectrum([1, 2, 3, 4, 5], [5, 1, 4, 1, 3]), CleaningSettings(max_peaks=3))

    np.testing.assert_array_equal(cleaned.mz, [1, 3, 5])


@pytest.mark.parametrize(
    ("mz", "intensity", "message"),
    [
        ([], [], "has no peaks; export MS2 spectra together with their peaks"),
        ([50, 60], [0, np.nan], "no possible m/z and intensity above 0 in 2 peaks"),
        ([500, 600], [1, 2], "all peaks (2) lie above the precursor"),
    ],
)
def test_a_spectrum_without_a_usable_peak_fails_with_the_number(mz, intensity, message):
    cleaned = clean(made_spectrum(mz, intensity, precursor_mz=100.0), DEFAULT)

    assert cleaned.failure.status == "no_peaks"
    assert message in cleaned.failure.message
    assert cleaned.mz.size == cleaned.intensity.size == 0


def test_an_impossible_mass_goes_even_where_no_precursor_bounds_it():
    cleaned = clean(made_spectrum([100.0, 1e308], [1.0, 9.0]), CleaningSettings())

    assert cleaned.mz.tolist() == [100.0]
    assert cleaned.intensity.tolist() == [1.0]
