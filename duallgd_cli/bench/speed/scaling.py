"""The scalability study: every size, kernel and path measured, compared and fitted."""

import csv
import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from duallgd_cli.bench.speed.cells import (
    KERNELS,
    PARTS,
    PATHS,
    PRESETS,
    Cell,
    Measured,
    Subject,
    parse_choices,
)
from duallgd_cli.bench.speed.child import read_cells
from duallgd_cli.bench.speed.fits import crossing, fit_exponent
from duallgd_cli.bench.speed.floors import Ceilings, measure_ceilings
from duallgd_cli.bench.speed.machine import describe
from duallgd_cli.bench.speed.rows import ParityError, Row, rows_of
from duallgd_cli.runtime import Runtime

TABLE: Final = "scaling.csv"
RESULTS: Final = "results.json"
# Multiples of the candidates and of the steps at which growth with them is looked at.
_MULTIPLES: Final = (1, 2, 4)
_SWEPT_PATH: Final = "fast"

Read = Callable[[Sequence[Cell]], list[Measured]]


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """What to measure.

    Attributes:
        subject: The network and the machine.
        atoms: Every N.
        kernels: Of `cells.KERNELS`.
        paths: Of `cells.PATHS`; both are compared, one is only measured.
        samples: Candidates of the loop.
        steps: Of the loop.
        batch: Graphs of one evaluation in the other parts.
        sweeps: Whether growth with candidates and steps is measured too.
    """

    subject: Subject
    atoms: tuple[int, ...]
    kernels: tuple[str, ...] = KERNELS
    paths: tuple[str, ...] = PATHS
    samples: int = 1
    steps: int = 10
    batch: int = 1
    sweeps: bool = True


def subject_on(device: str, precision: str, threads: int | None, subject: Subject) -> Subject:
    """A subject on a machine as `runtime.Runtime` resolves it.

    Raises:
        UsageError: The device is not there, or a word is unknown.
    """
    parse_choices("preset", subject.preset, PRESETS)
    runtime = Runtime.resolve(device, precision, threads=threads)
    lower = "float32" if runtime.autocast is None else "bfloat16"
    return replace(subject, device=str(runtime.device), precision=lower, threads=runtime.threads)


@dataclass(frozen=True, slots=True)
class Group:
    """Cells measured in one go, on each path in turn.

    Attributes:
        sweep: What is varied: atoms, candidates or steps.
        cells: Their path is that of the first to be measured; the others follow.
        paths: To measure.
    """

    sweep: str
    cells: tuple[Cell, ...]
    paths: tuple[str, ...]

    def __str__(self) -> str:
        """For a progress bar."""
        cell = self.cells[0]
        return f"{cell.kernel}, {cell.atoms} atoms" + (
            "" if self.sweep == "atoms" else f", growth with {self.sweep}"
        )


@dataclass(frozen=True, eq=False)
class Found:
    """A finished study.

    Attributes:
        machine: As `machine.describe` gives it.
        ceilings: Of the machine.
        memory_how: How memory was read.
        rows: All of them.
        exponents: Fitted.
        crossings: Where FAVOR+ becomes faster than exact softmax, by part.
    """

    machine: Mapping[str, Any]
    ceilings: Ceilings
    memory_how: str
    rows: Sequence[Row]
    exponents: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    crossings: Mapping[str, float | None] = field(default_factory=dict)

    def check_parity(self) -> None:
        """Make sure that the paths agree.

        Raises:
            ParityError: They do not; the message names the first place.
        """
        apart = [row for row in self.rows if row.difference is not None and not _agrees(row)]
        if apart:
            row = apart[0]
            raise ParityError(
                f"{len(apart)} rows differ between the plain and the fast path, the first at "
                f"{row.part}, {row.kernel}, {row.atoms} atoms: {row.difference:.2g}, allowed "
                f"{row.allowed:.2g}; figures of a path that computes something else mean nothing"
            )


def run_study(
    request: StudyRequest,
    output: Path,
    advance: Callable[[Group], None] = lambda group: None,
    read: Read = read_cells,
) -> Found:
    """Measure everything; rows reach the table in the output folder as they come.

    Args:
        request: What to measure.
        output: Folder; made if need be.
        advance: Called after every group.
        read: Measures cells of one path.

    Raises:
        DuallgdError: A cell cannot be measured.
    """
    subject = request.subject
    runtime = Runtime.resolve(subject.device, subject.precision, threads=subject.threads)
    output.mkdir(parents=True, exist_ok=True)
    ceilings = measure_ceilings(runtime.device, sorted({"float32", subject.precision}))
    machine, how = describe(runtime), ""
    rows: list[Row] = []
    with (output / TABLE).open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, [column.name for column in dataclasses.fields(Row)])
        table.writeheader()
        for group in groups_of(request):
            for fresh, how in _measured_rows(group, ceilings, read):  # noqa: B007
                table.writerows(dataclasses.asdict(row) for row in fresh)
                rows += fresh
            stream.flush()
            advance(group)
    found = Found(machine, ceilings, how, rows, exponents_of(rows), crossings_of(rows))
    write_results(output / RESULTS, request, found)
    return found


