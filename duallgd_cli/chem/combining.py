"""Which building blocks make a molecule of a formula, the likeliest of them.

Two ends, or two ends on a linker, that have the formula's atoms between them make a molecule of it.
There may be millions. What their Morgan bits speak for them says which are likely before any is
made: the bits that a block keeps, whatever it is joined to. Those near an open bond depend on both
sides and are left to whoever has the molecule.

K molecules, F fingerprint bits.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.building_blocks import BuildingBlocks
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula

Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# Likeliest blocks of a kind, of the same atoms, that are tried; and how many molecules are compared
# by their bits, each counted once.
_OF_A_KIND: Final = 20
_COMPARED: Final = 20_000

_STAR: Final = Chem.MolFromSmarts("[#0]")
_AS_IT_STANDS: Final = Chem.SmilesParserParams()
_AS_IT_STANDS.sanitize = False  # type: ignore[assignment]
_AS_IT_STANDS.removeHs = False  # type: ignore[assignment]


class _Kind(NamedTuple):
    """Blocks of the same atoms.

    Attributes:
        code: Of the atoms.
        row: Of the blocks that are tried, the likeliest first.
        value: Summed scores of the bits of each.
    """

    code: int
    row: Rows
    value: Floats


def likeliest(blocks: BuildingBlocks, formula: Formula, bit_scores: Floats, most: int) -> Rows:
    """A linker, -1 for none, and the ends at its first and second open bond, best first, (K, 3).

    Args:
        blocks: To choose from.
        formula: Whose atoms they have between them.
        bit_scores: What each Morgan bit speaks for a molecule, (F,).
        most: K at most, of 20,000.
    """
    # Sums of three codes are equal only where the atoms are.
    radix = np.cumprod(np.concatenate([[1], 3 * formula.array[:-1] + 1]))
    parts = slice(0, blocks.n_ends), slice(blocks.n_ends, None)
    ends, linkers = (_fitting(blocks, part, formula, radix, bit_scores) for part in parts)
    if not ends:
        return np.zeros((0, 3), np.int64)
    linkers.insert(0, _Kind(0, np.array([-1]), np.zeros(1)))  # none
    rows = _listed(linkers, ends, int(formula.array @ radix))
    if not len(rows):
        return rows
    rows = rows[np.argsort(-_scored(blocks, rows, bit_scores), kind="stable")[:most]]
    uneven = [linker >= 0 and not is_even(blocks.smiles[linker]) for linker in rows[:, 0].tolist()]
    both = np.stack([rows, rows[:, [0, 2, 1]]], 1)  # either way round, one after the other
    differ = np.array(uneven) & (rows[:, 1] != rows[:, 2])
    kept = np.stack([np.ones_like(differ), differ], 1)
    chosen: NDArray[np.int64] = both[kept][:most]
    return chosen


def _fitting(
    blocks: BuildingBlocks, part: slice, formula: Formula, radix: Rows, bit_scores: Floats
) -> list[_Kind]:
    """Blocks that fit into a formula, by ascending codes."""
    fits = np.flatnonzero((blocks.counts[part] <= formula.array).all(1)) + (part.start or 0)
    code = blocks.counts[fits].astype(np.int64) @ radix
    value = blocks.summed(fits, bit_scores) + blocks.worth[fits]
    order = np.lexsort((-value, code))
    codes, start = np.unique(code[order], return_index=True)
    tried = [slice(at, min(at + _OF_A_KIND, end)) for at, end in pairwise([*start, len(order)])]
    return [
        _Kind(one, fits[order[which]], value[order[which]])
        for one, which in zip(codes.tolist(), tried, strict=True)
    ]


def _kinds(linkers: Sequence[_Kind], ends: Sequence[_Kind], whole: int) -> Rows:
    """A linker and two ends by their numbers, whose codes sum up to the whole, (Q, 3)."""
    firsts, others, codes = [], [], np.array([kind.code for kind in ends])
    for linker in linkers:
        rest = whole - linker.code
        lower = codes[: codes.searchsorted(rest // 2, "right")]  # the other end is no smaller
        wanted = rest - lower
        other = codes.searchsorted(wanted)
        (first,) = (codes.take(other, mode="clip") == wanted).nonzero()
        firsts.append(first)
        others.append(other[first])
    number = np.repeat(np.arange(len(linkers)), [len(first) for first in firsts])
    return np.stack([number, np.concatenate(firsts), np.concatenate(others)], 1)


def _listed(linkers: Sequence[_Kind], ends: Sequence[_Kind], whole: int) -> Rows:
    """Rows of the likeliest of all kinds by their own bits, as many as are compared, (K, 3)."""
    kinds = _kinds(linkers, ends, whole)
    of_linkers, of_ends = (np.array([one.value[0] for one in own]) for own in (linkers, ends))
    bound = of_linkers[kinds[:, 0]] + of_ends[kinds[:, 1]] + of_ends[kinds[:, 2]]
    values, rows, least = [np.zeros(0)], [np.zeros((3, 0), np.int64)], -np.inf
    n_listed = 0
    for kind in np.argsort(-bound, kind="stable").tolist():
        if bound[kind] <= least:
            break
        linker, one, other = kinds[kind]
        sides = linkers[linker], ends[one], ends[other]
        total = sides[0].value[:, None, None] + sides[1].value[:, None] + sides[2].value
        chosen = (total > least).nonzero()
        values.append(total[chosen])
        rows.append(np.array([side.row[at] for side, at in zip(sides, chosen, strict=True)]))
        n_listed += len(values[-1])
        if n_listed > 2 * _COMPARED:
            both = _best(values, rows)
            values, rows, least, n_listed = [both[0]], [both[1]], both[0].min(), len(both[0])
    return np.ascontiguousarray(_best(values, rows)[1].T)


def _best(values: list[Floats], rows: list[Rows]) -> tuple[Floats, Rows]:
    """Of what was listed, as many as are compared; rows are columns here."""
    value, row = np.concatenate(values), np.concatenate(rows, 1)
    if len(value) <= _COMPARED:
        return value, row
    best = np.argpartition(-value, _COMPARED)[:_COMPARED]
    return value[best], row[:, best]


def _scored(blocks: BuildingBlocks, rows: Rows, bit_scores: Floats) -> Floats:
    """Scores of the bits of all blocks of a row, each bit once, and what these are worth, (K,)."""
    owner, of_block = np.nonzero(rows >= 0)
    block = rows[owner, of_block]
    own, number = blocks.bits_of(block)
    # Sorted here, since numpy's own `unique` hashes first, ten times as long.
    bits = np.sort((owner[number] * FINGERPRINT_BITS + own).astype(np.int32))
    once = bits[np.diff(bits, prepend=-1) != 0]
    total = np.bincount(once // FINGERPRINT_BITS, bit_scores[once % FINGERPRINT_BITS], len(rows))
    return np.asarray(total + np.bincount(owner, blocks.worth[block], len(rows)))


def open_ends(mol: Chem.Mol) -> list[int]:
    """Indices of what stands for the open bonds of a block."""
    return [index for (index,) in mol.GetSubstructMatches(_STAR)]


def unsanitised(smiles: str) -> Chem.Mol:
    """A block by its SMILES, which says already what is aromatic: several times faster."""
    mol = Chem.MolFromSmiles(smiles, _AS_IT_STANDS)
    mol.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(mol)
    return mol


@lru_cache(maxsize=20_000)
def is_even(linker: str) -> bool:
    """Whether a linker is the same from either side."""
    mol = Chem.MolFromSmiles(linker)
    rank = Chem.CanonicalRankAtoms(mol, breakTies=False)
    return len({rank[star] for star in open_ends(mol)}) == 1
