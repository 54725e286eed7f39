"""One spectrum from several of one ion at one collision energy.

Letters: P peaks of all spectra together, ascending by m/z.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import counted
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.types import HIGHEST_MZ, Spectrum

TOLERANCE: Final = AnnotationSettings()
_LEAST_SHARE: Final = 0.5 - 1e-9  # sums of shares are rounded


def consensus(spectra: Sequence[Spectrum]) -> Spectrum:
    """The spectrum that several of one ion have in common; one spectrum is its own.

    Peaks within the tolerance of the instrument are one, but never two of one spectrum. Its m/z is
    the mean weighted by intensity, its intensity the mean over all spectra. A peak is kept that
    half of the spectra have, each counted by its summed intensity: what a strong spectrum shows
    is not lost among faint ones. Whatever the order of the spectra is, the result is the same.

    Returns:
        The first of the spectra, with the peaks of all. Where they have no peak in common it has
        those of the most intense one alone, and says so.
    """
    spectra = sorted(spectra, key=lambda one: (one.source.file, one.source.index))
    first = spectra[0]
    if len(spectra) == 1:
        return first
    warnings = [*dict.fromkeys(warning for one in spectra for warning in one.warnings)]
    peaks = [possible_peaks(one) for one in spectra]
    mz, intensity = (np.concatenate(column) for column in zip(*peaks, strict=True))
    if not mz.size:
        return replace(first, warnings=tuple(warnings))
    owner = np.repeat(np.arange(len(spectra)), [own.size for own, _ in peaks])
    order = np.lexsort((owner, mz))
    mz, intensity, owner = mz[order], intensity[order], owner[order]
    scale = intensity.max()  # so that sums stay finite
    intensity = intensity / scale
    starts = _starts(mz, owner, TOLERANCE.tolerance_ppm(first.instrument))
    current = np.bincount(owner, intensity, len(spectra))
    share = np.add.reduceat(current[owner] / current.sum(), starts)
    summed = np.add.reduceat(intensity, starts)
    centre = np.add.reduceat(mz * intensity, starts) / summed
    kept = share >= _LEAST_SHARE
    height = summed / len(spectra) * scale
    if not kept.any():
        strongest = int(current.argmax())
        centre, height = peaks[strongest]
        kept = np.ones(centre.size, np.bool_)
        warnings.append(
            f"{counted(len(spectra), 'spectrum', 'spectra')} of one energy have no peak in common; "
            f"the most intense is used, index {spectra[strongest].source.index}"
        )
    return replace(first, mz=centre[kept], intensity=height[kept], warnings=tuple(warnings))


def possible_peaks(spectrum: Spectrum) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """m/z and intensity of the peaks that have both."""
    mz, intensity = spectrum.mz, spectrum.intensity
    with np.errstate(invalid="ignore"):
        possible = (mz > 0) & (mz < HIGHEST_MZ) & (intensity > 0) & (intensity < np.inf)
    return mz[possible], intensity[possible]


def _starts(mz: NDArray[np.float64], owner: NDArray[np.int64], ppm: float) -> NDArray[np.int64]:
    """Where each peak of the consensus begins among those of all spectra (P,) with their owners."""
    gaps = np.diff(mz)
    ends = gaps > np.maximum(mz[1:], TOLERANCE.floor_mz) * ppm * 1e-6
    starts = np.concatenate([[0], np.flatnonzero(ends) + 1])
    sizes = np.diff(np.append(starts, mz.size))
    found: list[int] = []
    waiting = [*zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
    while waiting:  # two peaks of one spectrum are two, so the widest gap parts them
        start, end = waiting.pop()
        if end - start == 1 or np.unique(owner[start:end]).size == end - start:
            found.append(start)
        else:
            cut = start + 1 + int(gaps[start : end - 1].argmax())
            waiting += [(start, cut), (cut, end)]
    return np.array(sorted(found))
