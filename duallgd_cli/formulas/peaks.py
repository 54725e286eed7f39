"""What peaks say of many formulas at once: fragments of MS2 spectra, isotopes of MS1 spectra.

Every fragment formula that any candidate could give is looked up once for each peak; which
candidate holds which fragment is then one comparison of a whole table. Patterns of isotopes are
convolved, so the logarithms of their Fourier transforms add up, as often as there are atoms.

Letters: K candidates, P peaks, F fragment formulas found for peaks, M pairs of a candidate and a
fragment that it holds.
"""

import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, INDEX, N_ELEMENTS, SYMBOLS
from duallgd_cli.formulas.composition import RARER, by_atoms, hydrocarbons, others
from duallgd_cli.spectra.annotation import TOLERANCE, excess, find
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern, Spectrum

MOST_PEAKS: Final = 40
_HETERO: Final = [i for i in range(N_ELEMENTS) if i not in (0, HYDROGEN)]


class Peaks(NamedTuple):
    """Peaks of a feature, arrays of shape (P,)."""

    mz: NDArray[np.float64]  # ascending
    intensity: NDArray[np.float64]  # the strongest is 1
    tolerance_da: NDArray[np.float64]  # largest error of an explanation


NO_PEAKS: Final = Peaks(np.zeros(0), np.zeros(0), np.zeros(0))


class Explanations(NamedTuple):
    """Pairs of a candidate and a fragment it holds, (M,) by candidate, then peak."""

    candidate: NDArray[np.int64]  # row of the candidate, ascending
    peak: NDArray[np.int64]  # index of the peak, ascending within a candidate
    fragment: NDArray[np.int16]  # atoms of the fragment, (M, N_ELEMENTS)
    loss: NDArray[np.int16]  # atoms of the ion that it lacks, (M, N_ELEMENTS)
    error: NDArray[np.float64]  # mass error relative to the tolerance, -1 to 1
    # whether its excess is even without unpaired electrons: a metal carries the charge, or two do
    even: NDArray[np.bool_]


def peaks_of(spectra: tuple[Spectrum, ...], precursor_mz: float) -> Peaks:
    """The strongest peaks of cleaned spectra up to the precursor, equal ones of several merged."""
    mz = np.concatenate([s.mz for s in spectra])
    intensity = np.concatenate([s.intensity for s in spectra])
    order = np.argsort(mz, kind="stable")
    mz, intensity = mz[order], intensity[order]
    tolerances = [TOLERANCE.tolerance_da(mz, one.instrument) for one in spectra]
    tolerance_da = np.maximum(np.max(tolerances, axis=0), max(s.peak_rounding_da for s in spectra))
    below = mz <= precursor_mz + tolerance_da
    mz, intensity, tolerance_da = mz[below], intensity[below], tolerance_da[below]
    if len(spectra) > 1 and mz.size:
        start = np.flatnonzero(np.diff(mz, prepend=-1.0) > tolerance_da)
        weight = np.add.reduceat(intensity, start)
        mz = np.add.reduceat(mz * intensity, start) / weight
        intensity, tolerance_da = np.maximum.reduceat(intensity, start), tolerance_da[start]
    strongest = np.sort(np.argsort(-intensity, kind="stable")[:MOST_PEAKS])
    mz, intensity = mz[strongest], intensity[strongest]
    return Peaks(mz, intensity / intensity.max(initial=1e-12), tolerance_da[strongest])


def explain(peaks: Peaks, formulas: NDArray[np.int16], adduct: Adduct) -> Explanations:
    """All fragments that candidates (K, N_ELEMENTS) hold and whose mass is that of a peak.

    Each candidate has what the adduct takes away.
    """
    # Of a multimer the fragments of one molecule: the others differ between candidates.
    carriers = [carrier for carrier in adduct.carriers if not carrier.molecules]
    ions = np.maximum(formulas.astype(np.int16) + np.array(adduct.change, dtype=np.int16), 0)
    _, _, metal_da, charges, protons = map(np.array, zip(*carriers, strict=True))
    to_atoms = charges * ELECTRON_MASS_DA - metal_da
    wanted = (np.multiply.outer(peaks.mz, np.abs(charges)) + to_atoms).ravel()
    tolerance = np.multiply.outer(peaks.tolerance_da, np.abs(charges)).ravel()
    owner, fragment, error = _fragments(wanted, tolerance, ions)
    peak, kept = np.divmod(owner, len(carriers))
    held = np.ones((len(ions), len(fragment)), bool)  # of an ion all atoms of a fragment
    for of_ion, of_fragment in zip(ions.T, fragment.T, strict=True):
        if of_fragment.any():
            held &= of_ion[:, None] >= of_fragment
    candidate, row = np.nonzero(held)
    loss = ions[candidate] - fragment[row]
    even = (protons % 2 == 0)[kept[row]]
    # A loss of everything is none; a fragment beside a metal is a neutral molecule.
    possible = (fragment[row].sum(axis=1) > 0) & ~(even & (excess(fragment[row]) < -2))
    pair = np.flatnonzero(possible)
    pick = row[pair]
    return Explanations(
        candidate[pair], peak[pick], fragment[pick], loss[pair], error[pick], even[pair]
    )


