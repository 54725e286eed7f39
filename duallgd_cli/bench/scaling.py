"""Growth of time and memory with the number of atoms: every size, kernel and part of the network.

Every row states parameters, operations and accuracy of the weights, since a goal is not met by a
network that knows less. Floors are of what the machine reached in the same run.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli.bench.measure import KERNELS, PARTS, Cell, Row, read_cells
from duallgd_cli.bench.work import Ceilings, describe, measure_ceilings
from duallgd_cli.errors import UsageError, quote
from duallgd_cli.files import replaced_text, write_atomically

TABLE, RESULTS = "scaling.csv", "results.json"
_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?", re.ASCII)
_DEFAULT_STRIDE: Final = 10
_FEWEST, _MOST = 2, 400
# Measures cells, and gives their rows: one for each, or more in a study that compares paths.
Measure = Callable[[Sequence[Cell], Ceilings], list[Row]]
Say = Callable[[int, int, str], None]


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
        shown = quote(wrong[0]) if wrong else "nothing"
        raise UsageError(f"attention must be one or more of {', '.join(KERNELS)}, not {shown}")
    return tuple(dict.fromkeys(words))


def groups_of(cell: Cell, atoms: Sequence[int], kernels: Sequence[str]) -> list[list[Cell]]:
    """What is measured in one go, small sizes first: every part of one size and kernel.

    Args:
        cell: What all have in common, with the candidates and steps of the loop; the other parts
            evaluate one graph once.
        atoms: Every N.
        kernels: Of the attention over pairs.
    """
    once = replace(cell, samples=1, steps=1)
    parts = [replace(cell if part == "loop" else once, part=part) for part in PARTS]
    return [
        [replace(part, kernel=kernel, atoms=n) for part in parts]
        for n in atoms
        for kernel in kernels
    ]


def measured(cells: Sequence[Cell], ceilings: Ceilings) -> list[Row]:
    """Rows of cells."""
    return [row for row, _ in read_cells(cells, ceilings)]


def run_study(
    groups: Sequence[Sequence[Cell]],
    output: Path,
    say: Say = lambda done, total, text: None,
    measure: Measure = measured,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Measure everything; after each group the output folder holds what there is so far.

    Args:
        groups: As `groups_of` gives them.
        output: Folder; made if need be.
        say: Told groups done, all of them, and which was the last.
        measure: What measures a group.
        resume: Go on with the rows in the folder; else they are replaced.

    Returns:
        What is also written to results.json.

    Raises:
        DuallgdError: A cell cannot be measured.
        UsageError: The measurements in the folder are of other settings.
    """
    runtime = groups[0][0].runtime
    output.mkdir(parents=True, exist_ok=True)
    rows = _kept(output, groups) if resume else []
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(runtime),
    }
    ceilings = measure_ceilings(runtime)
    found["ceilings"] = asdict(ceilings)
    for number, cells in enumerate(groups, 1):
        if not all(any(_is_of(row, cell) for row in rows) for cell in cells):
            rows += measure(cells, ceilings)
        found |= {"rows": rows, **growth(rows)}
        write_atomically(output / RESULTS, [json.dumps(found, indent=1) + "\n"])
        with replaced_text(output / TABLE) as stream:
            table = csv.DictWriter(stream, list(dict.fromkeys(n for row in rows for n in row)))
            table.writeheader()
            table.writerows(rows)
        say(number, len(groups), f"{cells[0].kernel}, {cells[0].atoms} atoms done")
    return found


def _is_of(row: Row, cell: Cell) -> bool:
    return cell.identity.items() <= row.items()


def _kept(output: Path, groups: Sequence[Sequence[Cell]]) -> list[Row]:
    """Rows that the folder holds already.

    Raises:
        UsageError: One is of no cell of these groups.
    """
    rows: list[Row] = []
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # or results of another kind
        text = (output / RESULTS).read_text(encoding="utf-8")
        rows = [dict(row) for row in json.loads(text)["rows"]]
    wanted = [cell for cells in groups for cell in cells]
    if not all(any(_is_of(row, cell) for cell in wanted) for row in rows):
        raise UsageError(
            f"the measurements in {output} are of other settings; name another folder with -o, or "
            "replace them with --force"
        )
    return rows


def time_s(row: Row) -> float:
    """Time of a row by its clock."""
    return float(row[f"{row['clock']}_s"])


def growth(rows: Sequence[Row]) -> dict[str, Any]:
    """How time and memory grow with N, and where FAVOR+ becomes faster.

    Returns:
        ``exponents``: for each part, kernel and path those of ``time`` and ``memory`` as from
        `fit_exponent`. ``favor_faster_from_atoms``: by part the N from which FAVOR+ is faster than
        exact softmax, None for nowhere.
    """
    series: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["atoms"]):
        series.setdefault((row["part"], row["kernel"], row["path"]), []).append(row)
    exponents = []
    for key, members in series.items():
        x = [row["atoms"] for row in members]
        time = fit_exponent(x, [time_s(row) for row in members])
        memory = fit_exponent(x, [row["memory_mib"] for row in members])
        names = dict(zip(("part", "kernel", "path"), key, strict=True))
        exponents.append({**names, "time": time, "memory": memory})
    crossings = {}
    for part in PARTS:
        exact, favor = (series.get((part, kernel, "fast"), []) for kernel in KERNELS)
        times = {row["atoms"]: time_s(row) for row in favor}
        both = [(n, time_s(row), times[n]) for row in exact if (n := row["atoms"]) in times]
        if both:
            crossings[part] = crossing(*zip(*both, strict=True))
    return {"exponents": exponents, "favor_faster_from_atoms": crossings}


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> dict[str, float | int | None] | None:
    """The b of y = a x^b by least squares on logarithms.

    Returns:
        ``value``, its ``standard_error`` (None for two points, which a line always fits) and the
        number of ``points``; None where fewer than two different x have a y above zero.
    """
    kept = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if a > 0 and b > 0]
    if len({a for a, _ in kept}) < 2:
        return None
    log_x, log_y = np.array(kept).T
    error = None
    if len(kept) > 2:
        error = math.sqrt(np.polyfit(log_x, log_y, 1, cov=True)[1][0, 0])
    value = float(np.polyfit(log_x, log_y, 1)[0])
    return {"value": value, "standard_error": error, "points": len(kept)}


def crossing(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The x from which `second` stays below `first`, between two points on logarithms.

    Returns:
        None where it is not below at the last point; the first x where it is below everywhere.
    """
    gap = np.log(first) - np.log(second)
    above = np.flatnonzero(gap <= 0)
    if above.size == 0:
        return float(x[0])
    last = above[-1]
    if last + 1 == len(gap):
        return None
    between = slice(last, last + 2)
    return float(np.exp(np.interp(0.0, gap[between], np.log(x)[between])))
