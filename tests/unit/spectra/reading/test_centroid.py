"""Peaks from profile spectra."""

import numpy as np
import pytest

from duallgd_cli.spectra.reading.xml import pick_peaks


def test_a_parabola_is_found_exactly():
    mz = np.array([1.0, 1.1, 1.3])

    found, _ = pick_peaks(mz, 5 - (mz - 1.12) ** 2)

    assert found == pytest.approx([1.12])


@pytest.mark.parametrize(
    ("intensity", "peaks"),
    [
        ([], []),
        ([0, 0, 0], []),
        ([1], [0]),
        ([3, 2, 1], [0]),
        ([1, 2, 3], [2]),
        ([0, 5, 5, 0], [1]),  # a plateau is one peak
        ([0, 5, 0, 5, 0], [1, 3]),
        ([0, np.nan, 0], []),
    ],
)
def test_edges_plateaus_and_nothing(intensity, peaks):
    mz = np.arange(len(intensity), dtype=float)

    found, heights = pick_peaks(mz, np.array(intensity, dtype=float))

    assert found == pytest.approx(np.array(peaks, dtype=float), abs=0.5)
    assert len(heights) == len(peaks)
