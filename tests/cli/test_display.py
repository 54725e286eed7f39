"""What is said while a run goes on: a line now and then in a log, an estimate on a terminal."""

import gzip
import logging
from types import SimpleNamespace

import pytest
from rich.console import Console

from duallgd_cli.cli import display
from tests.made_spectra import ALANINE, block

RESULT = object()  # of a hypothesis; the display only asks whether there is one


@pytest.fixture
def clock(monkeypatch):
    """Stands for the module `time`; `now` is what it says."""
    made = SimpleNamespace(now=100.0, monotonic=lambda: made.now)
    monkeypatch.setattr(display, "time", made)
    return made


def walked(clock, caplog, total, seconds, n_spectra, resumed=0):
    """Lines of a log over a run of so many spectra, each of which takes so long."""
    with caplog.at_level(logging.INFO), display.progress(False, total) as tell:
        tell("reading", 0, None)
        clock.now += 30
        tell("predicting", 0, None)
        for _ in range(resumed):
            tell("predicting", 1, None)
        for _ in range(n_spectra):
            clock.now += seconds
            tell("predicting", 1, RESULT)
            tell("predicting", 0, RESULT)  # a further hypothesis
        tell("writing", 0, None)
    return [record.getMessage() for record in caplog.records]


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
    said = walked(clock, caplog, total, seconds, n_spectra, resumed)

    assert said == [f"predicting: {line}" for line in expected]


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

    assert done.code == 0
    assert "the file ends early after" in done.err.splitlines()[-1]


def test_a_terminal_has_an_estimate_after_the_first_feature(clock, monkeypatch, capsys):
    with display.progress(True, 5) as quiet:
        assert quiet is None
    terminal = Console(stderr=True, force_terminal=True, width=120)
    monkeypatch.setattr(display, "console", lambda: terminal)

    with display.progress(False, 3) as tell:
        tell("predicting", 0, None)
        clock.now += 100
        tell("predicting", 1, RESULT)

    assert "predicting, 0:03:20 left" in capsys.readouterr().err
