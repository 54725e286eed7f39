"""Commands as processes: they are stopped, or write where nobody reads."""

import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import EXAMPLES
from tests.fuzz.kills import workers_of
from tests.made_spectra import ASPIRIN, CAFFEINE, block, mgf

pytestmark = pytest.mark.slow
STUB = (sys.executable, "-m", "tests.fuzz.stub_command")
BOMB = ".".join(f"[#{n},#6]" for n in range(20, 30))  # of nine and of eight carbons
HOUR_S = 3600
PREDICT = f"predict {EXAMPLES / 'spectra.mgf'} -o - --samples 2 --quiet"
FULL = "error: cannot write to standard output: No space left on device"


@pytest.fixture
def begin(tmp_path):
    """Begin to predict 18 spectra, each of which takes its process so many seconds.

    The first few are predicted by the command itself, in a second at most.
    """
    spectra = (block(one, scale=1 + n) for n in range(9) for one in (ASPIRIN, CAFFEINE))
    inputs = mgf(tmp_path / "in.mgf", *spectra)

    def start(name, delay_s, *options):
        words = (delay_s, "predict", inputs, "-o", tmp_path / name, "-q", "--group-by", "none")
        command = [*STUB, *map(str, words), *options, "--workers", "2"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    return start


def wait_for(run, output, n_lines, n_processes=0):
    """Return once the journal of a run has so many lines, and it so many processes."""
    journal = output.with_name(output.name + ".journal.jsonl")
    while run.poll() is None:
        lines = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if lines >= n_lines and len(workers_of(run.pid)) >= n_processes:
            return
        time.sleep(0.02)
    raise AssertionError(f"it ended before: {run.communicate()[1]}")


@pytest.mark.parametrize(("how", "resume"), [(signal.SIGINT, ()), (signal.SIGTERM, ["--resume"])])
def test_a_run_with_workers_ends_when_it_is_asked_to(begin, tmp_path, how, resume):
    output = tmp_path / "out.csv"
    if resume:
        first = begin("out.csv", HOUR_S)
        wait_for(first, output, 2)
        first.kill()
        first.communicate()
    run = begin("out.csv", HOUR_S, *resume)
    wait_for(run, output, 1, 2)
    time.sleep(1)  # mostly at work by then; it ends alike where not

    run.send_signal(how)
    said = run.communicate()[1]

    assert run.returncode == 130  # not on its own, after hours
    assert (said[:16], said.count("\n")) == ("error: stopped; ", 1)  # nothing of semaphores


def test_a_pattern_without_end_is_a_row_in_seconds(begin, tmp_path):
    run = begin("out.csv", 0, "--require", BOMB, "--samples", "8")
    run.communicate()

    rows = (tmp_path / "out.csv").read_text().splitlines()[1:]
    assert (run.returncode, len(rows)) == (0, 18)
    assert all("no_candidate" in row and "takes more than 100,000 steps" in row for row in rows)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{PREDICT} | head -n 1", ""),
        (f"{PREDICT} >/dev/full", FULL),
        (f"{PREDICT} >&-", "error: standard output is closed; name a file with -o"),
        *((f"{line} >/dev/full", FULL) for line in ("--version", "--help", "database --help")),
    ],
)
def test_standard_output_that_takes_no_more_is_one_sentence_at_most(line, said):
    command = f"{' '.join(STUB)} 0 {line}"

    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr.strip()) == (2 if said else 0, said)
    assert done.stdout.startswith("spectrum_id,") is (not said)
