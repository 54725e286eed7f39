"""Peaks and their sub-formulas exactly as the reference's spectrum encoder was trained on them.

Nothing but the reference encoder uses this; `annotation` explains peaks for our own. Letters:
P peaks, K peaks with a sub-formula.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX, MASSES_DA, POTASSIUM_MASS_DA, SODIUM_MASS_DA
from duallgd_cli.errors import FormulaError, UnsupportedElementError, quote

# Element order of the reference's count vectors.
ELEMENTS: Final = (
    *("C", "H", "As", "B", "Br", "Cl", "Co", "F", "Fe"),
    *("I", "K", "N", "Na", "O", "P", "S", "Se", "Si"),
)
MAX_PEAKS: Final = 60
WHOLE_TYPE: Final = 3
_LEAST_INTENSITY: Final = 0.001
_PRECURSOR_MARGIN: Final = 1.0
_MISSING_PRECURSOR_MZ: Final = 1e6
_DECIMALS: Final = 4
_ELECTRON_MASS_DA: Final = 0.00054858
# Tolerances in ppm are taken at this m/z below it.
_LEAST_SCALE_MZ: Final = 200.0
_TOLERANCE_PPM: Final = 20.0

_FURTHER_MASSES_DA: Final = {
    "As": 74.92159457,
    "Co": 58.93319429,
    "Fe": 55.93493633,
    "K": POTASSIUM_MASS_DA,
    "Na": SODIUM_MASS_DA,
}
_MASSES_DA: Final = np.array(
    [MASSES_DA[INDEX[s]] if s in INDEX else _FURTHER_MASSES_DA[s] for s in ELEMENTS]
)
# Twice what an atom adds to rings plus double bonds; other elements count nothing.
_EXCESS: Final = {"C": 2, "N": 1, "P": 1, "H": -1, "Cl": -1, "Br": -1, "I": -1, "F": -1}
_EXCESS_ROW: Final = np.array([_EXCESS.get(symbol, 0) for symbol in ELEMENTS])
# Name and atoms of each adduct; the row number is its index.
_ADDUCTS: Final[tuple[tuple[str, dict[str, int]], ...]] = (
    ("[M+H]+", {"H": 1}),
    ("[M+Na]+", {"Na": 1}),
    ("[M+K]+", {"K": 1}),
    ("[M-H2O+H]+", {"H": -1, "O": -1}),
    ("[M+H3N+H]+", {"N": 1, "H": 4}),
    ("[M]+", {}),
    ("[M-H4O2+H]+", {"H": -3, "O": -2}),
    ("[M-H+2Na]+", {"H": -1, "Na": 2}),
)
_ALIASES: Final = {
    "[M+NH4]+": "[M+H3N+H]+",
    "[M+H-H2O]+": "[M-H2O+H]+",
    "[M+H-2H2O]+": "[M-H4O2+H]+",
    "[M-2H2O+H]+": "[M-H4O2+H]+",
}
_TOKEN: Final = re.compile(r"([A-Z][a-z]?)(\d*)")


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Peaks that have a sub-formula, in the order given.

    Attributes:
        peak: Index of the peak, int64 (K,).
        counts: Atoms of its sub-formula without the adduct, int64 (K, 18).
        mass_da: Mass of the sub-formula with the adduct, float64 (K,).
        deviation_ppm: Absolute deviation from it, relative to m/z 200 or more, float64 (K,).
    """

    peak: NDArray[np.int64]
    counts: NDArray[np.int64]
    mass_da: NDArray[np.float64]
    deviation_ppm: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ReferencePeaks:
    """One spectrum as the reference's encoder reads it; the last row is the whole ion.

    Attributes:
        counts: Atoms, int64 (K + 1, 18).
        token_type: 0 for peaks and `WHOLE_TYPE`, int64 (K + 1,).
        adduct: Index of the adduct in every row, int64 (K + 1,).
        intensity: float64 (K + 1,); 1 for the whole.
    """

    counts: NDArray[np.int64]
    token_type: NDArray[np.int64]
    adduct: NDArray[np.int64]
    intensity: NDArray[np.float64]


def knows_adduct(text: str) -> bool:
    """Whether the reference knows an adduct, by any spelling that it accepts."""
    return _ALIASES.get(text.strip(), text.strip()) in dict(_ADDUCTS)


def adduct_name(text: str) -> str:
    """The reference's spelling of an adduct.

    Raises:
        ValueError: An adduct that it does not know.
    """
    if not knows_adduct(text):
        known = ", ".join(name for name, _ in _ADDUCTS)
        raise ValueError(f"the reference encoder knows {known}, not {quote(text)}")
    return _ALIASES.get(text.strip(), text.strip())


def parse_counts(formula: str) -> NDArray[np.int64]:
    """Counts of a formula such as ``C9H8O4`` in the reference's element order, int64 (18,).

    Raises:
        UnsupportedElementError: An element that the reference does not know.
        FormulaError: Not a formula.
    """
    tokens = _TOKEN.findall(formula)
    if not tokens or "".join(symbol + number for symbol, number in tokens) != formula:
        raise FormulaError(f"{quote(formula)} is not a molecular formula; write it like C9H8O4")
    counts = np.zeros(len(ELEMENTS), dtype=np.int64)
    for symbol, number in tokens:
        if symbol not in ELEMENTS:
            raise UnsupportedElementError(f"the reference encoder does not know {symbol}")
        counts[ELEMENTS.index(symbol)] += int(number or 1)
    return counts


