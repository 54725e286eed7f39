"""Bits of the Morgan fingerprint that building blocks get where they are joined.

Most bits of a block stay what they are, whatever it is joined to. Those near an open bond depend on
both sides. Here they are computed for many molecules at once without making any, by the same hash
as RDKit's, so that they are the bits that the molecules would have. Only next to a ring of three,
or in a molecule of a few atoms, may there be one too many.

K molecules; J open bonds of a block, A atoms near them and D neighbours of an atom at most.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator, rdMolDescriptors

from duallgd_cli.chem.elements import FINGERPRINT_BITS

Hashes: TypeAlias = NDArray[np.uint32]
# Rows of the type `_RIM`.
_Rims: TypeAlias = NDArray[Any]

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


def bits_where_joined(smiles: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bits near the bonds between blocks, `NO_BIT` where there is none, (K, about 25).

    Args:
        smiles: Of all blocks, open bonds as ``*``.
        rows: A linker, -1 for none, and the ends at its first and second open bond, (K, 3).
    """
    rims, number = _rims(smiles, rows)
    linker, first, second = (rims[own] for own in number.T)
    linked = (rows[:, 0] >= 0)[:, None]
    alone = [rim["alone"] for rim in (linker, first, second)]
    beyond = [  # of the linker and of each end
        np.hstack([alone[1][:, :1], alone[2][:, :1]]),
        np.where(linked, alone[0][:, :1], alone[2][:, :1]),
        np.where(linked, alone[0][:, 1:_J], alone[1][:, :1]),
    ]
    around = [_around_open(rim, b) for rim, b in zip((linker, first, second), beyond, strict=True)]
    beyond = [
        np.hstack([around[1][:, :1], around[2][:, :1]]),
        np.where(linked, around[0][:, :1], around[2][:, :1]),
        np.where(linked, around[0][:, 1:], around[1][:, :1]),
    ]
    bits = [
        np.where(linked, _bits(linker, around[0], beyond[0], _A), NO_BIT),
        _bits(first, around[1], beyond[1], _OF_AN_END),
        _bits(second, around[2], beyond[2], _OF_AN_END),
    ]
    return np.concatenate(bits, 1)


def are_even(smiles: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a linker is the same from either side, (K,); see `bits_where_joined`."""
    rims, number = _rims(smiles, rows[:, :1])
    return np.asarray(rims["is_even"][number[:, 0]] | (rows[:, 0] < 0))


def _rims(smiles: Sequence[str], rows: NDArray[np.int64]) -> tuple[_Rims, NDArray[np.int64]]:
    """The rims of all blocks in rows, and which is whose, (K, ...)."""
    used, number = np.unique(rows, return_inverse=True)
    rims = b"".join(_NO_RIM if row < 0 else _rim(smiles[row]) for row in used.tolist())
    return np.frombuffer(rims, _RIM), number.reshape(rows.shape)


@lru_cache(maxsize=20_000)
def _rim(smiles: str) -> bytes:
    """A row of the type `_RIM`."""
    mol, rim = Chem.MolFromSmiles(smiles), np.zeros((), _RIM)
    atoms, alone = list(mol.GetAtoms()), list(rdMolDescriptors.GetConnectivityInvariants(mol))
    around = _hashes_around(mol)
    stars = [atom.GetIdx() for atom in atoms if not atom.GetAtomicNum()]
    opens = [atoms[star].GetNeighbors()[0].GetIdx() for star in stars]
    near = {other.GetIdx() for own in opens for other in atoms[own].GetNeighbors()}
    others = sorted(near - {*stars, *opens})[: _A - _J]
    rank = Chem.CanonicalRankAtoms(mol, breakTies=False)
    rim["is_even"] = len({rank[star] for star in stars}) == 1
    for row, index in (*enumerate(opens), *enumerate(others, _J)):
        bonds = atoms[index].GetBonds()
        rim["alone"][row], rim["around"][row] = alone[index], around.get(index, 0)
        rim["has_two"][row] = 1 < len(bonds) <= _D
        for column, bond in enumerate(bonds[:_D]):
            other = bond.GetOtherAtomIdx(index)
            at = row, column
            rim["bond"][at] = int(bond.GetBondType())
            rim["near"][at] = _FIXED
            if other in stars:
                rim["near"][at] = _BEYOND + stars.index(other)
                continue
            if other in opens:
                rim["near"][at] = _OPEN + opens.index(other)
            rim["near_alone"][at], rim["near_around"][at] = alone[other], around.get(other, 0)
    return rim.tobytes()


@cache
def _with_neighbours() -> Any:  # noqa: ANN401
    return rdFingerprintGenerator.GetMorganGenerator(radius=1)


def _hashes_around(mol: Chem.Mol) -> dict[int, int]:
    """Hash of each atom with its neighbours."""
    extra = rdFingerprintGenerator.AdditionalOutput()
    extra.AllocateBitInfoMap()
    _with_neighbours().GetSparseFingerprint(mol, additionalOutput=extra)
    found = extra.GetBitInfoMap().items()
    return {atom: bit for bit, seen in found for atom, radius in seen if radius}


def _around_open(rim: _Rims, beyond: Hashes) -> Hashes:
    """Hash of the atoms that have an open bond with their neighbours, (K, J)."""
    near = _filled(rim["near_alone"][:, :_J], rim["near"][:, :_J], _BEYOND, beyond)
    return _hashed(0, rim["alone"][:, :_J], rim["bond"][:, :_J], near, rim["near"][:, :_J])


def _bits(rim: _Rims, opens: Hashes, beyond: Hashes, atoms: int) -> NDArray[np.int64]:
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
