"""Molecules of a formula that are put together from parts of known ones.

A molecule that nobody has measured mostly consists of parts that somebody has. Known molecules are
cut at one or two single bonds outside rings: a part with one open bond is an end, one with two a
linker. Two ends, or two ends on a linker, that have the formula's atoms between them make a
molecule of it. There may be millions. A predicted fingerprint says which are likely before any is
made, since bits that lie away from the open bonds stay what they are.

B blocks, F fingerprint bits.
"""

import hashlib
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS, HYDROGEN, N_ELEMENTS
from duallgd_cli.chem.formula import Formula

Counts: TypeAlias = tuple[int, ...]

OPEN: Final = "*"
# Groups are ends of so many heavy atoms at most; so many of one formula are tried, frequent first.
LARGEST_GROUP: Final = 12
_TRIED: Final = 30
# Log-odds that a linker costs, since it takes two bonds to be right where two ends take one, and
# what a block is worth by the logarithm of how many molecules have it. Chosen on fold val.
_OF_A_LINKER: Final = 35.0
_OF_FREQUENCY: Final = 2.0
# Likeliest blocks of a kind, of the same atoms, that are tried; and what is put together.
_OF_A_KIND: Final = 20
_MADE: Final = 1_000
# So many times as many are compared with every bit counting once, however many blocks have it.
_LISTED: Final = 4


class KnownEnds(NamedTuple):
    """Which ends are known, in arrays that are quickly sent to other processes.

    Attributes:
        key: Of the SMILES of each, ascending, (E,).
        log_seen: Log of how many molecules have it, (E,).
    """

    key: NDArray[np.int64]
    log_seen: NDArray[np.float32]

    def of(self, smiles: str) -> float | None:
        """Log of how many molecules have an end, or None of an unknown one."""
        key = _key(smiles)
        place = int(np.searchsorted(self.key, key))
        is_known = place < len(self.key) and self.key[place] == key
        return float(self.log_seen[place]) if is_known else None


class _Fitting(NamedTuple):
    """Blocks that fit into a formula; a kind are those of the same atoms.

    Attributes:
        row: Of the blocks, kind by kind, the likeliest first.
        value: Summed log-odds of the bits of each.
        code: Of the atoms of each kind, ascending.
        start: Where each kind begins.
        size: How many are tried of each kind.
    """

    row: NDArray[np.int64]
    value: NDArray[np.float64]
    code: NDArray[np.int64]
    start: NDArray[np.int64]
    size: NDArray[np.int64]

    @property
    def best(self) -> NDArray[np.float64]:
        """Value of the likeliest of each kind."""
        return self.value[self.start]

    def of_kind(self, kind: int) -> slice:
        """Where those of a kind stand that are tried."""
        return slice(self.start[kind], self.start[kind] + self.size[kind])


