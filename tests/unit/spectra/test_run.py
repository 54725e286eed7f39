"""Features of runs of which the truth is known, and the consensus of their spectra."""

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from duallgd_cli.errors import ConfigError, UnreadableError
from duallgd_cli.spectra.features import Inputs, count_spectra, group, left_out
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.run import FEATURES, FeatureSettings, consensus
from tests import made_run
from tests.made_run import Compound, compound, measure, mgf_of_run, mzml, mzxml
from tests.made_spectra import made_spectrum
from tests.memory import bounded_memory


def features_of(*paths, **settings):
    with Inputs(paths) as inputs:
        return list(inputs.features("run", None, FeatureSettings(**settings))), inputs.runs


def members(feature):
    return sorted(scan.source.index for one in feature.spectra for scan in one.merged or (one,))


def feature_at(features, mz, ppm=10):
    return [one for one in features if abs(one.first.precursor_mz - mz) <= mz * ppm * 1e-6]


def assert_told_apart(run, features, least):
    """Nearly every compound that was chosen is one feature, and no two are."""
    chosen, alone, shared = run.judged(features)
    assert chosen > least
    assert alone >= 0.95 * chosen
    assert shared == []


# Isomers 20 s apart, isobars 5 ppm apart, and two compounds of one time.
HARD = (
    ("isomer A", 333.1, 100, 2e6, 12, 4), ("isomer B", 333.1, 120, 1e6, 12, 4),
    ("isobar A", 444.2, 150, 2e6, 12, 4), ("isobar B", 444.2 * (1 + 5e-6), 180, 5e5, 12, 4),
    ("together A", 222.1, 60, 1e6), ("together B", 255.1, 60, 1e6),
)  # fmt: skip


# A run with dynamic exclusion, one without, and one that repeats with all energies.
@pytest.mark.parametrize("options", [{}, {"exclusion_s": 0.0, "top": 8}, {"repeat": True}])
def test_nearly_every_compound_is_one_feature_and_each_spectrum_says_what_it_is_of(
    tmp_path, options
):
    rng = np.random.default_rng(3)
    compounds = made_run.random_compounds(rng, 40, 240)
    run = measure(rng, [*compounds, *(compound(rng, *one) for one in HARD)], 240, **options)
    path = mzml(run, tmp_path / "run.mzML")

    features, counts = features_of(path)

    assert_told_apart(run, features, 30)
    assert counts[FEATURES] == len(features)
    assert [one.first.feature_id for one in features] == [*map(str, range(1, len(features) + 1))]
    spectra = [one for feature in features for one in feature.spectra]
    assert count_spectra((path,), "run") == sum(len(one.merged) for one in spectra)
    for feature in features:
        written = {round(run.scans[index].precursor_mz, 5) for index in members(feature)}
        assert {one.precursor_mz for one in feature.spectra} <= written
        energies = [one.collision_energy_text for one in feature.spectra]
        assert len(set(energies)) == len(energies)
    for one in spectra:
        scans = [run.scans[scan.source.index] for scan in one.merged]
        assert {str(scan.energy) for scan in scans} == {one.collision_energy_text}
        assert (np.diff(one.mz) > 0).all()


def test_repeats_in_mgf_are_grouped_by_their_times(tmp_path):
    rng = np.random.default_rng(3)
    run = measure(rng, made_run.random_compounds(rng, 15, 150), 150)
    # In the file MS2 scans alone are numbered.
    only = made_run.Run(run.compounds, [one for one in run.scans if one.level == 2])

    assert_told_apart(only, features_of(mgf_of_run(run, tmp_path / "run.mgf"))[0], 10)


@pytest.fixture(scope="module")
def simple(tmp_path_factory):
    """A run of one compound, and the file of it."""
    one = compound(np.random.default_rng(7), "a", 301.1, 40, 1e6, sigma=4.0)
    run = measure(np.random.default_rng(1), [one], 80, noise=20)
    return run, mzml(run, tmp_path_factory.mktemp("simple") / "run.mzML")


def test_mzxml_gives_the_features_of_mzml_and_several_runs_are_numbered_on(simple, tmp_path):
    run, path = simple

    features, _ = features_of(path, mzxml(run, tmp_path / "run.mzXML"))

    half = len(features) // 2
    assert [one.first.feature_id for one in features] == [*map(str, range(1, 2 * half + 1))]
    assert [*map(members, features[:half])] == [*map(members, features[half:])]


