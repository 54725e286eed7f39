"""From the scans of a run to features: what was measured of one ion while it eluted.

Letters: P peaks of all spectra together, ascending by m/z.
"""

import hashlib
import heapq
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import require, require_range
from duallgd_cli.errors import counted, quote
from duallgd_cli.spectra.annotation import TOLERANCE
from duallgd_cli.spectra.compounds import answering, link, with_compound
from duallgd_cli.spectra.ms1 import (
    Group,
    PrecursorsInMs1,
    is_scan,
    possible_peaks,
    with_isotopes,
)
from duallgd_cli.spectra.reading.quantities import collision_energy_ev
from duallgd_cli.spectra.reading.record import canonical
from duallgd_cli.spectra.types import Feature, Spectrum

logger = logging.getLogger(__name__)

_SPAN: Final = re.compile(r"\s*(\d+(?:\.\d*)?)?\s*-\s*(\d+(?:\.\d*)?)?\s*", re.ASCII)
_AROUND_DA: Final = 6.0  # of an MS1 scan that is kept with a feature
_LEAST_SHARE: Final = 0.5 - 1e-9  # sums of shares are rounded
# Names of counts of what became of the MS2 spectra of runs; a reason follows the last.
SPECTRA, FEATURES, COMPOUNDS = "run_spectra", "run_features", "run_compounds"
LEFT_OUT: Final = "left out: "


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """How the MS2 spectra of a run become features, and which are left out.

    Attributes:
        rt_window: Most seconds between one MS2 spectrum of a feature and the next. None for what
            MS1 spectra show, which is where the ion is, and where it falls to two thirds and rises
            again; without them for three times the usual time between repeats, 10 to 30 s.
        rt: Retention times of spectra that are kept, in seconds, such as ``60-600``, ``60-`` or
            ``-600``; None keeps all.
        mz: Precursor m/z that are kept, written likewise.
        min_peaks: Fewest peaks of a spectrum that is kept.
        min_intensity: Least intensity of the precursor in the MS1 spectra before and after, or as
            the file gives it; a spectrum of which nothing tells is kept.
        in_ms1: Whether a spectrum is left out whose precursor neither of these shows. Where they
            show less than half of all precursors of a file, none is left out.
        link: Whether features are linked to compounds, which tells the adducts of some.
        by: ``compound`` predicts one ion of each compound whose ions are hardly in doubt: reading
            several together is no better than the best one alone. ``feature`` predicts them all.
    """

    rt_window: float | None = None
    rt: str | None = None
    mz: str | None = None
    min_peaks: int = 1
    min_intensity: float = 0.0
    in_ms1: bool = True
    link: bool = True
    by: Literal["compound", "feature"] = "compound"

    def __post_init__(self) -> None:
        require_range(self, "rt_window", "min_intensity", least=0)
        require_range(self, "min_peaks", least=0)
        for name in ("rt", "mz"):
            span_of(name, getattr(self, name))


def span_of(name: str, text: str | None) -> tuple[float, float]:
    """The ends of a span such as ``60-600``; an open one is infinite, and so is None.

    Raises:
        ConfigError: The text is no span.
    """
    low, high = -math.inf, math.inf
    if text is not None:
        match = _SPAN.fullmatch(text)
        if match is not None:
            low, high = float(match[1] or low), float(match[2] or high)
        is_span = match is not None and any(match.groups()) and low < high
        require(is_span, f"{name} must be a span such as 60-600, 60- or -600, not {quote(text)}")
    return low, high


BY_DEFAULT: Final = FeatureSettings()


def features_of_run(
    name: str,
    spectra: Sequence[Spectrum],
    settings: FeatureSettings,
    counts: Counter[str],
    level: int = logging.INFO,
) -> Iterator[Feature]:
    """Features of a run in the order of their first spectra, numbered on from `counts`.

    MS2 spectra are one feature that have one polarity and precursor m/z, within the tolerance of
    the instrument, while the ion elutes, whatever their order in the file. Of each collision energy
    it has one spectrum, which says what it was made of (`Spectrum.merged`). What stands alone, such
    as a record that cannot be read, is a feature of its own.
    """
    scans, surveys, alone = [], [], []
    for item in spectra:
        if is_scan(item):
            scans.append(item)
        elif item.ms_level == 1 and item.failure is None:
            surveys += [item] if item.retention_time_s is not None else []
        else:
            alone.append((item.source.index, Feature((item,))))
    surveys.sort(key=_order)
    groups: list[Group] = []
    dropped: Counter[str] = Counter()
    kept = _filtered(scans, settings, dropped)
    for polarity in sorted({one.polarity for one in kept}):
        own = [one for one in kept if one.polarity == polarity]
        of_it = [one for one in surveys if not polarity or one.polarity in (polarity, 0)]
        seen = PrecursorsInMs1(own, of_it)
        present = seen.present(settings.in_ms1, settings.min_intensity, dropped)
        groups += seen.groups(present, settings.rt_window)
    groups.sort(key=lambda group: group.scans[0].source.index)
    is_open = settings.link and not any(one.adduct_text for one in kept)
    linked = link([one.ion for one in groups]) if is_open else []
    first, before = counts[FEATURES], counts[COMPOUNDS]
    heights = [one.ion.height for one in groups]
    answers = answering(linked, heights) if settings.by == "compound" else {}
    counts.update({SPECTRA: len(scans), FEATURES: len(groups)})
    counts[COMPOUNDS] += 1 + max((one.compound for one in linked), default=-1)
    counts.update({f"{LEFT_OUT}{why}": number for why, number in dropped.items()})
    reasons = ", ".join(f"{number} {why}" for why, number in dropped.items())
    said = f"; left out are {reasons}" if reasons else ""
    what = counted(len(scans), "MS2 spectrum", "MS2 spectra")
    logger.log(level, "%s: %s of %s%s", name, counted(len(groups), "feature"), what, said)

    def features() -> Iterator[tuple[int, Feature]]:
        for number, group in enumerate(groups):
            feature = _feature(group, str(first + number + 1))
            spectra = feature.spectra
            if linked:
                compound, adducts = linked[number]
                name = str(before + compound + 1)
                spectra = tuple(with_compound(one, name, adducts) for one in spectra)
            if number in answers:
                best = answers[number]
                answered = f"{first + best + 1} ({linked[best].adducts[0][0]})"
                spectra = tuple(replace(one, answered_by=answered) for one in spectra)
            yield group.scans[0].source.index, replace(feature, spectra=spectra)

    for _, feature in heapq.merge(features(), alone, key=lambda entry: entry[0]):
        yield feature


