"""Growth of time and memory with the number of atoms: every size, kernel and part of the network.

Every row states parameters, operations and accuracy of the weights, since a goal is not met by a
network that knows less. Where the machine was busy, or times are too far apart to say how they
grow, no exponent and no crossing is stated. Floors are of what it reached in the same run.
Letters: N heavy atoms, S candidates, J steps.
"""

import csv
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli.bench.growth import KERNELS, PARTS, Row, busy, conclusions, time_s
from duallgd_cli.bench.measure import Cell, Reading, Study, count_ahead, expected_runs, read_cells
from duallgd_cli.bench.work import MIB, Ceilings, Work, describe, floor_s, load, measure_ceilings
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.errors import DuallgdError, InterruptedRunError, UsageError, quote
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.predict.journal import decode
from duallgd_cli.runtime import Runtime

TABLE, RESULTS, JOURNAL = "scaling.csv", "results.json", "journal.jsonl"
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
_LEAST_LEFT_S: Final = 0.5  # less is not worth a word
# Cells measured in one go: a list for each path.
Group = list[list[Cell]]
Compare = Callable[[Sequence[Row], Sequence[Reading]], None]
Say = Callable[[int, int, str], None]
# Of a journal: a group that was measured, beside what its run found out about the machine.
Line = dict[str, Any]
# Seconds that one evaluation for one graph takes at least.
Floors = dict[Cell, float]


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


def parse_kernels(text: str) -> tuple[str, ...]:
    """Kernels with commas between them, each once.

    Raises:
        UsageError: A word is none of them, or there is none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in KERNELS]
    if wrong or not words:
        shown = repr(wrong[0]) if wrong else "nothing"
        raise UsageError(f"attention must be one or more of {', '.join(KERNELS)}, not {shown}")
    return tuple(dict.fromkeys(words))


def groups_of(study: Study) -> list[Group]:
    """What is measured in one go, small sizes first; the sweeps are of the fast path alone."""

    def cell(part: str, kernel: str, path: str, n_atoms: int) -> Cell:
        size = (study.samples, study.steps) if part == "loop" else (study.batch, 1)
        return Cell(study, part, kernel, path, n_atoms, *size)

    groups: list[Group] = [
        [[cell(part, kernel, path, n) for part in PARTS] for path in study.paths]
        for n in study.atoms
        for kernel in study.kernels
    ]
    if study.sweeps and "fast" in study.paths:
        n = statistics.median_low(study.atoms)
        for kernel in study.kernels:
            one = cell("loop", kernel, "fast", n)
            more = [replace(one, samples=k * one.samples) for k in _MULTIPLES]
            longer = [replace(one, steps=min(500, k * one.steps)) for k in _MULTIPLES]
            for sweep, cells in (("candidates", more), ("steps", longer)):
                groups.append([[replace(one, sweep=sweep) for one in cells]])
    return groups


def run_study(
    study: Study,
    output: Path,
    say: Say = lambda done, total, text: None,
    compare: Compare = lambda rows, readings: None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Measure everything; what is finished is kept in the output folder as it comes.

    Args:
        study: What to measure.
        output: Folder; made if need be.
        say: Told groups done, all of them, and a text with the time that is left.
        compare: Fills the last columns of the rows of one cell, by path, from what was measured.
        resume: Go on with the measurements in the folder; else they are replaced.

    Returns:
        What is also written to results.json.

    Raises:
        DuallgdError: A cell cannot be measured.
        InterruptedRunError: Ctrl-C; the same command with --resume goes on.
        UsageError: The measurements in the folder are of other settings.
    """
    groups, runtime = groups_of(study), study.runtime
    output.mkdir(parents=True, exist_ok=True)
    journal = output / JOURNAL
    kept = _kept(journal, study, describe(runtime), resume=resume)
    n_kept = len(kept)
    try:
        if n_kept < len(groups):
            run, floors = _begin(groups, kept, runtime, say)
        for number, group in enumerate(groups[n_kept:], n_kept + 1):
            started = time.perf_counter()
            readings = [read_cells(cells) for cells in group]
            line = {"seconds": time.perf_counter() - started, "load": load(), **run}
            line["memory"] = readings[0][0].memory_how
            line["rows"] = _rows_of_group(group, readings, Ceilings(**run["ceilings"]), compare)
            with journal.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            kept.append(line)
            _write_table(output / TABLE, _rows(kept))
            (one, *_), *_ = group
            title = f"{one.kernel}, {one.atoms} atoms"
            title += "" if one.sweep == "atoms" else f", growth with {one.sweep}"
            say(number, len(groups), f"{title} done{_left(groups, floors, kept)}")
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped; {len(kept)} of {len(groups)} measurements are kept in {output}: the same "
            "command with --resume goes on"
        ) from None
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "request": asdict(study),
        **{name: kept[-1][name] for name in ("machine", "ceilings", "memory")},
        "rows": _rows(kept),
        **conclusions(_rows(kept), busy(_loads(kept), study.threads)),
    }
    write_atomically(output / RESULTS, [json.dumps(found, indent=1) + "\n"])
    return found