def read_results(output: Path) -> dict[str, Any]:
    """What `run_study` left in its folder."""
    found: dict[str, Any] = json.loads((output / RESULTS).read_text(encoding="utf-8"))
    return found


def groups_of(request: StudyRequest) -> list[Group]:
    """What is measured in one go, small sizes first."""
    groups = [
        Group("atoms", tuple(_cells(request, kernel, n)), request.paths)
        for n in request.atoms
        for kernel in request.kernels
    ]
    if request.sweeps and _SWEPT_PATH in request.paths:
        n = statistics.median_low(request.atoms)
        groups += [
            Group(sweep, tuple(_swept(request, kernel, n, sweep)), (_SWEPT_PATH,))
            for kernel in request.kernels
            for sweep in ("candidates", "steps")
        ]
    return groups


def exponents_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Fitted growth of time and memory with what each sweep varies."""
    series: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        series.setdefault((row.sweep, row.part, row.kernel, row.path), []).append(row)
    found = []
    for (sweep, part, kernel, path), members in series.items():
        x = [float(_varied(row)) for row in members]
        for quantity, y in (
            ("time", [row.time_s for row in members]),
            ("memory", [row.memory_mib for row in members]),
        ):
            fitted = fit_exponent(x, y)
            if fitted is not None:
                names = {"of": quantity, "with": sweep, "part": part}
                found.append(
                    {**names, "kernel": kernel, "path": path, **dataclasses.asdict(fitted)}
                )
    return found


def crossings_of(rows: Sequence[Row]) -> dict[str, float | None]:
    """By part, the N from which FAVOR+ is faster than exact softmax on the fast path."""
    found: dict[str, float | None] = {}
    for part in PARTS:
        times = {
            kernel: {
                row.atoms: row.time_s
                for row in rows
                if (row.sweep, row.part, row.kernel, row.path) == ("atoms", part, kernel, "fast")
            }
            for kernel in KERNELS
        }
        shared = sorted(times["softmax"].keys() & times["favor"].keys())
        if shared:
            first, second = ([times[kernel][n] for n in shared] for kernel in KERNELS)
            found[part] = crossing([float(n) for n in shared], first, second)
    return found


def write_results(path: Path, request: StudyRequest, found: Found) -> None:
    """Everything about a study as one JSON object."""
    contents = {
        "date": datetime.now(UTC).date().isoformat(),
        "request": dataclasses.asdict(request),
        "machine": found.machine,
        "ceilings": dataclasses.asdict(found.ceilings),
        "memory": found.memory_how,
        "rows": [dataclasses.asdict(row) for row in found.rows],
        "exponents": list(found.exponents),
        "favor_faster_from_atoms": dict(found.crossings),
    }
    path.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")


def _cells(request: StudyRequest, kernel: str, n_atoms: int) -> Iterator[Cell]:
    for part in PARTS:
        samples, steps = request.batch, 1
        if part == "loop":
            samples, steps = request.samples, request.steps
        yield Cell(request.subject, part, kernel, request.paths[0], n_atoms, samples, steps)


def _swept(request: StudyRequest, kernel: str, n_atoms: int, sweep: str) -> Iterable[Cell]:
    base = Cell(
        request.subject, "loop", kernel, _SWEPT_PATH, n_atoms, request.samples, request.steps
    )
    for multiple in _MULTIPLES:
        if sweep == "candidates":
            yield replace(base, samples=multiple * request.samples)
        else:
            yield replace(base, steps=min(500, multiple * request.steps))


def _measured_rows(group: Group, ceilings: Ceilings, read: Read) -> Iterator[tuple[list[Row], str]]:
    """Rows of every cell of a group, and how their memory was read."""
    by_path = {path: [replace(cell, path=path) for cell in group.cells] for path in group.paths}
    read_by_path = {path: read(cells) for path, cells in by_path.items()}
    for place in range(len(group.cells)):
        cells = {path: cells[place] for path, cells in by_path.items()}
        measured = {path: readings[place] for path, readings in read_by_path.items()}
        how = next(iter(measured.values()))[0].memory_how
        yield rows_of(group.sweep, cells, measured, ceilings), how


def _varied(row: Row) -> int:
    return {"atoms": row.atoms, "candidates": row.samples, "steps": row.steps}[row.sweep]


def _agrees(row: Row) -> bool:
    return (row.difference or 0.0) <= (row.allowed or 0.0)
