"""Growth of time and memory with the number of atoms: every size, kernel and part of the network.

Every row states parameters, operations and accuracy of the weights, since a goal is not met by a
network that knows less. An interrupted run goes on where it was. Where the machine was busy, or
times are too far apart to say how they grow, no exponent and no crossing is stated.
Letters: N heavy atoms, S candidates, J steps.
"""

import csv
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from duallgd_cli.bench.growth import (
    KERNELS,
    PARTS,
    Row,
    busy,
    conclusions,
    median_and_iqr,
    time_s,
)
from duallgd_cli.bench.measure import Cell, Reading, Subject, read_cells
from duallgd_cli.bench.network import RANDOM
from duallgd_cli.bench.work import MIB, Ceilings, Work, describe, floor_s, load, measure_ceilings
from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.errors import InterruptedRunError, UsageError, quote
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import Runtime

TABLE, RESULTS, UNFINISHED = "scaling.csv", "results.json", "unfinished.jsonl"
# Columns of the table. Times are medians over `repeats` runs with interquartile ranges; `clock`
# says which of them counts. The last four compare a path with another one, in studies that have
# two: how many times faster, memory as a share, difference of the numbers and what is allowed.
COLUMNS: Final = (
    "sweep", "preset", "weights", "parameters", "val_top1", "part", "kernel", "path", "device",
    "precision", "threads", "atoms", "pairs", "samples", "steps", "at_once", "repeats", "wall_s",
    "wall_iqr_s", "cpu_s", "cpu_iqr_s", "clock", "memory_mib", "gflop", "moved_mib", "floor_s",
    "over_floor", "times_plain", "memory_of_plain", "difference", "allowed",
)  # fmt: skip
# Multiples of the candidates and of the steps at which growth with them is looked at.
_MULTIPLES: Final = (1, 2, 4)
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?", re.ASCII)
_DEFAULT_STRIDE: Final = 10
_FEWEST, _MOST = 2, 400
Read = Callable[[Sequence[Cell]], list[Reading]]
# What is varied (atoms, candidates or steps), and cells measured in one go: a list for each path.
Group = tuple[str, list[list[Cell]]]


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """What to measure.

    Attributes:
        subject: The network and the machine.
        atoms: Every N.
        kernels: Of `KERNELS`.
        paths: ``fast``, the network as shipped, and what a study compares with it.
        samples: Candidates of the loop.
        steps: Of the loop.
        batch: Graphs of one evaluation in the other parts.
        sweeps: Whether growth with candidates and steps is measured too.
    """

    subject: Subject
    atoms: tuple[int, ...]
    kernels: tuple[str, ...] = KERNELS
    paths: tuple[str, ...] = ("fast",)
    samples: int = 1
    steps: int = 10
    batch: int = 1
    sweeps: bool = True


def parse_atoms(text: str) -> tuple[int, ...]:
    """Numbers of atoms, ascending and each once.

    Args:
        text: ``10..100`` (every tenth), ``10..100:5``, ``30``, or several of them with commas.

    Raises:
        UsageError: Anything else, or a number out of range.
    """
    found: set[int] = set()
    for word in text.replace(" ", "").split(","):
        matched = _RANGE.fullmatch(f"{word}..{word}" if word.isdecimal() else word)
        if matched is None:
            raise UsageError(
                f"atoms {quote(text)} are not of the form 10..100, 10..100:5 or 30,60,100"
            )
        first, last = int(matched[1]), int(matched[2])
        stride = int(matched[3] or _DEFAULT_STRIDE)
        if first > last or stride < 1:
            raise UsageError(
                f"atoms {quote(word)} hold no number: the first is above the last, or stride 0"
            )
        found.update(range(first, min(last, _MOST + 1) + 1, stride))
    wrong = [n for n in found if not _FEWEST <= n <= _MOST]
    if wrong:
        raise UsageError(f"numbers of atoms must be {_FEWEST} to {_MOST}, not {min(wrong)}")
    return tuple(sorted(found))


def parse_choices(name: str, text: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Words with commas between them, each one of the choices, each once.

    Raises:
        UsageError: A word is none of them, or there is none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in choices]
    if wrong or not words:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise UsageError(f"{name} must be one or more of {', '.join(choices)}, not {shown}")
    return tuple(dict.fromkeys(words))