@dataclass(frozen=True, eq=False)
class BuildingBlocks:
    """Parts of known molecules; the ends before the linkers, the most frequent first.

    Attributes:
        smiles: With ``*`` in place of what was cut off, B of them.
        counts: Their atoms, (B, N_ELEMENTS).
        seen: How many molecules have each, (B,).
        n_bits: How many bits lie away from the open bonds of each, (B,).
        bits: These, of one block after the other.
    """

    smiles: tuple[str, ...]
    counts: NDArray[np.uint8]
    seen: NDArray[np.int32]
    n_bits: NDArray[np.uint16]
    bits: NDArray[np.uint16]

    @classmethod
    def read(cls, packed: NDArray[np.uint8]) -> "BuildingBlocks":
        """From the bytes of `packed`.

        Raises:
            ValueError: They are no blocks.
        """
        try:
            with np.load(io.BytesIO(packed.tobytes()), allow_pickle=False) as stored:
                text, *arrays = (stored[name] for name in _ARRAYS)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError("no building blocks") from error
        made = cls(tuple(text.tobytes().decode("ascii", "replace").split()), *arrays)
        if not made._is_sound:
            raise ValueError("broken building blocks")
        return made

    def packed(self) -> NDArray[np.uint8]:
        """All of them as bytes: the same again for the same blocks."""
        stream, text = io.BytesIO(), "\n".join(self.smiles).encode()
        arrays = (np.frombuffer(text, np.uint8), *self._arrays)
        np.savez_compressed(stream, allow_pickle=False, **dict(zip(_ARRAYS, arrays, strict=True)))
        return np.frombuffer(stream.getvalue(), np.uint8)

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.counts, self.seen, self.n_bits, self.bits

    @property
    def _is_sound(self) -> bool:
        n_blocks, kinds = len(self.smiles), (np.uint8, np.int32, np.uint16, np.uint16)
        n_open = [text.count(OPEN) for text in self.smiles]
        return bool(
            [array.dtype for array in self._arrays] == list(kinds)
            and self.counts.shape == (n_blocks, N_ELEMENTS)
            and self.seen.shape == self.n_bits.shape == (n_blocks,)
            and (self.seen > 0).all()
            and self.bits.shape == (self.n_bits.sum(dtype=np.int64),)
            and (self.n_bits > 0).all()
            and (self.bits < FINGERPRINT_BITS).all()
            and set(n_open) <= {1, 2}
            and n_open == sorted(n_open)
        )

    @cached_property
    def n_ends(self) -> int:
        """How many have one open bond."""
        return sum(text.count(OPEN) == 1 for text in self.smiles)

    @cached_property
    def ends(self) -> KnownEnds:
        """Those with one open bond."""
        key = np.array([_key(text) for text in self.smiles[: self.n_ends]], np.int64)
        order = key.argsort()
        return KnownEnds(key[order], np.log(self.seen[: self.n_ends], dtype=np.float32)[order])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.n_bits, dtype=np.int64)])

    @cached_property
    def worth(self) -> NDArray[np.float64]:
        """What each adds to the log-odds of a molecule besides its bits, (B,)."""
        rows = np.arange(len(self.smiles))
        return _OF_FREQUENCY * np.log(self.seen) - _OF_A_LINKER * (rows >= self.n_ends)

    @cached_property
    def _groups(self) -> Mapping[Counts, list[str]]:
        groups: dict[Counts, list[str]] = defaultdict(list)
        for text, counts in zip(self.smiles[: self.n_ends], self.counts.tolist(), strict=False):
            if sum(counts) - counts[HYDROGEN] <= LARGEST_GROUP:
                groups[tuple(counts)].append(text)
        return groups

    def groups(self, counts: Counts) -> Sequence[str]:
        """SMILES of small ends that have exactly these atoms, the most frequent."""
        return self._groups.get(counts, ())[:_TRIED]

    def likeliest(self, formula: Formula, log_odds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Rows of a linker, -1 for none, and two ends that have the formula's atoms, (K, 3)."""
        # Sums of three codes are equal only where the atoms are.
        radix = np.cumprod(np.concatenate([[1], 3 * formula.array[:-1] + 1]))
        value = np.add.reduceat(np.append(log_odds[self.bits], 0.0), self._starts[:-1])
        value += self.worth
        ends, linkers = (
            self._fitting(rows, formula, radix, value)
            for rows in (slice(0, self.n_ends), slice(self.n_ends, None))
        )
        if not len(ends.row):
            return np.zeros((0, 3), np.int64)
        linkers = _with_none(linkers)
        kinds = _kinds(linkers.code, ends.code, int(formula.array @ radix))
        rows = _best_first(kinds, linkers, ends)
        return rows[np.argsort(-self._exact(rows, log_odds), kind="stable")[:_MADE]]

    def _fitting(
        self,
        rows: slice,
        formula: Formula,
        radix: NDArray[np.int64],
        value: NDArray[np.float64],
    ) -> _Fitting:
        fits = np.flatnonzero((self.counts[rows] <= formula.array).all(1)) + (rows.start or 0)
        code = self.counts[fits].astype(np.int64) @ radix
        order = np.lexsort((-value[fits], code))
        kinds, start, size = np.unique(code[order], return_index=True, return_counts=True)
        return _Fitting(fits[order], value[fits[order]], kinds, start, np.minimum(size, _OF_A_KIND))

    def _exact(self, rows: NDArray[np.int64], log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-odds of the bits of the blocks in each row (K, 3), each bit once; (K,)."""
        owner, of_block = np.nonzero(rows >= 0)
        block = rows[owner, of_block]
        length = self.n_bits[block].astype(np.int64)
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        bit = self.bits[np.repeat(self._starts[block], length) + within]
        key = np.sort((np.repeat(owner, length) * FINGERPRINT_BITS + bit).astype(np.int32))
        once = key[np.diff(key, prepend=-1) > 0]
        total = np.bincount(once // FINGERPRINT_BITS, log_odds[once % FINGERPRINT_BITS], len(rows))
        return np.asarray(total + np.bincount(owner, self.worth[block], len(rows)))


_ARRAYS: Final = ("smiles", "counts", "seen", "n_bits", "bits")
NO_BLOCKS: Final = BuildingBlocks(
    (),
    np.zeros((0, N_ELEMENTS), np.uint8),
    np.zeros(0, np.int32),
    np.zeros(0, np.uint16),
    np.zeros(0, np.uint16),
)


def _key(smiles: str) -> int:
    digest = hashlib.blake2b(smiles.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


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


def _kinds(linkers: NDArray[np.int64], ends: NDArray[np.int64], whole: int) -> NDArray[np.int64]:
    """Kinds of a linker and two ends whose codes sum up to the whole, (Q, 3)."""
    found = []
    for number, code in enumerate(linkers.tolist()):
        wanted = whole - code - ends
        other = np.searchsorted(ends, wanted).clip(max=len(ends) - 1)
        first = np.flatnonzero((ends[other] == wanted) & (np.arange(len(ends)) <= other))
        found.append(np.stack([np.full(len(first), number), first, other[first]], 1))
    return np.concatenate(found)


def _best_first(kinds: NDArray[np.int64], linkers: _Fitting, ends: _Fitting) -> NDArray[np.int64]:
    """Rows of the likeliest of all kinds, several times as many as are made, (K, 3)."""
    bound = linkers.best[kinds[:, 0]] + ends.best[kinds[:, 1]] + ends.best[kinds[:, 2]]
    values, rows, least = np.zeros(0), np.zeros((0, 3), np.int64), -np.inf
    most = _LISTED * _MADE
    for kind in np.argsort(-bound, kind="stable").tolist():
        if bound[kind] <= least:
            break
        linker, one, other = kinds[kind]
        places = linkers.of_kind(linker), ends.of_kind(one), ends.of_kind(other)
        sides = linkers, ends, ends
        value = [side.value[place] for side, place in zip(sides, places, strict=True)]
        total = value[0][:, None, None] + value[1][:, None] + value[2]
        chosen = np.nonzero(total > least)
        values = np.append(values, total[chosen])
        row = [s.row[p][at] for s, p, at in zip(sides, places, chosen, strict=True)]
        rows = np.concatenate([rows, np.stack(row, 1)])
        if len(values) > 2 * most:
            best = np.argpartition(-values, most)[:most]
            values, rows = values[best], rows[best]
            least = values.min()
    return rows[np.argsort(-values, kind="stable")[:most]]
