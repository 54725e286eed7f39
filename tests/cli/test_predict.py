"""`duallgd predict` and `duallgd merge`, as a person at a terminal or a pipeline meets them."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from rich.console import Console

from duallgd_cli.cli import display
from duallgd_cli.cli.options import default_output
from tests.made_runs import rows_of
from tests.made_spectra import ASPIRIN, block, mgf
from tests.unit.writers.test_writers import HEADER

FEW = ("--samples", "4", "--top-k", "2")


def test_examples_give_candidates_for_every_spectrum(duallgd, spectra, formulas, tmp_path):
    done = duallgd("predict", spectra, "--formulas", formulas, "-o", "out.csv", *FEW)

    text = (tmp_path / "out.csv").read_text()
    rows = rows_of(text)
    assert done.code == 0
    assert done.out == ""
    assert "12 of 12 spectra with candidates, read as 11 features, 22 candidates" in done.err
    assert text.splitlines()[0] == HEADER
    assert {index for row in rows for index in row["indices"].split()} == set(map(str, range(12)))
    assert {row["status"] for row in rows} == {"ok"}
    assert json.loads((tmp_path / "out.csv.run.json").read_text())["counts_by_status"] == {"ok": 12}


@pytest.mark.parametrize("output", [("-o", "-"), ()], ids=["asked for", "not said"])
def test_piped_input_gives_rows_on_standard_output_and_nothing_else(
    duallgd, spectra, tmp_path, output
):
    done = duallgd("predict", "-", *output, *FEW, stdin=spectra.read_bytes())

    assert done.code == 0
    assert done.out.splitlines()[0] == HEADER
    sources = Counter(row["formula_source"] for row in done.rows)
    assert sources == {"file": 2 * 9, "predicted": 2 * 2}
    assert "12 of 12 spectra with candidates" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *((f"data/plant.1.mgf{ending}", "plant.1") for ending in ("", ".gz", ".xz", ".bz2")),
        (".", "plant"),
        ("..", "shelf"),
        ("below", "below"),
        ("below/../", "plant"),
    ],
)
def test_the_output_is_named_without_endings_and_after_a_folder_however_it_is_said(
    given, name, tmp_path, monkeypatch
):
    (tmp_path / "shelf" / "plant" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shelf" / "plant")

    assert default_output([given], None) == f"{name}.structures.csv"


def test_strict_makes_skipped_spectra_an_error_after_writing_everything(
    duallgd, spectra, formulas, tmp_path
):
    one = ("--formula", "C8H10N4O2")  # of two spectra, read together
    skipped = duallgd("predict", spectra, *one, "-o", "out.csv", "--strict", *FEW)
    complete = duallgd(
        "predict", spectra, "--formulas", formulas, "-o", "all.csv", "--strict", *FEW
    )

    assert skipped.code == 1
    assert len(rows_of(tmp_path / "out.csv")) == 2 + 10
    assert complete.code == 0


def test_an_adduct_of_ones_own_decides_and_is_warned_of(duallgd, tmp_path):
    dimer = mgf(tmp_path / "dimer.mgf", block(ASPIRIN, pepmass="393.03"))
    path = tmp_path / "out.csv"

    result = duallgd("predict", dimer, "--adduct", "[M+K-2H]-", "--precursor-ppm", 1e6, "-o", path)

    assert result.code == 0, result.err
    row = rows_of(path)[0]
    assert (row["adduct"], row["status"]) == ("[M+K-2H]-", "ok")
    assert "take it for [M-H]-; probabilities are not calibrated" in row["warnings"]


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


def test_a_terminal_sees_a_bar_and_the_first_candidates_unless_quiet(duallgd, spectra, monkeypatch):
    terminal = Console(stderr=True, force_terminal=True, width=120)
    monkeypatch.setattr(display, "console", lambda: terminal)

    shown = duallgd("predict", spectra, "-o", "out.csv", *FEW)
    quiet = duallgd("predict", spectra, "-o", "out.csv", "--force", "--quiet", *FEW)

    for said in ("loading libraries and weights", "12/12"):
        assert said in shown.err
    assert "first candidate" in shown.err
    assert "C8H10N4O2" in shown.err
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


STUB = (sys.executable, "-m", "tests.fuzz.stub_command")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("| head -n 1", 0, ""),
        (">/dev/full", 2, "error: cannot write to standard output: No space left on device"),
        (">&-", 2, "error: standard output is closed; name a file with -o"),
    ],
)
def test_standard_output_that_takes_no_more_is_one_sentence_at_most(
    spectra, redirected, code, said
):
    command = f"{' '.join(STUB)} 0 predict {spectra} -o - --samples 2 --quiet {redirected}"

    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, cwd=spectra.parents[1]
    )

    assert (done.returncode, done.stderr.strip()) == (code, said)
    assert done.stdout.startswith("spectrum_id,") is (code == 0)


@pytest.mark.slow
def test_ctrl_c_while_the_weights_load_is_one_sentence_at_once(spectra, tmp_path):
    program = (
        "import time\n"
        "from duallgd_cli.predict import api\n"
        "api.load = lambda *_, **__: (print('loading', flush=True), time.sleep(600))\n"
        "from duallgd_cli.__main__ import run\n"
        "run()\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program, "predict", str(spectra), "-o", str(tmp_path / "out.csv")],
        cwd=spectra.parents[1], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    started.stdout.readline()

    started.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    _, err = started.communicate(timeout=300)

    assert time.monotonic() - pressed < 600
    assert started.returncode == 130
    assert err.splitlines()[-1] == "error: stopped before anything was computed"
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("merge", "a.csv", "-o", "b.csv"), "duallgd_cli.predict.run.write_pieces"),
        (("report", "a.csv", "-o", "b.html"), "duallgd_cli.report.write_atomically"),
        (("selftest",), "duallgd_cli.predict.selftest.predict_spectra"),
    ],
)
def test_ctrl_c_in_what_keeps_nothing_is_one_sentence(
    duallgd, spectra, tmp_path, monkeypatch, command, name
):
    duallgd("predict", spectra, "-o", "a.csv", *FEW)
    before = sorted(tmp_path.iterdir())

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(name, stop)
    done = duallgd(*command)

    assert done.code == 130
    assert done.err.splitlines()[-1].startswith("error: stopped; n")
    assert sorted(tmp_path.iterdir()) == before


def test_ctrl_c_while_the_page_is_written_leaves_the_output_and_says_so(
    duallgd, spectra, tmp_path, monkeypatch
):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("duallgd_cli.report.write_atomically", stop)
    done = duallgd("predict", spectra, "-o", "a.csv", "--report", "a.html", *FEW)

    assert done.code == 130
    assert "a.csv is whole: duallgd report a.csv goes on" in " ".join(done.err.split())
    assert (tmp_path / "a.csv").exists()
