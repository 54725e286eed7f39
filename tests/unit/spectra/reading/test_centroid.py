"""Peaks from profile spectra."""

import numpy as np
import pytest

from duallgd_cli.spectra.reading.xml import pick_peaks


def profile(mz, centres, heights, width=0.01):
    shapes = [h * np.exp(-(((mz - c) / width) ** 2)) for c, h in zip(centres, heights, strict=True)]
    return np.sum(shapes, axis=0)


def test_separate_peaks_are_found_where_they_are():
    mz = np.arange(100, 101, 0.004)

    found, heights = pick_peaks(mz, profile(mz, [100.2013, 100.7], [1000, 10]))

    assert found[heights > 5] == pytest.approx([100.2013, 100.7], abs=2e-4)
    assert heights[heights > 5] == pytest.approx([1000, 10], rel=0.05)


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
