"""Cleaning of spectra."""

import numpy as np
import pytest

from duallgd_cli.spectra.features import CleaningSettings, clean
from tests.made_spectra import made_spectrum

DOUBLY_CHARGED = {"precursor_mz": 100.0, "adduct_text": "[M+2H]2+"}
# Peaks as read, more of the spectrum, and the peaks that stay.
KEPT = {
    "bad peaks go and the base peak becomes one": ([(40, 8), (50, np.nan), (60, -1), (70, 0), (80,
        4), (np.nan, 5), (-1, 5), (np.inf, 5)], {}, [(40, 1), (80, 0.5)]),
    "equal masses add up and the rest is sorted": ([(90, 1), (50, 4), (90, 3), (60, 2)], {}, [(50,
        1), (60, 0.5), (90, 1)]),
    "peaks above the precursor and its isotopes go": ([(99, 1), (100, 2), (102.9, 1), (103.1, 9),
        (500, 9)], {"precursor_mz": 100.0}, [(99, 0.5), (100, 1), (102.9, 0.5)]),
    "those above a doubly charged precursor stay": ([(99, 1), (199, 2), (204, 9)], DOUBLY_CHARGED,
        [(99, 0.5), (199, 1)]),
    "impossible masses go even where no precursor bounds them": ([(100, 1), (1e308, 9)], {}, [(100,
        1)]),
}  # fmt: skip


@pytest.mark.parametrize(("peaks", "more", "kept"), KEPT.values(), ids=list(KEPT))
def test_what_stays_of_a_spectrum(peaks, more, kept):
    cleaned = clean(made_spectrum(*zip(*peaks, strict=True), **more), CleaningSettings())

    assert list(zip(cleaned.mz, cleaned.intensity, strict=True)) == kept


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
    cleaned = clean(made_spectrum(mz, intensity, precursor_mz=100.0), CleaningSettings())

    assert cleaned.failure.status == "no_peaks"
    assert message in cleaned.failure.message
    assert cleaned.mz.size == cleaned.intensity.size == 0
