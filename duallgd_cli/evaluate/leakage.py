"""Which molecules a model has seen: a compact list of hashes that ships with the weights.

Each molecule is a 34-bit BLAKE2b hash of the first block of its InChIKey (14 ASCII letters). The
file holds the 8 bytes ``DLGDHSH4``, the number of molecules as an unsigned 64-bit integer
(little-endian), the 8-byte BLAKE2b digest of that number and all that follows, and the differences
between the sorted hashes (first difference: the first hash) in Rice's code, highest bits first: the
low 14 bits of all, then the rest of each as that many zeros and a one. For 700,000 molecules that
is 16 bits each. A molecule that was not seen is mistaken for one that was with a probability of
n / 2^34: 4 in 100,000.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import MissingInputError, UnreadableError

_MAGIC: Final = b"DLGDHSH4"
_HASH_BYTES: Final = 5
_HASH_BITS: Final = 34
_LOW_BITS: Final = 14
_DIGEST_BYTES: Final = 8
_HEADER_BYTES: Final = len(_MAGIC) + 8 + _DIGEST_BYTES
_BLOCK_LETTERS: Final = 14
_CHUNK: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TrainingHashes:
    """Molecules of a training set.

    Attributes:
        hashes: Sorted, distinct, below 2^34, uint64 (n,).
    """

    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, blocks: Iterable[str]) -> "TrainingHashes":
        """Hash InChIKeys or their first blocks; the rest of a key is ignored."""
        return cls(np.unique(_hashed(blocks)))

    @classmethod
    def read(cls, path: Path) -> "TrainingHashes":
        """Read a file of hashes.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is no such file, or damaged.
        """
        if not path.is_file():
            raise MissingInputError(f"there is no list of training molecules {path}")
        data = path.read_bytes()
        counted, rest = data[len(_MAGIC) : len(_MAGIC) + 8], data[_HEADER_BYTES:]
        digest = data[_HEADER_BYTES - _DIGEST_BYTES : _HEADER_BYTES]
        if not data.startswith(_MAGIC) or digest != _digest(counted + rest):
            raise UnreadableError(
                f"{path} is no list of training molecules, or damaged, or made by another version; "
                "copy it again together with its weights"
            )
        count = int.from_bytes(counted, "little")
        packed, split = np.frombuffer(rest, np.uint8), -(-count * _LOW_BITS // 8)
        bits = np.unpackbits(packed[:split], count=count * _LOW_BITS).reshape(count, _LOW_BITS)
        ends = np.flatnonzero(np.unpackbits(packed[split:]))
        low = bits @ (1 << np.arange(_LOW_BITS - 1, -1, -1, dtype=np.int64))
        high = np.diff(ends, prepend=-1) - 1
        return cls(np.cumsum((high << _LOW_BITS) + low).astype(np.uint64))

    def write(self, path: Path) -> None:
        """Write the file."""
        steps = self.hashes.astype(np.int64)
        steps[1:] -= steps[:-1].copy()
        low = np.unpackbits(steps.astype(">u2").view(np.uint8)).reshape(-1, 16)[:, -_LOW_BITS:]
        ends = np.cumsum((steps >> _LOW_BITS) + 1) - 1
        high = np.zeros(ends[-1] + 1 if len(ends) else 0, np.uint8)
        high[ends] = 1
        rest = np.packbits(low).tobytes() + np.packbits(high).tobytes()
        counted = len(self.hashes).to_bytes(8, "little")
        path.write_bytes(_MAGIC + counted + _digest(counted + rest) + rest)

    def joined(self, other: "TrainingHashes") -> "TrainingHashes":
        """Molecules of either list."""
        return TrainingHashes(np.union1d(self.hashes, other.hashes))

    def __len__(self) -> int:
        return len(self.hashes)

    def contains(self, blocks: Sequence[str]) -> NDArray[np.bool_]:
        """Which molecules were in the training set.

        Args:
            blocks: InChIKeys or their first blocks, B of them.

        Returns:
            bool (B,).
        """
        return np.isin(_hashed(blocks), self.hashes)


def nearest_training(
    queries: Sequence[NDArray[np.uint16]],
    training: Sequence[NDArray[np.uint16]],
    n_bits: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Tanimoto similarity of each molecule to the most similar training molecule.

    Args:
        queries: Set bits of B molecules.
        training: Set bits of at least one molecule.
        n_bits: Length of the fingerprints.

    Returns:
        Similarity, float64 (B,), and the place of that molecule, int64 (B,).
    """
    best = np.full(len(queries), -1.0)
    place = np.zeros(len(queries), dtype=np.int64)
    asked = _dense(queries, n_bits)
    sizes = asked.sum(axis=1)
    for start in range(0, len(training), _CHUNK):
        part = _dense(training[start : start + _CHUNK], n_bits)
        shared = asked @ part.T  # (B, chunk)
        union = sizes[:, None] + part.sum(axis=1)[None, :] - shared
        similarity = np.divide(shared, union, out=np.ones_like(shared), where=union > 0)
        top = similarity.argmax(axis=1)
        found = similarity[np.arange(len(queries)), top]
        better = found > best
        best[better], place[better] = found[better], top[better] + start
    # float32 products of whole numbers are exact, their quotient is not: once more, exactly.
    exact = [tanimoto(bits, training[i]) for bits, i in zip(queries, place.tolist(), strict=True)]
    return np.array(exact, dtype=np.float64), place


def _dense(bits: Sequence[NDArray[np.uint16]], n_bits: int) -> NDArray[np.float32]:
    dense = np.zeros((len(bits), n_bits), dtype=np.float32)
    for row, on in zip(dense, bits, strict=True):
        row[on] = 1.0
    return dense


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _hashed(blocks: Iterable[str]) -> NDArray[np.uint64]:
    values = (
        int.from_bytes(
            hashlib.blake2b(block[:_BLOCK_LETTERS].encode(), digest_size=_HASH_BYTES).digest(),
            "big",
        )
        & ((1 << _HASH_BITS) - 1)
        for block in blocks
    )
    return np.fromiter(values, dtype=np.uint64)
