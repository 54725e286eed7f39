"""Molecular formulas of a mass that chemical rules allow, and how many known structures have them.

Parts of all elements but carbon and hydrogen stand in one table sorted by mass; each carbon and
hydrogen part asks it for the rest of the mass. Rules: a whole number of rings and double bonds, at
least 0; the element ratios and the combinations of heteroatoms of Kind and Fiehn 2007 (BMC
Bioinformatics 8:105, their extended ranges).

Letters: K formulas, R parts of the rarer elements, T rows of a table, D changes of composition,
G groups of sources.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import HYDROGEN, INDEX, MASSES_DA, N_ELEMENTS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import ConfigError, quote
from duallgd_cli.spectra.annotation import NOTHING, Matches, Parts, excess, find

RARER: Final = slice(INDEX["P"], HYDROGEN)  # P S F Cl Br I B Si Se: neither C, H, N nor O
# Largest counts that `codes` can write: C N O P S F Cl Br I B Si Se H, 63 bits together.
_BITS: Final = (7, 6, 6, 4, 4, 6, 4, 4, 3, 4, 4, 3, 8)
LARGEST: Final = tuple((1 << bits) - 1 for bits in _BITS)
_SHIFT: Final = np.cumsum((0, *_BITS[:-1])).astype(np.int64)
_RARER_BITS: Final = int((1 << _SHIFT[RARER.stop]) - (1 << _SHIFT[RARER.start]))  # of a code
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


def others(rarer: NDArray[np.int64], most: Sequence[int], heaviest_da: float) -> Parts:
    """Parts of formulas without carbon and hydrogen, by ascending mass.

    Of combinations of the rarer elements (R, 9), and of so many N and O at most.
    """
    counts = np.zeros((len(rarer), N_ELEMENTS), np.int16)
    counts[:, RARER] = rarer
    parts = Parts(counts, rarer @ _MASSES[RARER], excess(counts).astype(np.int16))
    for symbol, number in zip("NO", most, strict=True):
        parts = parts.extended(INDEX[symbol], number, heaviest_da)
    return parts.by_mass()


def hydrocarbons(most: Sequence[int], heaviest_da: float, per_carbon: int, more: int) -> Parts:
    """Parts of so many carbon and hydrogen atoms at most, by ascending mass.

    Each has at most `per_carbon` hydrogen atoms a carbon atom, and `more` beyond these.
    """
    parts = NOTHING
    for element, number in zip((INDEX["C"], HYDROGEN), most, strict=True):
        parts = parts.extended(element, number, heaviest_da)
    carbon, hydrogen = parts.counts[:, INDEX["C"]], parts.counts[:, HYDROGEN]
    return parts.by_mass(hydrogen <= per_carbon * carbon + more)


def by_atoms(found: Matches) -> NDArray[np.int64]:
    """The order of matches of a wanted mass by falling number of carbon, then hydrogen atoms."""
    carbon, hydrogen = found.counts[:, INDEX["C"]], found.counts[:, HYDROGEN]
    return np.lexsort((-found.error_da, -hydrogen, -carbon, found.owner))


class FormulaSpace:
    """All formulas of some elements, by mass.

    Args:
        rarer: Combinations of P S F Cl Br I B Si Se that may occur, shape (R, 9).
        largest: Largest count of each element.
    """

    def __init__(self, rarer: NDArray[np.integer[Any]], largest: Sequence[int] = LARGEST) -> None:
        self._largest = np.array(largest)
        allowed = rarer.astype(np.int64)
        self._rarer = allowed[(allowed <= self._largest[RARER]).all(axis=1)]
        self._tables: dict[float, tuple[Parts, Parts]] = {}

    def find(self, mass_da: float, tolerance_da: float, charge: int = 0) -> NDArray[np.int16]:
        """Formulas whose atoms have a mass, at most `HEAVIEST_DA`, of a charge of 0 or 1.

        Returns:
            Counts (K, N_ELEMENTS), by falling number of carbon, then of hydrogen atoms.
        """
        heaviest_da = mass_da + tolerance_da
        limit, *most = next(t for t in _TABLES if heaviest_da <= t[0] + 1)
        if limit not in self._tables:
            nitrogen, oxygen = np.minimum(most, self._largest[[INDEX["N"], INDEX["O"]]]).tolist()
            carbon, hydrogen = self._largest[[INDEX["C"], HYDROGEN]].tolist()
            self._tables[limit] = (
                hydrocarbons((carbon, hydrogen), limit + 1, _PER_CARBON["H"], _FEW),
                others(self._rarer, (nitrogen, oxygen), limit),
            )
        wanted, tolerance = np.array([mass_da]), np.array([tolerance_da])
        found = find(*self._tables[limit], wanted, tolerance)
        kept = np.flatnonzero(are_possible(found.counts, charge))
        found = Matches._make(column[kept] for column in found)
        return found.counts[by_atoms(found)]


FILE: Final = Path(__file__).with_name("known.npz")
GROUPS: Final = ("natural products", "molecules with public spectra", "other compounds")
# Steps by which the formulas of a family differ; each is looked for in both directions.
_GAINS: Final = ("H2", "C", "CH2", "O", "CO", "H2O", "C2H4", "C2H2O", "C3H4", "N", "NH", "C2H3NO")
_GAINS_RARE: Final = ("C6H10O5", "C5H8", "SO3", "S", "HPO3", "CF2", "C4H4", "C6H4")
_SWAPS: Final = (("F", "H"), ("Cl", "H"), ("Br", "H"), ("O", "S"), ("NH", "O"), ("Cl", "F"))
_MASSIVE_DA: Final = 500.0


_GAINED: Final = np.array(
    [Formula.parse(text).array for text in (*_GAINS, *_GAINS_RARE)]
    + [Formula.parse(a).array - Formula.parse(b).array for a, b in _SWAPS],
    dtype=np.int64,
)
_CHANGES: Final = np.concatenate([_GAINED, -_GAINED])  # of composition, (D, N_ELEMENTS)
_STEPS: Final = codes(np.maximum(_CHANGES, 0)) - codes(np.maximum(-_CHANGES, 0))


class KnownFormulas(NamedTuple):
    """A table of formulas."""

    code: NDArray[np.int64]  # of each formula, ascending, (T,); the last stands for no formula
    structures: NDArray[np.uint8]  # number of them, at most 255, (T, G); the last row is 0
    total: NDArray[np.int64]  # the same of all groups together, (T,)
    rarer: NDArray[np.int16]  # combinations of the rarer elements that several share, (R, 9)
    rarer_weight: NDArray[np.float64]  # log of the share of formulas with each, (R,)

    def counts(self, formulas: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Known structures of formulas (K, N_ELEMENTS) by group, shape (K, G)."""
        code = codes(formulas)
        row = np.searchsorted(self.code[:-1], code)
        return self.structures[np.where(self.code[row] == code, row, -1)].astype(np.int64)

    def log_share(self, formulas: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Log of the share of known formulas with the same rarer elements, shape (K,)."""
        known = codes(np.pad(self.rarer, ((0, 0), (RARER.start, N_ELEMENTS - RARER.stop))))
        order = np.argsort(known)
        wanted = codes(formulas) & _RARER_BITS
        row = order[np.minimum(np.searchsorted(known[order], wanted), order.size - 1)]
        found = known[row] == wanted
        return np.where(found, self.rarer_weight[row], self.rarer_weight.min() - 1.0)


@cache
def known_formulas() -> KnownFormulas:
    """The table that comes with duallgd; ``recipes/formulas.py`` made it."""
    with np.load(FILE) as file:
        code = np.append(np.cumsum(file["step"].astype(np.int64)), -1)
        empty = np.zeros((1, len(GROUPS)), dtype=np.uint8)
        structures = np.concatenate([file["structures"], empty])
        total = structures.sum(axis=1, dtype=np.int64)
        return KnownFormulas(code, structures, total, file["rarer"], file["rarer_weight"])


def composition(known: KnownFormulas, formulas: NDArray[np.int16]) -> NDArray[np.float32]:
    """What a formula looks like apart from its own count, shape (K, `n_composition`).

    Numbers and ratios of atoms, and how many structures are known of each formula that a step of a
    family leads to: homologues, oxidised and conjugated forms, other halogens.
    """
    n = formulas.astype(np.float64)
    carbon, heavy = n[:, [0]], n[:, :-1].sum(axis=1, keepdims=True)
    rdbe = excess(n)[:, None] / 2 + 1
    mass = (n @ _MASSES)[:, None]
    ratios = [n[:, [INDEX[s]]] / carbon for s in ("H", "O", "N", "S", "F")]
    rarer = n[:, RARER].sum(axis=1, keepdims=True)
    hetero = (heavy - carbon) / heavy
    elements = (n[:, 1:-1] > 0).sum(axis=1, keepdims=True)
    share = known.log_share(formulas)[:, None] / 5
    shape = [rdbe / 10, rdbe / heavy, mass / _MASSIVE_DA, rarer / 4, hetero, elements / 4, share]
    odd = n[:, [INDEX["N"]]] % 2
    near = np.log1p(_neighbours(known, formulas)) / 3
    total = np.log1p(np.expm1(near * 3).sum(axis=1, keepdims=True)) / 3
    columns = [n / 10, (n > 0)[:, 1:-1], *ratios, *shape, odd, near, total]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _neighbours(known: KnownFormulas, formulas: NDArray[np.int16]) -> NDArray[np.float64]:
    """Structures known of each formula that a change leads to, shape (K, D)."""
    # A code is linear in the counts as long as none of them falls below zero.
    code = np.add.outer(codes(formulas), _STEPS)
    possible = np.ones(code.shape, dtype=bool)
    for change, column in zip(_CHANGES, possible.T, strict=True):
        for element in np.flatnonzero(change < 0):
            column &= formulas[:, element] >= -change[element]
    row = np.searchsorted(known.code[:-1], code)
    found = possible & (known.code[row] == code)
    return np.where(found, known.total[row], 0).astype(np.float64)
