"""Sub-formulas of an ion by mass, looked up peak by peak and never enumerated as a whole.

The elements of the ion are divided into two groups. Every count vector of a group is a part; a
sub-formula is one part of each group. The larger table of parts is sorted by mass, the parts of the
smaller one are subtracted from each wanted mass, and two binary searches give the matches. Work and
memory per peak grow with the smaller table, not with the product of both.

Letters: W wanted masses, K matches, P parts of a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import HYDROGEN, INDEX, MASSES_DA, N_ELEMENTS

# Twice what one atom adds to rings plus double bonds: its lowest valence minus two.
_EXCESS: Final = (2, 1, 0, 1, 0, -1, -1, -1, -1, 1, 2, 0, -1)
# Log-odds against a match being the true fragment, per heteroatom it holds and per hetero element
# its neutral loss holds. Fitted on Orbitrap peaks of the MassBank training fold: matches within
# 3 ppm against matches 30 to 60 ppm away.
_HETEROATOM_COST: Final = 0.45
_LOST_ELEMENT_COST: Final = 0.45
# An unsaturation of -0.5 is that of a saturated closed-shell cation, such as ammonium.
LEAST_EXCESS: Final = -3
_CARBON_AND_HYDROGEN: Final = (INDEX["C"], HYDROGEN)
# So many 8-byte masses stay in the second-level cache of one core.
_LARGEST_TABLE: Final = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Sub-formulas found for wanted masses.

    Attributes:
        owner: Index of the wanted mass, ascending, int64 (K,).
        error_da: Wanted mass minus the sub-formula's mass, float64 (K,).
        excess: Twice (unsaturation minus one), int64 (K,).
        cost: Log-odds against such a composition, whatever its mass, float64 (K,).
        parts: Row of the part in each of the two tables, int64 (K,) each.
    """

    owner: NDArray[np.int64]
    error_da: NDArray[np.float64]
    excess: NDArray[np.int64]
    cost: NDArray[np.float64]
    parts: tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Count vectors over some elements, each written as one mixed-radix number."""

    elements: tuple[int, ...]
    sizes: tuple[int, ...]
    mass: NDArray[np.float64]
    excess: NDArray[np.int64]
    cost: NDArray[np.float64]
    code: NDArray[np.int64]

    def extended(self, element: int, count: int, heaviest_da: float) -> "_Parts":
        """Add 0 to `count` atoms of an element, as far as the mass allows."""
        number = np.arange(count + 1)
        mass = np.add.outer(self.mass, number * MASSES_DA[element]).ravel()
        kept = np.flatnonzero(mass <= heaviest_da)
        excess = np.add.outer(self.excess, number * _EXCESS[element]).ravel()
        hetero = element not in _CARBON_AND_HYDROGEN
        price = hetero * (_HETEROATOM_COST * number + _LOST_ELEMENT_COST * (number < count))
        cost = np.add.outer(self.cost, price).ravel()
        code = np.add.outer(self.code * (count + 1), number).ravel()
        return _Parts(
            (*self.elements, element),
            (*self.sizes, count + 1),
            mass[kept],
            excess[kept],
            cost[kept],
            code[kept],
        )

    def take(self, rows: NDArray[np.int64]) -> "_Parts":
        """Some of the parts, in the order given."""
        return _Parts(
            self.elements,
            self.sizes,
            self.mass[rows],
            self.excess[rows],
            self.cost[rows],
            self.code[rows],
        )

    def fill(self, rows: NDArray[np.int64], counts: NDArray[np.int16]) -> None:
        """Write the counts of `rows` into their columns of `counts`, int16 (K, N_ELEMENTS)."""
        code = self.code[rows]
        for element, size in zip(reversed(self.elements), reversed(self.sizes), strict=True):
            code, counts[:, element] = np.divmod(code, size)


class SubformulaTable:
    """All sub-formulas of one ion up to a mass, ready to be looked up.

    Args:
        counts: Atoms of the ion, N_ELEMENTS non-negative integers.
        heaviest_da: Largest mass that will be asked for, tolerance included.
    """

    def __init__(self, counts: Sequence[int], heaviest_da: float) -> None:
        first, second = _empty_parts(), _empty_parts()
        for element in _CARBON_AND_HYDROGEN:
            first = first.extended(element, counts[element], heaviest_da)
        others = [e for e in range(N_ELEMENTS) if counts[e] and e not in first.elements]
        for element in sorted(others, key=lambda e: counts[e]):
            if second.mass.size * (counts[element] + 1) <= _LARGEST_TABLE:
                second = second.extended(element, counts[element], heaviest_da)
            else:
                first = first.extended(element, counts[element], heaviest_da)
        pruned = (_prune(first, second), _prune(second, first))
        self._small, self._large = sorted(pruned, key=lambda parts: parts.mass.size)

    def find(self, mass: NDArray[np.float64], tolerance_da: NDArray[np.float64]) -> Matches:
        """Sub-formulas with the wanted masses whose unsaturation is at least -0.5.

        Args:
            mass: Wanted masses in Da, shape (W,).
            tolerance_da: Largest deviation of each in Da, shape (W,).
        """
        small, large = self._small, self._large
        reach = large.mass[-1] if large.mass.size else 0.0
        wanted, first = index_ranges(
            np.searchsorted(small.mass, mass - tolerance_da - reach, "left"),
            np.searchsorted(small.mass, mass + tolerance_da, "right"),
        )
        rest = mass[wanted] - small.mass[first]
        margin = tolerance_da[wanted]
        pair, second = index_ranges(
            np.searchsorted(large.mass, rest - margin, "left"),
            np.searchsorted(large.mass, rest + margin, "right"),
        )
        excess = small.excess[first][pair] + large.excess[second]
        possible = np.flatnonzero(excess >= LEAST_EXCESS)
        pair, second = pair[possible], second[possible]
        first = first[pair]
        return Matches(
            wanted[pair],
            rest[pair] - large.mass[second],
            excess[possible],
            small.cost[first] + large.cost[second],
            (first, second),
        )

    def counts(self, matches: Matches, rows: NDArray[np.int64]) -> NDArray[np.int16]:
        """Atoms of some of the matches, int16 (len(rows), N_ELEMENTS)."""
        counts = np.zeros((rows.size, N_ELEMENTS), dtype=np.int16)
        for table, part in zip((self._small, self._large), matches.parts, strict=True):
            table.fill(part[rows], counts)
        return counts


def excess(counts: NDArray[Any]) -> NDArray[Any]:
    """Twice (unsaturation minus one) of atoms (K, N_ELEMENTS), shape (K,)."""
    return np.asarray(counts @ np.array(_EXCESS))


def _empty_parts() -> _Parts:
    nothing = np.zeros(1, dtype=np.int64)
    return _Parts((), (), np.zeros(1), nothing, np.zeros(1), nothing)


def _prune(parts: _Parts, partners: _Parts) -> _Parts:
    """Leave out parts that no partner can bring to a possible unsaturation; sort by mass."""
    best = partners.excess.max(initial=LEAST_EXCESS)
    kept = np.flatnonzero(parts.excess + best >= LEAST_EXCESS)
    return parts.take(kept[np.argsort(parts.mass[kept], kind="stable")])


def index_ranges(
    start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Owner and value of every integer in the half-open ranges, owners ascending."""
    length = np.maximum(stop - start, 0)
    owner = np.repeat(np.arange(length.size), length)
    first = np.repeat(np.cumsum(length) - length - start, length)
    return owner, np.arange(owner.size) - first
