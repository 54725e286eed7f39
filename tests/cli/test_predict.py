"""`duallgd predict` and `merge`, as a person at a terminal or a pipeline meets them."""

import gzip
import json
import logging
from collections import Counter
from types import SimpleNamespace

import pytest
from rich.console import Console

from duallgd_cli.cli import display
from duallgd_cli.cli.options import default_output
from duallgd_cli.writers.formats import PART_COLUMNS
from tests.made_runs import lines_of, rows_of
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf

FEW = ("--samples", "4", "--top-k", "2")


@pytest.fixture
def guided(duallgd, spectra, formulas, tmp_path):
    """Predict the examples from a few samples, with options; what it did and its record."""

    def run(output, *options):
        given = ("--formulas", formulas, "--samples", 5, "-o", output)
        done = duallgd("predict", spectra, *given, *options)
        return done, json.loads((tmp_path / f"{output}.run.json").read_text())["settings"]

    return run


def test_examples_give_candidates_for_every_spectrum(duallgd, spectra, formulas, tmp_path):
    options = ("--formulas", formulas, "-o", "out.csv", "--strict", *FEW)

    done = duallgd("predict", spectra, *options)

    rows = rows_of(tmp_path / "out.csv")
    assert (done.code, done.out) == (0, "")
    assert "12 of 12 spectra with candidates, read as 11 features, 22 candidates" in done.err
    assert {index for row in rows for index in row["indices"].split()} == set(map(str, range(12)))
    assert {row["status"] for row in rows} == {"ok"}
    assert json.loads((tmp_path / "out.csv.run.json").read_text())["counts_by_status"] == {"ok": 12}


def test_strict_makes_skipped_spectra_an_error_after_writing_everything(duallgd, spectra, tmp_path):
    one = ("--formula", "C8H10N4O2")  # of two spectra, read together

    done = duallgd("predict", spectra, *one, "-o", "out.csv", "--strict", *FEW)

    assert (done.code, len(rows_of(tmp_path / "out.csv"))) == (1, 2 + 10)


@pytest.mark.parametrize("output", [("-o", "-"), ()], ids=["asked for", "not said"])
def test_piped_input_gives_rows_on_standard_output_and_nothing_else(
    duallgd, spectra, tmp_path, output
):
    done = duallgd("predict", "-", *output, *FEW, stdin=spectra.read_bytes())

    sources = Counter(row["formula_source"] for row in done.rows)
    assert (done.code, sources) == (0, {"file": 2 * 9, "predicted": 2 * 2})
    assert done.out.startswith("spectrum_id,file,")
    assert "12 of 12 spectra with candidates" in done.err
    assert not list(tmp_path.iterdir())


def test_the_output_is_named_without_endings_and_after_a_folder_however_it_is_said(
    tmp_path, monkeypatch
):
    (tmp_path / "shelf" / "plant" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shelf" / "plant")
    names = {f"data/plant.1.mgf{ending}": "plant.1" for ending in ("", ".gz", ".GZ", ".xz", ".bz2")}
    names |= {".": "plant", "..": "shelf", "below": "below", "below/../": "plant"}

    assert {given: default_output([given], None) for given in names} == {
        given: f"{name}.structures.csv" for given, name in names.items()
    }


def test_settings_come_from_a_file_then_options_then_assignments(duallgd, spectra, tmp_path):
    (tmp_path / "my.yaml").write_text("top_k: 1\nseed: 5\nsampling:\n  samples: 3\n  steps: 7\n")

    duallgd(
        *("predict", spectra, "-o", "out.csv", "--config", "my.yaml", "--seed", "6"),
        *("--ppm", "4", "--set", "sampling.steps=9", "--precursor-ppm", "101"),
    )

    settings = json.loads((tmp_path / "out.csv.run.json").read_text())["settings"]
    assert (settings["top_k"], settings["seed"]) == (1, 6)
    assert (settings["sampling"]["samples"], settings["sampling"]["steps"]) == (3, 9)
    assert settings["annotation"]["orbitrap_ppm"] == settings["annotation"]["qtof_ppm"] == 4
    assert settings["limits"]["precursor_ppm"] == 101
    assert settings["formula_search"]["precursor_ppm"] == 100  # the most that is looked for


@pytest.mark.parametrize(
    ("command", "place", "kept"),
    [
        ("merge a.csv -o b.csv", "predict.run.write_pieces", "stopped; nothing was written"),
        ("report a.csv -o b.html", "report.write_atomically", "stopped; nothing was written"),
        ("selftest", "predict.selftest.predict_spectra", "stopped; no check was finished"),
        (
            "predict SPECTRA -o b.csv --report b.html --samples 2",
            "report.write_atomically",
            "stopped; b.csv is whole: duallgd report b.csv goes on",
        ),
    ],
)
def test_ctrl_c_is_one_sentence_that_says_what_is_kept(
    duallgd, spectra, tmp_path, monkeypatch, command, place, kept
):
    duallgd("predict", spectra, "-o", "a.csv", *FEW)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"duallgd_cli.{place}", stop)
    done = duallgd(*command.replace("SPECTRA", str(spectra)).split())

    assert done.code == 130
    assert done.err.splitlines()[-1].startswith(f"error: {kept}")
    assert (tmp_path / "b.csv").exists() is ("is whole" in kept)
    assert not (tmp_path / "b.html").exists()


