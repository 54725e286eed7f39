"""Which molecules a model has seen: a compact list of hashes that ships with the weights.

Each molecule is a 35-bit BLAKE2b hash of the first block of its InChIKey (14 ASCII letters). The
file holds the 8 bytes ``DLGDHSH2``, the number of molecules as an unsigned 64-bit integer
(little-endian), the low 16 bits of the differences between the sorted hashes (first difference:
the first hash) as little-endian integers, then their high parts, four bytes each, compressed with
xz: about 2.1 bytes a molecule. A molecule that was not seen is mistaken for one that was with a
probability of n / 2^35: 2 in 100,000 for 700,000 molecules.
"""

import hashlib
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import MissingInputError, UnreadableError

_MAGIC: Final = b"DLGDHSH2"
_HASH_BYTES: Final = 5
_HASH_BITS: Final = 35
_LOW_BITS: Final = 16
_HEADER_BYTES: Final = len(_MAGIC) + 8
_BLOCK_LETTERS: Final = 14
_CHUNK: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TrainingHashes:
    """Molecules of a training set.

    Attributes:
        hashes: Sorted, distinct, below 2^35, uint64 (n,).
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
        count = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES], "little")
        split = _HEADER_BYTES + count * _LOW_BITS // 8
        try:
            if not data.startswith(_MAGIC) or len(data) < split:
                raise ValueError(f"{len(data)} bytes, {split} or more expected")
            low = np.frombuffer(data[_HEADER_BYTES:split], "<u2").astype(np.uint64)
            high = np.frombuffer(lzma.decompress(data[split:]), "<u4").astype(np.uint64)
            return cls(np.cumsum((high << np.uint64(_LOW_BITS)) + low, dtype=np.uint64))
        except (ValueError, lzma.LZMAError) as error:
            raise UnreadableError(
                f"{path} is no list of training molecules, or damaged ({error}); copy it again"
            ) from None

    def write(self, path: Path) -> None:
        """Write the file."""
        steps = np.diff(self.hashes, prepend=np.uint64(0))
        high = steps >> np.uint64(_LOW_BITS)
        low = (steps & np.uint64((1 << _LOW_BITS) - 1)).astype("<u2")
        header = _MAGIC + len(self.hashes).to_bytes(8, "little")
        path.write_bytes(header + low.tobytes() + lzma.compress(high.astype("<u4").tobytes()))

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
