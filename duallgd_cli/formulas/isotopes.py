"""What the isotopes of an ion say of its formula.

Theory: of atoms with independent isotopes the generating functions multiply, so their logarithms
add up: the power series of the logarithm is linear in the numbers of atoms, and one recurrence
takes its exponential for all candidates at once. Exact for whole nominal masses.

Letters: K candidates, A kinds of atoms (`SYMBOLS`, then metals).
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct
from duallgd_cli.chem.elements import SYMBOLS
from duallgd_cli.spectra.types import ISOTOPES, IsotopePattern

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
_BLOCK: Final = 1 << 15


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
    """Isotopes of ions relative to the monoisotopic one, shape (K, 5), in order of `ISOTOPES`.

    Args:
        formulas: Of the molecules, (K, N_ELEMENTS); each has what the adduct takes away.
        adduct: Of all of them.
    """
    symbols = (*SYMBOLS, *adduct.metals)
    ions = formulas.astype(np.int64) * adduct.molecules + np.array(adduct.change)
    atoms = np.concatenate([ions, np.ones((len(ions), len(adduct.metals)), np.int64)], axis=1)
    # The series counts from the lightest isotopes.
    place = atoms @ np.array([-min(ABUNDANCES.get(s, {0: 1.0})) for s in symbols])
    ratios = np.zeros((len(ions), len(ISOTOPES)))
    for rows in (np.flatnonzero(place == 0), np.flatnonzero(place > 0)):
        if rows.size:
            series = _exponential(atoms[rows] @ _logarithms(symbols, int(place[rows].max()) + 4))
            at = place[rows, None] + np.array(ISOTOPES)
            share = np.take_along_axis(series, np.maximum(at, 0), axis=1) * (at >= 0)
            ratios[rows] = share / np.take_along_axis(series, place[rows, None], axis=1)
    return ratios


@cache
def _logarithms(symbols: tuple[str, ...], order: int) -> NDArray[np.float64]:
    """Power series of the logarithm of each element's generating function, (A, order + 1)."""
    found = np.zeros((len(symbols), order + 1))
    for row, symbol in zip(found, symbols, strict=True):
        shares = ABUNDANCES.get(symbol, {0: 1.0})
        lightest = min(shares)
        weight = np.zeros(order + 1)
        for offset, share in shares.items():
            if offset - lightest <= order:
                weight[offset - lightest] = share / shares[lightest]
        for k in range(1, order + 1):
            j = np.arange(1, k)
            row[k] = weight[k] - (j * row[1:k] * weight[k - 1 : 0 : -1]).sum() / k
    return found


def _exponential(logarithm: NDArray[np.float64]) -> NDArray[np.float64]:
    """Power series of the exponential of series without a constant, (K, order + 1)."""
    series = np.zeros(logarithm.shape)
    series[:, 0] = 1.0
    for k in range(1, logarithm.shape[1]):
        j = np.arange(1, k + 1)
        series[:, k] = (j * logarithm[:, 1 : k + 1] * series[:, k - 1 :: -1]).sum(axis=1) / k
    return series


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
