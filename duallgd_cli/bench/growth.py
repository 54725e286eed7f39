"""How cost grows, where two curves cross, and when times are too bad to say so.

A row is a line of the table, by the names of `scaling.COLUMNS`.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

KERNELS: Final = ("softmax", "favor")
PARTS: Final = ("attention", "forward", "loop")
VARIED: Final = {"atoms": "atoms", "candidates": "samples", "steps": "steps"}
# Times that differ by more than this share of themselves say nothing of growth.
_MOST_SPREAD: Final = 0.25
_FEWEST_RUNS: Final = 3  # of which a spread means something


Row = dict[str, Any]


def time_s(row: Row) -> float:
    """Time of a row by its clock."""
    return float(row[f"{row['clock']}_s"])


_QUANTITIES: Final[Mapping[str, Callable[[Row], float]]] = {
    "time": time_s,
    "memory": lambda row: float(row["memory_mib"]),
}


def busy(loads: Sequence[float | None], threads: int) -> str | None:
    """Whether other programs had the processors that were measured on, in words.

    Args:
        loads: While this program ran; None where nobody counts.
        threads: Of this program.
    """
    cores, most = os.cpu_count() or 1, max((load or 0.0) for load in loads)
    if most <= cores + 0.5:
        return None
    return f"other programs were running (load {most - threads:.1f} on {cores} processors)"


def unsteady(rows: Sequence[Row], quantity: str) -> str | None:
    """Why the times or the memory of a series say nothing of growth, or None.

    Args:
        rows: In the order of what is varied.
        quantity: Of `_QUANTITIES`.
    """
    values = [_QUANTITIES[quantity](row) for row in rows]
    many = [row for row in rows if row["repeats"] >= _FEWEST_RUNS]
    spread = max((row[f"{row['clock']}_iqr_s"] / time_s(row) for row in many), default=0.0)
    if quantity == "time" and spread > _MOST_SPREAD:
        return f"runs of one size spread over {spread:.0%} of their time"
    if any(later < (1 - _MOST_SPREAD) * max(values[:n]) for n, later in enumerate(values) if n):
        return "more took less than less did"
    return None


def conclusions(rows: Sequence[Row], why_busy: str | None) -> dict[str, Any]:
    """Growth and crossings, and what the figures are too bad for.

    Args:
        rows: All of them.
        why_busy: As `busy` gives it.

    Returns:
        ``exponents`` of time and memory, ``favor_faster_from_atoms`` by part (the N from which
        FAVOR+ is faster than exact softmax, None for nowhere), and ``not_stated``: sentences.
    """
    series: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        series.setdefault((row["sweep"], row["part"], row["kernel"], row["path"]), []).append(row)
    exponents: list[dict[str, Any]] = []
    not_stated = [f"how times grow, and where they cross: {why_busy}"] if why_busy else []
    void = set(series) if why_busy else set()
    for key, members in series.items():
        x = [float(row[VARIED[key[0]]]) for row in members]
        for quantity, of in _QUANTITIES.items():
            fitted = fit_exponent(x, [of(row) for row in members])
            why = unsteady(members, quantity)
            if fitted and why:
                void |= {key} if quantity == "time" else set()
                not_stated.append(f"{quantity} of {' '.join(key[1:])} with {key[0]}: {why}")
            elif fitted and not (quantity == "time" and why_busy):
                names = dict(zip(("with", "part", "kernel", "path"), key, strict=True))
                exponents.append({"of": quantity, **names, **fitted})
    crossings = _crossings({key: rows for key, rows in series.items() if key not in void})
    return {
        "exponents": exponents,
        "favor_faster_from_atoms": crossings,
        "not_stated": not_stated,
    }


def _crossings(series: Mapping[tuple[str, ...], Sequence[Row]]) -> dict[str, float | None]:
    """Where FAVOR+ becomes faster, of the parts whose times are sound for both kernels."""
    found = {}
    for part in PARTS:
        both = [series.get(("atoms", part, kernel, "fast"), ()) for kernel in KERNELS]
        first, second = ({row["atoms"]: time_s(row) for row in rows} for rows in both)
        shared = sorted(first.keys() & second.keys())
        if shared:
            x = [float(n) for n in shared]
            found[part] = crossing(x, [first[n] for n in shared], [second[n] for n in shared])
    return found


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
    centred = log_x - log_x.mean()
    spread = float(centred @ centred)
    slope = float(centred @ log_y) / spread
    rest = log_y - log_y.mean() - slope * centred
    free = len(kept) - 2
    error = math.sqrt(float(rest @ rest) / free / spread) if free > 0 else None
    return {"value": slope, "standard_error": error, "points": len(kept)}


def crossing(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The x from which `second` stays below `first`, between two points on logarithms.

    Returns:
        None where it is not below at the last point; the first x where it is below everywhere.
    """
    gap = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    start = next((n for n in reversed(range(len(gap))) if gap[n] <= 0), -1) + 1
    if start == len(gap):
        return None
    if start == 0:
        return float(x[0])
    share = -gap[start - 1] / (gap[start] - gap[start - 1])
    low, high = math.log(x[start - 1]), math.log(x[start])
    return math.exp(low + share * (high - low))