def _fragments(
    wanted: NDArray[np.float64], tolerance: NDArray[np.float64], ions: NDArray[np.int16]
) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.float64]]:
    """Formulas of wanted masses within any of the ions: owner, atoms and relative error."""
    rarer = {
        part
        for combination in np.unique(ions[:, RARER], axis=0).tolist()
        for part in itertools.product(*(range(n + 1) for n in combination))
    }
    most = {symbol: int(ions[:, INDEX[symbol]].max()) for symbol in "CHNO"}
    # Each trivalent or tetravalent atom beside carbon leaves room for more hydrogen.
    more = 2 * int(ions[:, [INDEX["P"], INDEX["Si"], INDEX["B"]]].sum(axis=1).max())
    heaviest_da = wanted.max(initial=0.0) + 1.0
    pairs = hydrocarbons((most["C"], most["H"]), heaviest_da, 2, 4 + most["N"] + more)
    table = others(np.array(sorted(rarer)), (most["N"], most["O"]), heaviest_da)
    found = find(pairs, table, wanted, tolerance)
    order = by_atoms(found)
    owner = found.owner[order]
    return owner, found.counts[order], found.error_da[order] / tolerance[owner]


def explanation_features(found: Explanations, peaks: Peaks, charge: int) -> NDArray[np.float32]:
    """What tells a true explanation from one by chance, shape (M, columns)."""
    fragment, loss = found.fragment.astype(np.float32), found.loss.astype(np.float32)
    both = (fragment, loss)
    rdbe, lost_rdbe = (excess(atoms)[:, None] / 2 + 1 for atoms in both)
    hetero, lost = (atoms[:, _HETERO].sum(axis=1, keepdims=True) for atoms in both)
    elements, lost_elements = ((atoms[:, _HETERO] > 0).sum(axis=1, keepdims=True) for atoms in both)
    carbon, lost_carbon = (atoms[:, [0]] for atoms in both)
    size, lost_size = (atoms[:, :-1].sum(axis=1, keepdims=True) for atoms in both)
    radical = np.mod(excess(found.fragment) + (~found.even), 2)[:, None]
    error = found.error[:, None]
    columns = [
        np.minimum(fragment, 10) / 5,
        np.minimum(loss, 10) / 5,
        np.abs(error),
        error**2,
        radical,
        np.minimum(rdbe, 0),
        np.minimum(lost_rdbe, 0) / 3,
        rdbe / 10,
        np.maximum(hetero - carbon, 0) / 3,
        np.maximum(lost - lost_carbon, 0) / 3,
        elements / 3,
        lost_elements / 3,
        carbon == 0,
        (lost_carbon == 0) & (lost > 0),
        loss.sum(axis=1, keepdims=True) == 0,
        size / 20,
        lost_size / 20,
        np.full((len(fragment), 1), charge < 0),
        np.log(peaks.intensity[found.peak])[:, None] / 4,
    ]
    table = np.empty((len(fragment), sum(column.shape[1] for column in columns)), np.float32)
    return np.concatenate(columns, axis=1, out=table, casting="same_kind")


