"""Scans of a run that are of one ion: MS2 scans of its precursor, and its elution in MS1 scans.

Letters: S MS2 scans of a polarity, W MS1 scans.
"""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import counted
from duallgd_cli.spectra.annotation import TOLERANCE
from duallgd_cli.spectra.compounds import ElutingIon
from duallgd_cli.spectra.isotopes import SPANS_DA, charge_in_ms1, charge_of, possible_peaks
from duallgd_cli.spectra.reading.quantities import finite
from duallgd_cli.spectra.types import Spectrum

logger = logging.getLogger(__name__)

# An ion whose intensity falls to this part of the maxima on both sides eluted twice.
_VALLEY: Final = 0.65
_NOISE: Final = 3.0  # times the faintest peak of an MS1 scan: what is no peak of an ion
_HALF_WINDOW: Final = 0.5  # m/z, of an isolation window that the file does not give
_PRESENT_DA: Final = 0.01  # of a precursor in MS1: files may round it
_CHIMERIC: Final = 0.3  # of the isolation window: another ion that has more of it is said
_BEFORE_S: Final = 60.0  # that MS1 is looked through before the first and after the last MS2 scan
# Seconds between MS2 scans of one ion: least, for want of repeats, and most.
_WINDOW_S: Final = (10.0, 15.0, 30.0)
_TIMES_THE_GAP: Final = 3.0
_MS1_OF_A_FEATURE: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """What tells an MS2 scan apart."""

    spectrum: Spectrum
    time: float  # retention time, s
    mz: float  # of the precursor
    charge: int  # signed, 0 if unknown
    window: tuple[float, float]  # ends of the isolation window, m/z
    intensity: float | None  # of the precursor, as the file gives it, or None
    current: float  # summed intensity of its peaks
    tolerance_da: float  # within which its precursor is known, m/z
    index: int  # its place in the file

    def rank(self, intensity: float) -> tuple[float, ...]:
        """Sorts the strongest scan first; the place in the file decides between equals alone."""
        strength = intensity or self.intensity or 0.0
        return (-strength, -self.current, self.time, self.mz, self.charge, self.index)


def scan_of(item: Spectrum) -> Scan | None:
    """An MS2 scan of which precursor and retention time are known; None for anything else."""
    time, mz, said = item.retention_time_s, item.precursor_mz, item.metadata
    if item.failure is not None or item.ms_level != 2 or mz is None or time is None:
        return None
    names = ("target_mz", "lower_offset", "upper_offset")
    target, *offsets = (finite(said.get(f"isolation_window_{name}", "")) for name in names)
    width = finite(said.get("isolation_window_width", ""))
    half = width / 2 if width else _HALF_WINDOW
    middle = mz if target is None else target
    low, high = (half if offset is None else offset for offset in offsets)
    # Of the precursor as the file gives it: in mzML and mzXML, or beside PEPMASS.
    second = (*said.get("pepmass", "").split(), "", "")[1]
    intensity = finite(said.get("precursor_intensity", second))
    return Scan(
        spectrum=item,
        time=time,
        mz=mz,
        charge=charge_of(item),
        window=(middle - low, middle + high),
        intensity=intensity if intensity is not None and intensity > 0 else None,
        current=float(possible_peaks(item)[1].sum()),
        tolerance_da=float(TOLERANCE.tolerance_da(np.array(mz), item.instrument)),
        index=item.source.index,
    )


class Group(NamedTuple):
    """Scans of one feature in the order of their file, with the MS1 scans near them.

    `remark` says what was isolated with its ion, `ion` tells of which compound it is.
    """

    scans: list[Scan]
    ms1: list[Spectrum]
    remark: str
    ion: ElutingIon


@dataclass(slots=True)
class _Trace:
    """How strong an ion is from one MS1 scan to the next; without MS1 scans an empty trace."""

    mz: float  # of the ion, as MS1 shows it
    first: int = 0  # number of the first of these MS1 scans
    time: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # of each
    # of the ion, 0 where it is not seen
    height: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    # times at which the ion falls to a valley and one peak of it ends
    ends: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def is_seen(self, start: float, end: float) -> bool:
        """Whether most MS1 scans between two times show the ion."""
        heights = self.height[slice(*np.searchsorted(self.time, (start, end)))]
        return heights.size > 0 and 2 * int((heights > 0).sum()) >= heights.size


