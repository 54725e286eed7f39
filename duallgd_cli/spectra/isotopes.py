"""MS1 spectra: which belong to a feature, and what they show of the isotopes of its ion."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern, Spectrum

SAME_PRECURSOR_PPM: Final = 10.0
PRECURSOR_SCAN: Final = "precursor_scan"  # field that names the MS1 scan of an MS2 spectrum
# Least and largest mass of each isotope from the monoisotopic ion, Da.
_SPANS: Final = {
    -2: (-1.9993, -1.9927),  # 78Se to 10B2
    -1: (-0.9964, -0.9964),  # 10B
    1: (0.9970, 1.0063),  # 15N to 2H
    2: (1.9957, 2.0068),  # 34S to 13C2
    4: (3.9915, 4.0086),  # 34S2 to 18O2
}
_SPANS_DA: Final = np.array([(0.0, 0.0), *(_SPANS[offset] for offset in ISOTOPES)])
_TOLERANCE: Final = AnnotationSettings()
_MOST_WAITING: Final = 1000
_LEAST: Final = 1e-30  # intensity; ratios of any two are numbers whose squares are


def parents_first(items: Iterable[Spectrum | Unreadable]) -> Iterator[Spectrum | Unreadable]:
    """The items of one file, each MS1 scan before the MS2 scans that name it as theirs.

    In mzXML an MS1 scan may enclose its MS2 scans and is read after them. Other items keep their
    order.
    """
    waiting: list[Spectrum | Unreadable] = []
    latest, is_patient = "", True
    for item in items:
        is_ms2 = isinstance(item, Spectrum) and item.ms_level > 1
        parent = item.metadata.get(PRECURSOR_SCAN, latest) if isinstance(item, Spectrum) else latest
        if isinstance(item, Spectrum) and not is_ms2:
            latest = item.scans
            yield item
            yield from waiting
            waiting = []
        elif waiting or (is_ms2 and is_patient and parent != latest):
            waiting.append(item)
            if len(waiting) == _MOST_WAITING:  # the MS1 scans were filtered out of the file
                is_patient = False
                yield from waiting
                waiting = []
        else:
            yield item
    yield from waiting


@dataclass(slots=True)
class Surveys:
    """MS1 spectra of one file, as far as they are read.

    Attributes:
        of_feature: Those with a FEATURE_ID, by it.
        latest: The last one without, by polarity.
    """

    of_feature: dict[str, list[Spectrum]] = field(default_factory=lambda: defaultdict(list))
    latest: dict[int, Spectrum] = field(default_factory=dict)

    def add(self, spectrum: Spectrum) -> None:
        """Take an MS1 spectrum."""
        if spectrum.feature_id:
            self.of_feature[spectrum.feature_id].append(replace(spectrum, metadata={}))
        else:
            self.latest[spectrum.polarity] = spectrum

    def shown(self, spectrum: Spectrum) -> Spectrum:
        """An MS2 spectrum with what its MS1 spectra show.

        Its own are those of its FEATURE_ID; without one the last before it, of its polarity and, if
        that names a precursor, of its precursor.
        """
        if spectrum.feature_id:
            own = self.of_feature.get(spectrum.feature_id, [])
        else:
            polarity = spectrum.polarity
            last = self.latest.get(polarity) or self.latest.get(0)
            own = [last] if last is not None and _same_precursor(last, spectrum) else []
        patterns = [found for one in own if (found := isotope_pattern(one, spectrum)) is not None]
        if not patterns:
            return spectrum
        total, *others = patterns
        for other in others:
            total += other
        return replace(spectrum, isotopes=total)


def _same_precursor(ms1: Spectrum, ms2: Spectrum) -> bool:
    if ms1.precursor_mz is None or ms2.precursor_mz is None:
        return ms1.precursor_mz is None
    error = abs(ms1.precursor_mz - ms2.precursor_mz)
    return error <= SAME_PRECURSOR_PPM * 1e-6 * ms2.precursor_mz


def isotope_pattern(ms1: Spectrum, ms2: Spectrum) -> IsotopePattern | None:
    """What an MS1 spectrum shows of a precursor.

    Returns:
        None where the ion is not in it, or none of its heavier isotopes: such a list was rid of
        isotopes, or the ion is too faint.
    """
    mz = ms2.precursor_mz
    possible = (ms1.intensity > _LEAST) & (ms1.intensity < 1 / _LEAST)
    if mz is None or not possible.any():
        return None
    adduct = parse_adduct(ms2.adduct_text)
    charge = ms2.charge if isinstance(adduct, Failure) else adduct.charge
    ppm = _TOLERANCE.tolerance_ppm(ms2.instrument or ms1.instrument)
    at = mz + _SPANS_DA / max(abs(charge), 1)
    tolerance = np.array([-1.0, 1.0]) * np.maximum(at, _TOLERANCE.floor_mz) * ppm * 1e-6
    peak_mz, intensity = ms1.mz[possible], ms1.intensity[possible]
    edges = np.searchsorted(peak_mz, at + tolerance)
    sums = [float(intensity[start:end].sum()) for start, end in edges]
    if sums[0] == 0 or not any(sums[1 + ISOTOPES.index(1) :]):
        return None
    return IsotopePattern(tuple(sums), float(intensity.min()))