def _order(survey: Spectrum) -> tuple[float, bytes, int]:
    """Sorts MS1 scans by time; a hash of their peaks tells those of one time apart."""
    mz, heights = possible_peaks(survey)
    content = hashlib.sha256(mz.tobytes() + heights.tobytes()).digest()
    return survey.retention_time_s or 0.0, content, survey.source.index


def _filtered(
    scans: Sequence[Spectrum], settings: FeatureSettings, dropped: Counter[str]
) -> list[Spectrum]:
    """The scans that are kept whatever MS1 shows; of the others the first reason is counted."""
    earliest, latest = span_of("rt", settings.rt)
    lightest, heaviest = span_of("mz", settings.mz)
    kept: list[Spectrum] = []
    for one in scans:
        if not earliest <= (one.retention_time_s or 0.0) <= latest:
            dropped["outside the retention times"] += 1
        elif not lightest <= (one.precursor_mz or 0.0) <= heaviest:
            dropped["outside the precursor m/z"] += 1
        elif one.mz.size < settings.min_peaks:
            dropped[f"with fewer than {counted(settings.min_peaks, 'peak')}"] += 1
        else:
            kept.append(one)
    return kept


def consensus(spectra: Sequence[Spectrum]) -> Spectrum:
    """The spectrum that several of one ion have in common; one spectrum is its own.

    Peaks within the tolerance of the instrument are one, but never two of one spectrum. Its m/z is
    the mean weighted by intensity, its intensity the mean over all spectra. A peak is kept that
    half of the spectra have, each counted by its summed intensity: what a strong spectrum shows
    is not lost among faint ones. The first of the spectra gets the peaks of all; where they have
    none in common those of the most intense one alone, and says so. Their order makes no odds.
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
    starts = _starts(mz, owner, TOLERANCE.tolerance_da(mz, first.instrument))
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


def _starts(
    mz: NDArray[np.float64], owner: NDArray[np.int64], tolerance_da: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Where each peak of the consensus begins among those of all spectra (P,) with their owners.

    Two peaks of one spectrum are two, so the widest gap parts them.
    """
    gaps = np.diff(mz)
    starts = np.concatenate([[0], np.flatnonzero(gaps > tolerance_da[1:]) + 1])
    sizes = np.diff(np.append(starts, mz.size))
    found: list[int] = []
    waiting = [*zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
    while waiting:
        start, end = waiting.pop()
        if end - start == 1 or np.unique(owner[start:end]).size == end - start:
            found.append(start)
        else:
            cut = start + 1 + int(gaps[start : end - 1].argmax())
            waiting += [(start, cut), (cut, end)]
    return np.array(sorted(found))


def _feature(group: Group, name: str) -> Feature:
    """The feature of this name that a group is, scans of one energy as one spectrum."""
    by_energy: defaultdict[tuple[object, ...], list[Spectrum]] = defaultdict(list)
    for scan in group.scans:
        mode = canonical(scan.metadata).get("fragmentation_mode", "")
        by_energy[scan.collision_energy_text, mode, scan.instrument].append(scan)
    # A precursor m/z that stands in the file, as it is written there.
    in_order = [scan for alike in by_energy.values() for scan in alike]
    by_mz = sorted(in_order, key=lambda one: (one.precursor_mz, one.retention_time_s))
    middle = by_mz[(len(by_mz) - 1) // 2]
    of_ion: dict[str, Any] = {
        "feature_id": name,
        "precursor_mz": middle.precursor_mz,
        "precursor_text": middle.precursor_text,
        "charge": next((one.charge for one in in_order if one.charge), 0),
        "polarity": in_order[0].polarity,
    }
    blocks = []
    for survey in group.ms1:
        # What an MS1 scan shows around the ion, and its faintest peak: what it would have shown.
        mz, height = possible_peaks(survey)
        kept = np.abs(mz - of_ion["precursor_mz"]) <= _AROUND_DA
        kept[height.argmin()] = True
        blocks.append(replace(survey, mz=mz[kept], intensity=height[kept], metadata={}, **of_ion))
    nothing = np.zeros(0)
    spectra = []
    for alike in by_energy.values():
        merged = consensus(alike)
        energy, instrument = merged.collision_energy_text, merged.instrument
        merged = replace(
            merged.warned(group.remark),
            **of_ion,
            retention_time_s=round(group.ion.rt_s, 3),
            collision_energy_ev=collision_energy_ev(energy, middle.precursor_mz, instrument),
            assumptions=tuple(dict.fromkeys(said for one in alike for said in one.assumptions)),
            merged=tuple(
                replace(one, mz=nothing, intensity=nothing, metadata={}, warnings=())
                for one in alike
            ),
        )
        spectra.append(with_isotopes(merged, {name: blocks}))
    return Feature(tuple(spectra), tuple(blocks), group.ion.height or None)