def test_a_consensus_has_the_fragments_and_its_isotope_is_a_feature_that_says_so(simple):
    run, path = simple
    features, _ = features_of(path)

    (light,), (heavy,) = (feature_at(features, 301.1 + da) for da in (0, made_run.ISOTOPE_DA))

    strongest = max(light.spectra, key=lambda one: len(one.merged))
    fragments = np.append([mz for mz, _ in run.compounds[0].fragments], 301.1)
    near = np.abs(strongest.mz[:, None] - fragments).min(axis=1) < 5e-6 * strongest.mz
    assert strongest.intensity[near].sum() > 0.99 * strongest.intensity.sum()
    assert light.precursor_intensity == pytest.approx(1e6, rel=0.3)
    assert light.first.retention_time_s == pytest.approx(40, abs=3)
    assert light.first.monoisotopic_mz is None
    main, *_, first, _, _ = light.isotopes.intensity
    assert first / main == pytest.approx(0.23, abs=0.06)
    assert heavy.first.monoisotopic_mz == pytest.approx(301.1, abs=0.003)
    assert any("taken for its isotope" in text for text in heavy.first.assumptions)


def test_what_was_isolated_together_is_said_and_what_never_stops_is_one_feature(tmp_path):
    rng = np.random.default_rng(2)
    compounds = [
        compound(rng, "a", 301.1, 40, 1e6, sigma=4),
        compound(rng, "b", 301.35, 41, 8e5, sigma=4),
        Compound("background", 391.28, 150, 3e5, 1e4, ((149.02, 1.0), (167.03, 0.4))),
    ]

    features, _ = features_of(mzml(measure(rng, compounds, 300), tmp_path / "run.mzML"))

    (said, *_) = feature_at(features, 301.1)[0].first.warnings
    assert said.startswith("chimeric: in ")
    assert "m/z 301.3" in said
    assert len(feature_at(features, 391.28)) == 1


def test_a_blank_has_no_feature_of_a_compound(tmp_path):
    path = mzml(measure(np.random.default_rng(4), [], 60), tmp_path / "blank.mzML")

    with pytest.raises(UnreadableError, match=r"no MS2 spectrum in .*blank\.mzML \(50 of MS1\)"):
        features_of(path)


def test_polarities_stay_apart(simple, tmp_path):
    both = mzml(made_run.together(simple[0], simple[0]), tmp_path / "both.mzML")

    found = feature_at(features_of(both)[0], 301.1)

    assert sorted(one.first.polarity for one in found) == [-1, 1]
    assert len({len(members(one)) for one in found}) == 1


def ms2(index, time, mz=301.1, charge=0, file="run.mzML", **more):
    return made_spectrum(
        [100.0, 150.0], [1.0, 2.0], index, file, precursor_mz=mz, retention_time_s=time,
        charge=charge, collision_energy_text="30", instrument="orbitrap", **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("items", "settings", "expected"),
    [
        ([(0, 10.0), (1, 12.0), (2, 14.0)], {}, [[0, 1, 2]]),
        ([(0, 10.0), (1, 12.0), (2, 90.0)], {}, [[0, 1], [2]]),
        ([(0, 10.0), (1, 12.0), (2, 20.0)], {"rt_window": 5.0}, [[0, 1], [2]]),
        ([(0, 10.0), (1, 12.0, 301.1 * (1 + 6e-6))], {}, [[0, 1]]),
        ([(0, 10.0), (1, 12.0, 301.1 * (1 + 9e-6))], {}, [[0], [1]]),
        ([(0, 10.0, 301.1, 1), (1, 12.0, 301.1, 2)], {}, [[0], [1]]),
        ([(0, 10.0, 301.1, 1), (1, 12.0), (2, 13.0, 301.1, 1)], {}, [[0, 1, 2]]),
    ],
)
def test_what_is_of_one_ion_without_ms1(items, settings, expected):
    found = group([ms2(*item) for item in items], "run", None, FeatureSettings(**settings))

    assert [*map(members, found)] == expected


def test_ms1_says_that_an_ion_eluted_twice():
    times = np.arange(0, 60, 2.0)
    height = 1 + sum(1e5 * np.exp(-(((times - middle) / 5) ** 2)) for middle in (20, 40))
    survey = [
        made_spectrum([301.1, 500.0], [h, 10.0], n, "run.mzML", retention_time_s=t, ms_level=1)
        for n, (t, h) in enumerate(zip(times, height, strict=True))
    ]
    scans = [ms2(100, 24.5), ms2(101, 36.5)]

    with_ms1, without = [*group([*survey, *scans], "run")], group(scans, "run")

    assert [*map(members, with_ms1)] == [[100], [101]]
    assert [*map(members, without)] == [[100, 101]]
    assert [one.first.retention_time_s for one in with_ms1] == [20, 40]


