"""How cost grows: exponents by least squares on logarithms, and where two curves cross."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Exponent:
    """The b of y = a x^b.

    Attributes:
        value: b.
        standard_error: Of b, or None for two points, which a line always fits.
        points: Number of points.
    """

    value: float
    standard_error: float | None
    points: int


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> Exponent | None:
    """Fit a power law; None where fewer than two different x have a y above zero."""
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
    return Exponent(slope, error, len(kept))


def crossing(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The x from which `second` stays below `first`, between two points on logarithms.

    Returns:
        None where it is not below at the last point; the first x where it is below everywhere.
    """
    below = [math.log(b) < math.log(a) for a, b in zip(first, second, strict=True)]
    if not below or not below[-1]:
        return None
    start = len(below) - below[::-1].index(False) if False in below else 0
    if start == 0:
        return float(x[0])
    gaps = [math.log(first[i] / second[i]) for i in (start - 1, start)]
    share = -gaps[0] / (gaps[1] - gaps[0])
    low, high = math.log(x[start - 1]), math.log(x[start])
    return math.exp(low + share * (high - low))
