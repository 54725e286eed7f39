"""Surroundings of atoms that known structures have: what a candidate has beyond these is unlikely.

An environment is an atom with all that is up to three bonds away, by the number that Morgan
fingerprints give it before they are folded. Hundreds of thousands of these are kept as a Bloom
filter: of each five bits are set, so that one in forty that was never seen passes for known. E
environments, B bytes.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

_RADIUS: Final = 3
# What a single structure has says as little as what none has.
_COMMON: Final = 2
# Bits of the filter for each environment, and the odd numbers that spread its number over them.
_BITS_EACH, _FEWEST_BITS = 7, 64
_SPREAD: Final = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1], dtype=np.uint32
)


def known_environments(mols: Iterable[Chem.Mol]) -> NDArray[np.uint8]:
    """The filter of all environments that at least two molecules have, (B,), B a power of two."""
    seen: Counter[int] = Counter()
    for mol in mols:
        seen.update(_environments(mol))
    common = [number for number, count in seen.items() if count >= _COMMON]
    n_bits = max(_FEWEST_BITS, 1 << (_BITS_EACH * len(common) - 1).bit_length())
    is_set = np.zeros(n_bits, np.bool_)
    is_set[_places(common, n_bits)] = True
    return np.packbits(is_set, bitorder="little")


def unknown_environments(mol: Chem.Mol, known: NDArray[np.uint8]) -> int:
    """How many environments of a molecule are none of those in a filter, (B,)."""
    places = _places(_environments(mol), 8 * known.size)
    is_set = known[places >> 3] >> (places & 7).astype(np.uint8) & 1
    return int(np.count_nonzero(~is_set.astype(np.bool_).all(1)))


def _environments(mol: Chem.Mol) -> list[int]:
    """Their numbers, of 32 bits, each once."""
    return list(_generator().GetSparseFingerprint(mol).GetOnBits())


def _places(numbers: list[int], n_bits: int) -> NDArray[np.int64]:
    """Bits of each environment, (E, 5): the highest of products modulo 2^32."""
    spread = np.array(numbers, np.int64).astype(np.uint32)[:, None] * _SPREAD
    return (spread >> np.uint32(33 - n_bits.bit_length())).astype(np.int64)


@cache
def _generator() -> rdFingerprintGenerator.FingerprintGenerator64:
    return rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS)
