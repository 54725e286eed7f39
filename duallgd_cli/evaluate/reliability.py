"""How far probabilities can be trusted: a forecast compared with what happened. X observations."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EDGES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
_Z95: Final = 1.959964


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Observations whose predicted probability fell into one interval.

    Attributes:
        low: Lower end of the interval.
        high: Upper end.
        count: Observations.
        predicted: Their mean predicted probability.
        observed: Share of them that were right.
        observed_low: Lower end of the 95 % Wilson interval of that share.
        observed_high: Upper end.
    """

    low: float
    high: float
    count: int
    predicted: float
    observed: float
    observed_low: float
    observed_high: float


@dataclass(frozen=True, slots=True)
class CalibrationTable:
    """How far probabilities can be trusted, from spectra that took no part in the fit.

    Attributes:
        bins: Those that hold observations.
        brier: Mean squared error of the probabilities.
        base_brier: The same for the constant base rate; to be beaten.
        calibration_error: Mean absolute difference of observed and predicted, weighted by count.
        count: Observations.
    """

    bins: tuple[CalibrationBin, ...]
    brier: float
    base_brier: float
    calibration_error: float
    count: int


def reliability(probability: Array, is_right: NDArray[np.bool_]) -> CalibrationTable:
    """Compare probabilities with what happened; both of shape (X,)."""
    place = np.clip(np.searchsorted(_EDGES, probability, side="right") - 1, 0, len(_EDGES) - 2)
    bins = tuple(
        _bin(number, probability[place == number], is_right[place == number])
        for number in np.unique(place)
    )
    base = float(is_right.mean()) if is_right.size else 0.0
    count = max(1, probability.size)
    return CalibrationTable(
        bins=bins,
        brier=float(np.sum((probability - is_right) ** 2)) / count,
        base_brier=base * (1 - base),
        calibration_error=sum(one.count * abs(one.observed - one.predicted) for one in bins)
        / count,
        count=probability.size,
    )


def wilson(right: int, count: int) -> tuple[float, float]:
    """95 % Wilson interval of a share of `count` >= 1 observations."""
    share, z2 = right / count, _Z95**2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z95 / (1 + z2 / count) * np.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))


def _bin(number: int, probability: Array, is_right: NDArray[np.bool_]) -> CalibrationBin:
    low, high = wilson(int(is_right.sum()), is_right.size)
    return CalibrationBin(
        low=_EDGES[number],
        high=_EDGES[number + 1],
        count=is_right.size,
        predicted=float(probability.mean()),
        observed=float(is_right.mean()),
        observed_low=low,
        observed_high=high,
    )
