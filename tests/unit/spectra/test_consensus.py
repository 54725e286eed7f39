"""One spectrum from several of one ion."""

import numpy as np
import pytest

from duallgd_cli.spectra.run import consensus
from tests.made_spectra import made_spectrum


def spectra(*peaks, **fields):
    return [
        made_spectrum(*zip(*own, strict=True), index=n, **fields) if own
        else made_spectrum([], index=n, **fields)
        for n, own in enumerate(peaks)
    ]  # fmt: skip


def pairs(spectrum):
    columns = spectrum.mz.tolist(), spectrum.intensity.tolist()
    return [(round(mz, 5), round(height, 3)) for mz, height in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        # m/z by intensity, intensity as the mean.
        ([[(100.0, 300.0)], [(100.0004, 100.0)]], [(100.0001, 200.0)]),
        # Further apart than the tolerance of 10 ppm; each in half of the intensity.
        ([[(100.0, 1.0)], [(100.002, 1.0)]], [(100.0, 0.5), (100.002, 0.5)]),
        # A peak of one spectrum of three is noise.
        ([[(100.0, 9.0), (70.0, 1.0)], [(100.0, 9.0)], [(100.0, 9.0)]], [(100.0, 9.0)]),
        # What a strong spectrum shows is not lost among faint ones.
        ([[(100.0, 90.0), (70.0, 9.0)], [(100.0, 9.0)], [(100.0, 9.0)]],
         [(70.0, 3.0), (100.0, 36.0)]),
        # Two peaks of one spectrum stay two, however close.
        ([[(100.0, 1.0), (100.0005, 1.0)]] * 2, [(100.0, 1.0), (100.0005, 1.0)]),
        ([[(100.0, 1.0)], []], [(100.0, 0.5)]),
        ([[], []], []),
        ([[(100.0, np.inf), (50.0, 1.0)], [(np.nan, 1.0), (50.0, 3.0)]], [(50.0, 2.0)]),
    ],
)  # fmt: skip
def test_peaks_of_a_consensus(peaks, expected):
    assert pairs(consensus(spectra(*peaks))) == expected


def test_nothing_in_common_is_said_and_the_most_intense_is_used():
    found = consensus(spectra([(50.0, 1.0)], [(60.0, 2.0)], [(70.0, 1.9)]))

    assert pairs(found) == [(60.0, 2.0)]
    assert found.warnings == (
        "3 spectra of one energy have no peak in common; the most intense is used, index 1",
    )


def test_the_tolerance_is_that_of_the_instrument():
    apart = ([(200.0, 1.0)], [(200.003, 1.0)])

    assert consensus(spectra(*apart, instrument="qtof")).mz.size == 1
    assert consensus(spectra(*apart, instrument="orbitrap")).mz.size == 2