@pytest.mark.parametrize(
    "more",
    [
        *({"feature_id": "7"}, {"adduct_text": "[M+H]+"}, {"formula_text": "C6H12O6"}),
        *({"metadata": {"name": "glucose"}}, {"time": None}),
    ],
)
def test_spectra_that_somebody_named_or_without_times_are_no_run(more, caplog):
    items = [ms2(0, 10.0), ms2(1, 11.0), ms2(2, **{"time": 12.0} | more), ms2(3, 13.0)]

    assert [*map(members, group(items, "run"))] == [[0], [1], [2], [3]]
    assert caplog.text == ""
    list(group(items, "run", None, FeatureSettings(mz="100-200")))
    assert "run.mzML are read, since it is no run" in caplog.text


def test_a_record_that_cannot_be_read_stands_alone_in_its_place(simple, tmp_path):
    whole, _ = features_of(simple[1])
    content, torn = Path(simple[1]).read_bytes(), tmp_path / "torn.mzML"
    torn.write_bytes(content[: content.index(b'id="scan=60"') + 400])

    features, counts = features_of(str(torn))

    assert features[-1].first.failure.status == "unreadable"
    assert 1 < len(features) <= len(whole) + 1
    assert counts[FEATURES] == len(features) - 1


def test_precursors_that_ms1_does_not_show_are_left_out(simple, caplog):
    items, counts = list(read(simple[1])), Counter()
    absent = ms2(len(items), 40.0, 777.7, file=simple[1], polarity=1)

    found = list(group([*items, absent], "run", None, FeatureSettings(), counts))

    assert left_out(counts) == {"with a precursor that is not in MS1": 1}
    assert not feature_at(found, 777.7)
    kept = list(group([*items, absent], "run", None, FeatureSettings(in_ms1=False)))
    assert len(feature_at(kept, 777.7)) == 1
    surveys = [one for one in items if one.ms_level == 1]
    caplog.clear()
    assert len(list(group([*surveys, absent], "run"))) == 1
    assert "MS1 spectra show 0 of 1 precursor" in caplog.text


def test_what_was_left_out_is_said_in_one_line(simple, caplog):
    run, path = simple
    caplog.set_level(logging.INFO)

    features, _ = features_of(path, min_peaks=16)

    (line,) = [one.message for one in caplog.records if "MS2 spectra" in one.message]
    said = f"{path}: {len(features)} features of {len(run.truth())} MS2 spectra; left out are "
    assert line.startswith(said)
    assert line.endswith("with fewer than 16 peaks")


@pytest.mark.parametrize("text", ["", "-", "60", "a-b", "9-3", "60-60", "1e3-2e3"])
def test_a_span_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="rt must be a span such as 60-600"):
        FeatureSettings(rt=text)


def consensus_of(*peaks, **fields):
    columns = (np.array(own).reshape(-1, 2).T for own in peaks)
    return consensus([made_spectrum(*own, index=n, **fields) for n, own in enumerate(columns)])


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
        # With nothing in common the most intense is used.
        ([[(50.0, 1.0)], [(60.0, 2.0)], [(70.0, 1.9)]], [(60.0, 2.0)]),
    ],
)  # fmt: skip
def test_peaks_of_a_consensus(peaks, expected):
    found = consensus_of(*peaks)

    columns = (found.mz.round(5).tolist(), found.intensity.round(3).tolist())
    assert [*zip(*columns, strict=True)] == expected
    said = "3 spectra of one energy have no peak in common; the most intense is used, index 1"
    assert found.warnings == ((said,) if expected == [(60.0, 2.0)] else ())


def test_the_tolerance_of_a_consensus_is_that_of_the_instrument():
    apart = ([(200.0, 1.0)], [(200.003, 1.0)])

    assert [consensus_of(*apart, instrument=i).mz.size for i in ("qtof", "orbitrap")] == [1, 2]


@pytest.mark.slow
def test_ten_thousand_scans_take_less_than_400_mib(tmp_path):
    run = mzml(made_run.long_run(np.random.default_rng(5), 10_000, ions=600), tmp_path / "run.mzML")

    with bounded_memory(400), Inputs((run,)) as inputs:
        assert sum(1 for _ in inputs.features("run")) > 500