class PrecursorsInMs1:
    """What the MS1 scans of a polarity, read once, show of the precursors of its MS2 scans.

    Attributes:
        floor: Intensity up to which an MS1 peak may be noise.
        near: Numbers of the MS1 scans before and after each MS2 scan, -1 where there is none,
            int64 (S, 2).
        intensity: Of each precursor in these, the larger one; 0 where it is in neither, (S,).
        other: Share of the isolation window that the strongest other ion has, (S,).
        other_mz: Of that ion, (S,).
        cluster: Of each MS2 scan: those of neighbouring precursor m/z, int64 (S,).
        points: Numbers of MS1 scans, ascending, m/z and intensity that they show of each cluster.
    """

    def __init__(self, scans: Sequence[Scan], surveys: Sequence[Spectrum]) -> None:
        self.scans, self.surveys = scans, surveys
        time = np.array([one.time for one in scans])
        mz = np.array([one.mz for one in scans])
        tolerance = np.array([one.tolerance_da for one in scans])
        order = np.argsort(mz, kind="stable")
        # Between clusters there is room for the tolerances of both.
        parted = np.diff(mz[order]) > tolerance[order][1:] + tolerance[order][:-1]
        self.cluster = np.empty(len(scans), np.int64)
        self.cluster[order] = np.concatenate([[0], np.cumsum(parted)])
        self.time = np.array([one.retention_time_s or 0.0 for one in surveys])
        after = np.searchsorted(self.time, time)
        self.near = np.column_stack([after - 1, np.where(after < len(surveys), after, -1)])
        self.intensity, self.other, self.other_mz = np.zeros((3, len(scans)))
        peaks = [*map(possible_peaks, surveys)]
        faintest = [height.min() for _, height in peaks if height.size]
        self.floor = _NOISE * float(np.median(faintest)) if faintest else 0.0
        for number, pair in enumerate(self.near.tolist()):
            for survey in pair:
                if survey >= 0:
                    self._look_beside(number, survey, *peaks[survey])
        # Which m/z and times MS1 is looked through for, for each cluster: memory goes with these.
        starts = np.concatenate([[0], np.flatnonzero(parted) + 1])
        least, most = (mz - tolerance, time - _BEFORE_S), (mz + tolerance, time + _BEFORE_S)
        low, first = (np.minimum.reduceat(end[order], starts) for end in least)
        high, last = (np.maximum.reduceat(end[order], starts) for end in most)
        none = np.zeros(0, np.int32)
        rows = [(none, none, np.zeros(0), np.zeros(0))]
        for survey, (at, (peak_mz, height)) in enumerate(zip(self.time, peaks, strict=True)):
            of = np.searchsorted(low, peak_mz, "right") - 1
            inside = (of >= 0) & (peak_mz <= high[of]) & (first[of] <= at) & (at <= last[of])
            kept = np.flatnonzero(inside)
            numbers = of[kept].astype(np.int32), np.full(kept.size, survey, np.int32)
            rows.append((*numbers, peak_mz[kept], height[kept]))
        of = np.concatenate([row[0] for row in rows])
        by_cluster = np.argsort(of, kind="stable")
        edges = np.searchsorted(of[by_cluster], np.arange(starts.size + 1))
        # One column after the other: of a long run each takes gigabytes.
        of_survey, at_mz, heights = (
            np.concatenate([row[column] for row in rows])[by_cluster] for column in (1, 2, 3)
        )
        self.points = [(of_survey[a:b], at_mz[a:b], heights[a:b]) for a, b in pairwise(edges)]

    def _look_beside(
        self, number: int, survey: int, mz: NDArray[np.float64], height: NDArray[np.float64]
    ) -> None:
        """Take note of what an MS1 scan shows of the window of an MS2 scan next to it."""
        scan = self.scans[number]
        within = max(scan.tolerance_da, _PRESENT_DA)
        start, end = np.searchsorted(mz, (scan.mz - within, scan.mz + within))
        strength = float(height[start:end].max(initial=0.0))
        self.intensity[number] = max(self.intensity[number], strength)
        near = self.near[number]
        apart = [abs(self.time[one] - scan.time) if one >= 0 else math.inf for one in near]
        start, end = np.searchsorted(mz, scan.window)
        inside, heights = mz[start:end], height[start:end]
        total = float(heights.sum())
        if not total or survey != near[int(np.argmin(apart))]:
            return
        spans = scan.mz + SPANS_DA / max(abs(scan.charge), 1)
        own = [(inside >= least - within) & (inside <= most + within) for least, most in spans]
        foreign = np.where(np.any(own, axis=0), 0.0, heights)
        strongest = int(foreign.argmax())
        self.other[number] = foreign[strongest] / total
        self.other_mz[number] = inside[strongest]

    def present(self, in_ms1: bool, min_intensity: float, dropped: Counter[str]) -> Iterator[int]:
        """Numbers of the scans whose precursor is strong enough; the others are counted."""
        is_seen = self.intensity > 0
        is_needed = in_ms1 and 2 * int(is_seen.sum()) >= len(self.scans)
        if in_ms1 and not is_needed and len(self.time):
            logger.warning(
                "MS1 spectra show %d of %s alone, so none is left out for that; check their m/z",
                int(is_seen.sum()), counted(len(self.scans), "precursor"),
            )  # fmt: skip
        for number, one in enumerate(self.scans):
            intensity = float(self.intensity[number]) or one.intensity
            if is_needed and not is_seen[number]:
                dropped["with a precursor that is not in MS1"] += 1
            elif intensity is not None and intensity < min_intensity:
                dropped["with a precursor below the least intensity"] += 1
            else:
                yield number

    def groups(self, numbers: Iterable[int], rt_window: float | None) -> Iterator[Group]:
        """Some of the scans by their ions: from the strongest on, whatever is of its ion."""
        scans = self.scans
        clusters: defaultdict[int, list[int]] = defaultdict(list)
        for number in numbers:
            clusters[int(self.cluster[number])].append(number)
        usual_s = _usual_gap_s([[scans[n].time for n in own] for own in clusters.values()])
        for cluster, own in clusters.items():
            left = sorted(own, key=lambda n: scans[n].rank(float(self.intensity[n])))
            traces: dict[tuple[float, float], _Trace] = {}  # scans of one ion may share it
            while left:
                seed = scans[left[0]]
                near = [n for n in left if abs(scans[n].mz - seed.mz) <= seed.tolerance_da]
                charges = (seed.charge, *(scans[n].charge for n in near))
                charge = next(filter(None, charges), 0)
                near = [n for n in near if scans[n].charge in (0, charge)]
                key = seed.mz, seed.tolerance_da
                trace = traces.get(key) or self._trace(cluster, seed)
                traces[key] = trace
                members = self._together(trace, near, left[0], rt_window, usual_s)
                left = [n for n in left if n not in members]
                yield self._group(trace, [n for n in near if n in members], usual_s)

    def _trace(self, cluster: int, seed: Scan) -> _Trace:
        """The trace of a precursor."""
        number, mz, intensity = self.points[cluster]
        if not number.size:
            return _Trace(seed.mz)
        first, last = int(number[0]), int(number[-1])
        own = np.abs(mz - seed.mz) <= seed.tolerance_da
        height = np.zeros(last - first + 1)
        np.maximum.at(height, number[own] - first, intensity[own])
        time = self.time[first : last + 1]
        smooth = np.maximum(height, self.floor)
        if smooth.size > 2:
            smooth[1:-1] = np.median([smooth[:-2], smooth[1:-1], smooth[2:]], axis=0)
        centre = float(np.average(mz[own], weights=intensity[own])) if own.any() else seed.mz
        return _Trace(centre, first, time, height, time[valleys(smooth)])

    def _together(
        self, trace: _Trace, near: Sequence[int], seed: int, gap_s: float | None, usual_s: float
    ) -> set[int]:
        """Those of some scans of one m/z that are of the peak of the ion that a scan is of."""
        scans = self.scans
        peak = int(np.searchsorted(trace.ends, scans[seed].time))
        own = [n for n in near if int(np.searchsorted(trace.ends, scans[n].time)) == peak]
        own.sort(key=lambda n: (scans[n].time, scans[n].index))
        runs: list[set[int]] = [{own[0]}]
        for before, after in pairwise(own):
            start, end = scans[before].time, scans[after].time
            wide = end - start > (usual_s if gap_s is None else gap_s)
            if wide and (gap_s is not None or not trace.is_seen(start, end)):
                runs.append(set())
            runs[-1].add(after)
        return next(run for run in runs if seed in run)

    def _group(self, trace: _Trace, members: Sequence[int], usual_s: float) -> Group:
        """A group with what MS1 shows of it."""
        own = sorted((self.scans[n] for n in members), key=lambda one: one.index)
        times = [one.time for one in own]
        ranked = [(self.scans[n].rank(float(self.intensity[n])), n) for n in members]
        strongest = self.scans[min(ranked)[1]]
        time, intensity = strongest.time, strongest.intensity
        # The ion may be strongest before the first or after the last of its MS2 scans.
        bounds = np.concatenate([[-math.inf], trace.ends, [math.inf]])
        peak = int(np.searchsorted(trace.ends, times[0]))
        start = max(min(times) - usual_s, bounds[peak])
        end = min(max(times) + usual_s, bounds[peak + 1])
        between = np.arange(*np.searchsorted(trace.time, (start, end)))
        ms1: list[Spectrum] = []
        if between.size and trace.height[between].any():
            apex = int(between[trace.height[between].argmax()])
            time, intensity = float(trace.time[apex]), float(trace.height[apex])
            beside = self.near[members].ravel() - trace.first
            near = {apex, *beside[(beside >= 0) & (beside < trace.height.size)].tolist()}
            shown = sorted(near, key=lambda n: (-float(trace.height[n]), n))[:_MS1_OF_A_FEATURE]
            numbers = sorted(trace.first + n for n in shown if trace.height[n] > 0)
            ms1 = [self.surveys[n] for n in numbers]
        chimeric = [n for n in members if self.other[n] > _CHIMERIC]
        remark = ""
        if 2 * len(chimeric) > len(members):
            worst = max(chimeric, key=lambda n: float(self.other[n]))
            spectra = counted(len(members), "spectrum", "spectra")
            remark = (
                f"chimeric: in {len(chimeric)} of {spectra} another ion was isolated too (m/z "
                f"{self.other_mz[worst]:.4f}, {self.other[worst]:.0%} of the window in MS1), so "
                "fragments of both may be among the peaks"
            )
        charge = next((abs(one.charge) for one in own if one.charge), 0) or charge_in_ms1(
            ms1, trace.mz
        )
        ion = ElutingIon(
            mz=trace.mz,
            tolerance_da=own[0].tolerance_da,
            rt_s=time,
            polarity=own[0].spectrum.polarity,
            charge=charge,
            height=intensity or 0.0,
            time=trace.time[between],
            trace=trace.height[between],
        )
        return Group(own, ms1, remark, ion)


