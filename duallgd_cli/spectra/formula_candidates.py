"""Molecular formulas of a mass: every one that chemical rules allow.

A formula is a carbon and hydrogen part and a part of all other elements. The other parts stand in
one table sorted by mass, built once; each carbon and hydrogen part asks it for the rest of the
mass. Rules: a whole number of rings and double bonds, at least 0; the element ratios and the
combinations of heteroatoms of Kind and Fiehn 2007 (BMC Bioinformatics 8:105, their extended
ranges).

Letters: K formulas, R parts of the rarer elements, T rows of the table.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import HYDROGEN, INDEX, MASSES_DA, N_ELEMENTS, SYMBOLS
from duallgd_cli.errors import ConfigError, quote
from duallgd_cli.spectra.annotation import excess, index_ranges

RARER: Final = slice(INDEX["P"], HYDROGEN)  # P S F Cl Br I B Si Se: neither C, H, N nor O
# Largest counts that `codes` can write: C N O P S F Cl Br I B Si Se H, 63 bits together.
_BITS: Final = (7, 6, 6, 4, 4, 6, 4, 4, 3, 4, 4, 3, 8)
LARGEST: Final = tuple((1 << bits) - 1 for bits in _BITS)
_SHIFT: Final = np.cumsum((0, *_BITS[:-1])).astype(np.int64)
# Masses up to which a table is built, Da, and its largest numbers of N and O (Kind and Fiehn,
# table 1: maxima over natural products and synthetic compounds of that mass).
_TABLES: Final = ((500.0, 20, 20), (1000.0, 20, 27), (2000.0, 32, 63))
HEAVIEST_DA: Final = _TABLES[-1][0]
# Atoms per carbon atom, the extended ranges, and what a molecule of few carbon atoms may have.
_PER_CARBON: Final = {"N": 4, "O": 3, "P": 2, "S": 3, "F": 6, "Cl": 2, "Br": 2, "Si": 1, "H": 6}
_FEW: Final = 2
# Where all of these elements exceed a number of atoms, the limits apply.
_COMBINATIONS: Final = (
    ("NOPS", 1, {"N": 10, "O": 20, "P": 4, "S": 3}),
    ("NOP", 3, {"N": 11, "O": 22, "P": 6}),
    ("OPS", 1, {"O": 14, "P": 3, "S": 3}),
    ("PSN", 1, {"P": 3, "S": 3, "N": 4}),
    ("NOS", 6, {"N": 19, "O": 14, "S": 8}),
)
_TOKEN: Final = re.compile(r"([A-Z][a-z]?)(\d*)[,\s]*")
_MASSES: Final = np.array(MASSES_DA)


def parse_elements(text: str) -> tuple[int, ...]:
    """Largest count of each element that a text such as ``CHNOPS`` or ``CHNOCl2`` allows.

    An element without a number may occur any number of times, one that is not named not at all.

    Raises:
        ConfigError: The text names no element, or one that is not supported.
    """
    position, largest = 0, [0] * N_ELEMENTS
    for match in _TOKEN.finditer(text.strip()):
        if match.start() != position or match[1] not in INDEX:
            break
        position, index = match.end(), INDEX[match[1]]
        largest[index] = min(int(match[2][:4] or LARGEST[index]), LARGEST[index])
    if position != len(text.strip()) or not largest[INDEX["C"]]:
        raise ConfigError(
            f"elements must be symbols with C among them, such as CHNOPS or CHNOCl2, not "
            f"{quote(text)}; supported are {' '.join(SYMBOLS)}"
        )
    return tuple(largest)


def codes(counts: NDArray[Any]) -> NDArray[np.int64]:
    """One number for each formula (K, N_ELEMENTS), shape (K,); -1 where a count does not fit."""
    # Element by element: a whole table of 64-bit integers is large where candidates are many.
    fits, code = np.ones(len(counts), bool), np.zeros(len(counts), np.int64)
    for column, largest, shift in zip(counts.T, LARGEST, _SHIFT, strict=True):
        fits &= (column >= 0) & (column <= largest)
        code += column.astype(np.int64) << shift
    return np.where(fits, code, -1)


def decoded(code: NDArray[np.int64]) -> NDArray[np.int16]:
    """The counts of codes (K,), shape (K, N_ELEMENTS)."""
    return np.asarray((code[:, None] >> _SHIFT) & np.array(LARGEST), dtype=np.int16)


def are_possible(counts: NDArray[np.int16], charge: int) -> NDArray[np.bool_]:
    """Which formulas (K, N_ELEMENTS) a closed-shell molecule of this charge (0 or 1) may have."""
    doubled = excess(counts.astype(np.int32)) + charge  # 2 (RDBE - 1)
    possible = (doubled >= -2) & (doubled % 2 == 0) & (counts[:, 0] > 0)
    carbon = counts[:, 0]
    for symbol, ratio in _PER_CARBON.items():
        possible &= counts[:, INDEX[symbol]] <= ratio * carbon + _FEW
    for symbols, threshold, limits in _COMBINATIONS:
        together = (counts[:, [INDEX[s] for s in symbols]] > threshold).all(axis=1)
        beyond = [counts[:, INDEX[symbol]] >= limit for symbol, limit in limits.items()]
        possible &= ~(together & np.any(beyond, axis=0))
    return np.asarray(possible)


@dataclass(frozen=True, slots=True, eq=False)
class _MassTable:
    """Parts without carbon and hydrogen, by ascending mass; arrays of shape (T,)."""

    mass_da: NDArray[np.float64]
    code: NDArray[np.int32]  # (part of the rarer elements, N, O) in mixed radix
    sizes: tuple[int, int]  # numbers of counts of N and of O


class FormulaSpace:
    """All formulas of some elements, by mass.

    Args:
        rarer: Combinations of P S F Cl Br I B Si Se that may occur, shape (R, 9).
        largest: Largest count of each element, N_ELEMENTS integers.
    """

    def __init__(self, rarer: NDArray[np.integer[Any]], largest: Sequence[int] = LARGEST) -> None:
        self._largest = np.array(largest)
        allowed = rarer.astype(np.int64)
        self._rarer = allowed[(allowed <= self._largest[RARER]).all(axis=1)]
        self._tables: dict[float, _MassTable] = {}

    def find(self, mass_da: float, tolerance_da: float, charge: int = 0) -> NDArray[np.int16]:
        """Formulas whose atoms have a mass.

        Args:
            mass_da: Mass of the neutral atoms, at most `HEAVIEST_DA`.
            tolerance_da: Largest difference.
            charge: 0 for a molecule, 1 for a permanent cation.

        Returns:
            Counts (K, N_ELEMENTS), by falling number of carbon, then of hydrogen atoms.
        """
        table = self._table(mass_da + tolerance_da)
        carbon, hydrogen = self._carbon_and_hydrogen(mass_da + tolerance_da)
        rest = mass_da - carbon * _MASSES[0] - hydrogen * _MASSES[HYDROGEN]
        owner, row = index_ranges(
            np.searchsorted(table.mass_da, rest - tolerance_da, "left"),
            np.searchsorted(table.mass_da, rest + tolerance_da, "right"),
        )
        part, oxygen = np.divmod(table.code[row], table.sizes[1])
        rarer, nitrogen = np.divmod(part, table.sizes[0])
        counts = np.zeros((row.size, N_ELEMENTS), dtype=np.int16)
        counts[:, 0], counts[:, HYDROGEN] = carbon[owner], hydrogen[owner]
        counts[:, INDEX["N"]], counts[:, INDEX["O"]] = nitrogen, oxygen
        counts[:, RARER] = self._rarer[rarer]
        return counts[are_possible(counts, charge)]

    def _carbon_and_hydrogen(
        self, heaviest_da: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts of every pair up to a mass, most carbon atoms first."""
        n = min(int(heaviest_da / _MASSES[0]), int(self._largest[0]))
        carbon, hydrogen = np.divmod(
            np.arange((n + 1) * (self._largest[HYDROGEN] + 1))[::-1], self._largest[HYDROGEN] + 1
        )
        mass = carbon * _MASSES[0] + hydrogen * _MASSES[HYDROGEN]
        kept = (mass <= heaviest_da) & (carbon > 0) & (hydrogen <= 6 * carbon + _FEW)
        return carbon[kept], hydrogen[kept]

    def _table(self, heaviest_da: float) -> _MassTable:
        limit, n_nitrogen, n_oxygen = next(t for t in _TABLES if heaviest_da <= t[0] + 1)
        if limit not in self._tables:
            sizes = (
                1 + min(n_nitrogen, int(self._largest[INDEX["N"]])),
                1 + min(n_oxygen, int(self._largest[INDEX["O"]])),
            )
            self._tables[limit] = _built(self._rarer, sizes, limit)
        return self._tables[limit]


def _built(rarer: NDArray[np.int64], sizes: tuple[int, int], limit_da: float) -> _MassTable:
    nitrogen = np.arange(sizes[0]) * _MASSES[INDEX["N"]]
    oxygen = np.arange(sizes[1]) * _MASSES[INDEX["O"]]
    mass = np.add.outer(rarer @ _MASSES[RARER], np.add.outer(nitrogen, oxygen).ravel()).ravel()
    kept = np.flatnonzero(mass <= limit_da)
    order = kept[np.argsort(mass[kept], kind="stable")]
    return _MassTable(mass[order], order.astype(np.int32), sizes)
