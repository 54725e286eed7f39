"""Commands that are ended at random moments, begun again, and compared with undisturbed ones."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from duallgd_cli.evaluate.leakage import TrainingHashes
from tests import labelled_table
from tests.conftest import EXAMPLES

ROOT = EXAMPLES.parent
STUB = "tests.fuzz.stub_command"
PREDICT = f"predict {EXAMPLES / 'spectra.mgf'} -q --samples 4 --group-by none"
# What is run, what goes on with it, and the files that are the same whatever happened meanwhile;
# those that do most are first.
JOBS = {
    "predict, with all that is known, parts, report": (
        f"{STUB} 0.1 {PREDICT} -o parts.csv --workers 2 --parts --report parts.html --guide "
        "guide.csv --library library.mgf --analogues mine.smi --database mine.smi",
        "--resume",
        "parts.csv parts.parts.csv",
    ),
    "evaluate": (
        f"{STUB} 0.1 evaluate --benchmark labelled.tsv --fold test -o r --workers 2 --samples 4 "
        "--no-mces --train-hashes none.hashes",
        "--resume",
        "r/predictions.csv r/results.json",
    ),
    "predict": (f"{STUB} 0.1 {PREDICT} -o out.csv", "--resume", "out.csv"),
    "merge": (f"{STUB} 0 merge finished.csv -o merged.csv", "--force", "merged.csv"),
    "report": (f"{STUB} 0 report finished.csv -o page.html", "--force", "page.html"),
}
WAYS = ("SIGKILL of a worker", "SIGTERM", "SIGINT", "SIGKILL")
# What a command ends with: as the signal leaves it, or as it says that it, or a worker, was ended.
CODES = {
    "SIGKILL": {-signal.SIGKILL},
    "SIGTERM": {130, -signal.SIGTERM},
    "SIGINT": {130, -signal.SIGINT},
    "SIGKILL of a worker": {75},
}


def kill_and_resume(kills, seed, folder):
    """End so many commands, each at a random moment; every one goes on to its end.

    Commands and ways to end them come in turn: so many as there are pairs of them are all pairs.

    Returns:
        How often each ended in which way.

    Raises:
        AssertionError: One ended otherwise than it should, or gave other bytes in the end.
    """
    rng, seen, whole, lasts_s = random.Random(seed), Counter(), {}, {}
    _prepare(folder / "inputs")
    for turn in range(kills):
        name = list(JOBS)[turn % len(JOBS)]
        command, go_on, outputs = JOBS[name]
        if name not in whole:
            started = time.monotonic()
            whole[name] = _outputs(command, _copy(folder), outputs)
            lasts_s[name] = time.monotonic() - started
        how = WAYS[(turn + turn // len(JOBS)) % len(WAYS)]
        after_s = rng.uniform(0, 1) * lasts_s[name]
        # The machine may be faster by now; as soon as it is ready, a command is not yet done.
        while not (ended := _end(command, place := _copy(folder), how, after_s)):
            after_s /= 2
        again = _outputs(f"{command} {go_on}", place, outputs)
        assert again == whole[name], f"{name} after {ended}"
        seen[f"{name}: {ended}"] += 1
    return seen


def _prepare(folder):
    """All that the commands read."""
    folder.mkdir()
    (folder / "mine.smi").write_text("Oc1ccccc1 phenol\nCCO\nCC(=O)Oc1ccccc1C(=O)O aspirin\n")
    (folder / "guide.csv").write_text("feature_id,require,analogue\n1,[OX2],CCCO\n2,,CCO\n")
    text = (EXAMPLES / "spectra.mgf").read_text()
    formula, smiles = "FORMULA=C8H10N4O2\n", "SMILES=Cn1cnc2c1c(=O)n(C)c(=O)n2C\n"
    (folder / "library.mgf").write_text(text.replace(formula, formula + smiles))
    labelled_table.write(folder / "labelled.tsv")
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(folder / "none.hashes")
    _outputs(f"{STUB} 0 {PREDICT} -o finished.csv", folder, "")


def _copy(folder):
    """A folder of its own for a command."""
    shutil.rmtree(folder / "here", ignore_errors=True)
    return Path(shutil.copytree(folder / "inputs", folder / "here"))


def _begin(command, folder):
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "DUALLGD_CACHE": str(folder.parent / "cache"),
        "DUALLGD_DATABASES": str(folder.parent / "databases"),
        "OMP_NUM_THREADS": "2",
    }
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    words = [sys.executable, "-m", *command.split()]
    return subprocess.Popen(words, cwd=folder, env=environment, **pipes)


def _outputs(command, folder, names):
    """What a command that nobody disturbs leaves in these files."""
    run = _begin(command, folder)
    said = run.communicate()[1]
    assert (run.returncode, "Traceback" in said) == (0, False), said
    return {name: _content(folder / name) for name in names.split()}


def _content(path):
    """Bytes of a file; results of an evaluation without times and places."""
    if path.suffix == ".json":
        results = json.loads(path.read_text())
        return {name: results[name] for name in ("metrics", "groups", "statuses")}
    return path.read_bytes()


def _end(command, folder, how, after_s):
    """Begin a command and end it some time after it is ready; how, or None: it was done before."""
    run = _begin(command, folder)
    while run.poll() is None and not _is_ready(run.pid):
        time.sleep(0.01)
    time.sleep(after_s)
    workers = workers_of(run.pid) if "worker" in how else []
    how = how if workers else how.removesuffix(" of a worker")
    with contextlib.suppress(ProcessLookupError):
        os.kill((workers or [run.pid])[0], getattr(signal, how.split()[0]))
    said = run.communicate()[1]
    if run.returncode == 0:
        return None
    what = f"{command} after {how}: {run.returncode}, {said}"
    assert run.returncode in CODES[how], what
    assert "Traceback" not in said, what
    ended_from_outside = "a process was ended from outside, probably for want of memory" in said
    assert ended_from_outside == (run.returncode == 75), what
    # What is killed outright cleans up nothing; Python's tracker does, and says so.
    assert how == "SIGKILL" or "leaked" not in said, what
    assert said.count("error: ") == (run.returncode > 0), what
    return how


def _is_ready(pid):
    """Whether a command has a say in how it ends: Python alone takes SIGTERM as it comes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it ended, or this system says nothing
        return not Path("/proc/self/status").exists()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def workers_of(pid):
    """Processes that share the work of a command."""
    command = ["ps", "-ww", "-o", "pid=", "-o", "args=", "--ppid", str(pid)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "spawn_main" in line]
