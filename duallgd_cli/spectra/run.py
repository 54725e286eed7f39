"""From the scans of a run to features: what was measured of one ion while it eluted.

The MS1 scans are looked through for the precursors of the MS2 scans, and these are grouped.

Letters: S MS2 scans of a polarity, W MS1 scans.
"""

import hashlib
import heapq
import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import require, require_range
from duallgd_cli.errors import counted, quote
from duallgd_cli.spectra.compounds import ElutingIon, answering, link, with_compound
from duallgd_cli.spectra.consensus import TOLERANCE, consensus, possible_peaks
from duallgd_cli.spectra.isotopes import SPANS_DA, charge_of, with_isotopes
from duallgd_cli.spectra.reading.quantities import collision_energy_ev, finite
from duallgd_cli.spectra.reading.record import PRECURSOR, canonical, canonical_key
from duallgd_cli.spectra.types import GIVEN, Feature, Spectrum

logger = logging.getLogger(__name__)

_SPAN: Final = re.compile(r"\s*(\d+(?:\.\d*)?)?\s*-\s*(\d+(?:\.\d*)?)?\s*", re.ASCII)
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
_AROUND_DA: Final = 6.0  # of an MS1 scan that is kept with a feature
# Names of counts of what became of the MS2 spectra of runs.
SPECTRA, FEATURES, _COMPOUNDS = "run_spectra", "run_features", "run_compounds"
_LEFT_OUT: Final = "left out: "


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

    @property
    def is_asked_for(self) -> bool:
        """Whether any filter is not as it is by default."""
        default = FeatureSettings()
        names = ("rt", "mz", "min_peaks", "min_intensity", "rt_window")
        return any(getattr(self, name) != getattr(default, name) for name in names)


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


def left_out(counts: Mapping[str, int]) -> dict[str, int]:
    """How many MS2 spectra of runs are in no feature, by reason."""
    names = (name for name in counts if name.startswith(_LEFT_OUT))
    return {name.removeprefix(_LEFT_OUT): counts[name] for name in names}


def nothing_left(names: Iterable[str], counts: Mapping[str, int], n_ms1: int) -> str:
    """Why files gave no feature, by what became of their MS2 spectra."""
    files = ", ".join(names)
    if why := left_out(counts):
        return f"no MS2 spectrum of {files} is left: {_listed(why)}; widen the filters"
    return f"no MS2 spectrum in {files} ({n_ms1} of MS1)"


