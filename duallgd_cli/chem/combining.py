"""Which building blocks make a molecule of a formula, the likeliest of them.

Two ends, or two ends on a linker, that have the formula's atoms between them make a molecule of it.
There may be millions. What their bits speak for them says which are likely before any is made:
first bits that lie away from the open bonds, then those that the joining decides too.

B building blocks, K molecules, F fingerprint bits.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.building_blocks import BuildingBlocks
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.junctions import NO_BIT, are_even, bits_where_joined

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

# Likeliest blocks of a kind, of the same atoms, that are tried; how many molecules are compared by
# all their bits, and how many of these are given.
_OF_A_KIND: Final = 20
_COMPARED: Final = 20_000
_GIVEN: Final = 1_000


class _Fitting(NamedTuple):
    """Blocks that fit into a formula; a kind are those of the same atoms.

    Attributes:
        row: Of the blocks, kind by kind, the likeliest first.
        value: Summed scores of the bits of each.
        code: Of the atoms of each kind, ascending.
        start: Where each kind begins.
        size: How many are tried of each kind.
    """

    row: Rows
    value: Floats
    code: Rows
    start: Rows
    size: Rows

    @property
    def best(self) -> Floats:
        """Value of the likeliest of each kind."""
        return self.value[self.start]

    def of_kind(self, kind: int) -> slice:
        """Where those of a kind stand that are tried."""
        return slice(self.start[kind], self.start[kind] + self.size[kind])


def likeliest(blocks: BuildingBlocks, formula: Formula, bit_scores: Floats) -> Rows:
    """A linker, -1 for none, and the ends at its first and second open bond, best first, (K, 3).

    Args:
        blocks: To choose from.
        formula: Whose atoms they have between them.
        bit_scores: What each Morgan bit speaks for a molecule, (F,).
    """
    # Sums of three codes are equal only where the atoms are.
    radix = np.cumprod(np.concatenate([[1], 3 * formula.array[:-1] + 1]))
    parts = slice(0, blocks.n_ends), slice(blocks.n_ends, None)
    ends, linkers = (_fitting(blocks, part, formula, radix, bit_scores) for part in parts)
    if not len(ends.row):
        return np.zeros((0, 3), np.int64)
    linkers = _with_none(linkers)
    kinds = _kinds(linkers.code, ends.code, int(formula.array @ radix))
    rows = _listed(kinds, linkers, ends)
    if not len(rows):
        return rows
    differ = (rows[:, 1] != rows[:, 2]) & ~are_even(blocks.smiles, rows)  # either way round
    rows = np.concatenate([rows, rows[differ][:, [0, 2, 1]]])
    return rows[np.argsort(-_exact(blocks, rows, bit_scores), kind="stable")[:_GIVEN]]


def _fitting(
    blocks: BuildingBlocks, part: slice, formula: Formula, radix: Rows, bit_scores: Floats
) -> _Fitting:
    counts = blocks.counts[part]
    fits = np.flatnonzero((counts <= formula.array).all(1)) + (part.start or 0)
    code = blocks.counts[fits].astype(np.int64) @ radix
    value = blocks.summed(fits, bit_scores) + blocks.worth[fits]
    order = np.lexsort((-value, code))
    kinds, start, size = np.unique(code[order], return_index=True, return_counts=True)
    return _Fitting(fits[order], value[order], kinds, start, np.minimum(size, _OF_A_KIND))


def _with_none(linkers: _Fitting) -> _Fitting:
    """Linkers, and before them none: no atoms, row -1."""
    row, value, code, start, size = linkers
    return _Fitting(
        np.append(-1, row),
        np.append(0.0, value),
        np.append(0, code),
        np.append(0, start + 1),
        np.append(1, size),
    )


def _kinds(linkers: Rows, ends: Rows, whole: int) -> Rows:
    """Kinds of a linker and two ends whose codes sum up to the whole, (Q, 3)."""
    found = []
    for number, code in enumerate(linkers.tolist()):
        wanted = whole - code - ends
        other = np.searchsorted(ends, wanted).clip(max=len(ends) - 1)
        first = np.flatnonzero((ends[other] == wanted) & (np.arange(len(ends)) <= other))
        found.append(np.stack([np.full(len(first), number), first, other[first]], 1))
    return np.concatenate(found)


def _listed(kinds: Rows, linkers: _Fitting, ends: _Fitting) -> Rows:
    """Rows of the likeliest of all kinds by their own bits, as many as are compared, (K, 3)."""
    bound = linkers.best[kinds[:, 0]] + ends.best[kinds[:, 1]] + ends.best[kinds[:, 2]]
    values, rows, least = [np.zeros(0)], [np.zeros((0, 3), np.int64)], -np.inf
    n_listed = 0
    for kind in np.argsort(-bound, kind="stable").tolist():
        if bound[kind] <= least:
            break
        linker, one, other = kinds[kind]
        places = linkers.of_kind(linker), ends.of_kind(one), ends.of_kind(other)
        sides = linkers, ends, ends
        value = [side.value[place] for side, place in zip(sides, places, strict=True)]
        total = value[0][:, None, None] + value[1][:, None] + value[2]
        chosen = np.nonzero(total > least)
        row = [s.row[p][at] for s, p, at in zip(sides, places, chosen, strict=True)]
        values.append(total[chosen])
        rows.append(np.stack(row, 1))
        n_listed += len(row[0])
        if n_listed > 2 * _COMPARED:
            both = _best(values, rows)
            values, rows, least, n_listed = [both[0]], [both[1]], both[0].min(), len(both[0])
    return _best(values, rows)[1]


def _best(values: list[Floats], rows: list[Rows]) -> tuple[Floats, Rows]:
    """Of what was listed, as many as are compared."""
    value, row = np.concatenate(values), np.concatenate(rows)
    if len(value) <= _COMPARED:
        return value, row
    best = np.argpartition(-value, _COMPARED)[:_COMPARED]
    return value[best], row[best]


def _exact(blocks: BuildingBlocks, rows: Rows, bit_scores: Floats) -> Floats:
    """Scores of all bits of the molecules, each bit once, and what the blocks are worth, (K,)."""
    owner, of_block = np.nonzero(rows >= 0)
    block = rows[owner, of_block]
    own, number = blocks.bits_of(block)
    joined = bits_where_joined(blocks.smiles, rows)
    molecule, place = np.nonzero(joined != NO_BIT)
    key = np.concatenate([
        owner[number] * FINGERPRINT_BITS + own,
        molecule * FINGERPRINT_BITS + joined[molecule, place],
    ]).astype(np.int32)  # fmt: skip
    key.sort()
    once = key[np.diff(key, prepend=-1) > 0]
    total = np.bincount(once // FINGERPRINT_BITS, bit_scores[once % FINGERPRINT_BITS], len(rows))
    return np.asarray(total + np.bincount(owner, blocks.worth[block], len(rows)))
