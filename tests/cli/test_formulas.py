"""`duallgd formulas`: rows for every spectrum, good or bad."""

import sys

import pytest

from duallgd_cli.formulas.rows import COLUMNS
from tests.made_runs import first_rows, lines_of, rows_of
from tests.made_spectra import (
    ASPIRIN,
    BROMINATED,
    CAFFEINE,
    CHLORINATED,
    NICOTINE,
    block,
    mgf,
    ms1_block,
)


@pytest.fixture
def spectra(tmp_path):
    return mgf(
        tmp_path / "made.mgf",
        block(ASPIRIN, formula=None, feature_id="A", scans="7"),
        block(CAFFEINE, formula="C99H9", feature_id="B"),  # the file's own is not read
        block(NICOTINE, adduct="[M+H]+", formula=None),
    )


def test_each_spectrum_has_its_formulas_best_first(duallgd, spectra):
    done = duallgd("formulas", spectra, "--top-k", 3)

    first, *_ = rows = done.rows
    assert list(first) == list(COLUMNS)
    assert [(row["rank"], row["formula"]) for row in rows[::3]] == [
        *(("1", "C9H8O4"), ("1", "C8H10N4O2"), ("1", "C10H14N2"))
    ]
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    assert (first["feature_id"], first["scans"], first["status"]) == ("A", "7", "ok")
    assert (float(first["probability"]) > 0.8, float(first["explained_peaks"])) == (True, 4)
    assert (done.code, "3 of 3 spectra" in done.err) == (0, True)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_formats_hold_the_same(duallgd, spectra, tmp_path, ending):
    place = tmp_path / f"out.{ending}"

    assert duallgd("formulas", spectra, "-o", place, "--top-k", 2).code == 0

    rows = lines_of(place) if ending == "jsonl" else rows_of(place)
    assert (rows[0]["formula"], len(rows)) == ("C9H8O4", 6)
    assert rows[0]["isotope_score"] == (None if ending == "jsonl" else "")


@pytest.mark.parametrize("molecule", [CHLORINATED, BROMINATED])
def test_ms1_spectra_turn_a_wrong_first_formula_into_the_right_one(duallgd, tmp_path, molecule):
    fragments = block(molecule, formula=None, feature_id=1)
    with_ms1 = mgf(tmp_path / "a.mgf", ms1_block(molecule, feature_id=1), fragments)

    shown, bare = (
        duallgd("formulas", file, "-q", "--top-k", 1).rows[0]
        for file in (with_ms1, mgf(tmp_path / "b.mgf", fragments))
    )

    assert shown["formula"] == molecule[0] != bare["formula"]
    assert float(shown["probability"]) > 0.9
    assert (-1 < float(shown["isotope_score"]) <= 0, bare["isotope_score"]) == (True, "")


@pytest.mark.parametrize("adduct", ["", "ADDUCT=[2M+Na]+\n", "CHARGE=2+\n", "POLARITY=?\n"])
def test_what_was_tried_is_said_where_something_was(duallgd, tmp_path, adduct):
    whole = block(ASPIRIN, formula=None).replace("ADDUCT=[M+H]+\n", adduct)
    bare = block(ASPIRIN, formula=None, pepmass=None).replace("ADDUCT=[M+H]+\n", adduct)

    rows = first_rows(duallgd("formulas", mgf(tmp_path / "a.mgf", whole, bare)).rows)

    assert rows["1"]["status"] in {"no_precursor", "unsupported_adduct"}
    for row in rows.values():
        said = "were tried" in row["message"] or "are not calibrated" in row["message"]
        assert said == (row["status"] == "ok"), row


def test_a_charge_that_is_not_understood_is_said_once(duallgd, tmp_path):
    bare = block(ASPIRIN, formula=None, charge="abc").replace("ADDUCT=[M+H]+\n", "")

    (row,) = duallgd("formulas", mgf(tmp_path / "a.mgf", bare)).rows

    assert row["status"] == "unsupported_adduct"
    assert row["message"].count("charge 'abc' is not understood") == 1


@pytest.mark.parametrize(
    ("command", "adduct", "pepmass", "said"),
    [
        ("formulas", "2M+Na", "383.07374", "take it for [M+Na]+; probabilities are not calibrated"),
        ("predict", "[M+K-2H]-", "393.03", "take it for [M-H]-; probabilities are not calibrated"),
    ],
)
def test_an_adduct_of_ones_own_decides_and_is_warned_of(
    duallgd, tmp_path, command, adduct, pepmass, said
):
    made = mgf(tmp_path / "made.mgf", block(ASPIRIN, pepmass=pepmass))
    wide = ("--precursor-ppm", 1e6) if command == "predict" else ()

    duallgd(command, made, "--adduct", adduct, "--top-k", 1, "-o", "out.csv", *wide)

    row = rows_of(tmp_path / "out.csv")[0]
    assert (row["formula"], row["adduct"].strip("[]+-"), row["status"]) == (
        *("C9H8O4", adduct.strip("[]+-"), "ok"),
    )
    assert said in row["warnings" if command == "predict" else "message"]


@pytest.mark.parametrize(
    ("given", "name"), [((), "made.formulas.csv"), (("--format", "jsonl"), "made.formulas.jsonl")]
)
def test_at_a_terminal_they_go_to_a_file_as_structures_do(
    duallgd, spectra, tmp_path, monkeypatch, given, name
):
    piped = duallgd("formulas", spectra, *given)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    at_terminal = duallgd("formulas", spectra, *given)
    asked = duallgd("formulas", spectra, "-o", "-", *given)

    assert (piped.code, at_terminal.code, at_terminal.out) == (0, 0, "")
    assert (tmp_path / name).read_text() == piped.out == asked.out
    assert f"-> {name}" in at_terminal.err
    assert f"the output {name} exists" in duallgd("formulas", spectra, *given).err
