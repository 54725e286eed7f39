"""Which building blocks make a molecule of a formula, the likeliest of them.

Two ends, or two ends on a linker, that have the formula's atoms between them make a molecule of it.
There may be millions. What their Morgan bits speak for them says which are likely before any is
made. Most bits of a block stay what they are, whatever it is joined to: these are summed first.
Those near an open bond depend on both sides. They are computed for many molecules at once, by the
same hash as RDKit's, so that they are the bits that the molecules would have. Only next to a ring
of three, or in a molecule of a few atoms, may there be one too many.

K molecules, F fingerprint bits; J open bonds of a block, A atoms near them and D neighbours of an
atom at most.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator, rdMolDescriptors

from duallgd_cli.chem.building_blocks import BuildingBlocks
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula

Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Hashes: TypeAlias = NDArray[np.uint32]
_Rims: TypeAlias = NDArray[Any]  # of the type `_RIM`

# Likeliest blocks of a kind, of the same atoms, that are tried; and how many molecules are compared
# by all their bits.
_OF_A_KIND: Final = 20
_COMPARED: Final = 20_000

NO_BIT: Final = -1
_J, _A, _D = 2, 8, 4
_OF_AN_END: Final = _J + _D - 1  # atoms that are next to its one open bond
# What a neighbour is: none, one whose hash no joining changes, one beyond an open bond, or one that
# has an open bond; the last two by the number of that bond.
_NONE, _FIXED, _BEYOND, _OPEN = 0, 1, 2, 2 + _J
# The atoms of a block within two bonds of its open bonds, those that have one first: the hash of
# each alone and with its neighbours, whether two bonds around it are more than one is; of each bond
# its type, what lies at the other end, and its hashes. And whether two open bonds are alike.
_RIM: Final = np.dtype([
    ("alone", np.uint32, _A), ("around", np.uint32, _A), ("has_two", np.bool_, _A),
    ("bond", np.uint32, (_A, _D)), ("near", np.uint8, (_A, _D)),
    ("near_alone", np.uint32, (_A, _D)), ("near_around", np.uint32, (_A, _D)),
    ("is_even", np.bool_),
])  # fmt: skip
_NO_RIM: Final = bytes(_RIM.itemsize)
_GOLDEN: Final = np.uint32(0x9E3779B9)
_LAST: Final = np.uint64(2**64 - 1)
_STAR: Final = Chem.MolFromSmarts("[#0]")
_WITH_NEIGHBOURS: Final = rdFingerprintGenerator.GetMorganGenerator(radius=1)


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
    differ = (rows[:, 1] != rows[:, 2]) & ~are_even(blocks.smiles, rows)  # either way round
    rows = np.concatenate([rows, rows[differ][:, [0, 2, 1]]])
    return rows[np.argsort(-_exact(blocks, rows, bit_scores), kind="stable")[:most]]


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
    found, codes = [], np.array([kind.code for kind in ends])
    for number, linker in enumerate(linkers):
        rest = whole - linker.code
        lower = codes[: np.searchsorted(codes, rest // 2, "right")]  # the other end is no smaller
        other = np.searchsorted(codes, rest - lower).clip(max=len(codes) - 1)
        first = np.flatnonzero(codes[other] == rest - lower)
        found.append(np.stack([np.full(len(first), number), first, other[first]], 1))
    return np.concatenate(found)


def _listed(linkers: Sequence[_Kind], ends: Sequence[_Kind], whole: int) -> Rows:
    """Rows of the likeliest of all kinds by their own bits, as many as are compared, (K, 3)."""
    kinds = _kinds(linkers, ends, whole)
    of_linkers, of_ends = (np.array([one.value[0] for one in own]) for own in (linkers, ends))
    bound = of_linkers[kinds[:, 0]] + of_ends[kinds[:, 1]] + of_ends[kinds[:, 2]]
    values, rows, least = [np.zeros(0)], [np.zeros((0, 3), np.int64)], -np.inf
    n_listed = 0
    for kind in np.argsort(-bound, kind="stable").tolist():
        if bound[kind] <= least:
            break
        linker, one, other = kinds[kind]
        sides = linkers[linker], ends[one], ends[other]
        total = sides[0].value[:, None, None] + sides[1].value[:, None] + sides[2].value
        chosen = np.nonzero(total > least)
        row = [side.row[at] for side, at in zip(sides, chosen, strict=True)]
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


def bits_where_joined(smiles: Sequence[str], rows: Rows) -> Rows:
    """Bits near the bonds between blocks, `NO_BIT` where there is none, (K, about 25).

    Args:
        smiles: Of all blocks, open bonds as ``*``.
        rows: A linker, -1 for none, and the ends at its first and second open bond, (K, 3).
    """
    rims, number = _rims(smiles, rows)
    blocks = linker, first, second = [rims[own] for own in number.T]
    linked = (rows[:, 0] >= 0)[:, None]
    around = list(map(_around_open, blocks, _beyond(linked, [rim["alone"] for rim in blocks])))
    beyond = _beyond(linked, around)
    bits = [
        np.where(linked, _bits(linker, around[0], beyond[0], _A), NO_BIT),
        _bits(first, around[1], beyond[1], _OF_AN_END),
        _bits(second, around[2], beyond[2], _OF_AN_END),
    ]
    return np.concatenate(bits, 1)


def _beyond(linked: NDArray[np.bool_], hashes: Sequence[Hashes]) -> list[Hashes]:
    """What lies beyond the open bonds of a linker and two ends: without a linker, the other end."""
    linker, *ends = (own[:, :_J] for own in hashes)
    first, second = (end[:, :1] for end in ends)
    return [
        np.hstack([first, second]),
        np.where(linked, linker[:, :1], second),
        np.where(linked, linker[:, 1:], first),
    ]


def are_even(smiles: Sequence[str], rows: Rows) -> NDArray[np.bool_]:
    """Whether a linker is the same from either side, (K,); see `bits_where_joined`."""
    rims, number = _rims(smiles, rows[:, :1])
    return np.asarray(rims["is_even"][number[:, 0]] | (rows[:, 0] < 0))


def _rims(smiles: Sequence[str], rows: Rows) -> tuple[_Rims, Rows]:
    """The rims of all blocks in rows, and which is whose, (K, ...)."""
    used, number = np.unique(rows, return_inverse=True)
    rims = b"".join(_NO_RIM if row < 0 else _rim(smiles[row]) for row in used.tolist())
    return np.frombuffer(rims, _RIM), number.reshape(rows.shape)


def open_ends(mol: Chem.Mol) -> list[int]:
    """Indices of what stands for the open bonds of a block."""
    return [index for (index,) in mol.GetSubstructMatches(_STAR)]


@lru_cache(maxsize=20_000)
def _rim(smiles: str) -> bytes:
    """A row of the type `_RIM`."""
    mol, rim = Chem.MolFromSmiles(smiles), np.zeros((), _RIM)
    alone, around = list(rdMolDescriptors.GetConnectivityInvariants(mol)), _hashes_around(mol)
    stars, rank = open_ends(mol), Chem.CanonicalRankAtoms(mol, breakTies=False)
    rim["is_even"] = len({rank[star] for star in stars}) == 1
    opens = [mol.GetAtomWithIdx(star).GetNeighbors()[0].GetIdx() for star in stars]
    near = {other.GetIdx() for own in opens for other in mol.GetAtomWithIdx(own).GetNeighbors()}
    others = sorted(near - {*stars, *opens})[: _A - _J]
    for row, index in (*enumerate(opens), *enumerate(others, _J)):
        bonds = mol.GetAtomWithIdx(index).GetBonds()
        rim["alone"][row], rim["around"][row] = alone[index], around.get(index, 0)
        rim["has_two"][row] = 1 < len(bonds) <= _D
        for column, bond in enumerate(bonds[:_D]):
            other, at = bond.GetOtherAtomIdx(index), (row, column)
            rim["bond"][at], rim["near"][at] = int(bond.GetBondType()), _FIXED
            if other in stars:
                rim["near"][at] = _BEYOND + stars.index(other)
                continue
            if other in opens:
                rim["near"][at] = _OPEN + opens.index(other)
            rim["near_alone"][at], rim["near_around"][at] = alone[other], around.get(other, 0)
    return rim.tobytes()


def _hashes_around(mol: Chem.Mol) -> dict[int, int]:
    """Hash of each atom with its neighbours."""
    extra = rdFingerprintGenerator.AdditionalOutput()
    extra.AllocateBitInfoMap()
    _WITH_NEIGHBOURS.GetSparseFingerprint(mol, additionalOutput=extra)
    found = extra.GetBitInfoMap().items()
    return {atom: bit for bit, seen in found for atom, radius in seen if radius}


def _around_open(rim: _Rims, beyond: Hashes) -> Hashes:
    """Hash of the atoms that have an open bond with their neighbours, (K, J)."""
    near = _filled(rim["near_alone"][:, :_J], rim["near"][:, :_J], _BEYOND, beyond)
    return _hashed(0, rim["alone"][:, :_J], rim["bond"][:, :_J], near, rim["near"][:, :_J])


def _bits(rim: _Rims, opens: Hashes, beyond: Hashes, atoms: int) -> Rows:
    """Bits of the first atoms of a rim: of one bond around open ones, of two around all of them.

    Args:
        rim: Of a block in each molecule.
        opens: Hash of its atoms with an open bond, with their neighbours, (K, J).
        beyond: The same of what lies beyond these bonds, (K, J or fewer).
        atoms: How many.
    """
    near = rim["near"][:, :atoms]
    known = _filled(rim["near_around"][:, :atoms], near, _BEYOND, beyond)
    known = _filled(known, near, _OPEN, opens)
    own = np.concatenate([opens, rim["around"][:, _J:atoms]], 1)
    two = _hashed(1, own, rim["bond"][:, :atoms], known, near)
    is_open = (rim["near"][:, :_J] != _NONE).any(2)
    return np.concatenate([
        np.where(is_open, opens.astype(np.int64) % FINGERPRINT_BITS, NO_BIT),
        np.where(rim["has_two"][:, :atoms], two.astype(np.int64) % FINGERPRINT_BITS, NO_BIT),
    ], 1)  # fmt: skip


def _filled(fixed: Hashes, near: NDArray[np.uint8], first: int, values: Hashes) -> Hashes:
    """Hashes of neighbours, those of the kinds `first` and next in place of what was fixed."""
    for number in range(values.shape[1]):
        fixed = np.where(near == first + number, values[:, None, number, None], fixed)
    return fixed


def _hashed(layer: int, own: Hashes, bond: Hashes, near: Hashes, what: NDArray[np.uint8]) -> Hashes:
    """RDKit's hash of atoms, (K, n), with their bonds and neighbours, (K, n, D), in its order."""
    pairs = np.where(what != _NONE, bond.astype(np.uint64) << np.uint64(32) | near, _LAST)
    pairs.sort(-1)
    total, nothing = _mixed(np.full_like(own, layer), own), np.zeros_like(own)
    for column in range(_D):
        pair = pairs[..., column]
        kind, other = (pair >> np.uint64(32)).astype(np.uint32), pair.astype(np.uint32)
        with_one = _mixed(total, _mixed(_mixed(nothing, kind), other))
        total = np.where(pair == _LAST, total, with_one)
    return total


def _mixed(seed: Hashes, value: Hashes) -> Hashes:
    shifted = (seed << np.uint32(6)) + (seed >> np.uint32(2))
    return np.asarray(seed ^ (value + _GOLDEN + shifted), np.uint32)