def print_counts(counts: NDArray[np.int64]) -> str:
    """Counts as a formula, in the reference's element order."""
    present = ((s, int(n)) for s, n in zip(ELEMENTS, counts, strict=True) if n)
    return "".join(symbol + (str(n) if n > 1 else "") for symbol, n in present)


def process_peaks(
    mz: NDArray[np.float64], intensity: NDArray[np.float64], precursor_mz: float | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Merge, cut, scale and choose peaks as the reference does.

    Args:
        mz: Of all spectra of one ion, one after another, (P,).
        intensity: (P,), at least 0.
        precursor_mz: None where it is not known.

    Returns:
        m/z and the square root of the relative intensity, the most intense first.
    """
    _, first, group = np.unique(np.round(mz, _DECIMALS), return_index=True, return_inverse=True)
    highest = np.zeros(len(first))
    np.maximum.at(highest, group, intensity)
    order = np.argsort(first)
    mz, intensity = mz[first[order]], highest[order]
    limit = (precursor_mz or _MISSING_PRECURSOR_MZ) + _PRECURSOR_MARGIN
    mz, intensity = mz[mz <= limit], intensity[mz <= limit]
    if not mz.size or intensity.max() <= 0:
        return mz[:0], intensity[:0]
    root = np.sqrt(intensity / intensity.max())
    chosen = np.argsort(-root, kind="stable")[:MAX_PEAKS]
    chosen = chosen[root[chosen] > _LEAST_INTENSITY]
    return mz[chosen], root[chosen]


def assign(
    counts: NDArray[np.int64],
    adduct: str,
    mz: NDArray[np.float64],
    tolerance_ppm: float = _TOLERANCE_PPM,
) -> Assignment:
    """Give each peak the sub-formula of the molecule that is nearest in mass.

    The reference adds the whole adduct to every sub-formula and allows no negative unsaturation.

    Args:
        counts: Atoms of the molecule, (18,).
        adduct: The reference's spelling.
        mz: (P,).
        tolerance_ppm: Deviations must be below it.
    """
    first, second = _parts(counts, heavy=False), _parts(counts, heavy=True)
    first = first[np.argsort(first @ _MASSES_DA, kind="stable")]
    masses, others = first @ _MASSES_DA, second @ _MASSES_DA
    shift = _mass_shift(adduct)
    scale = np.maximum(mz, _LEAST_SCALE_MZ)
    rest = (mz - shift)[:, None] - others  # what carbon and hydrogen must weigh
    margin = (scale * tolerance_ppm * 1e-6)[:, None]
    start = np.searchsorted(masses, (rest - margin).ravel(), "left")
    stop = np.searchsorted(masses, (rest + margin).ravel(), "right")
    owner = np.repeat(np.arange(start.size), stop - start)
    offset = np.arange(owner.size) - np.repeat(np.cumsum(stop - start) - stop, stop - start)
    peak, other = np.divmod(owner, len(others))
    atoms = first[offset] + second[other]
    deviation = np.abs(atoms @ _MASSES_DA + shift - mz[peak]) / scale[peak] * 1e6
    possible = (atoms @ _EXCESS_ROW >= -2) & (deviation < tolerance_ppm)
    peak, atoms, deviation = peak[possible], atoms[possible], deviation[possible]
    order = np.lexsort((deviation, peak))
    _, nearest = np.unique(peak[order], return_index=True)
    kept = order[nearest]
    mass = atoms[kept] @ _MASSES_DA + shift
    return Assignment(peak[kept], atoms[kept], mass, deviation[kept])


def reference_peaks(
    formula: str,
    adduct: str,
    mz: NDArray[np.float64],
    intensity: NDArray[np.float64],
    precursor_mz: float | None = None,
) -> ReferencePeaks:
    """What the reference's encoder reads of one ion.

    Args:
        formula: Of the neutral molecule.
        adduct: Any spelling that the reference knows.
        mz: Raw peaks, (P,).
        intensity: (P,).
        precursor_mz: None where it is not known.

    Raises:
        ValueError: An adduct or a formula that the reference does not know.
    """
    name, counts = adduct_name(adduct), parse_counts(formula)
    mz, root = process_peaks(mz, intensity, precursor_mz)
    found = assign(counts, name, mz)
    rows = len(found.peak) + 1
    token_type = np.zeros(rows, dtype=np.int64)
    token_type[-1] = WHOLE_TYPE
    index = [row[0] for row in _ADDUCTS].index(name)
    return ReferencePeaks(
        np.concatenate([found.counts, counts[None]]),
        token_type,
        np.full(rows, index, dtype=np.int64),
        np.append(root[found.peak], 1.0),
    )


def _parts(counts: NDArray[np.int64], heavy: bool) -> NDArray[np.int64]:
    """All count vectors of carbon and hydrogen, or of everything else, (parts, 18)."""
    two = len(("C", "H"))
    chosen = range(two, len(ELEMENTS)) if heavy else range(two)
    present = [element for element in chosen if counts[element]]
    grid = np.indices([int(counts[element]) + 1 for element in present]).reshape(len(present), -1)
    parts = np.zeros((grid.shape[1] if present else 1, len(ELEMENTS)), dtype=np.int64)
    parts[:, present] = grid.T
    return parts


def _mass_shift(adduct: str) -> float:
    atoms: Mapping[str, int] = dict(_ADDUCTS)[adduct]
    mass = sum(n * _MASSES_DA[ELEMENTS.index(symbol)] for symbol, n in atoms.items())
    return float(mass) - _ELECTRON_MASS_DA
