"""What MS1 spectra show of the ions of MS2 spectra: isotopes, elution, and which scans are of one.

Letters: S MS2 scans of a polarity.
"""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure, counted
from duallgd_cli.spectra.annotation import TOLERANCE
from duallgd_cli.spectra.compounds import ElutingIon
from duallgd_cli.spectra.types import HALF_WINDOW, HIGHEST_MZ, ISOTOPES, IsotopePattern, Spectrum

logger = logging.getLogger(__name__)

_SAME_PRECURSOR_PPM: Final = 10.0
_SAME_PEAK_S: Final = 60.0  # between spectra of one chromatographic peak
# Least and largest mass of each isotope from the monoisotopic ion, Da.
SPANS: Final = {
    -2: (-1.9993, -1.9927),  # 78Se to 10B2
    -1: (-0.9964, -0.9964),  # 10B
    1: (0.9970, 1.0063),  # 15N to 2H
    2: (1.9957, 2.0068),  # 34S to 13C2
    4: (3.9915, 4.0086),  # 34S2 to 18O2
}
SPANS_DA: Final = np.array([(0.0, 0.0), *(SPANS[offset] for offset in ISOTOPES)])
_LEAST: Final = 1e-30  # intensity; ratios of any two are numbers whose squares are


def with_isotopes(spectrum: Spectrum, ms1: Mapping[str | int, Sequence[Spectrum]]) -> Spectrum:
    """An MS2 spectrum with what its MS1 spectra show.

    These are those of its FEATURE_ID, else the last of its polarity (`ms1` has them by one or the
    other); those that name another precursor or time are of another ion.
    """
    if spectrum.feature_id:
        near = ms1.get(spectrum.feature_id, ())
    else:
        near = ms1.get(spectrum.polarity) or ms1.get(0, ())
    own = [one for one in near if one.precursor_mz is None or differs(spectrum, one) == ""]
    found = next(filter(None, (_lighter_ion(one, spectrum) for one in own)), None)
    mz = spectrum.precursor_mz if found is None else found[0]
    ion = replace(spectrum, precursor_mz=mz)
    patterns = [shown for one in own if (shown := isotope_pattern(one, ion)) is not None]
    if patterns:
        spectrum = replace(spectrum, isotopes=sum(patterns[1:], patterns[0]))
    if found is None or spectrum.monoisotopic_mz is not None:
        return spectrum
    mz, ratio, isotope = found
    return replace(spectrum, monoisotopic_mz=mz).assumed(
        f"MS1 shows an ion {ratio:.2g} times as strong at m/z {mz:.4f}, lighter as by {isotope}: "
        "the precursor is taken for its isotope"
    )


def differs(first: Spectrum, other: Spectrum) -> str:
    """What says that two spectra are not of one ion of one chromatographic peak, else ""."""
    mz, other_mz = first.precursor_mz, other.precursor_mz
    if mz is None or other_mz is None:
        is_same = mz is other_mz
    else:
        is_same = abs(mz - other_mz) <= _SAME_PRECURSOR_PPM * 1e-6 * mz
    if not is_same:
        return "precursor m/z"
    if first.polarity * other.polarity < 0:
        return "ion mode"
    if first.charge and other.charge and first.charge != other.charge:
        return "charge"
    one, another = first.retention_time_s, other.retention_time_s
    is_later = one is not None and another is not None and abs(one - another) > _SAME_PEAK_S
    return "retention time" if is_later else ""


def _lighter_ion(ms1: Spectrum, ms2: Spectrum) -> tuple[float, float, str] | None:
    """The monoisotopic ion, where an MS1 spectrum shows that the precursor is an isotope of it.

    It counts where distance and ratio are those of an isotope: it is stronger than the precursor,
    as that of carbon is, or nearly as strong, as that of bromine is. Lighter isotopes of boron and
    selenium are weaker than the monoisotopic ion. Where a further ion lies two below, as with
    several atoms of bromine or selenium, nothing is certain.

    Returns:
        Its m/z, its intensity next to that of the next isotope, and the isotope; or None.
    """
    mz, charges = ms2.precursor_mz, max(abs(charge_of(ms2)), 1)
    if mz is None:
        return None
    peak_mz, intensity = possible_peaks(ms1)
    tolerance_da = float(TOLERANCE.tolerance_da(np.array(mz), ms2.instrument or ms1.instrument))

    def strongest(at: float, within: float) -> tuple[float, float]:
        near = np.flatnonzero(np.abs(peak_mz - at) <= within)
        best = near[intensity[near].argmax()] if near.size else None
        return (0.0, 0.0) if best is None else (float(peak_mz[best]), float(intensity[best]))

    found = None
    at, height = strongest(mz, tolerance_da)
    most_carbon = 0.0108 * mz * charges / 12
    # Distance and its width in Da, least and most of the precursor next to the lighter ion.
    steps = (
        ("13C", 1.00336, 0.0022, 0.008, min(1.2 * most_carbon + 0.03, 0.67)),
        ("37Cl, 81Br or 34S", 1.9975, 0.004, 0.03, 1.4),
    )
    while height:
        for isotope, distance, width, least, most in steps:
            within = min(tolerance_da, width / charges)
            below, lighter = strongest(at - distance / charges, within)
            if lighter and least <= height / lighter <= most:
                found = below, lighter / height, isotope
                at, height = below, lighter
                break
        else:
            _, further = strongest(at - 1.9975 / charges, min(tolerance_da, 0.004 / charges))
            return None if further > 0.05 * height else found
    return None


