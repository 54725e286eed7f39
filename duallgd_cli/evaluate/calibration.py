"""How far a stated probability can be believed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.evaluate.bootstrap import Estimate, per_spectrum


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Cases with about the same stated probability.

    Attributes:
        count: How many.
        stated: Mean stated probability.
        observed: Share that was right, with its clustered 95 % interval.
    """

    count: int
    stated: float
    observed: Estimate


@dataclass(frozen=True, slots=True)
class Reliability:
    """Calibration of one stated probability.

    Attributes:
        bins: By stated probability, ascending, of about equal size.
        expected_error: Mean distance of stated and observed over the cases (ECE).
        brier: Mean squared difference of the probability and the outcome.
        base_brier: The same for a probability that is always the overall share.
    """

    bins: tuple[ReliabilityBin, ...]
    expected_error: float
    brier: float
    base_brier: float


def reliability(
    stated: NDArray[np.float64],
    right: NDArray[np.float64],
    clusters: Sequence[str],
    *,
    n_bins: int = 10,
    seed: int = 0,
) -> Reliability | None:
    """Compare stated probabilities with outcomes; None if there are no stated probabilities.

    Args:
        stated: Probability of each case, NaN where there is none, float64 (B,).
        right: 1 where the case was right, else 0, float64 (B,).
        clusters: Molecule of each case, B names.
        n_bins: Bins; fewer if probabilities coincide.
        seed: Of the bootstrap.
    """
    known = np.flatnonzero(np.isfinite(stated)).tolist()
    if not known:
        return None
    stated, right = stated[known], right[known]
    names = [clusters[case] for case in known]
    edges = np.unique(np.quantile(stated, np.linspace(0, 1, n_bins + 1)[1:-1]))
    place = np.searchsorted(edges, stated, side="right")
    bins = []
    for number in np.unique(place):
        inside = np.flatnonzero(place == number).tolist()
        [observed] = per_spectrum(
            right[inside][:, None], [names[case] for case in inside], seed=seed
        )
        bins.append(ReliabilityBin(len(inside), float(stated[inside].mean()), observed))
    error = sum(part.count * abs(part.stated - part.observed.mean) for part in bins) / len(known)
    return Reliability(
        bins=tuple(bins),
        expected_error=float(error),
        brier=float(np.mean((stated - right) ** 2)),
        base_brier=float(np.mean((right.mean() - right) ** 2)),
    )