def _listed(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {why}" for why, number in dropped.items())


def record(counts: Mapping[str, int]) -> dict[str, Any]:
    """What became of MS2 spectra, for the record of a run; {} without runs of scans."""
    if not counts.get(SPECTRA):
        return {}
    names = {"spectra": SPECTRA, "features": FEATURES, "compounds": _COMPOUNDS}
    values = {name: counts.get(key, 0) for name, key in names.items()}
    return {"scans": {**values, "left_out": left_out(counts)}}


@dataclass(frozen=True, slots=True, eq=False)
class _Scan:
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


def is_of_run(item: Spectrum) -> bool:
    """Whether a spectrum is a scan as an instrument writes it, not a spectrum with a name."""
    if item.failure is not None or item.ms_level > 2:
        return True
    if item.ms_level == 1:
        return not item.feature_id
    named = item.feature_id or item.formula_text or "compound_name" in canonical(item.metadata)
    is_named = bool(named) or (item.adduct_text != "" and item.adduct_source == GIVEN)
    return item.retention_time_s is not None and not is_named


def scan_of(item: Spectrum) -> _Scan | None:
    """An MS2 scan of which precursor and retention time are known; None for anything else."""
    time, mz, said = item.retention_time_s, item.precursor_mz, item.metadata
    if item.failure is not None or item.ms_level != 2 or mz is None or time is None:
        return None
    with np.errstate(over="ignore"):
        current = float(possible_peaks(item)[1].sum())
    names = ("target_mz", "lower_offset", "upper_offset")
    target, *offsets = (finite(said.get(f"isolation_window_{name}", "")) for name in names)
    width = finite(said.get("isolation_window_width", ""))
    half = width / 2 if width else _HALF_WINDOW
    middle = mz if target is None else target
    low, high = (half if offset is None else offset for offset in offsets)
    # Of the precursor as the file gives it: in mzML and mzXML, or beside PEPMASS.
    second = (*said.get("pepmass", "").split(), "", "")[1]
    intensity = finite(said.get("precursor_intensity", second))
    ppm = TOLERANCE.tolerance_ppm(item.instrument)
    return _Scan(
        spectrum=item,
        time=time,
        mz=mz,
        charge=charge_of(item),
        window=(middle - low, middle + high),
        intensity=intensity if intensity is not None and intensity > 0 else None,
        current=current,
        tolerance_da=max(mz, TOLERANCE.floor_mz) * ppm * 1e-6,
        index=item.source.index,
    )


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
        if scan := scan_of(item):
            scans.append(scan)
        elif item.ms_level == 1 and item.failure is None:
            surveys += [item] if item.retention_time_s is not None else []
        else:
            alone.append((item.source.index, Feature((item,))))
    surveys.sort(key=_order)
    groups: list[_Group] = []
    dropped: Counter[str] = Counter()
    kept = _filtered(scans, settings, dropped)
    for polarity in sorted({one.spectrum.polarity for one in kept}):
        own = [one for one in kept if one.spectrum.polarity == polarity]
        of_it = [one for one in surveys if not polarity or one.polarity in (polarity, 0)]
        groups += _Seen(own, of_it).groups(settings, dropped)
    groups.sort(key=lambda group: group.scans[0].index)
    is_open = settings.link and not any(one.spectrum.adduct_text for one in kept)
    linked = link([one.ion for one in groups]) if is_open else []
    first, before = counts[FEATURES], counts[_COMPOUNDS]
    is_by_compound = settings.by == "compound"
    answers = answering(linked, [one.ion.height for one in groups]) if is_by_compound else {}
    counts.update({SPECTRA: len(scans), FEATURES: len(groups)})
    counts[_COMPOUNDS] += 1 + max((one.compound for one in linked), default=-1)
    counts.update({f"{_LEFT_OUT}{why}": number for why, number in dropped.items()})
    said = f"; left out are {_listed(dropped)}" if dropped else ""
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
            yield group.scans[0].index, replace(feature, spectra=spectra)

    for _, feature in heapq.merge(features(), alone, key=lambda entry: entry[0]):
        yield feature


def _order(survey: Spectrum) -> tuple[float, bytes, int]:
    """Sorts MS1 scans by time; a hash of their peaks tells those of one time apart."""
    mz, heights = possible_peaks(survey)
    content = hashlib.sha256(mz.tobytes() + heights.tobytes()).digest()
    return survey.retention_time_s or 0.0, content, survey.source.index


def _filtered(
    scans: Sequence[_Scan], settings: FeatureSettings, dropped: Counter[str]
) -> list[_Scan]:
    """The scans that are kept whatever MS1 shows; of the others the first reason is counted."""
    earliest, latest = span_of("rt", settings.rt)
    lightest, heaviest = span_of("mz", settings.mz)
    kept: list[_Scan] = []
    for one in scans:
        if not earliest <= one.time <= latest:
            dropped["outside the retention times"] += 1
        elif not lightest <= one.mz <= heaviest:
            dropped["outside the precursor m/z"] += 1
        elif one.spectrum.mz.size < settings.min_peaks:
            dropped[f"with fewer than {counted(settings.min_peaks, 'peak')}"] += 1
        else:
            kept.append(one)
    return kept


class _Group(NamedTuple):
    """Scans of one feature in the order of their file, with the MS1 scans near them.

    `remark` says what was isolated with its ion, `ion` tells of which compound it is.
    """

    scans: list[_Scan]
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


class _Seen:
    """What the MS1 scans of a polarity, read once, show of the precursors of its MS2 scans.

    Attributes:
        floor: Intensity up to which an MS1 peak may be noise.
        near: Numbers of the MS1 scans before and after each MS2 scan, -1 where there is none,
            int64 (S, 2).
        intensity: Of each precursor in these, the larger one; 0 where it is in neither, (S,).
        other: Share of the isolation window that the strongest other ion has, (S,).
        other_mz: Of that ion, (S,).
        cluster: Of each MS2 scan: those of neighbouring precursor m/z, int64 (S,).
        points: Number of the MS1 scan, m/z and intensity of what it shows of each cluster.
    """

    def __init__(self, scans: Sequence[_Scan], surveys: Sequence[Spectrum]) -> None:
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
        beside: defaultdict[int, list[int]] = defaultdict(list)
        for number, pair in enumerate(self.near.tolist()):
            for survey in pair:
                beside[survey].append(number)
        for survey, (peak_mz, height) in enumerate(peaks):
            for number in beside[survey]:
                self._look_beside(number, survey, peak_mz, height)
        ends = (mz - tolerance, mz + tolerance, time - _BEFORE_S, time + _BEFORE_S)
        self.points = self._points_of(peaks, *ends) if surveys else []

    def _points_of(
        self,
        peaks: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
        *ends: NDArray[np.float64],
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
        """See `points`; the ends are those of m/z and of times that each MS2 scan asks for."""
        n_clusters = int(self.cluster.max()) + 1
        low, first = np.full(n_clusters, np.inf), np.full(n_clusters, np.inf)
        high, last = -low, -first
        np.minimum.at(low, self.cluster, ends[0])
        np.maximum.at(high, self.cluster, ends[1])
        np.minimum.at(first, self.cluster, ends[2])
        np.maximum.at(last, self.cluster, ends[3])
        rows = []
        for survey, (at, (peak_mz, height)) in enumerate(zip(self.time, peaks, strict=True)):
            of = np.searchsorted(low, peak_mz, "right") - 1
            inside = (of >= 0) & (peak_mz <= high[of]) & (first[of] <= at) & (at <= last[of])
            kept = np.flatnonzero(inside)
            rows.append((of[kept], np.full(kept.size, survey), peak_mz[kept], height[kept]))
        of, *columns = (np.concatenate(column) for column in zip(*rows, strict=True))
        by_cluster = np.argsort(of, kind="stable")
        edges = np.searchsorted(of[by_cluster], np.arange(n_clusters + 1))
        number, mz, intensity = (column[by_cluster] for column in columns)
        return [(number[a:b], mz[a:b], intensity[a:b]) for a, b in pairwise(edges)]

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

    def _present(self, settings: FeatureSettings, dropped: Counter[str]) -> Iterator[int]:
        """Numbers of the scans whose precursor is strong enough; the others are counted."""
        is_seen = self.intensity > 0
        is_needed = settings.in_ms1 and 2 * int(is_seen.sum()) >= len(self.scans)
        if settings.in_ms1 and not is_needed and len(self.time):
            logger.warning(
                "MS1 spectra show %d of %s alone, so none is left out for that; check their m/z",
                int(is_seen.sum()), counted(len(self.scans), "precursor"),
            )  # fmt: skip
        for number, one in enumerate(self.scans):
            intensity = float(self.intensity[number]) or one.intensity
            if is_needed and not is_seen[number]:
                dropped["with a precursor that is not in MS1"] += 1
            elif intensity is not None and intensity < settings.min_intensity:
                dropped["with a precursor below the least intensity"] += 1
            else:
                yield number

    def groups(self, settings: FeatureSettings, dropped: Counter[str]) -> Iterator[_Group]:
        """The features of the polarity: from the strongest scan on, whatever is of its ion."""
        scans = self.scans
        clusters: defaultdict[int, list[int]] = defaultdict(list)
        for number in self._present(settings, dropped):
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
                members = self._together(trace, near, left[0], settings.rt_window, usual_s)
                left = [n for n in left if n not in members]
                yield self._group(trace, [n for n in near if n in members], usual_s)

    def _trace(self, cluster: int, seed: _Scan) -> _Trace:
        """The trace of a precursor."""
        if not self.points or not self.points[cluster][0].size:
            return _Trace(seed.mz)
        number, mz, intensity = self.points[cluster]
        first, last = int(number.min()), int(number.max())
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

    def _group(self, trace: _Trace, members: Sequence[int], usual_s: float) -> _Group:
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
        charge = next((abs(one.charge) for one in own if one.charge), 0) or _charge(ms1, trace.mz)
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
        return _Group(own, ms1, remark, ion)


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


def _charge(ms1: Iterable[Spectrum], mz: float) -> int:
    """Charge of an ion by the distance of its isotopes in MS1 scans, 0 where these do not tell."""
    shown: Counter[int] = Counter()
    for survey in ms1:
        peak_mz, height = possible_peaks(survey)
        at = mz + np.array([0.0, 1.00336, 1.00336 / 2])
        edges = np.searchsorted(peak_mz, at + 5e-6 * mz * np.array([[-1.0], [1.0]]))
        main, single, double = (float(height[s:e].max(initial=0.0)) for s, e in edges.T)
        shown[2 if 0.02 * main < double < 1.4 * main else 1 if single > 0.005 * main else 0] += 1
    return shown.most_common(1)[0][0] if shown else 0


def _feature(group: _Group, name: str) -> Feature:
    """The spectra of a group, those of one energy as one."""
    by_energy: defaultdict[tuple[object, ...], list[Spectrum]] = defaultdict(list)
    for spectrum in (one.spectrum for one in group.scans):
        mode = canonical(spectrum.metadata).get("fragmentation_mode", "")
        by_energy[spectrum.collision_energy_text, mode, spectrum.instrument].append(spectrum)
    scans = [one for own in by_energy.values() for one in own]
    # A precursor m/z that is written in the file, so that its decimals say how exact it is.
    order = sorted(scans, key=lambda one: (one.precursor_mz, one.retention_time_s))
    middle = order[(len(order) - 1) // 2]
    precursor = {k: v for k, v in middle.metadata.items() if canonical_key(k) in PRECURSOR}
    named: dict[str, Any] = {
        "feature_id": name,
        "precursor_mz": middle.precursor_mz,
        "charge": next((one.charge for one in scans if one.charge), 0),
        "polarity": scans[0].polarity,
    }
    blocks = []
    for survey in group.ms1:
        # What an MS1 scan shows around the ion, and its faintest peak: what it would have shown.
        mz, intensity = possible_peaks(survey)
        kept = np.abs(mz - named["precursor_mz"]) <= _AROUND_DA
        kept[intensity.argmin()] = True
        blocks.append(replace(survey, mz=mz[kept], intensity=intensity[kept], metadata={}, **named))
    nothing = np.zeros(0)
    spectra = []
    for own in by_energy.values():
        merged = consensus(own)
        others = {k: v for k, v in merged.metadata.items() if canonical_key(k) not in PRECURSOR}
        energy, instrument = merged.collision_energy_text, merged.instrument
        merged = replace(
            merged,
            **named,
            retention_time_s=round(group.ion.rt_s, 3),
            metadata=others | precursor,
            collision_energy_ev=collision_energy_ev(energy, middle.precursor_mz, instrument),
            warnings=(*merged.warnings, *filter(None, [group.remark])),
            assumptions=tuple(dict.fromkeys(said for one in own for said in one.assumptions)),
            merged=tuple(
                replace(one, mz=nothing, intensity=nothing, metadata={}, warnings=()) for one in own
            ),
        )
        spectra.append(with_isotopes(merged, {name: blocks}))
    return Feature(tuple(spectra), tuple(blocks), group.ion.height or None)
