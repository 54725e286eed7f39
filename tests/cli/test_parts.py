"""`--parts`: a table of what structures contain, from a run or from its journal."""

from rich.console import Console

from duallgd_cli.cli import display
from duallgd_cli.writers.formats import PART_COLUMNS
from tests.made_runs import lines_of, rows_of
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf
from tests.unit.writers.test_writers import FAILED, candidate, prediction


def test_every_part_has_a_probability_and_merge_writes_the_same(
    duallgd, example_run, own_run, tmp_path
):
    folder, written = own_run.parent, example_run.with_suffix(".parts.csv")
    for name in ("again.csv", "with.jsonl"):
        assert duallgd("merge", own_run, "-o", name, "--parts", "-q").code == 0
    duallgd("merge", own_run, "-o", "without.jsonl", "-q")

    rows = rows_of(written)
    assert set(rows[0]) == set(PART_COLUMNS)
    assert all(0 < float(row["probability"]) < 1 for row in rows)
    assert all(row["part"] and row["kind"] and row["smarts"] for row in rows)
    moved = written.read_text().replace(str(example_run.parent), str(folder))
    assert (tmp_path / "again.parts.csv").read_text() == moved
    assert sum(len(line["parts"]) for line in lines_of(tmp_path / "with.jsonl")) == len(rows)
    assert '"parts"' not in (tmp_path / "without.jsonl").read_text(encoding="utf-8")


def test_hardly_any_samples_say_nothing_and_that_is_said_once(duallgd, tmp_path):
    made = mgf(tmp_path / "in.mgf", block(ASPIRIN), block(CAFFEINE))

    done = duallgd("predict", made, "-o", "out.csv", "--parts", "--samples", "4")

    assert done.code == 0, done.err
    assert rows_of(tmp_path / "out.parts.csv") == []
    assert done.err.count("parts") == 1
    assert (
        "parts of 2 features are not stated: their probabilities take 10 samples or more "
        "(--samples)" in done.err
    )


def test_a_long_list_is_cut_and_titles_are_shown_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(display, "console", lambda: Console(stderr=True, width=80))
    first = prediction(candidate(smiles="C" * 200, confidence=0.5), feature_id="[red]x")

    display.show_candidates([first, FAILED, *[first] * display.MOST_SHOWN])
    lines = capsys.readouterr().err.splitlines()

    assert len(lines) == display.MOST_SHOWN + 2
    assert "[red]x" in lines[1]
    assert "█████░░░░░  50%" in lines[1]
    assert "no formula" in lines[2]
    assert max(map(len, lines)) <= 80
    assert "more" in lines[-1]
