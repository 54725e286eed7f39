"""Runs of an instrument: features, predictions of them, and tables that come back with answers."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.made_run import ions_of, measure, mzml, of_molecule
from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf

COMPOUNDS = [
    of_molecule(molecule, name, rt)
    for molecule, name, rt in (
        (ALANINE, "alanine", 20), (ASPIRIN, "aspirin", 40), (CAFFEINE, "caffeine", 60),
        (NICOTINE, "nicotine", 62),
    )
]  # fmt: skip
FEW = ("--samples", 6, "--steps", 1, "--formula-candidates", 2)
# What a row says of the file that it was read from.
OF_THE_FILE = {"spectrum_id", "file", "index", "indices", "scans", "message", "name"}
# Caffeine, a row that no spectrum is of, aspirin as its sodium adduct.
QUANT = (
    "row ID,row m/z,row retention time,best ion,a.mzML Peak area,formula\n"
    "7,195.08765,1.0,[M+H]+,120000.50,=1+1\n"
    "8,400.1,3.0,,7,\n"
    "9,203.03148,2.0,[M+Na]+,3.4E+05,mine\n"
)


@pytest.fixture(scope="module")
def measured():
    return measure(np.random.default_rng(1), COMPOUNDS, 90, noise=20)


@pytest.fixture
def run_file(measured, tmp_path):
    return mzml(measured, tmp_path / "run.mzML")


@pytest.fixture
def quant(tmp_path):
    """A table of features, and spectra of two of its rows and of none."""
    (tmp_path / "quant.csv").write_text(QUANT, "utf-8")
    caffeine = block(CAFFEINE, feature_id=7, rtinseconds=61, ionmode="positive")
    return mgf(
        tmp_path / "in.mgf",
        caffeine.replace("ADDUCT=[M+H]+\n", ""),
        block(ASPIRIN, "[M+Na]+", rtinseconds=170, feature_id=9),
        block(NICOTINE, feature_id=4, rtinseconds=30),
    )


def test_features_of_a_run_are_those_that_are_predicted_and_their_table_says_what_they_are(
    duallgd, run_file, tmp_path, measured
):
    done = duallgd("features", run_file)
    for name in ("run.mzML", "run.features.mgf"):
        assert duallgd("predict", name, "-o", f"{name}.csv", *FEW, "-q").code == 0

    answers, again = (
        [{name: row[name] for name in set(row) - OF_THE_FILE} for row in rows_of(tmp_path / name)]
        for name in ("run.mzML.csv", "run.features.mgf.csv")
    )
    assert again == answers
    assert {row["formula"] for row in answers if row["rank"] == "1"} >= {
        *("C9H8O4", "C8H10N4O2", "C10H14N2", "C3H7NO2")
    }
    table = rows_of(tmp_path / "run.features.csv")
    rows = list({row["feature_id"]: row for row in rows_of(tmp_path / "run.mzML.csv")}.values())
    assert f"{len(table)} features -> run.features.mgf and run.features.csv" in done.err
    assert [row["indices"] for row in table] == [row["indices"] for row in rows]
    indices = [int(index) for row in table for index in row["indices"].split()]
    assert sorted(indices) == [n for n, scan in enumerate(measured.scans) if scan.level == 2]
    for row, listed in zip(rows, table, strict=True):
        assert row["usi"] == listed["usi"] == ""  # the file states none
        first, *others = row["indices"].split()
        assert row["index"] == first
        assert f"read together with index {', '.join(others)}" in row["message"] or not others
        assert int(listed["scans"]) == len(listed["indices"].split())
    (caffeine,) = [row for row in table if row["precursor_mz"].startswith("195.08")]
    assert (caffeine["energies"], caffeine["polarity"]) == ("20.0 40.0 60.0", "positive")
    assert float(caffeine["rt_start"]) < 60 < float(caffeine["rt_end"])
    assert float(caffeine["rt_seconds"]) == pytest.approx(60, abs=3)
    assert float(caffeine["precursor_intensity"]) == pytest.approx(1e6, rel=0.3)
    (heavy,) = [row for row in table if row["precursor_mz"].startswith("196.09")]
    assert "taken for its isotope" in heavy["remarks"]


def test_the_record_of_a_run_counts_what_was_left_out(duallgd, run_file, tmp_path, measured):
    done = duallgd("predict", run_file, "-o", "o.csv", *FEW, "--rt", "30-", "--mz", "-190")

    record = json.loads((tmp_path / "o.csv.run.json").read_text("utf-8"))
    scans, total = record["scans"], sum(scan.level == 2 for scan in measured.scans)
    assert scans["spectra"] == total == record["spectra"] + sum(scans["left_out"].values())
    assert set(scans["left_out"]) == {"outside the retention times", "outside the precursor m/z"}
    assert f"{scans['features']} features of {total} MS2 spectra; left out are" in done.err
    assert f"read as {scans['features']} features" in done.err
    assert record["settings"]["features"]["rt"] == "30-"


def test_shards_and_an_interrupted_run_give_what_the_whole_gives(duallgd, run_file, tmp_path):
    (tmp_path / "quant.csv").write_text(QUANT.replace("7,195", "1,195"), "utf-8")
    given = ("predict", run_file, "--features", "quant.csv", *FEW, "-q")
    duallgd(*given, "-o", "whole.csv")
    for shard in ("1/3", "2/3", "3/3"):
        assert duallgd(*given, "-o", "o.csv", "--shard", shard).code == 0
    assert duallgd("merge", "o.csv", "-o", "o.csv", "--features", "quant.csv", "-q").code == 0
    journal = (tmp_path / "whole.csv.journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "torn.csv.journal.jsonl").write_bytes(b"".join(journal[:4]))
    assert duallgd(*given, "-o", "torn.csv", "--resume").code == 0

    for ending in ("csv", "features.csv"):
        whole = (tmp_path / f"whole.{ending}").read_bytes()
        assert (tmp_path / f"o.{ending}").read_bytes() == whole
        assert (tmp_path / f"torn.{ending}").read_bytes() == whole
    # Of a run the ids are no names that a table could have.
    caffeine, absent, other, *alone = rows_of(tmp_path / "whole.features.csv")
    assert (caffeine["duallgd_joined_by"], caffeine["duallgd_formula"]) == (
        "m/z and RT",
        "C8H10N4O2",
    )
    assert absent["duallgd_status"] == other["duallgd_status"] == "no_spectrum"
    assert {row["duallgd_joined_by"] for row in alone} == {""}
    (tmp_path / "quant.csv").write_text(QUANT.replace("[M+H]+", "[M+K]+"), "utf-8")
    changed = duallgd(*given, "-o", "whole.csv", "--resume")
    assert (changed.code, "features_sha256" in changed.err) == (2, True)


def test_a_table_comes_back_with_its_own_columns_first(duallgd, quant, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "mzmine.md").read_text("utf-8")
    given = ("--features", "quant.csv", "-o", "OUT.csv", "--summary", "mzmine")

    done = duallgd("predict", quant, *given, *FEW)

    said = "quant.csv: 2 features joined (2 by id); without a spectrum: 1 row (rows 8)"
    assert said in done.err
    for name in ("OUT.csv", "OUT.features.csv", "OUT.mzmine.csv", "OUT.csv.run.json"):
        assert f"`{name}`" in page  # a program goes by it
        assert (tmp_path / name).is_file()
    assert {row["id"] for row in rows_of(tmp_path / "OUT.mzmine.csv")} == {"4", "7", "9"}
    own = list(csv.reader(QUANT.splitlines()))
    with (tmp_path / "OUT.features.csv").open(newline="", encoding="utf-8") as file:
        written = [line[:6] for line in csv.reader(file)]
    assert written == [*own, [""] * 6]
    rows = rows_of(tmp_path / "OUT.features.csv")
    answers = {
        row["feature_id"]: row for row in rows_of(tmp_path / "OUT.csv") if row["rank"] == "1"
    }
    for row, name in zip(rows, ("7", None, "9", "4"), strict=True):
        for column in ("formula", "smiles", "inchikey", "confidence", "adduct", "feature_id"):
            assert row[f"duallgd_{column}"] == (answers[name][column] if name else "")
    assert [row["duallgd_joined_by"] for row in rows] == ["id", "", "id", ""]
    assert [row["duallgd_status"] for row in rows] == ["ok", "no_spectrum", "ok", "ok"]
    assert [row["duallgd_adduct_source"] for row in rows] == ["table", "", "file", "file"]
    assert "m/z and retention time" in rows[1]["duallgd_message"]
    assert "is 170 s in the file and 120 s in the table" in answers["9"]["warnings"]
    assert answers["7"]["warnings"] == answers["7"]["assumptions"] == ""


def test_features_of_one_compound_have_the_answer_of_the_one_that_answers(duallgd, tmp_path):
    heights = {"[M+H]+": 1e6, "[M+Na]+": 4e5, "[M+NH4]+": 3e5}
    ions = ions_of(np.random.default_rng(2), "caffeine", 194.08038, 60, heights)
    other = of_molecule(ALANINE, "alanine", 20)
    run = measure(np.random.default_rng(5), [other, *ions], 90, noise=20)
    (tmp_path / "quant.csv").write_text("id,mz,rt\n3,217.0696,60\n", "utf-8")
    given = ("--features", "quant.csv", "--parts", "-o", "out.csv", "--samples", 20, "--steps", 1)

    duallgd("predict", mzml(run, tmp_path / "run.mzML"), *given, "-q")

    rows = rows_of(tmp_path / "out.features.csv")
    same = [row for row in rows if row["duallgd_status"] == "same_compound"]
    by_id = {row["duallgd_feature_id"]: row for row in rows}
    assert {row["duallgd_adduct"] for row in same} >= {"[M+Na]+", "[M+NH4]+"}
    for row in same:
        _, name, ion, *_ = row["duallgd_message"].split()
        answer = by_id[name]
        assert (ion, answer["duallgd_smiles"] > "") == (f"({answer['duallgd_adduct']})", True)
        for column in ("formula", "smiles", "inchikey", "confidence", "level", "parts"):
            assert row[f"duallgd_{column}"] == answer[f"duallgd_{column}"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("features RUN -o RUN", 2, "run.mzML"),
        ("features RUN --rt 5000-", 65, "is left: 52 outside the retention times; widen the"),
        ("predict RUN -o o.csv --rt 5000-", 65, "is left: 52 outside the retention times"),
        ("formulas RUN -o o.csv --rt 5000-", 65, "is left: 52 outside the retention times"),
        ("score RUN -o o.csv --structures mine.smi --samples 2 --steps 1 --rt 5000-", 65,
            "is left: 52 outside the retention times"),
        ("predict SPECTRA -o o.csv --mz 100-150 --samples 2 --steps 1", 0, "since it is no run"),
        ("formulas SPECTRA -o o.csv --mz 100-150", 0, "since it is no run"),
        ("features RUN --group-by none --mz 100-150", 0, "run.mzML are read, with --group-by none"),
        ("predict in.mgf --features absent.csv -o out.csv --force", 66, "absent.csv does not"),
        ("predict in.mgf --features in.mgf -o out.csv --force", 65, "is no table of features"),
        ("predict in.mgf --features quant.csv -o quant.csv --force", 2, "would overwrite an input"),
        ("predict in.mgf --features out.features.csv -o out.csv --force", 2, "out.features.csv"),
    ],
)  # fmt: skip
def test_what_is_refused_or_said(
    duallgd, run_file, quant, spectra, tmp_path, arguments, code, said
):
    (tmp_path / "mine.smi").write_text("Cn1cnc2c1c(=O)n(C)c(=O)n2C caffeine\n")
    (tmp_path / "out.features.csv").write_text(QUANT, "utf-8")
    named = arguments.replace("RUN", str(run_file)).replace("SPECTRA", str(spectra))

    done = duallgd(*named.split())

    assert (done.code, said in done.err) == (code, True), done.err
    assert (tmp_path / "quant.csv").read_text("utf-8") == QUANT
    assert (tmp_path / "out.features.csv").read_text("utf-8") == QUANT