def keep_best(found: Explanations, score: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Rows of the best explanation of each peak by each candidate, in order."""
    group = found.candidate * np.int64(1 << 20) + found.peak
    order = np.lexsort((-score, group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return order[first]


# Shares of isotopes by nominal mass relative to the isotope that `elements` gives the mass of
# (IUPAC 2013, representative); an element that is not here has one isotope.
ABUNDANCES: Final[Mapping[str, Mapping[int, float]]] = {
    "C": {0: 0.9893, 1: 0.0107},
    "H": {0: 0.999885, 1: 0.000115},
    "N": {0: 0.99636, 1: 0.00364},
    "O": {0: 0.99757, 1: 0.00038, 2: 0.00205},
    "S": {0: 0.9499, 1: 0.0075, 2: 0.0425, 4: 0.0001},
    "Cl": {0: 0.7576, 2: 0.2424},
    "Br": {0: 0.5069, 2: 0.4931},
    "B": {-1: 0.199, 0: 0.801},
    "Si": {0: 0.92223, 1: 0.04685, 2: 0.03092},
    "Se": {-6: 0.0089, -4: 0.0937, -3: 0.0763, -2: 0.2377, 0: 0.4961, 2: 0.0873},
    "Li": {-1: 0.0759, 0: 0.9241},
    "K": {0: 0.932581, 1: 0.000117, 2: 0.067302},
    "Rb": {0: 0.7217, 2: 0.2783},
    "Ag": {0: 0.51839, 2: 0.48161},
    "Mg": {0: 0.7899, 1: 0.1000, 2: 0.1101},
    "Ca": {0: 0.96941, 2: 0.00647, 3: 0.00135, 4: 0.02086, 8: 0.00187},
}
# Errors of a ratio to the monoisotopic ion: relative to it, and whatever it is.
RELATIVE_SD: Final = 0.10
ABSOLUTE_SD: Final = 0.015
# How often another ion, or a detector at its limit, makes a ratio say nothing.
DISTURBED: Final = 0.05
LOWEST: Final = -8.0  # log weight of the worst pattern: the rest of the evidence may outweigh it
_SPREAD: Final = 128  # nominal masses, more than likely isotopes of an ion are apart
_BLOCK: Final = 1 << 12


def isotope_scores(
    measured: IsotopePattern | None, formulas: NDArray[np.int16], adduct: Adduct
) -> NDArray[np.float64]:
    """Log weight of formulas (K, N_ELEMENTS) by the pattern of their ion, shape (K,).

    0 for one that is as predicted, `LOWEST` at least; 0 for all without a pattern.
    """
    if measured is None:
        return np.zeros(len(formulas))
    blocks = (formulas[i : i + _BLOCK] for i in range(0, len(formulas), _BLOCK))
    scores = [_log_weight(measured, isotope_ratios(block, adduct)) for block in blocks]
    return np.concatenate([*scores, np.zeros(0)])


def isotope_ratios(formulas: NDArray[np.int16], adduct: Adduct) -> NDArray[np.float64]:
    """Isotopes of ions relative to the monoisotopic one, shape (K, 5), in order of `ISOTOPES`."""
    symbols = (*SYMBOLS, *adduct.metals)
    ions = formulas.astype(np.int64) * adduct.molecules + np.array(adduct.change)
    atoms = np.concatenate([ions, np.ones((len(ions), len(adduct.metals)), np.int64)], axis=1)
    patterns = np.fft.irfft(np.exp(atoms @ _transforms(symbols)), _SPREAD, axis=1)
    ratios: NDArray[np.float64] = patterns[:, ISOTOPES] / patterns[:, :1]
    return ratios


@cache
def _transforms(symbols: tuple[str, ...]) -> NDArray[np.complex128]:
    """Logarithms of the Fourier transforms of the shares of each element's isotopes, by row."""
    shares = np.zeros((len(symbols), _SPREAD))
    for row, symbol in zip(shares, symbols, strict=True):
        for offset, share in ABUNDANCES.get(symbol, {0: 1.0}).items():
            row[offset] = share  # those lighter than the monoisotopic one stand at the end
    return np.log(np.fft.rfft(shares, axis=1))


def _log_weight(measured: IsotopePattern, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-likelihood of a pattern, relative to that of a perfect one, bounded, (K,)."""
    whole, *others = measured.intensity
    ratio, faintest = np.array(others) / whole, measured.faintest / whole
    seen = ratio > 0
    # Where nothing is seen, whatever is fainter than the faintest peak of the spectrum fits.
    disturbed = DISTURBED * np.where(seen, 0.5 / (1 + ratio) ** 2, 0.5)

    def likelihood(theory: NDArray[np.float64]) -> NDArray[np.float64]:
        sd = np.sqrt((RELATIVE_SD * theory) ** 2 + ABSOLUTE_SD**2 + faintest**2)
        density = np.exp(-(((ratio - theory) / sd) ** 2) / 2) / (sd * np.sqrt(2 * np.pi))
        # Share of a normal distribution below z, to 0.0003.
        z = np.clip((faintest - theory) / sd, -8.0, 8.0)
        below = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
        regular = np.where(seen, density, below)
        return np.asarray((1 - DISTURBED) * regular + disturbed)

    total = np.log(likelihood(expected) / likelihood(ratio)).sum(axis=1)
    return np.asarray(np.clip(total, LOWEST, 0.0))