def possible_peaks(spectrum: Spectrum) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """m/z and intensity of the peaks that have both."""
    mz, intensity = spectrum.mz, spectrum.intensity
    possible = (mz > 0) & (mz < HIGHEST_MZ) & (intensity > _LEAST) & (intensity < 1 / _LEAST)
    if possible.all():  # as nearly always; a run has millions
        return mz, intensity
    return mz[possible], intensity[possible]


def isotope_pattern(ms1: Spectrum, ms2: Spectrum) -> IsotopePattern | None:
    """What an MS1 spectrum shows of a precursor.

    None where the ion is not in it, or none of its heavier isotopes: such a list was rid of
    isotopes, or the ion is too faint.
    """
    mz = ms2.precursor_mz
    peak_mz, intensity = possible_peaks(ms1)
    if mz is None or not peak_mz.size:
        return None
    at = mz + SPANS_DA / max(abs(charge_of(ms2)), 1)
    tolerance_da = TOLERANCE.tolerance_da(at, ms2.instrument or ms1.instrument)
    edges = np.searchsorted(peak_mz, at + np.array([-1.0, 1.0]) * tolerance_da)
    sums = [float(intensity[start:end].sum()) for start, end in edges]
    if sums[0] == 0 or not any(sums[1 + ISOTOPES.index(1) :]):
        return None
    return IsotopePattern(tuple(sums), float(intensity.min()))


def charge_of(spectrum: Spectrum) -> int:
    """Signed charge of the ion, of its adduct if that is understood; 0 where nothing tells."""
    adduct = parse_adduct(spectrum.adduct_text)
    return spectrum.charge if isinstance(adduct, Failure) else adduct.charge


def charge_in_ms1(ms1: Iterable[Spectrum], mz: float) -> int:
    """Charge of an ion by the distance of its isotopes in MS1 scans, 0 where these do not tell."""
    shown: Counter[int] = Counter()
    for survey in ms1:
        peak_mz, height = possible_peaks(survey)
        at = mz + np.array([0.0, 1.00336, 1.00336 / 2])
        edges = np.searchsorted(peak_mz, at + 5e-6 * mz * np.array([[-1.0], [1.0]]))
        main, single, double = (float(height[s:e].max(initial=0.0)) for s, e in edges.T)
        shown[2 if 0.02 * main < double < 1.4 * main else 1 if single > 0.005 * main else 0] += 1
    return shown.most_common(1)[0][0] if shown else 0


# An ion whose intensity falls to this part of the maxima on both sides eluted twice.
_VALLEY: Final = 0.65
_NOISE: Final = 3.0  # times the faintest peak of an MS1 scan: what is no peak of an ion
_PRESENT_DA: Final = 0.01  # of a precursor in MS1: files may round it
_CHIMERIC: Final = 0.3  # of the isolation window: another ion that has more of it is said
_BEFORE_S: Final = 60.0  # that MS1 is looked through before the first and after the last MS2 scan
# Seconds between MS2 scans of one ion: least, for want of repeats, and most.
_WINDOW_S: Final = (10.0, 15.0, 30.0)
_TIMES_THE_GAP: Final = 3.0
_MS1_OF_A_FEATURE: Final = 3


def is_scan(item: Spectrum) -> bool:
    """Whether it is an MS2 scan of which precursor and retention time are known."""
    is_known = item.precursor_mz is not None and item.retention_time_s is not None
    return is_known and item.failure is None and item.ms_level == 2


class Group(NamedTuple):
    """Scans of one feature in the order of their file, with the MS1 scans near them."""

    scans: list[Spectrum]
    ms1: list[Spectrum]
    remark: str  # what was isolated with its ion
    ion: ElutingIon


class _Trace(NamedTuple):
    """How strong an ion is from one MS1 scan to the next; without MS1 scans an empty trace."""

    mz: float  # of the ion, as MS1 shows it
    first: int = 0  # number of the first of these MS1 scans
    time: NDArray[np.float64] = np.zeros(0)
    height: NDArray[np.float64] = np.zeros(0)  # of the ion, 0 where it is not seen
    ends: NDArray[np.float64] = np.zeros(0)  # times of valleys, where one peak of the ion ends

    def is_seen(self, start: float, end: float) -> bool:
        """Whether most MS1 scans between two times show the ion."""
        heights = self.height[slice(*np.searchsorted(self.time, (start, end)))]
        return heights.size > 0 and 2 * int((heights > 0).sum()) >= heights.size


