"""`duallgd features`, and predictions of runs."""

import json

import numpy as np
import pytest

from tests.made_run import measure, mzml, of_molecule
from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE

COMPOUNDS = [
    of_molecule(molecule, name, rt)
    for molecule, name, rt in (
        (ALANINE, "alanine", 20), (ASPIRIN, "aspirin", 40), (CAFFEINE, "caffeine", 60),
        (NICOTINE, "nicotine", 62),
    )
]  # fmt: skip
FAST = ("--samples", 6, "--steps", 1, "--formula-candidates", 2, "-q")
# What a row says of the file that it was read from.
OF_THE_FILE = {"spectrum_id", "file", "index", "indices", "scans", "message", "name"}


@pytest.fixture(scope="module")
def measured():
    return measure(np.random.default_rng(1), COMPOUNDS, 90, noise=20)


@pytest.fixture
def run_file(measured, tmp_path):
    return mzml(measured, tmp_path / "run.mzML")


def answers(path):
    return [
        {name: value for name, value in row.items() if name not in OF_THE_FILE}
        for row in rows_of(path)
    ]


def test_a_run_has_one_answer_a_feature_and_its_features_the_same_ones(
    duallgd, run_file, tmp_path, measured
):
    assert duallgd("features", run_file, "-o", "features.mgf", "-q").code == 0
    assert duallgd("predict", run_file, "-o", "run.csv", *FAST).code == 0
    assert duallgd("predict", "features.mgf", "-o", "features.out.csv", *FAST).code == 0

    of_run, again = answers(tmp_path / "run.csv"), answers(tmp_path / "features.out.csv")
    assert again == of_run
    table = rows_of(tmp_path / "features.csv")
    rows = {row["feature_id"]: row for row in rows_of(tmp_path / "run.csv")}
    assert len(table) == len(rows)
    for row, listed in zip(rows.values(), table, strict=True):
        assert row["usi"] == listed["usi"] == f"mzspec:USI000000:run:scan:{row['scans']}"
    assert [row["indices"] for row in table] == [row["indices"] for row in rows.values()]
    indices = [int(index) for row in table for index in row["indices"].split()]
    assert sorted(indices) == [n for n, one in enumerate(measured.scans) if one.level == 2]
    for row in rows.values():
        first, *others = row["indices"].split()
        assert row["index"] == first
        assert f"read together with index {', '.join(others)}" in row["message"] or not others
    formulas = {row["formula"] for row in rows_of(tmp_path / "run.csv") if row["rank"] == "1"}
    assert formulas >= {"C9H8O4", "C8H10N4O2", "C10H14N2", "C3H7NO2"}


def test_the_table_says_what_a_feature_is(duallgd, run_file, tmp_path):
    done = duallgd("features", run_file)

    table = rows_of(tmp_path / "run.features.csv")
    (caffeine,) = [row for row in table if row["precursor_mz"].startswith("195.08")]
    assert float(caffeine["rt_seconds"]) == pytest.approx(60, abs=3)
    assert float(caffeine["rt_start"]) < 60 < float(caffeine["rt_end"])
    assert caffeine["energies"] == "20.0 40.0 60.0"
    assert int(caffeine["scans"]) == len(caffeine["indices"].split())
    assert caffeine["polarity"] == "positive"
    assert float(caffeine["precursor_intensity"]) == pytest.approx(1e6, rel=0.3)
    (heavy,) = [row for row in table if row["precursor_mz"].startswith("196.09")]
    assert "taken for its isotope" in heavy["remarks"]
    assert "run.mzML: " in done.err
    assert f"{len(table)} features -> run.features.mgf and run.features.csv" in done.err


def test_the_record_of_a_run_counts_what_was_left_out(duallgd, run_file, tmp_path, measured):
    done = duallgd("predict", run_file, "-o", "o.csv", *FAST[:-1], "--rt", "30-", "--mz", "-190")

    record = json.loads((tmp_path / "o.csv.run.json").read_text("utf-8"))
    scans = record["scans"]
    total = sum(one.level == 2 for one in measured.scans)
    assert scans["spectra"] == total
    assert record["spectra"] + sum(scans["left_out"].values()) == total
    assert set(scans["left_out"]) == {
        "outside the retention times", "outside the precursor m/z"
    }  # fmt: skip
    assert f"{scans['features']} features of {total} MS2 spectra; left out are" in done.err
    assert f"read as {scans['features']} features" in done.err
    assert record["settings"]["features"]["rt"] == "30-"


def test_shards_and_an_interrupted_run_have_the_features_of_the_whole(duallgd, run_file, tmp_path):
    duallgd("predict", run_file, "-o", "whole.csv", *FAST)
    for shard in ("1/3", "2/3", "3/3"):
        assert duallgd("predict", run_file, "-o", "o.csv", "--shard", shard, *FAST).code == 0
    assert duallgd("merge", "o.csv", "-o", "o.csv", "-q").code == 0
    journal = (tmp_path / "whole.csv.journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "torn.csv.journal.jsonl").write_bytes(b"".join(journal[:4]))
    assert duallgd("predict", run_file, "-o", "torn.csv", "--resume", *FAST).code == 0

    whole = (tmp_path / "whole.csv").read_bytes()
    assert (tmp_path / "o.csv").read_bytes() == whole
    assert (tmp_path / "torn.csv").read_bytes() == whole


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("features RUN --rt 9-3", 2, "features: rt must be a span such as 60-600"),
        ("features RUN --mz high", 2, "features: mz must be a span such as 60-600"),
        ("features RUN --group-by time", 2, "run, feature, none"),
        ("features RUN --rt-window -1", 2, "rt_window must be at least 0"),
        ("features RUN -o RUN", 2, "run.mzML"),
        ("features absent.mzML", 66, "absent.mzML"),
        ("features RUN --rt 5000-", 65, "is left: 52 outside the retention times; widen the"),
        ("predict RUN -o o.csv --rt 5000-", 65, "is left: 52 outside the retention times"),
        ("predict SPECTRA -o o.csv --mz 100-150 --samples 2 --steps 1", 0, "since it is no run"),
        ("formulas SPECTRA -o o.csv --mz 100-150", 0, "since it is no run"),
        ("formulas RUN -o o.csv --rt 9-3", 2, "rt must be a span such as 60-600"),
        ("features RUN --group-by none --mz 100-150", 0, "run.mzML are read, with --group-by none"),
        ("formulas RUN -o o.csv --rt 5000-", 65, "is left: 52 outside the retention times"),
        ("score RUN -o o.csv --structures MINE --samples 2 --steps 1 --rt 5000-", 65,
            "is left: 52 outside the retention times"),
    ],
)  # fmt: skip
def test_what_is_refused_or_said(duallgd, run_file, spectra, tmp_path, arguments, code, said):
    (tmp_path / "mine.smi").write_text("Cn1cnc2c1c(=O)n(C)c(=O)n2C caffeine\n")
    files = {"RUN": run_file, "SPECTRA": spectra, "MINE": "mine.smi"}
    words = [files.get(one, one) for one in arguments.split()]

    done = duallgd(*words)

    assert done.code == code, done.err
    assert said in done.err
