"""`duallgd formulas`: rows for every spectrum, good or bad."""

import sys

import pytest
from typer.testing import CliRunner

from duallgd_cli.cli import app
from duallgd_cli.errors import UsageError
from duallgd_cli.formulas.rows import COLUMNS
from tests.cli.conftest import python
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


def run(*arguments):
    return CliRunner().invoke(app, ["formulas", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def spectra(tmp_path):
    return mgf(
        tmp_path / "made.mgf",
        block(ASPIRIN, formula=None, feature_id="A", scans="7"),
        block(CAFFEINE, formula="C99H9", feature_id="B"),
        block(NICOTINE, adduct="[M+H]+", formula=None),
    )


def test_each_spectrum_has_its_formulas_best_first(spectra):
    result = run(spectra, "--top-k", 3)

    rows = rows_of(result.stdout)
    assert result.exit_code == 0
    assert list(rows[0]) == list(COLUMNS)
    assert [row["formula"] for row in rows if row["rank"] == "1"] == [
        "C9H8O4",
        "C8H10N4O2",  # the file's own is not read
        "C10H14N2",
    ]
    first = rows[0]
    assert (first["feature_id"], first["scans"], first["status"]) == ("A", "7", "ok")
    assert float(first["probability"]) > 0.8
    assert float(first["explained_peaks"]) == 4
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    assert "3 of 3 spectra" in result.stderr


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_formats_hold_the_same(spectra, tmp_path, ending):
    place = tmp_path / f"out.{ending}"
    assert run(spectra, "-o", place, "--top-k", 2).exit_code == 0

    rows = lines_of(place) if ending == "jsonl" else rows_of(place)
    assert rows[0]["isotope_score"] == (None if ending == "jsonl" else "")
    assert [row["formula"] for row in rows][:1] == ["C9H8O4"]
    assert len(rows) == 6
    with pytest.raises(UsageError, match="exists; name another output, or add --force"):
        run(spectra, "-o", place)
    assert run(spectra, "-o", place, "--force", "-q").exit_code == 0


@pytest.mark.parametrize("molecule", [CHLORINATED, BROMINATED])
def test_ms1_spectra_turn_a_wrong_first_formula_into_the_right_one(tmp_path, molecule):
    fragments = block(molecule, formula=None, feature_id=1)
    files = [mgf(tmp_path / "a.mgf", ms1_block(molecule, feature_id=1), fragments)]
    files += [mgf(tmp_path / "b.mgf", fragments)]

    shown, bare = (rows_of(run(file, "-q", "--top-k", 1).stdout)[0] for file in files)

    assert shown["formula"] == molecule[0] != bare["formula"]
    assert float(shown["probability"]) > 0.9
    assert -1 < float(shown["isotope_score"]) <= 0
    assert bare["isotope_score"] == ""


@pytest.mark.parametrize("adduct", ["", "ADDUCT=[2M+Na]+\n", "CHARGE=2+\n", "POLARITY=?\n"])
def test_what_was_tried_is_said_where_something_was(tmp_path, adduct):
    whole = block(ASPIRIN, formula=None).replace("ADDUCT=[M+H]+\n", adduct)
    bare = block(ASPIRIN, formula=None, pepmass=None).replace("ADDUCT=[M+H]+\n", adduct)

    rows = first_rows(rows_of(run(mgf(tmp_path / "a.mgf", whole, bare)).stdout))

    tried = ("were tried", "probabilities are not calibrated")
    assert rows["1"]["status"] in {"no_precursor", "unsupported_adduct"}
    for row in rows.values():
        said = any(words in row["message"] for words in tried)
        assert said == (row["status"] == "ok"), row


def test_torch_is_not_loaded(spectra):
    program = (
        "import sys; from duallgd_cli.cli import app\n"
        f"app(['formulas', {spectra!r}, '-q'], standalone_mode=False)\n"
        "assert not {'torch', 'scipy', 'matplotlib'} & set(sys.modules)"
    )

    done = python("-c", program)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("spectrum_id,")


def test_an_adduct_of_ones_own_is_used_and_noted(tmp_path):
    dimer = mgf(tmp_path / "dimer.mgf", block(ASPIRIN, formula=None, pepmass="383.07374"))

    row = rows_of(run(dimer, "--adduct", "2M+Na", "--top-k", 1).stdout)[0]

    assert (row["formula"], row["adduct"], row["status"]) == ("C9H8O4", "[2M+Na]+", "ok")
    assert "take it for [M+Na]+; probabilities are not calibrated" in row["message"]


@pytest.mark.parametrize(
    ("given", "name"), [((), "made.formulas.csv"), (("--format", "jsonl"), "made.formulas.jsonl")]
)
def test_at_a_terminal_they_go_to_a_file_as_structures_do(
    duallgd, spectra, tmp_path, monkeypatch, given, name
):
    piped = duallgd("formulas", spectra, *given)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    at_terminal = duallgd("formulas", spectra, *given)
    again = duallgd("formulas", spectra, *given)
    asked = duallgd("formulas", spectra, "-o", "-", *given)

    assert (piped.code, at_terminal.code, at_terminal.out) == (0, 0, "")
    assert (tmp_path / name).read_text() == piped.out == asked.out
    assert f"-> {name}" in at_terminal.err
    assert f"the output {name} exists" in again.err
