"""Which molecules a model has seen: a list of hashes that ships with the weights.

Each molecule is a 34-bit BLAKE2b hash of the first block of its InChIKey (14 ASCII letters): the
last 34 bits of a digest of 5 bytes, highest bits first. The file is a compressed ``.npz`` archive,
whatever its name, with one array ``hashes``: sorted, distinct, uint64. numpy alone reads it:
``numpy.load("duallgd.train.hashes")["hashes"]``. A molecule that was not seen is mistaken for one
that was with a probability of n / 2^34: 4 in 100,000 for 700,000 molecules.
"""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.files import replaced

_HASH_BYTES: Final = 5
_HASH_BITS: Final = 34
# What reading a damaged archive raises.
_DAMAGED: Final = (
    OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error,
)  # fmt: skip
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
        try:
            with path.open("rb") as stream:
                hashes = np.load(stream, allow_pickle=False)["hashes"]
            if hashes.dtype != np.uint64 or hashes.ndim != 1 or (hashes[1:] <= hashes[:-1]).any():
                raise ValueError("no sorted hashes")
        except _DAMAGED as error:
            raise UnreadableError(
                f"{path} is no list of training molecules, or damaged, or made by another version "
                f"({error}); copy it again together with its weights"
            ) from None
        return cls(hashes)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with replaced(path) as partial, partial.open("wb") as stream:
            np.savez_compressed(stream, hashes=self.hashes)

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
