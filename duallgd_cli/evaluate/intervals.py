"""Means and 95 % intervals when several spectra belong to one molecule; how far to trust forecasts.

Means have bootstrap intervals. Shares, of which each case is right or wrong, have Wilson's (1927),
which hold for few cases too. Spectra of one molecule are not independent, so they count as the
number of independent ones that would vary as much, the effective sample size (Korn and Graubard,
Survey Methodology 24, 193, 1998).

Letters: B cases, C columns, G clusters (molecules).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_DRAWS: Final = 2000
_CHUNK: Final = 50
_TAIL_PERCENT: Final = 2.5
_Z95: Final = 1.959964
_EDGES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


_NO_CASES: Final = Estimate(float("nan"), float("nan"), float("nan"))


def means(values: Array, clusters: Sequence[Hashable], *, seed: int = 0) -> list[Estimate]:
    """Mean over spectra of each column of values, (B, C); means of none are NaN.

    The bootstrap's interval resamples whole molecules: `clusters` names that of each spectrum.
    """
    sums, counts = _cluster_sums(values, clusters)
    n_clusters = len(counts)
    if n_clusters == 0:
        return [_NO_CASES] * values.shape[1]
    generator = np.random.default_rng(seed)
    draws = []
    for _ in range(_DRAWS // _CHUNK):  # how often each molecule is drawn, (_CHUNK, G)
        weight = generator.multinomial(n_clusters, [1 / n_clusters] * n_clusters, size=_CHUNK)
        draws.append((weight @ sums) / (weight @ counts)[:, None])
    low, high = np.percentile(np.concatenate(draws), [_TAIL_PERCENT, 100 - _TAIL_PERCENT], axis=0)
    mean = sums.sum(axis=0) / counts.sum()
    return list(map(Estimate, mean.tolist(), low.tolist(), high.tolist()))


def share(right: Array, clusters: Sequence[Hashable]) -> Estimate:
    """Share of right answers, (B,) of 1 and 0, with Wilson's interval; NaN if there are none.

    As in `means`, clusters name the molecule of each spectrum.
    """
    sums, counts = _cluster_sums(right[:, None], clusters)
    if not len(counts):
        return _NO_CASES
    mean = float(sums[:, 0].sum() / counts.sum())
    return Estimate(mean, *wilson(mean, effective_sample_size(sums[:, 0], counts)))


def effective_sample_size(right: Array, counts: Array) -> float:
    """How many independent cases tell as much as these, at most as many as there are.

    Of each cluster it is given how many cases it has and how many of them are right, (G,) each.
    Where all are right or all wrong, or of one molecule, their variance says nothing: then a
    molecule's spectra are taken as if they all repeated one answer.
    """
    size = float(counts.sum())
    mean = right.sum() / size
    spread = np.square(right - mean * counts).sum() / size**2
    if mean in (0, 1) or len(counts) == 1 or counts.max() == 1:
        return float(size**2 / np.square(counts).sum())
    return float(min(size, mean * (1 - mean) / spread)) if spread > 0 else size


def wilson(mean: float, size: float) -> tuple[float, float]:
    """95 % Wilson interval of a share among `size` independent cases, size above 0."""
    z2 = _Z95**2
    centre = (mean + z2 / (2 * size)) / (1 + z2 / size)
    half = _Z95 / (1 + z2 / size) * np.sqrt(mean * (1 - mean) / size + z2 / (4 * size**2))
    return min(mean, max(0.0, float(centre - half))), max(mean, min(1.0, float(centre + half)))


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Observations whose stated probabilities are alike."""

    count: int  # observations
    stated: float  # their mean stated probability
    observed: Estimate  # share of them that were right


@dataclass(frozen=True, slots=True)
class CalibrationTable:
    """How far probabilities can be trusted, from spectra that took no part in the fit."""

    bins: tuple[CalibrationBin, ...]  # those that hold observations
    expected_error: float  # mean absolute difference of observed and stated, weighted by count
    brier: float  # mean squared error of the probabilities
    base_brier: float  # the same for the constant base rate; to be beaten


def reliability(
    probability: Array, is_right: NDArray[np.bool_], clusters: Sequence[Hashable] | None = None
) -> CalibrationTable:
    """Compare probabilities with what happened, (B,) each.

    Clusters name the molecule of each observation; without them all are independent.
    """
    names = np.asarray(range(probability.size) if clusters is None else clusters)
    index = np.clip(np.searchsorted(_EDGES, probability, side="right") - 1, 0, len(_EDGES) - 2)
    right = is_right.astype(np.float64)
    bins = tuple(
        CalibrationBin(
            count=int(inside.sum()),
            stated=float(probability[inside].mean()),
            observed=share(right[inside], names[inside].tolist()),
        )
        for inside in (index == number for number in np.unique(index))
    )
    count = max(1, probability.size)
    base = right.mean() if right.size else 0.0
    return CalibrationTable(
        bins=bins,
        expected_error=sum(one.count * abs(one.observed.mean - one.stated) for one in bins) / count,
        brier=float(np.square(probability - right).sum()) / count,
        base_brier=float(np.square(base - right).sum()) / count,
    )


def _cluster_sums(values: Array, clusters: Sequence[Hashable]) -> tuple[Array, Array]:
    """Sums of each cluster, (G, C), and how many cases it has, (G,)."""
    names, code, counts = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, code, values)
    return sums, counts.astype(np.float64)
