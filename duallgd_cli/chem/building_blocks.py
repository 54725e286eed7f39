"""Parts of known molecules, which `chem.joining` cuts out and puts together.

A molecule that nobody has measured mostly consists of parts that somebody has. A part with one open
bond is an end, one with two a linker.

B blocks, F fingerprint bits, K of the blocks.
"""

import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias
from zipfile import ZIP_LZMA, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, HYDROGEN, N_ELEMENTS
from duallgd_cli.files import DAMAGED_ARRAYS

Counts: TypeAlias = tuple[int, ...]

OPEN: Final = "*"
# Groups are ends of so many heavy atoms at most; so many of one formula are tried, frequent first.
LARGEST_GROUP: Final = 12
_TRIED: Final = 30
# Log-odds that a linker costs, since it takes two bonds to be right where two ends take one, and
# what a block is worth by the logarithm of how many molecules have it. Chosen on fold val.
_OF_A_LINKER: Final = 80.0
_OF_FREQUENCY: Final = 4.0

# Any numbers whose sums tell sets of atoms and of bits apart.
_KEYS: Final = np.random.default_rng(0).integers(1, 1 << 40, N_ELEMENTS + FINGERPRINT_BITS)
ATOM_KEY, BIT_KEY = _KEYS[:N_ELEMENTS], _KEYS[N_ELEMENTS:]


class KnownEnds(NamedTuple):
    """Which ends are known."""

    log_seen: Mapping[str, float]  # log of how many molecules have each, by its SMILES
    # The largest of these by the sum of the keys of an end's atoms, `ATOM_KEY`, and of its bits
    # that lie away from the open bond, `BIT_KEY`.
    most_seen: Mapping[int, float]


@dataclass(frozen=True, eq=False)
class BuildingBlocks:
    """Parts of known molecules; the ends before the linkers, the most frequent first."""

    smiles: tuple[str, ...]  # with ``*`` in place of what was cut off, B of them
    counts: NDArray[np.uint8]  # their atoms, (B, N_ELEMENTS)
    seen: NDArray[np.int32]  # how many molecules have each, (B,)
    n_bits: NDArray[np.uint16]  # how many bits lie away from the open bonds of each, (B,)
    bits: NDArray[np.uint16]  # these, of one block after the other

    @classmethod
    def read(cls, packed: NDArray[np.uint8]) -> "BuildingBlocks":
        """From the bytes of `packed`.

        Raises:
            ValueError: They are no blocks.
        """
        try:
            with np.load(io.BytesIO(packed.tobytes()), allow_pickle=False) as stored:
                text, *arrays = (stored[name] for name in _ARRAYS)
        except DAMAGED_ARRAYS as error:
            raise ValueError("no building blocks") from error
        made = cls(tuple(text.tobytes().decode("ascii", "replace").split()), *arrays)
        if not made.fit:
            raise ValueError("broken building blocks")
        return made

    def packed(self) -> NDArray[np.uint8]:
        """All of them as bytes: the same again for the same blocks."""
        text = np.frombuffer("\n".join(self.smiles).encode(), np.uint8)
        stream = io.BytesIO()
        with ZipFile(stream, "w", ZIP_LZMA) as archive:  # half of what numpy's own would take
            for name in _ARRAYS:
                member = ZipInfo(f"{name}.npy")  # of no date, so that bytes are the same again
                member.compress_type = archive.compression
                with archive.open(member, "w") as stored:
                    array = text if name == "smiles" else getattr(self, name)
                    np.lib.format.write_array(stored, array, allow_pickle=False)
        return np.frombuffer(stream.getvalue(), np.uint8)

    @property
    def fit(self) -> bool:
        """Whether arrays have the types and shapes of blocks."""
        n_blocks, kinds = len(self.smiles), [np.uint8, np.int32, np.uint16, np.uint16]
        return bool(
            [getattr(self, name).dtype for name in _ARRAYS[1:]] == kinds
            and self.counts.shape == (n_blocks, N_ELEMENTS)
            and self.seen.shape == self.n_bits.shape == (n_blocks,)
            and self.bits.shape == (self.n_bits.sum(dtype=np.int64),)
        )

    @cached_property
    def n_ends(self) -> int:
        """How many have one open bond."""
        return sum(text.count(OPEN) == 1 for text in self.smiles)

    @cached_property
    def ends(self) -> KnownEnds:
        """Those with one open bond."""
        log_seen = np.log(self.seen[: self.n_ends], dtype=np.float32).tolist()
        look = self.counts[: self.n_ends] @ ATOM_KEY
        if len(look):
            starts = self._starts[: self.n_ends]
            look += np.add.reduceat(BIT_KEY[self.bits[: self._starts[self.n_ends]]], starts)
        most_seen = dict(sorted(zip(look.tolist(), log_seen, strict=True)))
        return KnownEnds(dict(zip(self.smiles, log_seen, strict=False)), most_seen)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.n_bits, dtype=np.int64)])

    @cached_property
    def worth(self) -> NDArray[np.float64]:
        """What each adds to the log-odds of a molecule besides its bits, (B,)."""
        rows = np.arange(len(self.smiles))
        return _OF_FREQUENCY * np.log(self.seen) - _OF_A_LINKER * (rows >= self.n_ends)

    @cached_property
    def groups(self) -> Mapping[Counts, list[str]]:
        """SMILES of small ends by their atoms, the most frequent of each."""
        groups = defaultdict[Counts, list[str]](list)
        counts = self.counts[: self.n_ends]
        n_heavy = counts.sum(1, dtype=np.int64) - counts[:, HYDROGEN]
        for row in np.flatnonzero(n_heavy <= LARGEST_GROUP).tolist():
            if len(alike := groups[tuple(counts[row].tolist())]) < _TRIED:
                alike.append(self.smiles[row])
        return groups

    def bits_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """Bits of some blocks, one block after the other, and how many of them are of each."""
        length = self.n_bits[rows].astype(np.int64)
        index = counted_to(length)
        index += np.repeat(self._starts[rows], length)
        return self.bits[index], length


def counted_to(n: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 to n[0] - 1, then 0 to n[1] - 1, and so on."""
    return np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)


_ARRAYS: Final = ("smiles", "counts", "seen", "n_bits", "bits")
_NO_BITS: Final = np.zeros(0, np.uint16)
NO_BLOCKS: Final = BuildingBlocks(
    (), np.zeros((0, N_ELEMENTS), np.uint8), np.zeros(0, np.int32), _NO_BITS, _NO_BITS
)
