"""Runs that are killed without warning, resumed, and compared with one that was not."""

import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = (str(ROOT / "examples" / "spectra.mgf"), "--samples", "20", "--group-by", "none")
DELAY_S = 0.1
N_SPECTRA = 12


def kill_and_resume(kills, seed, folder):
    """Kill runs at random moments until `kills` have hit; each is resumed to its end.

    Returns:
        Journal lines that the killed runs left, one number a kill.

    Raises:
        AssertionError: A resumed run differs from the uninterrupted one in a single byte.
    """
    whole = folder / "whole.csv"
    assert _started(whole).wait() == 0
    rng = random.Random(seed)
    survived = []
    while len(survived) < kills:
        output = folder / f"killed-{len(survived)}.csv"
        lines = _killed(output, rng)
        if lines is None:
            continue  # it was done before the kill came
        assert _started(output, "--resume").wait() == 0, "the resumed run failed"
        assert output.read_bytes() == whole.read_bytes(), f"{output} differs from {whole}"
        survived.append(lines)
    return survived


def _killed(output, rng):
    """Start a run and kill it at a random moment between its first and its last spectrum."""
    journal = output.with_name(output.name + ".journal.jsonl")
    enough = rng.randint(1, N_SPECTRA)
    run = _started(output)
    while run.poll() is None and _lines(journal) < enough:
        time.sleep(0.005)
    time.sleep(rng.uniform(0, DELAY_S))
    run.kill()
    if run.wait() == 0:
        output.unlink()
        return None
    assert not output.exists(), "a killed run left a half-written output"
    return _lines(journal)


def _lines(journal):
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def _started(output, *more):
    """The command on the examples; every spectrum takes a little while."""
    command = [sys.executable, "-m", "tests.fuzz.stub_command", str(DELAY_S), "predict"]
    return subprocess.Popen([*command, *ARGUMENTS, "--quiet", "-o", str(output), *more], cwd=ROOT)