def subject_on(device: str, precision: str, threads: int | None, subject: Subject) -> Subject:
    """A subject on a machine as `runtime.Runtime` resolves it.

    Raises:
        UsageError: The device is not there, or a word is unknown.
    """
    runtime = Runtime.resolve(device, precision, threads=threads)
    lower = "float32" if runtime.autocast_dtype is None else "bfloat16"
    return replace(subject, device=str(runtime.device), precision=lower, threads=runtime.threads)


def groups_of(request: StudyRequest) -> list[Group]:
    """What is measured in one go, small sizes first; the sweeps are of the fast path alone."""

    def cell(part: str, kernel: str, path: str, n_atoms: int) -> Cell:
        size = (request.samples, request.steps) if part == "loop" else (request.batch, 1)
        return Cell(request.subject, part, kernel, path, n_atoms, *size)

    groups: list[Group] = [
        ("atoms", [[cell(part, kernel, path, n) for part in PARTS] for path in request.paths])
        for n in request.atoms
        for kernel in request.kernels
    ]
    if request.sweeps and "fast" in request.paths:
        n = statistics.median_low(request.atoms)
        for kernel in request.kernels:
            one = cell("loop", kernel, "fast", n)
            more = [replace(one, samples=k * one.samples) for k in _MULTIPLES]
            longer = [replace(one, steps=min(500, k * one.steps)) for k in _MULTIPLES]
            groups += [("candidates", [more]), ("steps", [longer])]
    return groups


def run_study(
    request: StudyRequest,
    output: Path,
    say: Callable[[int, int, str], None] = lambda done, total, text: None,
    read: Read = read_cells,
    compare: Callable[[Sequence[Row], Sequence[Reading]], None] = lambda rows, readings: None,
) -> dict[str, Any]:
    """Measure everything; what is finished is kept in the output folder as it comes.

    Args:
        request: What to measure.
        output: Folder; made if need be.
        say: Told groups done, all of them, and a text with the time that is left.
        read: Measures cells of one path.
        compare: Fills the last columns of the rows of one cell, by path, from what was measured.

    Returns:
        What is also written to results.json.

    Raises:
        DuallgdError: A cell cannot be measured.
        InterruptedRunError: Ctrl-C; the same command goes on.
    """
    subject, groups = request.subject, groups_of(request)
    runtime = Runtime.resolve(subject.device, subject.precision, threads=subject.threads)
    output.mkdir(parents=True, exist_ok=True)
    log = output / UNFINISHED
    head, done = _begun(log, request, runtime)
    ceilings, rows = Ceilings(**head["ceilings"]), [row for part in done for row in part["rows"]]
    loads = [head["machine"]["load"], *(part["load"] for part in done)]
    if done:
        say(len(done), len(groups), f"going on with the measurements in {output}")
    if why := busy(loads, subject.threads):
        say(len(done), len(groups), f"warning: {why}; no growth of times will be stated")
    try:
        for number, group in enumerate(groups[len(done) :], len(done) + 1):
            started = time.perf_counter()
            readings = [read(cells) for cells in group[1]]
            took = time.perf_counter() - started
            fresh = _rows_of_group(group, readings, ceilings, compare)
            rows += fresh
            loads.append(load())
            done.append({"rows": fresh, "load": loads[-1], "seconds": took})
            line = done[-1] | {"memory": readings[0][0].memory_how}
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            _write_table(output / TABLE, rows)
            left = seconds_left(groups, [part.get("seconds", 0.0) for part in done])
            words = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"
            title = f"{group[1][0][0].kernel}, {group[1][0][0].atoms} atoms"
            title += "" if group[0] == "atoms" else f", growth with {group[0]}"
            say(number, len(groups), f"{title} done" + (f", about {words} left" if left else ""))
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped; what is finished is kept in {output}, and the same command goes on"
        ) from None
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "request": asdict(request),
        "machine": head["machine"],
        "ceilings": head["ceilings"],
        "memory": _lines(log)[-1]["memory"],
        "rows": rows,
        **conclusions(rows, busy(loads, subject.threads)),
    }
    write_atomically(output / RESULTS, [json.dumps(found, indent=1) + "\n"])
    log.unlink()
    return found


