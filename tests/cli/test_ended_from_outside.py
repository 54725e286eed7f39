"""A process is killed while a command runs, or the command is stopped: seconds, and a sentence."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.fuzz.kills import workers_of
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf

STUB = (sys.executable, "-m", "tests.fuzz.stub_command")
BOMB = ".".join(f"[#{n},#6]" for n in range(20, 30))  # of nine and of eight carbons


@pytest.fixture
def many(tmp_path):
    return mgf(
        tmp_path / "in.mgf",
        *(block(one, scale=1 + n) for n in range(9) for one in (ASPIRIN, CAFFEINE)),
    )


def begin(inputs, output, delay_s, *options):
    command = [*STUB, str(delay_s), "predict", inputs, "-o", output, "-q", "--group-by", "none"]
    command += options
    environment = os.environ | {"DUALLGD_CACHE": str(output.parent / "cache")}
    return subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for(run, output, n_lines, n_processes=0):
    """Processes of a run, once its journal has so many lines and there are so many of them."""
    journal = output.with_name(output.name + ".journal.jsonl")
    while run.poll() is None:
        lines = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if lines >= n_lines and len(found := workers_of(run.pid)) >= n_processes:
            return found
        time.sleep(0.02)
    raise AssertionError(f"it ended before: {run.communicate()[1]}")


# While they load libraries, and while they are at work.
@pytest.mark.slow
@pytest.mark.parametrize("n_lines", [2, 6])
def test_a_killed_worker_is_a_sentence_and_the_run_goes_on_to_the_same_bytes(
    many, tmp_path, n_lines
):
    options = ("--samples", "4", "--workers", "2")
    whole, killed = tmp_path / "whole.csv", tmp_path / "killed.csv"
    assert begin(many, whole, 0, *options).communicate()[1] == ""

    run = begin(many, killed, 0.5, *options)
    os.kill(wait_for(run, killed, n_lines, 2)[-1], signal.SIGKILL)
    _, err = run.communicate(timeout=300)
    _, again = begin(many, killed, 0, *options, "--resume").communicate()

    assert run.returncode == 75
    assert err == (
        "error: a process was ended from outside, probably for want of memory; finished work is "
        "kept, and --resume with fewer --workers goes on\n"
    )
    assert again == ""
    assert killed.read_bytes() == whole.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("how", "resume"), [(signal.SIGINT, ()), (signal.SIGTERM, ["--resume"])])
def test_a_run_with_workers_ends_when_it_is_asked_to(many, tmp_path, how, resume):
    output = tmp_path / "out.csv"
    if resume:
        first = begin(many, output, 0.5, "--workers", "2")
        wait_for(first, output, 2)
        first.kill()
        first.communicate()
    run = begin(many, output, 3600, "--workers", "2", *resume)
    wait_for(run, output, 1, 2)
    time.sleep(1)

    run.send_signal(how)
    _, err = run.communicate(timeout=300)  # not the hour that a spectrum takes

    assert run.returncode == 130
    (said,) = err.splitlines()  # nothing of semaphores
    assert said.startswith("error: stopped; ")


@pytest.mark.slow
def test_a_pattern_without_end_is_a_row_in_seconds(many, tmp_path):
    output = tmp_path / "out.csv"

    run = begin(many, output, 0, "--require", BOMB, "--workers", "2", "--samples", "8")
    run.communicate(timeout=300)

    assert run.returncode == 0
    rows = output.read_text().splitlines()[1:]
    assert len(rows) == 18
    assert all("no_candidate" in row and "takes more than 100,000 steps" in row for row in rows)
