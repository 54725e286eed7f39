"""Peaks and their sub-formulas exactly as the reference's spectrum encoder was trained on them.

Nothing but the reference encoder uses this; `spectra.annotation` explains peaks for our own.
Letters: P peaks, K peaks with a sub-formula.
"""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX, MASSES_DA, METALS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import quote
from duallgd_cli.reference.encoder import WHOLE_TYPE, FormulaPeaks
from duallgd_cli.spectra.annotation import index_ranges

# Element order of the reference's count vectors.
ELEMENTS: Final = (
    *("C", "H", "As", "B", "Br", "Cl", "Co", "F", "Fe"),
    *("I", "K", "N", "Na", "O", "P", "S", "Se", "Si"),
)
_CARBON_HYDROGEN, _OTHERS = range(2), range(2, len(ELEMENTS))
MAX_PEAKS: Final = 60
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
    "K": METALS["K"][0],
    "Na": METALS["Na"][0],
}
_MASSES_DA: Final = np.array(
    [MASSES_DA[INDEX[s]] if s in INDEX else _FURTHER_MASSES_DA[s] for s in ELEMENTS]
)
# Twice what an atom adds to rings plus double bonds; other elements count nothing.
_UNSATURATION: Final = np.array(
    [{"C": 2, "N": 1, "P": 1, "H": -1, "Cl": -1, "Br": -1, "I": -1, "F": -1}.get(symbol, 0)
     for symbol in ELEMENTS]
)  # fmt: skip
# Atoms of each adduct, in the order of the encoder's indices.
_ADDUCTS: Final[dict[str, dict[str, int]]] = {
    "[M+H]+": {"H": 1},
    "[M+Na]+": {"Na": 1},
    "[M+K]+": {"K": 1},
    "[M-H2O+H]+": {"H": -1, "O": -1},
    "[M+H3N+H]+": {"N": 1, "H": 4},
    "[M]+": {},
    "[M-H4O2+H]+": {"H": -3, "O": -2},
    "[M-H+2Na]+": {"H": -1, "Na": 2},
}
_ALIASES: Final = {
    "[M+NH4]+": "[M+H3N+H]+",
    "[M+H-H2O]+": "[M-H2O+H]+",
    "[M+H-2H2O]+": "[M-H4O2+H]+",
    "[M-2H2O+H]+": "[M-H4O2+H]+",
}


# The reference's own spelling, by every one that it accepts.
SPELLINGS: Final = dict(zip(_ADDUCTS, _ADDUCTS, strict=True)) | _ALIASES


def adduct_name(text: str) -> str:
    """The reference's spelling of an adduct.

    Raises:
        ValueError: An adduct that it does not know.
    """
    if text.strip() not in SPELLINGS:
        raise ValueError(f"the reference encoder knows {', '.join(_ADDUCTS)}, not {quote(text)}")
    return SPELLINGS[text.strip()]


def counts_of(formula: Formula) -> NDArray[np.int64]:
    """Atoms of a formula in the reference's element order, int64 (18,)."""
    counts = np.zeros(len(ELEMENTS), dtype=np.int64)
    counts[[ELEMENTS.index(symbol) for symbol in SYMBOLS]] = formula.counts
    return counts


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
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Give each peak the sub-formula of the molecule that is nearest in mass.

    The reference adds the whole adduct to every sub-formula and allows no negative unsaturation.

    Args:
        counts: Atoms of the molecule, (18,).
        adduct: The reference's spelling.
        mz: (P,).
        tolerance_ppm: Deviations must be below it.

    Returns:
        For those peaks that have a sub-formula, in the order given: index of the peak, (K,); atoms
        without the adduct, (K, 18); mass with it in Da, (K,); absolute deviation from that mass in
        ppm of the peak's m/z or of 200, whichever is more, (K,).
    """
    first, second = _parts(counts, _CARBON_HYDROGEN), _parts(counts, _OTHERS)
    first = first[np.argsort(first @ _MASSES_DA, kind="stable")]
    masses, others = first @ _MASSES_DA, second @ _MASSES_DA
    atoms_added = _ADDUCTS[adduct].items()
    shift = sum(n * float(_MASSES_DA[ELEMENTS.index(symbol)]) for symbol, n in atoms_added)
    shift -= _ELECTRON_MASS_DA
    scale = np.maximum(mz, _LEAST_SCALE_MZ)
    rest = (mz - shift)[:, None] - others  # what carbon and hydrogen must weigh
    margin = (scale * tolerance_ppm * 1e-6)[:, None]
    start = np.searchsorted(masses, (rest - margin).ravel(), "left")
    stop = np.searchsorted(masses, (rest + margin).ravel(), "right")
    owner, offset = index_ranges(start, stop)
    peak, other = np.divmod(owner, len(others))
    atoms = first[offset] + second[other]
    deviation = np.abs(atoms @ _MASSES_DA + shift - mz[peak]) / scale[peak] * 1e6
    possible = (atoms @ _UNSATURATION >= -2) & (deviation < tolerance_ppm)
    peak, atoms, deviation = peak[possible], atoms[possible], deviation[possible]
    order = np.lexsort((deviation, peak))
    _, nearest = np.unique(peak[order], return_index=True)
    kept = order[nearest]
    mass = atoms[kept] @ _MASSES_DA + shift
    return peak[kept], atoms[kept], mass, deviation[kept]


def reference_peaks(
    formula: Formula,
    adduct: str,
    mz: NDArray[np.float64],
    intensity: NDArray[np.float64],
    precursor_mz: float | None = None,
) -> FormulaPeaks:
    """What the reference's encoder reads of one ion, as a batch of one.

    Args:
        formula: Formula of the molecule, whose charge is not looked at.
        adduct: Any spelling that the reference knows.
        mz: Raw peaks, (P,).
        intensity: (P,).
        precursor_mz: None where it is not known.

    Raises:
        ValueError: An adduct that the reference does not know.
    """
    name, whole = adduct_name(adduct), counts_of(formula)
    mz, root = process_peaks(mz, intensity, precursor_mz)
    peak, counts, _, _ = assign(whole, name, mz)
    n_tokens = len(peak) + 1
    token_type = torch.zeros(1, n_tokens, dtype=torch.long)
    token_type[0, -1] = WHOLE_TYPE
    return FormulaPeaks(
        torch.from_numpy(np.concatenate([counts, whole[None]]))[None],
        token_type,
        torch.full((1, n_tokens), list(_ADDUCTS).index(name)),
        torch.from_numpy(np.append(root[peak], 1.0).astype(np.float32))[None],
        torch.tensor([n_tokens]),
    )


def _parts(counts: NDArray[np.int64], chosen: range) -> NDArray[np.int64]:
    """All count vectors of some of the molecule's elements, (parts, 18)."""
    shape = [counts[element] + 1 if element in chosen else 1 for element in range(len(ELEMENTS))]
    return np.indices(shape).reshape(len(ELEMENTS), -1).T
