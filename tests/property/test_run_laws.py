"""Laws of runs: grouping and consensus."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.run import FEATURES, FeatureSettings, consensus, left_out
from duallgd_cli.spectra.types import Source
from tests.made_spectra import made_spectrum

PEAKS = st.lists(
    st.tuples(st.floats(50, 500), st.floats(1e-3, 1e6)), max_size=12, unique_by=lambda one: one[0]
)


@st.composite
def spectra(draw, most=5):
    """Spectra of one ion."""
    return [
        made_spectrum(*np.array(sorted(peaks)).reshape(-1, 2).T, index=n)
        for n, peaks in enumerate(draw(st.lists(PEAKS, min_size=1, max_size=most)))
    ]


@given(spectra(most=1))
def test_the_consensus_of_one_spectrum_is_itself(one):
    assert consensus(one) is one[0]


@given(spectra(), st.randoms())
def test_the_consensus_does_not_depend_on_the_order(several, random):
    shuffled = several.copy()
    random.shuffle(shuffled)

    first, other = consensus(several), consensus(shuffled)

    np.testing.assert_array_equal(first.mz, other.mz)
    np.testing.assert_array_equal(first.intensity, other.intensity)
    assert (first.source, first.warnings) == (other.source, other.warnings)


@given(spectra(most=1), st.integers(2, 4))
def test_the_consensus_of_copies_is_the_spectrum(one, copies):
    several = [replace(one[0], source=Source("a.mgf", n)) for n in range(copies)]

    found = consensus(several)

    np.testing.assert_allclose(found.mz, one[0].mz, rtol=1e-12)
    np.testing.assert_allclose(found.intensity, one[0].intensity, rtol=1e-12)


@st.composite
def runs(draw):
    """MS1 and MS2 scans in the order of their times, many of which are equal."""
    made, time = [], 0.0
    for _ in range(draw(st.integers(0, 25))):
        time += draw(st.sampled_from([0.0, 0.0, 1.0, 20.0]))
        polarity = draw(st.sampled_from([1, 1, -1]))
        if draw(st.booleans()):
            heights = draw(st.lists(st.sampled_from([0.0, 10.0, 1e5, 2e5]), min_size=3, max_size=3))
            made.append(("ms1", time, polarity, heights, 0))
        else:
            mz = draw(st.sampled_from([200.0, 200.001, 200.002, 300.0]))
            charge = draw(st.sampled_from([0, polarity]))
            peaks = draw(st.integers(0, 3))
            made.append(("ms2", time, polarity, mz, (charge, peaks)))
    return made


def as_spectra(scans, indices):
    """Spectra of made scans, each with a number of its own that no order changes."""
    for (kind, time, polarity, value, more), number in zip(scans, indices, strict=True):
        fields = {
            "index": number, "file": "r.mzML", "retention_time_s": time, "polarity": polarity
        }  # fmt: skip
        if kind == "ms1":
            yield made_spectrum([200.0, 250.0, 300.0], value, ms_level=1, **fields)
        else:
            charge, peaks = more
            mz = [60.0, 70.0, 80.0][:peaks]
            yield made_spectrum(mz, None, precursor_mz=value, charge=charge, **fields)


def grouped(items, **values):
    counts = Counter()
    features = list(group(items, "run", None, FeatureSettings(**values), counts))
    return [
        frozenset(scan.source.index for one in feature.spectra for scan in one.merged or (one,))
        for feature in features
    ], counts


@settings(deadline=None)
@given(
    runs(),
    st.sampled_from(
        [
            {},
            {"rt_window": 5.0},
            {"rt": "1-30", "mz": "250-"},
            {"min_peaks": 2, "min_intensity": 1.5e5},
        ]
    ),
)
def test_every_ms2_scan_is_in_one_feature_or_left_out_and_counted(scans, values):
    items = list(as_spectra(scans, range(len(scans))))

    found, counts = grouped(items, **values)

    members = [index for one in found for index in one]
    n_ms2 = sum(one.ms_level == 2 for one in items)
    assert len(members) == len(set(members))
    assert len(members) + sum(left_out(counts).values()) == n_ms2
    assert counts[FEATURES] == len(found)
    assert [min(one) for one in found] == sorted(min(one) for one in found)


def test_ms1_scans_of_one_time_and_one_summed_intensity_are_told_apart_by_their_peaks():
    """The ion is in one of them, and an MS2 scan a second later."""
    scans = [
        ("ms1", 0.0, 1, [10.0, 10.0, 1e5], 0),
        ("ms1", 0.0, 1, [1e5, 10.0, 10.0], 0),
        ("ms2", 0.0, 1, 200.0, (0, 1)),
        ("ms2", 1.0, 1, 200.002, (0, 1)),
    ]
    first, other = (
        grouped(as_spectra([scans[n] for n in order], order))[0]
        for order in ([0, 1, 2, 3], [1, 0, 2, 3])
    )
    assert set(first) == set(other)


@settings(deadline=None)
@given(runs(), st.randoms())
def test_grouping_does_not_depend_on_the_order_of_scans_of_equal_time(scans, random):
    order = sorted(range(len(scans)), key=lambda n: (scans[n][1], random.random()))

    first, _ = grouped(as_spectra(scans, range(len(scans))))
    other, _ = grouped(as_spectra([scans[n] for n in order], order))

    assert set(first) == set(other)
