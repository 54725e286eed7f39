"""`duallgd predict --features`: a table of features comes back with the answers."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.made_run import ions_of, measure, mzml, of_molecule
from tests.made_runs import rows_of
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, NICOTINE, block, mgf

# Caffeine, aspirin as its sodium adduct, a row that no spectrum is of.
QUANT = (
    "row ID,row m/z,row retention time,best ion,a.mzML Peak area,formula\n"
    "7,195.08765,1.0,[M+H]+,120000.50,=1+1\n"
    "8,400.1,3.0,,7,\n"
    "9,203.03148,2.0,[M+Na]+,3.4E+05,mine\n"
)
FAST = ("--samples", 6, "--steps", 1, "-q")
MASSES = {"caffeine": 195.08765, "aspirin": 203.03148}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "quant.csv").write_text(QUANT, "utf-8")
    return mgf(
        tmp_path / "in.mgf",
        block(CAFFEINE, feature_id=7, rtinseconds=61, ionmode="positive").replace(
            "ADDUCT=[M+H]+\n", ""
        ),
        block(ASPIRIN, "[M+Na]+", rtinseconds=170, feature_id=9),
        block(NICOTINE, feature_id=4, rtinseconds=30),
    )


def test_a_table_comes_back_with_its_own_columns_first(duallgd, files, tmp_path):
    done = duallgd("predict", files, "--features", "quant.csv", "-o", "out.csv", *FAST[:-1])

    assert done.code == 0, done.err
    with (tmp_path / "out.features.csv").open(newline="", encoding="utf-8") as file:
        heads, *lines = csv.reader(file)
    own = list(csv.reader(QUANT.splitlines()))
    assert heads[:6] == own[0]
    assert [line[:6] for line in lines] == [*own[1:], [""] * 6]
    rows = rows_of(tmp_path / "out.features.csv")
    answers = {
        row["feature_id"]: row for row in rows_of(tmp_path / "out.csv") if row["rank"] == "1"
    }
    caffeine, absent, aspirin, nicotine = rows
    for row, name in ((caffeine, "7"), (aspirin, "9"), (nicotine, "4")):
        assert row["duallgd_feature_id"] == name
        for column in ("formula", "smiles", "inchikey", "confidence", "adduct", "status"):
            assert row[f"duallgd_{column}"] == answers[name][column]
    assert [row["duallgd_joined_by"] for row in rows] == ["id", "", "id", ""]
    assert absent["duallgd_status"] == "no_spectrum"
    assert "m/z and retention time" in absent["duallgd_message"]
    assert caffeine["duallgd_adduct_source"] == "table"
    assert aspirin["duallgd_adduct_source"] == "file"
    assert "is 170 s in the file and 120 s in the table" in answers["9"]["warnings"]
    assert answers["7"]["warnings"] == answers["7"]["assumptions"] == ""
    assert (
        "quant.csv: 2 features joined (2 by id); without a spectrum are 1 row (rows 8)" in done.err
    )


def test_shards_give_the_table_of_the_whole(duallgd, files, tmp_path):
    duallgd("predict", files, "--features", "quant.csv", "-o", "out.csv", *FAST)
    for shard in ("1/2", "2/2"):
        part = ("--features", "quant.csv", "-o", "o.csv", "--shard", shard)
        assert duallgd("predict", files, *part, *FAST).code == 0

    done = duallgd("merge", "o.csv", "-o", "o.csv", "--features", "quant.csv", "-q")

    assert done.code == 0, done.err
    whole = (tmp_path / "out.features.csv").read_bytes()
    assert (tmp_path / "o.features.csv").read_bytes() == whole


def test_a_run_joins_by_mz_and_retention_time_whatever_the_ids_are(duallgd, tmp_path):
    compounds = [of_molecule(ALANINE, "a", 20), of_molecule(CAFFEINE, "b", 60)]
    run = mzml(measure(np.random.default_rng(1), compounds, 90, noise=20), tmp_path / "run.mzML")
    (tmp_path / "quant.csv").write_text(QUANT.replace("7,195", "1,195"), "utf-8")

    duallgd("predict", run, "--features", "quant.csv", "-o", "out.csv", *FAST)

    caffeine, absent, other, *alone = rows_of(tmp_path / "out.features.csv")
    assert caffeine["duallgd_joined_by"] == "m/z and RT"
    assert caffeine["duallgd_formula"] == "C8H10N4O2"
    assert {absent["duallgd_status"], other["duallgd_status"]} == {"no_spectrum"}
    assert alone
    assert not any(row["duallgd_joined_by"] for row in alone)


def test_features_of_one_compound_have_the_answer_of_the_one_that_answers(duallgd, tmp_path):
    mass = 194.08038  # caffeine
    heights = {"[M+H]+": 1e6, "[M+Na]+": 4e5, "[M+NH4]+": 3e5}
    ions = ions_of(np.random.default_rng(2), "caffeine", mass, 60, heights)
    other = of_molecule(ALANINE, "alanine", 20)
    made = measure(np.random.default_rng(5), [other, *ions], 90, noise=20)
    (tmp_path / "quant.csv").write_text("id,mz,rt\n3,217.0696,60\n", "utf-8")

    duallgd(
        "predict", mzml(made, tmp_path / "run.mzML"), "--features", "quant.csv", "--parts",
        *("-o", "out.csv", "--samples", 20, "--steps", 1, "-q"),
    )  # fmt: skip

    rows = rows_of(tmp_path / "out.features.csv")
    same = [row for row in rows if row["duallgd_status"] == "same_compound"]
    by_id = {row["duallgd_feature_id"]: row for row in rows}
    assert {row["duallgd_adduct"] for row in same} >= {"[M+Na]+", "[M+NH4]+"}
    for row in same:
        _, name, ion, *_ = row["duallgd_message"].split()
        answer = by_id[name]
        assert ion == f"({answer['duallgd_adduct']})"
        assert answer["duallgd_smiles"]
        for column in ("formula", "smiles", "inchikey", "confidence", "level", "parts"):
            assert row[f"duallgd_{column}"] == answer[f"duallgd_{column}"]


def test_a_table_that_changed_is_another_run(duallgd, files, tmp_path):
    duallgd("predict", files, "--features", "quant.csv", "-o", "out.csv", *FAST)
    (tmp_path / "quant.csv").write_text(QUANT.replace("[M+H]+", "[M+K]+"), "utf-8")

    done = duallgd("predict", files, "--features", "quant.csv", "-o", "out.csv", "--resume", *FAST)

    assert done.code == 2
    assert "features_sha256" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--features absent.csv -o out.csv --force", 66, "absent.csv does not exist"),
        ("--features in.mgf -o out.csv --force", 65, "in.mgf is no table of features"),
        ("--features quant.csv -o -", 2, "--features needs an output file"),
        ("--features quant.csv -o quant.csv --force", 2, "the table of features"),
        ("--features out.features.csv -o out.csv --force", 2, "out.features.csv"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_predicted(
    duallgd, files, tmp_path, arguments, code, said
):
    (tmp_path / "out.features.csv").write_text(QUANT, "utf-8")

    done = duallgd("predict", files, *arguments.split(), *FAST)

    assert done.code == code
    assert said in done.err
    assert (tmp_path / "quant.csv").read_text("utf-8") == QUANT
    assert (tmp_path / "out.features.csv").read_text("utf-8") == QUANT


def test_a_program_finds_the_files_that_the_page_for_mzmine_names(duallgd, files, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "mzmine.md").read_text("utf-8")
    outputs = ("--summary", "mzmine", "--report", "out.html")

    done = duallgd("predict", files, "--features", "quant.csv", "-o", "OUT.csv", *outputs, *FAST)

    assert done.code == 0, done.err
    for name in ("OUT.csv", "OUT.features.csv", "OUT.mzmine.csv", "OUT.csv.run.json"):
        assert f"`{name}`" in page
        assert (tmp_path / name).is_file()
    assert {row["id"] for row in rows_of(tmp_path / "OUT.mzmine.csv")} == {"4", "7", "9"}