def test_a_constraint_that_no_sample_meets_is_said_in_the_row(guided, tmp_path):
    (tmp_path / "own.yaml").write_text("sampling: {exclude_known: true}\n")
    options = {
        "without [#6D5]": ("out.csv", "--require", "[#6D5]", "--exclude-known"),
        "it lacks 1 Si": ("file.csv", "--require", "[Si]", "--config", "own.yaml"),
    }

    for said, given in options.items():
        _, settings = guided(*given)
        rows = rows_of(tmp_path / given[0])
        assert {row["status"] for row in rows} == {"no_candidate"}
        assert all(said in row["message"] for row in rows)
        assert settings["sampling"]["exclude_known"] is True


def test_each_candidate_is_told_from_the_nearest_analogue(guided, tmp_path):
    (tmp_path / "mine.csv").write_text("name,smiles,feature_id\nol,CCCCO,\nphenol,Oc1ccccc1,2\n")

    done, settings = guided("out.jsonl", "--analogues", "mine.csv")

    assert done.code == 0
    nearest = {
        (line["feature_id"] == "2", candidate["analogue"]["name"])
        for line in lines_of(tmp_path / "out.jsonl")
        for candidate in line["candidates"]
        if set(candidate["analogue"]) == {"smiles", "name", "tanimoto", "change"}
    }
    assert nearest >= {(False, "ol"), (True, "phenol")}
    assert (False, "phenol") not in nearest
    assert settings["analogues"][0]["name"] == "mine.csv"
    (tmp_path / "mine.csv").write_text("smiles\nCCO\n")
    refused, _ = guided("out.jsonl", "--analogues", "mine.csv", "--resume")
    assert (refused.code, "analogues" in refused.err) == (2, True)


def test_a_spectrum_of_a_library_is_found_and_offered_first(guided, spectra, tmp_path):
    pytest.importorskip("matchms")
    formula, smiles = "FORMULA=C8H10N4O2\n", "SMILES=Cn1cnc2c1c(=O)n(C)c(=O)n2C\n"
    (tmp_path / "lib.mgf").write_text(spectra.read_text().replace(formula, formula + smiles))

    _, settings = guided("out.jsonl", "--library", "lib.mgf")

    assert settings["libraries"][0]["name"] == "lib.mgf"
    line, *_ = (line for line in lines_of(tmp_path / "out.jsonl") if line.get("library_match"))
    match, first = line["library_match"], line["candidates"][0]
    assert match["offered"]
    assert (first["smiles"], "library" in first["sources"]) == (match["smiles"], True)
    assert 0.5 < match["probability"] <= first["confidence"] < 1
    assert "found in lib.mgf" in line["message"] + line["warnings"] + line["assumptions"]


def test_a_table_guides_single_features_and_is_part_of_the_run(guided, tmp_path):
    (tmp_path / "guide.csv").write_text("feature_id,forbid,core\n2,[OX2]-[#1],\n4,,[Si]\n")

    done, settings = guided("out.jsonl", "--guide", "guide.csv")

    assert done.code == 0, done.err
    lines = {line["feature_id"]: line for line in lines_of(tmp_path / "out.jsonl")}
    assert lines["4"]["status"] == "core_mismatch"
    assert [name for name, line in lines.items() if "not calibrated" in line["warnings"]] == ["2"]
    assert settings["tables"][0]["name"] == "guide.csv"
    (tmp_path / "guide.csv").write_text("feature_id,forbid\n2,[F]\n")
    refused, _ = guided("out.jsonl", "--guide", "guide.csv", "--resume")
    assert (refused.code, "tables" in refused.err) == (2, True)


def test_every_part_has_a_probability_and_merge_writes_the_same(
    duallgd, example_run, own_run, tmp_path
):
    written = example_run.with_suffix(".parts.csv")
    for name, *more in (("again.csv", "--parts"), ("with.jsonl", "--parts"), ("without.jsonl",)):
        assert duallgd("merge", own_run, "-o", name, *more, "-q").code == 0

    rows = rows_of(written)
    assert set(rows[0]) == set(PART_COLUMNS)
    assert all(0 < float(row["probability"]) < 1 for row in rows)
    assert all(row["part"] and row["kind"] and row["smarts"] for row in rows)
    moved = written.read_text().replace(str(example_run.parent), str(own_run.parent))
    assert (tmp_path / "again.parts.csv").read_text() == moved
    assert sum(len(line["parts"]) for line in lines_of(tmp_path / "with.jsonl")) == len(rows)
    assert '"parts"' not in (tmp_path / "without.jsonl").read_text(encoding="utf-8")


def test_hardly_any_samples_say_nothing_of_parts_and_that_is_said_once(duallgd, tmp_path):
    made = mgf(tmp_path / "in.mgf", block(ASPIRIN), block(CAFFEINE))

    done = duallgd("predict", made, "-o", "out.csv", "--parts", "--samples", "4")

    said = "parts of 2 features are not stated: their probabilities take 10 samples or more"
    assert (done.code, rows_of(tmp_path / "out.parts.csv")) == (0, [])
    assert (done.err.count("parts"), said in done.err) == (1, True)