def _usual_gap_s(times: Iterable[Sequence[float]]) -> float:
    """Most seconds between scans of an ion where MS1 does not tell, by those usual in a run."""
    least, otherwise, most = _WINDOW_S
    gaps = np.concatenate([[0.0], *(np.diff(np.sort(own)) for own in times)])[1:]
    gaps = gaps[gaps <= 2 * most]
    return float(np.clip(_TIMES_THE_GAP * np.median(gaps), least, most)) if gaps.size else otherwise


def valleys(height: NDArray[np.float64]) -> list[int]:
    """Where a trace falls to two thirds of the maxima on both sides, at the lowest point."""
    lowest_points: list[int] = []
    top, low, lowest = 0.0, math.inf, 0
    # Where it turns from rising to falling or back tells all: traces are long, and mostly level.
    steps = np.flatnonzero(np.diff(height, prepend=math.nan) != 0)
    rises = np.diff(height[steps]) > 0
    turns = steps[np.concatenate([[True], rises[1:] != rises[:-1], [True]])[: steps.size]]
    for number, value in zip(turns.tolist(), height[turns].tolist(), strict=True):
        if low <= _VALLEY * min(top, value):
            lowest_points.append(lowest)
            top, low, lowest = value, value, number
        elif value > top:
            top, low, lowest = value, value, number
        elif value < low:
            low, lowest = value, number
    return lowest_points