def _begin(
    groups: Sequence[Group], kept: Sequence[Line], runtime: Runtime, say: Say
) -> tuple[Line, Floors]:
    """Find out what the machine reaches in this run, whether it is idle, how long it will take."""
    study, n_kept = groups[0][0][0].study, len(kept)
    if kept:
        say(n_kept, len(groups), "going on with the measurements that are there")
    ceilings = measure_ceilings(runtime.device, sorted({"float32", study.precision}))
    run = {"machine": describe(runtime), "ceilings": asdict(ceilings)}
    if why := busy(_loads([*kept, {**run, "load": None}]), study.threads):
        say(n_kept, len(groups), f"warning: {why}; no growth of times will be stated")
    cells = [*dict.fromkeys(cell.evaluation for paths in groups[n_kept:] for cell in paths[-1])]
    floors: Floors = {}
    with suppress(DuallgdError):  # a network that cannot be counted ahead has no time left
        for cell, work in zip(cells, count_ahead(cells), strict=True):
            floors[cell] = floor_s(work, 1, 1, 1, ceilings, study.precision)
    say(n_kept, len(groups), f"operations are counted{_left(groups, floors, kept)}")
    return run, floors


def seconds_left(groups: Sequence[Group], floors: Floors, rows: Sequence[Row]) -> float:
    """How long groups take, from their operations and the pace of what was measured so far.

    Args:
        groups: That are to come.
        floors: Of what is to come.
        rows: Measured, in order; the latest of a part, kernel and path sets its pace. Without any,
            the least that groups can take.
    """

    def floor(cell: Cell) -> float:
        return floors.get(cell.evaluation, 0.0) * cell.samples * cell.steps

    paces: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if row["floor_s"]:
            paces[row["part"], row["kernel"], row["path"]] = row["wall_s"] / row["floor_s"]
    total = 0.0
    for cell in (cell for paths in groups for cells in paths for cell in cells):
        usual = max(paces.values(), default=1.0)
        once = floor(cell) * paces.get((cell.part, cell.kernel, cell.path), usual)
        total += once * expected_runs(once, cell.study)
    return total


def _left(groups: Sequence[Group], floors: Floors, kept: Sequence[Line]) -> str:
    """The time that is left in words, "" where nothing is or nobody can say."""
    coming = groups[len(kept) :]
    seconds = seconds_left(coming, floors, _rows(kept))
    if seconds < _LEAST_LEFT_S:
        return ""
    # What is not counted: a process starts, reads the weights and warms up.
    others = [
        line["seconds"] - sum(row["wall_s"] * (row["repeats"] + 1) for row in line["rows"])
        for line in kept
    ]
    seconds += sum(map(len, coming)) * max(0.0, min(others, default=0.0))
    words = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f", {'about' if kept else 'at least'} {words} left"


def _kept(journal: Path, study: Study, machine: Line, *, resume: bool) -> list[Line]:
    """Groups that the journal of a run holds; it is begun anew unless the run goes on.

    Its first line is what measurements of one run have in common, by name.

    Raises:
        UsageError: They are of other settings, or of another machine.
    """
    common = asdict(study) | {"weights": sha256(resolve_weights(study.weights))}
    common |= {name: machine[name] for name in ("cpu", "accelerator", "torch", "duallgd")}
    identity: Line = json.loads(json.dumps(common))
    lines = journal.read_bytes().splitlines(keepends=True) if resume and journal.is_file() else []
    # The last line may be cut short.
    before, *kept = [*filter(None, takewhile(bool, map(decode, lines)))] or [identity]
    changed = [
        f"{name} {before.get(name, 'absent')} -> {value}"
        for name, value in identity.items()
        if before.get(name, "absent") != value
    ]
    if changed:
        raise UsageError(
            f"the measurements in {journal.parent} are of a different run: {', '.join(changed)}; "
            "name another folder with -o, or replace them with --force"
        )
    write_atomically(journal, [json.dumps(line) + "\n" for line in [identity, *kept]])
    return kept


def _rows(kept: Sequence[Line]) -> list[Row]:
    return [row for line in kept for row in line["rows"]]


def _loads(kept: Sequence[Line]) -> list[float | None]:
    """While this program ran; before each run its own threads were yet to come."""
    machines = [line["machine"] for line in kept]
    before = [(machine["load"] or 0.0) + machine["threads"] for machine in machines]
    return [*before, *(line["load"] for line in kept)]


def _rows_of_group(
    group: Group,
    readings: Sequence[Sequence[Reading]],
    ceilings: Ceilings,
    compare: Compare,
) -> list[Row]:
    """Rows of every cell, a path each; the fast one says how much work there is."""
    found = []
    for of_cell, read in zip(zip(*group, strict=True), zip(*readings, strict=True), strict=True):
        work = next((reading.work for reading in read if reading.work is not None), None)
        rows = [_row(*pair, work, ceilings) for pair in zip(of_cell, read, strict=True)]
        compare(rows, read)
        found += rows
    return found


def _row(cell: Cell, reading: Reading, work: Work | None, ceilings: Ceilings) -> Row:
    study = cell.study
    # What of a column's name is not computed here is an attribute of one of these.
    row: Row = dict.fromkeys(COLUMNS)
    for of in (study, cell, reading):
        row |= {name: getattr(of, name) for name in COLUMNS if hasattr(of, name)}
    row |= reading.about
    row |= {
        "preset": "duallgd",
        "repeats": len(reading.wall_s),
        "clock": "cpu" if study.device == "cpu" and study.threads == 1 else "wall",
    }
    for clock, seconds in (("wall", reading.wall_s), ("cpu", reading.cpu_s)):
        low, middle, high = np.percentile(seconds, (25, 50, 75)).tolist()
        row |= {f"{clock}_s": middle, f"{clock}_iqr_s": high - low}
    if work is not None:
        size = (cell.samples, cell.steps, cell.at_once)
        row["gflop"], row["moved_mib"] = work.flop / 1e9, work.moved_bytes / MIB
        row["floor_s"] = floor_s(work, *size, ceilings, study.precision)
        row["over_floor"] = time_s(row) / row["floor_s"]
    return row


def _write_table(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, COLUMNS)
        table.writeheader()
        table.writerows(rows)