class PrecursorsInMs1:
    """What the MS1 scans of a polarity, read once, show of the precursors of its MS2 scans.

    Attributes:
        time: Retention times of the MS2 scans, s, (S,); of the MS1 scans `ms1_time`.
        mz: Of their precursors, (S,), each known within `tolerance`, Da, (S,).
        charge: Signed, 0 if unknown, (S,).
        stated: Intensities of the precursors as the file gives them, if it does.
        current: Summed intensities of the peaks.
        floor: Intensity up to which an MS1 peak may be noise.
        near: Numbers of the MS1 scans before and after each MS2 scan, -1 for none, (S, 2).
        intensity: Of each precursor in these, the larger one; 0 where it is in neither, (S,).
        other: Share of the isolation window that the strongest other ion has, (S,).
        other_mz: Of that ion, (S,).
        cluster: Of each MS2 scan: those of neighbouring precursor m/z, (S,).
        points: Numbers of MS1 scans, ascending, m/z and intensity that they show of each cluster.
    """

    def __init__(self, scans: Sequence[Spectrum], surveys: Sequence[Spectrum]) -> None:
        self.scans, self.surveys = scans, surveys
        self.time = time = np.array([one.retention_time_s for one in scans], np.float64)
        self.mz = mz = np.array([one.precursor_mz for one in scans], np.float64)
        self.tolerance = tolerance = np.array(
            [
                float(TOLERANCE.tolerance_da(one_mz, one.instrument))
                for one, one_mz in zip(scans, mz, strict=True)
            ]
        )
        self.charge = [*map(charge_of, scans)]
        self.stated = [one.precursor_intensity for one in scans]
        self.current = [float(possible_peaks(one)[1].sum()) for one in scans]
        order = np.argsort(mz, kind="stable")
        # Between clusters there is room for the tolerances of both.
        parted = np.diff(mz[order]) > tolerance[order][1:] + tolerance[order][:-1]
        self.cluster = np.empty(len(scans), np.int64)
        self.cluster[order] = np.concatenate([[0], np.cumsum(parted)])
        self.ms1_time = np.array([one.retention_time_s or 0.0 for one in surveys])
        after = np.searchsorted(self.ms1_time, time)
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
        for survey, (at, (peak_mz, height)) in enumerate(zip(self.ms1_time, peaks, strict=True)):
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
        own_mz = float(self.mz[number])
        within = max(float(self.tolerance[number]), _PRESENT_DA)
        start, end = np.searchsorted(mz, (own_mz - within, own_mz + within))
        strength = float(height[start:end].max(initial=0.0))
        self.intensity[number] = max(self.intensity[number], strength)
        near, time = self.near[number], float(self.time[number])
        apart = [abs(self.ms1_time[one] - time) if one >= 0 else math.inf for one in near]
        window = self.scans[number].isolation_window
        start, end = np.searchsorted(mz, window or (own_mz - HALF_WINDOW, own_mz + HALF_WINDOW))
        inside, heights = mz[start:end], height[start:end]
        total = float(heights.sum())
        if not total or survey != near[int(np.argmin(apart))]:
            return
        spans = own_mz + SPANS_DA / max(abs(self.charge[number]), 1)
        own = [(inside >= least - within) & (inside <= most + within) for least, most in spans]
        foreign = np.where(np.any(own, axis=0), 0.0, heights)
        strongest = int(foreign.argmax())
        self.other[number] = foreign[strongest] / total
        self.other_mz[number] = inside[strongest]

    def present(self, in_ms1: bool, min_intensity: float, dropped: Counter[str]) -> Iterator[int]:
        """Numbers of the scans whose precursor is strong enough; the others are counted."""
        is_seen = self.intensity > 0
        is_needed = in_ms1 and 2 * int(is_seen.sum()) >= len(self.scans)
        if in_ms1 and not is_needed and self.surveys:
            logger.warning(
                "MS1 spectra show %d of %s alone, so none is left out for that; check their m/z",
                int(is_seen.sum()), counted(len(self.scans), "precursor"),
            )  # fmt: skip
        for number, stated in enumerate(self.stated):
            intensity = float(self.intensity[number]) or stated
            if is_needed and not is_seen[number]:
                dropped["with a precursor that is not in MS1"] += 1
            elif intensity is not None and intensity < min_intensity:
                dropped["with a precursor below the least intensity"] += 1
            else:
                yield number

    def groups(self, numbers: Iterable[int], rt_window: float | None) -> Iterator[Group]:
        """Some of the scans by their ions: from the strongest on, whatever is of its ion."""
        clusters: defaultdict[int, list[int]] = defaultdict(list)
        for number in numbers:
            clusters[int(self.cluster[number])].append(number)
        # Most seconds between scans of an ion where MS1 does not tell, by those usual in the run.
        least, usual_s, most = _WINDOW_S
        gaps = np.concatenate(
            [[math.inf], *(np.diff(np.sort(self.time[own])) for own in clusters.values())]
        )
        gaps = gaps[gaps <= 2 * most]
        if gaps.size:
            usual_s = float(np.clip(_TIMES_THE_GAP * np.median(gaps), least, most))
        for cluster, own in clusters.items():
            left = sorted(own, key=self._rank)
            traces: dict[tuple[float, float], _Trace] = {}  # scans of one ion may share it
            while left:
                seed = left[0]
                key = float(self.mz[seed]), float(self.tolerance[seed])
                near = [n for n in left if abs(self.mz[n] - key[0]) <= key[1]]
                charge = next((self.charge[n] for n in near if self.charge[n]), 0)
                near = [n for n in near if self.charge[n] in (0, charge)]
                if key not in traces:
                    traces[key] = self._trace(cluster, *key)
                trace = traces[key]
                members = self._together(trace, near, seed, rt_window, usual_s)
                left = [n for n in left if n not in members]
                yield self._group(trace, [n for n in near if n in members], usual_s)

    def _rank(self, number: int) -> tuple[float, ...]:
        """Sorts the strongest scan first; the place in the file decides between equals alone."""
        strength = float(self.intensity[number]) or self.stated[number] or 0.0
        time, mz, charge = float(self.time[number]), float(self.mz[number]), self.charge[number]
        return (-strength, -self.current[number], time, mz, charge, self.scans[number].source.index)

    def _trace(self, cluster: int, seed_mz: float, tolerance_da: float) -> _Trace:
        """The trace of a precursor."""
        number, mz, intensity = self.points[cluster]
        if not number.size:
            return _Trace(seed_mz)
        first, last = int(number[0]), int(number[-1])
        own = np.abs(mz - seed_mz) <= tolerance_da
        height = np.zeros(last - first + 1)
        np.maximum.at(height, number[own] - first, intensity[own])
        time = self.ms1_time[first : last + 1]
        smooth = np.maximum(height, self.floor)
        if smooth.size > 2:
            smooth[1:-1] = np.median([smooth[:-2], smooth[1:-1], smooth[2:]], axis=0)
        centre = float(np.average(mz[own], weights=intensity[own])) if own.any() else seed_mz
        return _Trace(centre, first, time, height, time[valleys(smooth)])

    def _together(
        self, trace: _Trace, near: Sequence[int], seed: int, gap_s: float | None, usual_s: float
    ) -> set[int]:
        """Those of some scans of one m/z that are of the peak of the ion that a scan is of."""
        peak = int(np.searchsorted(trace.ends, self.time[seed]))
        own = [n for n in near if int(np.searchsorted(trace.ends, self.time[n])) == peak]
        own.sort(key=lambda n: (self.time[n], self.scans[n].source.index))
        runs: list[set[int]] = [{own[0]}]
        for before, after in pairwise(own):
            start, end = float(self.time[before]), float(self.time[after])
            wide = end - start > (usual_s if gap_s is None else gap_s)
            if wide and (gap_s is not None or not trace.is_seen(start, end)):
                runs.append(set())
            runs[-1].add(after)
        return next(run for run in runs if seed in run)

    def _group(self, trace: _Trace, members: Sequence[int], usual_s: float) -> Group:
        """A group with what MS1 shows of it."""
        own = sorted(members, key=lambda n: self.scans[n].source.index)
        times = self.time[own]
        strongest = min(members, key=self._rank)
        time, intensity = float(self.time[strongest]), self.stated[strongest]
        # The ion may be strongest before the first or after the last of its MS2 scans.
        bounds = np.concatenate([[-math.inf], trace.ends, [math.inf]])
        peak = int(np.searchsorted(trace.ends, times[0]))
        start = max(times.min() - usual_s, bounds[peak])
        end = min(times.max() + usual_s, bounds[peak + 1])
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
        charge = next((abs(self.charge[n]) for n in own if self.charge[n]), 0)
        ion = ElutingIon(
            mz=trace.mz,
            tolerance_da=float(self.tolerance[own[0]]),
            rt_s=time,
            polarity=self.scans[own[0]].polarity,
            charge=charge or charge_in_ms1(ms1, trace.mz),
            height=intensity or 0.0,
            time=trace.time[between],
            trace=trace.height[between],
        )
        return Group([self.scans[n] for n in own], ms1, remark, ion)


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
