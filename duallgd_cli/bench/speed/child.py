"""One cell measured: here, or in a fresh process, where the peak of memory is its own."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from duallgd_cli.bench.speed.cells import Cell, Measured, Reading, Subject, Work
from duallgd_cli.bench.speed.default_jobs import DefaultJobs
from duallgd_cli.bench.speed.floors import count_work
from duallgd_cli.bench.speed.inputs import Job
from duallgd_cli.bench.speed.measure import Times, peak_memory, timed
from duallgd_cli.bench.speed.networks import DefaultNetwork, network_of
from duallgd_cli.bench.speed.reference_jobs import ReferenceJobs
from duallgd_cli.errors import DuallgdError
from duallgd_cli.predict.generate import for_inference
from duallgd_cli.runtime import Runtime

# Libraries load their kernels in a first run of so many atoms, lest that count as the work's.
_WARM_UP_ATOMS: Final = 5
_MODULE: Final = "duallgd_cli.bench.speed.child"
_MESSAGE, _READINGS, _RESULT = "message.json", "readings.json", "result{}.npy"


def read_cells(cells: Sequence[Cell]) -> list[Measured]:
    """Measure cells of one subject one after the other: on a CPU, in a fresh process.

    Raises:
        DuallgdError: A cell cannot be measured, or the process ended early.
    """
    if cells[0].subject.device != "cpu":
        return [measure_cell(cell) for cell in cells]
    with tempfile.TemporaryDirectory(prefix="duallgd-bench-") as name:
        folder = Path(name)
        message = json.dumps([dataclasses.asdict(cell) for cell in cells])
        (folder / _MESSAGE).write_text(message, encoding="utf-8")
        _run_child([sys.executable, "-m", _MODULE, name], cells[0])
        found = json.loads((folder / _READINGS).read_text(encoding="utf-8"))
        return [
            (_reading(values), np.load(folder / _RESULT.format(number)))
            for number, values in enumerate(found)
        ]


def measure_cell(cell: Cell) -> Measured:
    """Measure a cell in this process."""
    subject = cell.subject
    runtime = Runtime.resolve(subject.device, subject.precision, threads=subject.threads)
    network = network_of(subject, cell.kernel)
    with torch.inference_mode():
        _job(replace(cell, atoms=_WARM_UP_ATOMS, samples=1), runtime).run()
        job = _job(cell, runtime)
        memory, how, times, result = _measured(job, subject, runtime.device)
    about = network.about
    reading = Reading(
        times.wall_s, times.cpu_s, memory, how, about.name, about.parameters, about.val_top1,
        job.at_once, _work(cell, runtime),
    )  # fmt: skip
    return reading, result.to("cpu", torch.float32).numpy()


def _measured(
    job: Job, subject: Subject, device: torch.device
) -> tuple[float, str, Times, torch.Tensor]:
    """Peak memory of a job and how it was read, times, and what it computes."""
    memory: list[tuple[float, str]] = []
    latest: dict[str, torch.Tensor] = {}

    def run() -> None:
        latest["result"] = job.run()

    times = timed(lambda: memory.append(peak_memory(run, device)), 1, 0.0, device)
    # Work that fills the limit by itself is not run again for warm memory, which hardly matters to
    # it; on a GPU the first run also compiles.
    if device.type != "cpu" or times.wall_s[0] < subject.limit_s:
        times = timed(run, 1, 0.0, device)
        if times.wall_s[0] * 2 < subject.limit_s:
            # That run was the first to find its memory warm; with time left it only warms up.
            times = timed(run, subject.repeats, subject.limit_s, device)
    return *memory[0], times, latest["result"]


def _work(cell: Cell, runtime: Runtime) -> Work | None:
    """Operations of one evaluation for one graph; counted for the fast path alone."""
    if cell.path != "fast":
        return None
    part = "attention" if cell.part == "attention" else "forward"
    job = _job(replace(cell, part=part, samples=1, steps=1), replace(runtime, compile=False))
    return count_work(job.run, job.measured, 1)


def _job(cell: Cell, runtime: Runtime) -> Job:
    network = network_of(cell.subject, cell.kernel)
    if cell.path == "plain":
        runtime = replace(runtime, compile=False)
    jobs: DefaultJobs | ReferenceJobs
    if isinstance(network, DefaultNetwork):
        jobs = DefaultJobs(for_inference(network.model, runtime), runtime)
    else:
        jobs = ReferenceJobs(network.model.to(runtime.device), network.settings, runtime)
    makers: dict[str, Callable[[Cell], Job]] = {
        "attention": jobs.attention,
        "forward": jobs.forward,
        "loop": jobs.loop,
    }
    return makers[cell.part](cell)


def _run_child(command: list[str], cell: Cell) -> None:
    # Its input stays open as long as this process lives, however that ends: see `_end_with_parent`.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            complaint = child.stderr.read() if child.stderr else ""
            child.wait()
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        reason = complaint.strip().splitlines()[-1:] or [_ending(child.returncode)]
        failure = DuallgdError(f"measuring {cell} failed: {reason[0]}")
        failure.exit_code = max(1, child.returncode)
        raise failure


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed, perhaps for want of memory; try fewer atoms or samples"
    return f"its process ended with code {code}"


def _reading(found: dict[str, Any]) -> Reading:
    work = found.pop("work")
    for name in ("wall_s", "cpu_s"):
        found[name] = tuple(found[name])
    return Reading(**found, work=None if work is None else Work(**work))


def _end_with_parent() -> None:
    """End this process when the one that started it has gone and its end of the pipe with it."""
    os.read(sys.stdin.fileno(), 1)  # not through `sys.stdin`, whose lock would outlive the program
    os._exit(1)


def main(folder: Path) -> None:
    """Measure the cells that a folder's message describes, and leave the answers there."""
    readings = []
    for number, values in enumerate(json.loads((folder / _MESSAGE).read_text(encoding="utf-8"))):
        cell = Cell(**(values | {"subject": Subject(**values["subject"])}))
        reading, result = measure_cell(cell)
        np.save(folder / _RESULT.format(number), result)
        readings.append(dataclasses.asdict(reading))
    (folder / _READINGS).write_text(json.dumps(readings), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        main(Path(sys.argv[1]))
    except DuallgdError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
