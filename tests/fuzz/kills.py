"""Commands that are ended at random moments, begun again, and compared with undisturbed ones."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from duallgd_cli.chem.identity import inchikey, parse_smiles
from duallgd_cli.evaluate.leakage import TrainingHashes
from tests import labelled_table
from tests.fuzz.weights import sound_weights
from tests.labelled_table import rows

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STUB = (sys.executable, "-m", "tests.fuzz.stub_command")
REAL = (sys.executable, "-m", "duallgd_cli")
SHORT = ("-q", "--samples", "4")
WAYS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGKILL of a worker")
# What a command may end with: as the signal leaves it, as it says that it was stopped, as it says
# that a worker was, or on its own because it was done.
CODES = {
    "SIGKILL": {-signal.SIGKILL},
    "SIGTERM": {130, -signal.SIGTERM},
    "SIGINT": {130, -signal.SIGINT},
    "SIGKILL of a worker": {75},
}
ENDS_IN_S = 300  # on a machine where others are at work; it takes two


@dataclass(frozen=True)
class Job:
    """A command that may be ended, and what it leaves.

    Attributes:
        command: In its folder.
        outputs: Files that are the same whatever happened meanwhile.
        again: What is added to go on, if anything.
        before: A command that makes what it reads.
        read: What of such a file is compared.
    """

    command: tuple[str, ...]
    outputs: tuple[str, ...]
    again: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    read: object = Path.read_bytes


def figures(path):
    """Results of an evaluation without its times and places."""
    found = json.loads(path.read_text())
    return {name: found[name] for name in ("metrics", "groups", "statuses")}


def tensors(path):
    """A weights file without its record, which says how long that took; its order is by chance."""
    with safe_open(path, "np") as stored:
        names = stored.keys()
        found = {n: hashlib.sha256(stored.get_tensor(n).tobytes()).hexdigest() for n in names}
        return found | {name: stored.metadata()[name] for name in ("ranking",)}


def jobs(folder):
    """All commands that take long, on inputs made here; the one that does most is first."""
    (folder / "mine.smi").write_text("Oc1ccccc1 phenol\nCCO\nCC(=O)Oc1ccccc1C(=O)O aspirin\n")
    (folder / "guide.csv").write_text("feature_id,require,analogue\n1,[OX2],CCCO\n2,,CCO\n")
    text = (EXAMPLES / "spectra.mgf").read_text()
    formula, smiles = "FORMULA=C8H10N4O2\n", "SMILES=Cn1cnc2c1c(=O)n(C)c(=O)n2C\n"
    (folder / "library.mgf").write_text(text.replace(formula, formula + smiles))
    labelled_table.write(folder / "labelled.tsv")
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(folder / "none.hashes")
    sound_weights(folder / "tiny.safetensors")
    keys = ((row["identifier"], inchikey(parse_smiles(row["smiles"]))) for row in rows())
    lines = ("identifier\tinchikey", *map("\t".join, keys))
    (folder / "truth.tsv").write_text("\n".join(lines))
    predict = ("predict", str(EXAMPLES / "spectra.mgf"), *SHORT, "--group-by", "none", "-o")
    stub, over = (*STUB, "0.1"), ("--force",)  # what was finished before is not replaced otherwise
    finished = (*STUB, "0", *predict, "finished.csv", "--force")  # two jobs read it
    run = "predict labelled.tsv -q -o run.csv --weights tiny.safetensors --samples 4 --steps 1"
    many = "--guide guide.csv --library library.mgf --analogues mine.smi --database mine.smi"
    parts = f"{many} --workers 2 --parts --report parts.html".split()
    evaluate = "evaluate --benchmark labelled.tsv --fold test -o r --workers 2 --samples 4"
    return {
        "predict, with all that is known, parts, report": Job(
            (*stub, *predict, "parts.csv", *parts), ("parts.csv", "parts.parts.csv"), ("--resume",)
        ),
        "predict": Job((*stub, *predict, "out.csv"), ("out.csv",), ("--resume",)),
        "merge": Job(
            (*stub, "merge", "finished.csv", "-o", "merged.csv"), ("merged.csv",), over, finished
        ),
        "report": Job(
            (*stub, "report", "finished.csv", "-o", "page.html"), ("page.html",), over, finished
        ),
        "evaluate": Job(
            (*stub, *evaluate.split(), "--no-mces", "--train-hashes", "none.hashes"),
            ("r/predictions.csv", "r/results.json"),
            ("--resume",),
            read=lambda path: figures(path) if path.suffix == ".json" else path.read_bytes(),
        ),
        "calibrate": Job(
            (
                *(*REAL, "calibrate", "tiny.safetensors", "--run", "run.csv"),
                *("--truth", "truth.tsv", "-o", "fitted.safetensors"),
            ),
            ("fitted.safetensors",),
            over,
            (*REAL, *run.split(), "--workers", "1"),
            tensors,
        ),
    }


def kill_and_resume(kills, seed, folder):
    """End commands at random moments until `kills` have hit; each goes on to its end.

    Returns:
        How often each ended in which way.

    Raises:
        AssertionError: One ended otherwise than it should, or gave other bytes in the end.
    """
    rng, seen = random.Random(seed), Counter()
    made = jobs(folder)
    names = list(made)
    whole, lasts_s = {}, {}
    for turn in range(20 * kills):
        if seen.total() >= kills:
            break
        name = names[turn % len(names)]
        if name not in whole:
            if made[name].before:
                command = made[name].before
                subprocess.run(command, cwd=folder, env=_environment(folder), check=True)
            started = time.monotonic()
            _run(made[name], folder)
            lasts_s[name] = time.monotonic() - started
            whole[name] = _left(made[name], folder)
        _clear(made[name], folder)
        how = rng.choice(WAYS)
        if _ended(made[name], folder, how, rng.uniform(0.02, 1) * lasts_s[name]):
            _run(made[name], folder, again=True)
            assert _left(made[name], folder) == whole[name], f"{name} after {how}"
            seen[f"{name}: {how}"] += 1
    return seen


def _ended(job, folder, how, after_s):
    """Begin a command and end it; False if it was done before."""
    run = subprocess.Popen(
        job.command, cwd=folder, env=_environment(folder),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(after_s)
    target = run.pid
    if how == "SIGKILL of a worker":
        target = next(iter(workers_of(run.pid)), None)
    if target is not None:
        try:
            os.kill(target, getattr(signal, how.split()[0]))
        except ProcessLookupError:
            target = None
    asked = time.monotonic()
    _, err = run.communicate()
    if run.returncode == 0 or target is None:
        return False
    what = f"{job.command} after {how}: {run.returncode}, {err}"
    assert time.monotonic() - asked < ENDS_IN_S, what
    assert run.returncode in CODES[how], what
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in err, what
    # What is killed outright cleans up nothing; Python's tracker does, and says so.
    assert how == "SIGKILL" or "leaked" not in err, what
    assert len(said) == (run.returncode > 0), what
    return True


def _run(job, folder, *, again=False):
    command = (*job.command, *job.again) if again else job.command
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def _left(job, folder):
    return {name: job.read(folder / name) for name in job.outputs}


def _clear(job, folder):
    """What a run of the command has left."""
    for name in job.outputs:
        place = folder / name
        parent = place.parent if place.parent != folder else None
        for path in sorted(folder.glob("**/*"), reverse=True):
            is_inside = parent is not None and parent in path.parents
            if is_inside or (path.parent == folder and path.name.startswith(place.stem + ".")):
                path.rmdir() if path.is_dir() else path.unlink()


def _environment(folder):
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "DUALLGD_CACHE": str(folder / "cache"),
        "DUALLGD_DATABASES": str(folder / "databases"),
        "OMP_NUM_THREADS": "2",
    }


def workers_of(pid):
    """Processes that share the work of a command."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=", "-o", "args=", "--ppid", str(pid)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]