def _rows_of_group(
    group: Group,
    readings: Sequence[Sequence[Reading]],
    ceilings: Ceilings,
    compare: Callable[[Sequence[Row], Sequence[Reading]], None],
) -> list[Row]:
    """Rows of every cell, a path each; the fast one says how much work there is."""
    sweep, cells = group
    found = []
    for of_cell, read in zip(zip(*cells, strict=True), zip(*readings, strict=True), strict=True):
        work = next((reading.work for reading in read if reading.work is not None), None)
        rows = [
            _row(sweep, cell, reading, work, ceilings)
            for cell, reading in zip(of_cell, read, strict=True)
        ]
        compare(rows, read)
        found += rows
    return found


def _row(sweep: str, cell: Cell, reading: Reading, work: Work | None, ceilings: Ceilings) -> Row:
    subject = cell.subject
    (wall_s, wall_iqr_s), (cpu_s, cpu_iqr_s) = map(median_and_iqr, (reading.wall_s, reading.cpu_s))
    # What of a column's name is not computed here is an attribute of one of these.
    row: Row = dict.fromkeys(COLUMNS)
    for of in (subject, cell, reading):
        row |= {name: getattr(of, name) for name in COLUMNS if hasattr(of, name)}
    row |= reading.about
    row |= {
        "sweep": sweep,
        "repeats": len(reading.wall_s),
        "wall_s": wall_s,
        "wall_iqr_s": wall_iqr_s,
        "cpu_s": cpu_s,
        "cpu_iqr_s": cpu_iqr_s,
        "clock": "cpu" if subject.device == "cpu" and subject.threads == 1 else "wall",
    }
    if work is not None:
        size = (cell.samples, cell.steps, reading.at_once)
        row["gflop"], row["moved_mib"] = work.flop / 1e9, work.moved_bytes / MIB
        row["floor_s"] = floor_s(work, *size, ceilings, subject.precision)
        row["over_floor"] = time_s(row) / row["floor_s"]
    return row


def seconds_left(groups: Sequence[Group], taken: Sequence[float]) -> float:
    """How long the rest takes, each group at the pace of the latest of its kernel.

    Exact softmax over pairs grows with the square of their number, FAVOR+ with the number; what
    does not grow as fast, such as the start of a process, makes this err upwards.

    Args:
        groups: All of them.
        taken: Seconds of each that is measured, in order, at least one.
    """

    def size(group: Group) -> float:
        cells = [cell for path in group[1] for cell in path]
        power = 2 if cells[0].kernel == "softmax" else 1
        return float(sum(cell.pairs**power * cell.samples * cell.steps for cell in cells))

    paces = {
        group[1][0][0].kernel: s / size(group) for group, s in zip(groups, taken, strict=False)
    }
    left = groups[len(taken) :]
    latest = taken[-1] / size(groups[len(taken) - 1])
    return sum(paces.get(group[1][0][0].kernel, latest) * size(group) for group in left)


def _begun(
    log: Path, request: StudyRequest, runtime: Runtime
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Head of the log of what is finished, and its groups; a log of something else is replaced."""
    machine = describe(runtime)
    identity = json.loads(json.dumps(asdict(request)))
    identity |= {name: machine[name] for name in ("cpu", "accelerator", "torch", "duallgd")}
    weights = request.subject.weights
    digest = RANDOM if weights == RANDOM else sha256(Path(resolve_weights(weights)))
    identity["digest"] = digest
    lines = _lines(log)
    if not lines or lines[0]["identity"] != identity:
        precisions = sorted({"float32", request.subject.precision})
        ceilings = asdict(measure_ceilings(runtime.device, precisions))
        lines = [{"identity": identity, "machine": machine, "ceilings": ceilings}]
    write_atomically(log, [json.dumps(line) + "\n" for line in lines])
    return lines[0], lines[1:]


def _lines(log: Path) -> list[dict[str, Any]]:
    """What a log holds; a last line that was cut short is left out."""
    found = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS)
        table.writeheader()
        table.writerows(rows)
