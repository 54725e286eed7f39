"""Fragments of a structure as rows of numbers, and the measured peaks that each of them explains.

Plain arrays without a network, for processes that only assemble. C fragments, K peaks.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME
from duallgd_cli.chem.elements import HYDROGEN, N_ELEMENTS, N_HEAVY
from duallgd_cli.data.fragmentation import N_CUT_FEATURES, N_SITE_FEATURES, Fragments
from duallgd_cli.spectra.subformula import excess
from duallgd_cli.spectra.types import INSTRUMENTS

# Ions whose fragments are understood, and the hydrogens that carry their charge.
CARRIED: Final = {
    BY_NAME[name].index: hydrogens
    for name, hydrogens in (("[M+H]+", 1), ("[M-H]-", -1), ("[M]+", 0))
}
# Hydrogens of the fragment ion beyond those that its atoms had and those that carry the charge.
SHIFTS: Final = tuple(range(-5, 6))
# Counts as a ramp over thresholds, so that one linear layer can tell small counts apart.
_RAMP: Final = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0], np.float32)
_COUNT_SCALE: Final = 20
_N_ION_FEATURES: Final = len(ADDUCTS) + len(INSTRUMENTS) + 2
_N_ELECTRON_FEATURES: Final = 2
_N_COUNT_FEATURES: Final = 2 * N_ELEMENTS * (len(_RAMP) + 1)
N_INPUTS: Final = (
    _N_COUNT_FEATURES + N_CUT_FEATURES + _N_ELECTRON_FEATURES + _N_ION_FEATURES + N_SITE_FEATURES
)
_UNSATURATION_SCALE: Final = 20
_ENERGY_SCALE_EV: Final = 50.0
_SHIFT_COST: Final = 0.4
# Any numbers that tell combinations of heavy atoms apart.
_KEY: Final = np.random.default_rng(0).integers(1, 1 << 40, N_HEAVY)


@dataclass(frozen=True, slots=True)
class Ion:
    """What is measured, apart from the structure.

    Attributes:
        adduct: Index into `ADDUCTS`, a key of `CARRIED`.
        instrument: Index into `spectra.types.INSTRUMENTS`.
        energy_ev: Collision energy, NaN if not known.
    """

    adduct: int
    instrument: int
    energy_ev: float


def fragment_features(found: Fragments, ion: Ion) -> NDArray[np.float32]:
    """Rows for the fragment model, float32 (C, N_INPUTS)."""
    about = np.zeros(_N_ION_FEATURES, np.float32)
    about[ion.adduct] = about[len(ADDUCTS) + ion.instrument] = 1
    if not np.isnan(ion.energy_ev):
        about[-2:] = ion.energy_ev / _ENERGY_SCALE_EV, 1
    lost = found.counts[:1] - found.counts
    about = np.broadcast_to(about, (len(lost), _N_ION_FEATURES))
    electrons = _electrons(found, ion)
    parts = [_ramps(found.counts), _ramps(lost), found.cuts, electrons, about, found.sites]
    return np.concatenate(parts, 1)


def same_heavy_atoms(counts: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows (K, N_ELEMENTS) hold the heavy atoms of one of the others (C, N_ELEMENTS)."""
    return np.isin(_heavy_key(counts), _heavy_key(others))


def measured_intensity(
    found: Fragments,
    ion: Ion,
    subformula: NDArray[np.integer],
    intensity: NDArray[np.floating],
) -> NDArray[np.float32]:
    """Intensities of fragments in a measured spectrum, 0 where no peak is; (C, len(SHIFTS)).

    A sub-formula goes to the fragment that explains it best; one that fits no fragment is left out.

    Args:
        found: Fragments of a structure.
        ion: As measured.
        subformula: Of the peak rows, (K, N_ELEMENTS).
        intensity: Likewise, (K,).
    """
    k, c, shift = explaining_fragments(found, CARRIED[ion.adduct], subformula)
    result = np.zeros((len(found.counts), len(SHIFTS)), np.float32)
    np.maximum.at(result, (c, shift - SHIFTS[0]), intensity[k].astype(np.float32))
    return result


def explaining_fragments(
    found: Fragments, carried: int, subformula: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which fragment of a structure explains each sub-formula, where one does.

    It is the one of those heavy atoms that is cheapest to cut out and to bring to the sub-formula's
    number of hydrogens.

    Args:
        found: Fragments of a structure.
        carried: Hydrogens that carry the ion's charge, see `CARRIED`.
        subformula: Of the peak rows, (K, N_ELEMENTS).

    Returns:
        Rows of sub-formulas, of fragments, and hydrogens beyond those expected; all (E,), E at most
        K, by ascending row.
    """
    k, c = np.nonzero(_heavy_key(subformula)[:, None] == _heavy_key(found.counts))
    expected = found.counts[c, HYDROGEN] + carried
    shift = subformula[k, HYDROGEN].astype(np.int64) - expected.astype(np.int64)
    reached = (shift >= SHIFTS[0]) & (shift <= SHIFTS[-1])
    k, c, shift = k[reached], c[reached], shift[reached]
    by_cost = np.lexsort((found.cost[c] + _SHIFT_COST * np.abs(shift), k))
    _, first = np.unique(k[by_cost], return_index=True)
    chosen = by_cost[first]
    return k[chosen], c[chosen], shift[chosen]


def _heavy_key(counts: NDArray[Any]) -> NDArray[np.int64]:
    key: NDArray[np.int64] = counts[:, :N_HEAVY].astype(np.int64) @ _KEY
    return key


def _electrons(found: Fragments, ion: Ion) -> NDArray[np.float32]:
    """Of fragments as they are, with the charge, (C, 2): is one unpaired, and unsaturation.

    Ions with all electrons paired are by far the commoner ones; which numbers of hydrogens give
    them cannot be told from the ramps.
    """
    beyond = excess(found.counts) - CARRIED[ion.adduct]  # one less for each hydrogen
    return np.stack([beyond % 2 == 0, beyond / _UNSATURATION_SCALE], 1).astype(np.float32)


def _ramps(counts: NDArray[np.float32]) -> NDArray[np.float32]:
    ramps = np.minimum(counts[:, :, None] / _RAMP, 1).reshape(len(counts), -1)
    return np.concatenate([ramps, counts / _COUNT_SCALE], 1)
