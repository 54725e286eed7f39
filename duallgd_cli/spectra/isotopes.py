"""What MS1 spectra show of the ion of an MS2 spectrum: its isotopes, and whether it is one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure
from duallgd_cli.spectra.annotation import TOLERANCE
from duallgd_cli.spectra.types import HIGHEST_MZ, ISOTOPES, IsotopePattern, Spectrum

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
