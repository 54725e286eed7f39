"""Rows of the study: a reading beside its floor, its plain counterpart and its network.

Every row states preset, parameters, operations and accuracy of the weights, since a goal is not met
by a model that knows less.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.bench.speed.cells import PATHS, Cell, Measured, Reading
from duallgd_cli.bench.speed.floors import Ceilings, floor_s
from duallgd_cli.bench.speed.measure import MIB
from duallgd_cli.errors import DuallgdError

# Largest difference of the paths' numbers, as a share of the largest of them (but at least of one).
# Random weights of the reference amplify rounding: both paths are as far from float64 as apart.
_TOLERANCE: Final = {
    ("duallgd", "float32"): 1e-4,
    ("reference", "float32"): 5e-4,
    ("duallgd", "bfloat16"): 4e-2,
    ("reference", "bfloat16"): 1e-1,
}
# Bond classes are draws: a number on the edge between two may fall either way and change others.
_TOLERANCE_OF_DRAWS: Final = {"float32": 0.01, "bfloat16": 1.0}


class ParityError(DuallgdError):
    """The fast path computes something else than the plain one."""


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the paths' results are apart.

    Attributes:
        difference: Largest absolute difference of states or logits; of a loop, the share of bonds
            that differ.
        allowed: What it may be.
    """

    difference: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the paths agree; a result that is no number agrees with nothing."""
        return self.difference <= self.allowed


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Times are medians over `repeats` runs with interquartile ranges.

    Attributes:
        sweep: Which number is varied: atoms, candidates or steps.
        preset: Of the network.
        weights: Their name.
        parameters: Of the network.
        val_top1: Top-1 accuracy on validation spectra by the weights' own record, or None.
        part: What was run.
        kernel: Of attention over pairs.
        path: plain or fast.
        device: Where.
        precision: Of matrix products.
        threads: CPU threads.
        atoms: N.
        pairs: M.
        samples: Graphs of one evaluation, or candidates of the loop.
        steps: Evaluations one after the other.
        at_once: Candidates in one evaluation.
        repeats: Timed runs.
        wall_s: Time by the clock.
        wall_iqr_s: Its interquartile range.
        cpu_s: CPU time of all threads.
        cpu_iqr_s: Its interquartile range.
        clock: Which of both floors and ratios use: cpu on one CPU thread, which other processes
            disturb less, and wall elsewhere.
        memory_mib: Peak above what was there before.
        gflop: Of matrix products in one candidate-step of the fast path.
        moved_mib: What its operations read and write in one candidate-step, unfused.
        floor_s: What nothing can beat on this machine.
        over_floor: Time over it.
        times_plain: Plain path's time over this one, or None.
        memory_of_plain: This path's memory over the plain path's, or None.
        difference: From the plain path, as in `Parity`, or None.
        allowed: Likewise.
    """

    sweep: str
    preset: str
    weights: str
    parameters: int
    val_top1: float | None
    part: str
    kernel: str
    path: str
    device: str
    precision: str
    threads: int
    atoms: int
    pairs: int
    samples: int
    steps: int
    at_once: int
    repeats: int
    wall_s: float
    wall_iqr_s: float
    cpu_s: float
    cpu_iqr_s: float
    clock: str
    memory_mib: float
    gflop: float | None = None
    moved_mib: float | None = None
    floor_s: float | None = None
    over_floor: float | None = None
    times_plain: float | None = None
    memory_of_plain: float | None = None
    difference: float | None = None
    allowed: float | None = None

    @property
    def time_s(self) -> float:
        """Time by the row's clock."""
        return self.cpu_s if self.clock == "cpu" else self.wall_s


def parity_of(cell: Cell, plain: NDArray[np.float32], fast: NDArray[np.float32]) -> Parity:
    """Compare what both paths computed at one cell."""
    preset, precision = cell.subject.preset, cell.subject.precision
    if cell.part == "loop":
        return Parity(float((plain != fast).mean()), _TOLERANCE_OF_DRAWS[precision])
    largest = max(1.0, float(np.abs(plain).max()))
    return Parity(float(np.abs(plain - fast).max()), _TOLERANCE[preset, precision] * largest)


def median_and_iqr(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and interquartile range; the range of a single number is 0."""
    if len(seconds) < 2:
        return seconds[0], 0.0
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return middle, high - low


def rows_of(
    sweep: str, cells: Mapping[str, Cell], measured: Mapping[str, Measured], ceilings: Ceilings
) -> list[Row]:
    """Rows of one size of one part, with what the paths say of each other.

    Args:
        sweep: What is varied.
        cells: By path.
        measured: By path; where the fast one is among them it says how much work there is.
        ceilings: Of the machine.
    """
    rows = {path: _row(sweep, cells[path], measured[path][0]) for path in cells}
    if "fast" in measured:
        fast = measured["fast"][0]
        rows = {path: _with_floor(row, cells[path], fast, ceilings) for path, row in rows.items()}
    if len(rows) == len(PATHS):
        parity = parity_of(cells["fast"], measured["plain"][1], measured["fast"][1])
        plain = rows["plain"]
        rows["fast"] = replace(
            rows["fast"],
            times_plain=plain.time_s / rows["fast"].time_s,
            memory_of_plain=rows["fast"].memory_mib / plain.memory_mib
            if plain.memory_mib
            else None,
            difference=parity.difference,
            allowed=parity.allowed,
        )
    return list(rows.values())


def _row(sweep: str, cell: Cell, reading: Reading) -> Row:
    subject = cell.subject
    wall, wall_iqr = median_and_iqr(reading.wall_s)
    cpu, cpu_iqr = median_and_iqr(reading.cpu_s)
    return Row(
        sweep=sweep,
        preset=subject.preset,
        weights=reading.weights,
        parameters=reading.parameters,
        val_top1=reading.val_top1,
        part=cell.part,
        kernel=cell.kernel,
        path=cell.path,
        device=subject.device,
        precision=subject.precision,
        threads=subject.threads,
        atoms=cell.atoms,
        pairs=cell.pairs,
        samples=cell.samples,
        steps=cell.steps,
        at_once=reading.evaluations_at_once,
        repeats=len(reading.wall_s),
        wall_s=wall,
        wall_iqr_s=wall_iqr,
        cpu_s=cpu,
        cpu_iqr_s=cpu_iqr,
        clock="cpu" if subject.device == "cpu" and subject.threads == 1 else "wall",
        memory_mib=reading.memory_mib,
    )


def _with_floor(row: Row, cell: Cell, fast: Reading, ceilings: Ceilings) -> Row:
    if fast.work is None:
        return row
    floor = floor_s(cell, fast.work, fast.evaluations_at_once, ceilings)
    return replace(
        row,
        gflop=fast.work.flop / 1e9,
        moved_mib=fast.work.moved_bytes / MIB,
        floor_s=floor,
        over_floor=row.time_s / floor,
    )
