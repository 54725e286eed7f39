"""Training batches of molecules: similar sizes together, within a budget of atom pairs.

Letters: B graphs, N atoms (padded), M pairs, K fingerprint bits.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.data.prepared import Molecules, pair_index
from duallgd_cli.model.condition import MIN_PROBABILITY, Condition

_ANALOGUE_SHARE: Final = 0.25
_LEAST_LOG_PROB: Final = math.log(MIN_PROBABILITY)


@dataclass(frozen=True, eq=False)
class BondGraph:
    """Clean graphs of a batch.

    Attributes:
        bond_class: int64 (B, M), none at padding.
        pair_mask: Real pairs, bool (B, M).
    """

    bond_class: Tensor
    pair_mask: Tensor


@dataclass(frozen=True)
class BatchPlan:
    """Which molecules are trained on together.

    Attributes:
        pairs_per_batch: Budget of atom pairs, padding included.
        bucket: Sizes are padded up to a multiple of this; 1 keeps every batch free of padding.
        seed: Of the order.
    """

    pairs_per_batch: int
    bucket: int
    seed: int

    def epoch(self, n_heavy: NDArray[np.int64], epoch: int) -> list[NDArray[np.int64]]:
        """Batches of one pass, each an array of positions into `n_heavy`.

        The order depends on nothing but the seed and the epoch, so a run resumes by skipping.
        """
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(n_heavy))
        padded = self.padded(n_heavy[order])
        order = order[np.argsort(padded, kind="stable")]
        batches: list[NDArray[np.int64]] = []
        sizes, counts = np.unique(self.padded(n_heavy), return_counts=True)
        start = 0
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            most = max(1, self.pairs_per_batch // max(1, size * (size - 1) // 2))
            members = order[start : start + count]
            batches += np.array_split(members, -(-count // most))
            start += count
        return [batches[i] for i in generator.permutation(len(batches))]

    def padded(self, n_heavy: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sizes rounded up to the bucket."""
        return -(-n_heavy // self.bucket) * self.bucket

    def stream(
        self, n_heavy: NDArray[np.int64], first: int, rank: int = 0, world_size: int = 1
    ) -> Iterator[NDArray[np.int64]]:
        """Batches from step `first` on, for ever; ranks take turns within a step."""
        epoch, skip = 0, first * world_size + rank
        while True:
            batches = self.epoch(n_heavy, epoch)
            while skip < len(batches):
                yield batches[skip]
                skip += world_size
            skip -= len(batches)
            epoch += 1


@dataclass(frozen=True)
class ConditionNoise:
    """How the true fingerprint is spoilt while the decoder learns, to look like a predicted one.

    Measured on predicted fingerprints of molecules that the encoder never saw: the logit of a true
    bit is about the logit of its frequency plus a quality that the molecule's bits share, low for
    three molecules in four and high where the encoder knows something alike. A rare bit is thus
    mostly lost, not doubted. False bits follow their frequency; fewer come with high quality.

    Attributes:
        clean_share: Molecules whose fingerprint stays as it is.
        false_bits: False bits drawn, with repeats, where quality is low; a third of them is likely
            enough to be kept.
    """

    clean_share: float = 0.15
    false_bits: float = 450.0

    def quality(self, generator: np.random.Generator) -> float:
        """What is added to the logits of one molecule's true bits."""
        if generator.random() < _ANALOGUE_SHARE:
            return float(generator.uniform(2.0, 10.0))
        return float(generator.normal(0.6, 1.2))


class MoleculeCollator:
    """Turns molecules into tensors; a function of the molecules and a generator alone.

    Args:
        molecules: Prepared molecules.
        noise: How to spoil fingerprints; None keeps them.
        shuffle_share: Share of molecules whose atoms are relabelled at random within an element.
    """

    def __init__(
        self, molecules: Molecules, noise: ConditionNoise | None, shuffle_share: float = 0.0
    ) -> None:
        self.molecules = molecules
        self.noise = noise
        self.shuffle_share = shuffle_share
        sample = molecules.bits[:5_000_000]
        frequency = np.bincount(sample, minlength=int(sample.max(initial=0)) + 1) ** 0.7
        self.bit_cdf = np.cumsum(frequency) / max(frequency.sum(), 1e-9)
        n_sampled = max(1, int(np.searchsorted(molecules.bit_offset, len(sample))))
        share = np.bincount(sample, minlength=len(frequency)) / n_sampled
        share = np.clip(share, 1e-4, 1 - 1e-4)
        self.bit_logit = np.log(share) - np.log1p(-share)

    def graphs(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> BondGraph:
        """Clean bond classes padded to `size` atoms."""
        n_pairs = size * (size - 1) // 2
        bond_class = np.zeros((len(rows), n_pairs), np.int64)
        mask = np.zeros((len(rows), n_pairs), bool)
        high = np.triu_indices(size, 1)[1]
        for b, row in enumerate(rows.tolist()):
            start, stop = self.molecules.bond_offset[row : row + 2]
            pair = self.molecules.bond_pair[start:stop].astype(np.int64)
            if self.shuffle_share and generator.random() < self.shuffle_share:
                pair = np.sort(self._relabel(row, generator)[pair], 1)
            bond_class[b, pair_index(pair[:, 0], pair[:, 1], size)] = self.molecules.bond_type[
                start:stop
            ]
            mask[b] = high < self.molecules.n_heavy[row]
        return BondGraph(torch.from_numpy(bond_class), torch.from_numpy(mask))

    def condition(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> Condition:
        """Formula and (spoilt) fingerprint, padded to `size` atoms."""
        bits = [self._bits(row, generator) for row in rows.tolist()]
        width = max(1, *(len(index) for index, _ in bits))
        bit = np.zeros((len(rows), width), np.int64)
        log_prob = np.full((len(rows), width), -np.inf, np.float32)
        for b, (index, value) in enumerate(bits):
            bit[b, : len(index)] = index
            log_prob[b, : len(index)] = value
        spoilt = torch.from_numpy(bit), torch.from_numpy(log_prob)
        return Condition(*self.formula(rows, size), *spoilt)

    def formula(self, rows: NDArray[np.int64], size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """atom_class, atom_mask, formula and charge of a `Condition`."""
        atom_class = np.zeros((len(rows), size), np.int64)
        n = self.molecules.n_heavy[rows]
        for b, row in enumerate(rows.tolist()):
            atom_class[b, : n[b]] = self.molecules.atom_class(row)
        return (
            torch.from_numpy(atom_class),
            torch.from_numpy(np.arange(size) < n[:, None]),
            torch.from_numpy(self.molecules.atom_counts[rows].astype(np.float32)),
            torch.from_numpy(self.molecules.charge[rows].astype(np.float32)),
        )

    def _relabel(self, row: int, generator: np.random.Generator) -> NDArray[np.int64]:
        element = self.molecules.atom_class(row)
        order = np.lexsort((generator.random(len(element)), element))
        new = np.empty_like(order)
        new[order] = np.arange(len(order))
        return new

    def _bits(
        self, row: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        true = self.molecules.fingerprint_bits(row).astype(np.int64)
        if self.noise is None or generator.random() < self.noise.clean_share:
            return true, np.zeros(len(true), np.float32)
        quality = self.noise.quality(generator)
        logit = 0.8 * self.bit_logit[true] + quality + generator.normal(0.0, 1.8, len(true))
        n_false = generator.poisson(self.noise.false_bits * np.exp(-max(quality, 0.0) / 6))
        false = np.searchsorted(self.bit_cdf, generator.random(n_false))
        false = np.setdiff1d(false, true)
        doubt = generator.normal(-2.4, 1.4, len(false)) + 0.28 * self.bit_logit[false]
        both = np.concatenate([true, false])
        value = -np.logaddexp(0, -np.concatenate([logit, doubt]))
        seen = value >= _LEAST_LOG_PROB
        return both[seen], value[seen].astype(np.float32)
