"""Laws of cleaning, consensus, grouping, and of texts of formulas and energies."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.features import group, left_out
from duallgd_cli.spectra.formulas import from_text
from duallgd_cli.spectra.reading.quantities import collision_energy_ev
from duallgd_cli.spectra.run import FEATURES, FeatureSettings, consensus
from duallgd_cli.spectra.types import Feature, Source
from tests.made_spectra import made_spectrum

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.integers(0, 40), st.data(), st.integers(1, 10), st.none() | st.floats(1, 2000))
def test_cleaning_keeps_its_promises_and_is_idempotent(n, data, most, precursor):
    mz, intensity = (data.draw(arrays.arrays(np.float64, n, elements=NUMBERS)) for _ in range(2))
    options = CleaningSettings(max_peaks=most)

    with np.errstate(all="raise", under="ignore"):
        cleaned = clean(made_spectrum(mz, intensity, precursor_mz=precursor), options)

    if cleaned.failure is not None:
        assert cleaned.failure.status == "no_peaks"
        return
    assert 1 <= cleaned.mz.size <= most
    assert (np.diff(cleaned.mz) > 0).all()
    assert np.isfinite(cleaned.intensity).all()
    assert 0 <= cleaned.intensity.min() <= cleaned.intensity.max() == 1
    again = clean(cleaned, options)
    assert (again.mz.tolist(), again.intensity.tolist()) == (
        cleaned.mz.tolist(), cleaned.intensity.tolist()
    )  # fmt: skip


@given(
    st.text(max_size=30) | st.text("0123456789eVN%., -HCDs", max_size=40),
    st.none() | st.floats(0.001, 3000),
    st.text(max_size=10),
)
def test_any_text_gives_a_hypothesis_or_a_failure_and_an_energy_or_none(text, mz, adduct):
    spectrum = made_spectrum(precursor_mz=mz, adduct_text=adduct)

    result = from_text(Feature((spectrum,)), text)
    energy = collision_energy_ev(text, 300.0, "orbitrap")

    assert isinstance(result, Failure) or len(result) == 1
    assert energy is None or 0 < energy <= 1000


@given(st.lists(st.tuples(st.sampled_from(["", "1", "2"]), st.sampled_from([100.0, 200.0]))))
def test_grouping_by_number_loses_nothing_and_keeps_the_order_of_the_first_members(cases):
    features = group(
        made_spectrum(precursor_mz=mz, feature_id=number, index=index)
        for index, (number, mz) in enumerate(cases)
    )

    members = [[one.source.index for one in feature.spectra] for feature in features]
    assert [own[0] for own in members] == sorted(min(own) for own in members)
    assert sorted(chain.from_iterable(members)) == list(range(len(cases)))


PEAKS = st.lists(
    st.tuples(st.floats(50, 500), st.floats(1e-3, 1e6)), max_size=12, unique_by=lambda one: one[0]
)
SPECTRA = st.lists(PEAKS, min_size=1, max_size=5).map(
    lambda lists: [
        made_spectrum(*np.array(sorted(peaks)).reshape(-1, 2).T, index=n)
        for n, peaks in enumerate(lists)
    ]
)


@given(SPECTRA, st.randoms(), st.integers(2, 4))
def test_the_consensus_is_the_same_in_any_order_and_of_copies_the_spectrum(several, random, copies):
    shuffled, one = random.sample(several, len(several)), several[0]

    first, other = consensus(several), consensus(shuffled)
    of_copies = consensus([replace(one, source=Source("a.mgf", n)) for n in range(copies)])

    np.testing.assert_array_equal([first.mz, first.intensity], [other.mz, other.intensity])
    assert (first.source, first.warnings) == (other.source, other.warnings)
    np.testing.assert_allclose(of_copies.mz, one.mz, rtol=1e-12)
    np.testing.assert_allclose(of_copies.intensity, one.intensity, rtol=1e-12)
    assert consensus([one]) is one


@st.composite
def runs(draw):
    """MS1 and MS2 scans in the order of their times, many of which are equal."""
    scans, time = [], 0.0
    for number in range(draw(st.integers(0, 25))):
        time += draw(st.sampled_from([0.0, 0.0, 1.0, 20.0]))
        polarity = draw(st.sampled_from([1, 1, -1]))
        if draw(st.booleans()):
            height = st.sampled_from([0.0, 10.0, 1e5, 2e5])
            scans.append(ms1(number, time, [draw(height) for _ in range(3)], polarity))
        else:
            mz = draw(st.sampled_from([200.0, 200.001, 200.002, 300.0]))
            more = draw(st.sampled_from([0, polarity])), draw(st.integers(0, 3))
            scans.append(ms2(number, time, mz, polarity, *more))
    return scans


def ms1(number, time, heights, polarity=1):
    fields = {"index": number, "file": "r.mzML", "retention_time_s": time, "polarity": polarity}
    return made_spectrum([200.0, 250.0, 300.0], heights, ms_level=1, **fields)


def ms2(number, time, mz, polarity=1, charge=0, n_peaks=1):
    fields = {"index": number, "file": "r.mzML", "retention_time_s": time, "polarity": polarity}
    peaks = [60.0, 70.0, 80.0][:n_peaks]
    return made_spectrum(peaks, None, precursor_mz=mz, charge=charge, **fields)


def grouped(scans, **values):
    """Numbers of the scans of each feature, and what was counted."""
    counts = Counter()
    features = list(group(scans, "run", None, FeatureSettings(**values), counts))
    return [
        frozenset(scan.source.index for one in feature.spectra for scan in one.merged or (one,))
        for feature in features
    ], counts


SETTINGS = (
    {}, {"rt_window": 5.0}, {"rt": "1-30", "mz": "250-"}, {"min_peaks": 2, "min_intensity": 1.5e5}
)  # fmt: skip


@settings(deadline=None)
@given(runs(), st.sampled_from(SETTINGS), st.randoms())
def test_every_ms2_scan_is_in_one_feature_or_counted_whatever_the_order_of_equal_times(
    scans, values, random
):
    turned = sorted(scans, key=lambda scan: (scan.retention_time_s, random.random()))

    found, counts = grouped(scans, **values)
    other, _ = grouped(turned, **values)

    members = [index for one in found for index in one]
    assert len(members) == len(set(members))
    assert len(members) + sum(left_out(counts).values()) == sum(s.ms_level == 2 for s in scans)
    assert counts[FEATURES] == len(found)
    assert [min(one) for one in found] == sorted(min(one) for one in found)
    assert set(found) == set(other)


def test_ms1_scans_of_one_time_and_one_summed_intensity_are_told_apart_by_their_peaks():
    """The ion is in one of them, and an MS2 scan a second later."""
    first, second = ms1(0, 0.0, [10.0, 10.0, 1e5]), ms1(1, 0.0, [1e5, 10.0, 10.0])
    fragments = ms2(2, 0.0, 200.0), ms2(3, 1.0, 200.002)

    assert grouped([first, second, *fragments]) == grouped([second, first, *fragments])