@pytest.mark.parametrize(
    "command",
    [
        "predict in.mgf.gz -o out.csv --samples 2 --steps 1",
        "score in.mgf.gz --structures mine.smi -o out.csv --samples 2 --steps 1",
        "formulas in.mgf.gz -o out.csv --top-k 1",
        "features in.mgf.gz -o out.mgf",
    ],
)
def test_a_file_that_is_cut_off_is_said_at_the_end(duallgd, tmp_path, command):
    whole = gzip.compress("".join(block(ALANINE, title=f"{n}") for n in range(40)).encode())
    (tmp_path / "in.mgf.gz").write_bytes(whole[:-30])
    (tmp_path / "mine.smi").write_text("CC(N)C(=O)O alanine\n")

    done = duallgd(*command.split())

    assert (done.code, "the file ends early after" in done.err.splitlines()[-1]) == (0, True)


@pytest.fixture
def terminal(monkeypatch):
    shown = Console(stderr=True, force_terminal=True, width=120)
    monkeypatch.setattr(display, "console", lambda: shown)


@pytest.fixture
def clock(monkeypatch):
    """Stands for the module `time`; `now` is what it says."""
    made = SimpleNamespace(now=100.0, monotonic=lambda: made.now)
    monkeypatch.setattr(display, "time", made)
    return made


@pytest.mark.parametrize(
    ("total", "seconds", "n_spectra", "resumed", "expected"),
    [
        # A tenth each, the time for reading left out.
        (20, 5, 5, 0, ["2 of 20 spectra, 0:01:30 left", "4 of 20 spectra, 0:01:20 left"]),
        (2, 5, 2, 0, ["1 of 2 spectra, 0:00:05 left", "2 of 2 spectra"]),
        # A minute each, where a tenth takes longer.
        (1000, 20, 7, 0, ["3 of 1000 spectra, 5:32:20 left", "6 of 1000 spectra, 5:31:20 left"]),
        # What a journal held is done, but says nothing of the pace.
        (10, 10, 1, 8, ["9 of 10 spectra, 0:00:10 left"]),
        (None, 40, 4, 0, ["2 spectra", "4 spectra"]),  # standard input has no number
        (20, 0.01, 20, 0, []),
    ],
)
def test_a_log_has_a_line_for_a_tenth_or_a_minute(
    clock, caplog, total, seconds, n_spectra, resumed, expected
):
    result = object()  # of a hypothesis; the display only asks whether there is one

    with caplog.at_level(logging.INFO), display.progress(False, total) as tell:
        tell("reading", 0, None)
        clock.now += 30
        tell("predicting", 0, None)
        for _ in range(resumed):
            tell("predicting", 1, None)
        for _ in range(n_spectra):
            clock.now += seconds
            tell("predicting", 1, result)
            tell("predicting", 0, result)  # a further hypothesis
        tell("writing", 0, None)

    said = [record.getMessage() for record in caplog.records]
    assert said == [f"predicting: {line}" for line in expected]


def test_a_terminal_has_an_estimate_after_the_first_feature(clock, terminal, capsys):
    with display.progress(True, 5) as quiet:
        assert quiet is None
    with display.progress(False, 3) as tell:
        tell("predicting", 0, None)
        clock.now += 100
        tell("predicting", 1, object())

    assert "predicting, 0:03:20 left" in capsys.readouterr().err


def test_a_terminal_sees_a_bar_and_the_first_candidates_unless_quiet(duallgd, spectra, terminal):
    shown = duallgd("predict", spectra, "-o", "out.csv", *FEW)
    quiet = duallgd("predict", spectra, "-o", "out.csv", "--force", "--quiet", *FEW)

    for said in ("loading libraries and weights", "12/12", "first candidate", "C8H10N4O2"):
        assert said in shown.err
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_where_nobody_watches_the_input_is_not_read_to_be_counted(duallgd, spectra, monkeypatch):
    def counted(*_):
        raise AssertionError

    monkeypatch.setattr("duallgd_cli.spectra.features.count_spectra", counted)

    assert duallgd("predict", spectra, "-o", "out.csv", *FEW).code == 0


def test_a_long_list_of_candidates_is_cut_and_titles_are_shown_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(display, "console", lambda: Console(stderr=True, width=80))
    best = SimpleNamespace(formula="C2H6O", smiles="C" * 200, confidence=0.5)
    one = SimpleNamespace(feature_id="[red]x", source=1, group=[1], formula="", candidates=[best])
    none = SimpleNamespace(**vars(one) | {"candidates": [], "status": "no_formula"})
    one.status = "ok"

    display.show_candidates([one, none, *[one] * display.MOST_SHOWN])

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == display.MOST_SHOWN + 2
    assert max(map(len, lines)) <= 80
    for line, said in zip([*lines[1:3], lines[-1]], ("[red]x", "no formula", "more"), strict=True):
        assert said in line
    assert "█████░░░░░  50%" in lines[1]
