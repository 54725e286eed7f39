"""`--parts`: a table of what structures contain, from a run or from its journal."""

import csv
import json

import pytest
from rich.console import Console

from duallgd_cli.cli import display
from duallgd_cli.report.contents import FirstCandidate
from duallgd_cli.writers.formats import PART_COLUMNS


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


@pytest.fixture
def written(duallgd, spectra, formulas, tmp_path):
    done = duallgd("predict", spectra, "--formulas", formulas, "-o", "out.csv", "--parts", "-q")
    assert done.code == 0, done.err
    return tmp_path / "out.parts.csv"


def test_every_part_of_the_table_has_a_probability(written):
    rows = rows_of(written)

    assert rows
    assert set(rows[0]) == set(PART_COLUMNS)
    assert all(0 < float(row["probability"]) < 1 for row in rows)
    assert all(row["part"] and row["kind"] and row["smarts"] for row in rows)


def test_merge_and_resume_give_the_same_table(written, duallgd, spectra, formulas, tmp_path):
    merged = duallgd("merge", "out.csv", "-o", "again.csv", "--parts", "-q")
    resumed = duallgd(
        *("predict", spectra, "--formulas", formulas, "-o", "out.csv", "--resume", "--parts", "-q")
    )

    assert (merged.code, resumed.code) == (0, 0)
    assert (tmp_path / "again.parts.csv").read_bytes() == written.read_bytes()
    assert rows_of(written)


def test_json_lines_hold_parts_only_if_asked(written, duallgd, tmp_path):
    duallgd("merge", "out.csv", "-o", "with.jsonl", "--parts", "-q")
    duallgd("merge", "out.csv", "-o", "without.jsonl", "-q")
    lines = (tmp_path / "with.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line)["parts"] for line in lines]

    assert sum(map(len, found)) == len(rows_of(written))
    assert '"parts"' not in (tmp_path / "without.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options", [("-o", "-"), ("-o", "out.csv", "--shard", "1/2")], ids=["standard output", "shard"]
)
def test_where_no_table_can_lie_the_option_is_refused(duallgd, spectra, formulas, options):
    done = duallgd("predict", spectra, "--formulas", formulas, "--parts", *options)

    assert done.code == 2
    assert "--parts needs" in done.err


def test_a_terminal_ends_with_the_first_candidates_unless_quiet(
    duallgd, spectra, formulas, monkeypatch
):
    monkeypatch.setattr(display, "console", lambda: Console(stderr=True, force_terminal=True))
    arguments = ("predict", spectra, "--formulas", formulas, "--force", "-o", "out.csv")

    shown, quiet = duallgd(*arguments), duallgd(*arguments, "--quiet")

    assert "first candidate" in shown.err
    assert "C8H10N4O2" in shown.err
    assert "first candidate" not in quiet.err


def test_a_long_list_is_cut_and_titles_are_shown_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(display, "console", lambda: Console(stderr=True, width=80))
    first = FirstCandidate("[red]x", "C2H6O", "C" * 200, 0.5, "ok")
    failed = FirstCandidate("y", "", "", 0.0, "no_formula")

    display.show_candidates([first, failed, *[first] * display.MOST_SHOWN])
    lines = capsys.readouterr().err.splitlines()

    assert len(lines) == display.MOST_SHOWN + 2
    assert "[red]x" in lines[1]
    assert "█████░░░░░  50%" in lines[1]
    assert "no formula" in lines[2]
    assert max(map(len, lines)) <= 80
    assert "more" in lines[-1]
