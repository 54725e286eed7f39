"""Means and 95 % intervals when several spectra belong to one molecule.

Letters: B spectra, C columns, G clusters (molecules).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DRAWS: Final = 2000
_CHUNK: Final = 50
_TAIL_PERCENT: Final = 2.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def per_spectrum(
    values: NDArray[np.float64], clusters: Sequence[str], *, seed: int = 0
) -> list[Estimate]:
    """Mean over spectra; the interval resamples whole molecules.

    Args:
        values: Numbers of each spectrum, float64 (B, C).
        clusters: Molecule of each spectrum, B names.
        seed: Of the resampling.

    Returns:
        One estimate a column; NaN throughout if there are no spectra.
    """
    sums, counts = _cluster_sums(values, clusters)
    return _ratios(sums, counts, seed)


def per_molecule(
    values: NDArray[np.float64], clusters: Sequence[str], *, seed: int = 0
) -> list[Estimate]:
    """Mean over molecules of the mean over a molecule's spectra; arguments as `per_spectrum`."""
    sums, counts = _cluster_sums(values, clusters)
    return _ratios(sums / counts[:, None], np.ones_like(counts), seed)


def independent(values: NDArray[np.float64], *, seed: int = 0) -> list[Estimate]:
    """Mean over spectra; the interval resamples single spectra, as MassSpecGym does.

    Narrower than it should be where molecules have several spectra.

    Args:
        values: Numbers of each spectrum, float64 (B, C).
        seed: Of the resampling.
    """
    return _ratios(values, np.ones(len(values)), seed)


def _cluster_sums(
    values: NDArray[np.float64], clusters: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # Numbered by first appearance, so that renaming molecules changes no interval.
    number: dict[str, int] = {}
    code = np.array([number.setdefault(name, len(number)) for name in clusters], dtype=np.int64)
    sums = np.zeros((len(number), values.shape[1]))
    np.add.at(sums, code, values)
    return sums, np.bincount(code, minlength=len(number)).astype(np.float64)


def _ratios(sums: NDArray[np.float64], counts: NDArray[np.float64], seed: int) -> list[Estimate]:
    n_clusters, n_columns = sums.shape
    if n_clusters == 0:
        return [Estimate(float("nan"), float("nan"), float("nan"))] * n_columns
    generator = np.random.default_rng(seed)
    draws = []
    for _ in range(DRAWS // _CHUNK):
        picks = generator.integers(n_clusters, size=(_CHUNK, n_clusters))
        rows = np.arange(_CHUNK)[:, None] * n_clusters
        weight = np.bincount((picks + rows).ravel(), minlength=_CHUNK * n_clusters)
        weight = weight.reshape(_CHUNK, n_clusters).astype(np.float64)
        draws.append((weight @ sums) / (weight @ counts)[:, None])
    low, high = np.percentile(np.concatenate(draws), [_TAIL_PERCENT, 100 - _TAIL_PERCENT], axis=0)
    mean = sums.sum(axis=0) / counts.sum()
    return [Estimate(float(m), float(a), float(b)) for m, a, b in zip(mean, low, high, strict=True)]
