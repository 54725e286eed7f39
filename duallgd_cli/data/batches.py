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

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.model.duallgd import MIN_PROBABILITY, Condition
from duallgd_cli.spectra.annotation import index_ranges

_ANALOGUE_SHARE: Final = 0.25
_LEAST_LOGIT: Final = math.log(MIN_PROBABILITY / (1 - MIN_PROBABILITY))
_DRAWS: Final = 1 << 20


@dataclass(frozen=True, eq=False)
class BondGraph:
    """Clean graphs of a batch."""

    bond_class: Tensor  # int64 (B, M), none at padding
    pair_mask: Tensor  # real pairs, bool (B, M)


@dataclass(frozen=True)
class BatchPlan:
    """Which molecules are trained on together."""

    pairs_per_batch: int  # budget of atom pairs, padding included
    bucket: int  # sizes are padded up to a multiple of this; 1 keeps every batch free of padding
    seed: int  # random seed of the order

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
    """How the true fingerprint is corrupted while the decoder learns, to look like a predicted one.

    Measured on predicted fingerprints of molecules that the encoder never saw: the logit of a true
    bit is about the logit of its frequency plus a quality that the molecule's bits share, low for
    three molecules in four and high where the encoder knows something alike. A rare bit is thus
    mostly lost, not softened. False bits follow their frequency; fewer come with high quality.
    """

    clean_share: float  # molecules whose fingerprint stays as it is
    # False bits drawn, with repeats, where quality is low; a third of them is likely enough to be
    # kept.
    false_bits: float


class MoleculeCollator:
    """Turns molecules into tensors; a function of the molecules and a generator alone.

    Without noise fingerprints stay as they are. Of a share of the molecules, atoms are relabelled
    at random within an element.
    """

    def __init__(
        self, molecules: Molecules, noise: ConditionNoise | None, shuffle_share: float = 0.0
    ) -> None:
        self.molecules = molecules
        self.noise = noise
        self.shuffle_share = shuffle_share
        sample = molecules.bits[:5_000_000]
        frequency = np.bincount(sample, minlength=int(sample.max(initial=0)) + 1)
        n_sampled = max(1, int(np.searchsorted(molecules.bit_offset, len(sample))))
        share = np.clip(frequency / n_sampled, 1e-4, 1 - 1e-4)
        self.bit_logit = np.log(share) - np.log1p(-share)
        # False bits by inverse CDF from a table, which is ten times faster than a search.
        cdf = np.cumsum(frequency**0.7) / max((frequency**0.7).sum(), 1e-9)
        self.false_bit = np.searchsorted(cdf, (np.arange(_DRAWS) + 0.5) / _DRAWS)

    def graphs(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> BondGraph:
        """Clean bond classes padded to `size` atoms."""
        molecules = self.molecules
        offset = molecules.bond_offset
        owner, index = index_ranges(offset[rows], offset[rows + 1])
        one, other = molecules.bond_pair[index].T.astype(np.int64)
        square = np.zeros((len(rows), size, size), np.int64)
        square[owner, one, other] = square[owner, other, one] = molecules.bond_type[index]
        if self.shuffle_share:
            # Atoms in a new order within each element, random for some molecules.
            atom_class, is_atom, *_ = self.formula(rows, size)
            shuffled = generator.random((len(rows), 1)) < self.shuffle_share
            key = np.where(shuffled, generator.random((len(rows), size)), np.arange(size) / size)
            order = np.argsort(2 * np.where(is_atom, atom_class, N_HEAVY) + key, 1)
            square = square[np.arange(len(rows))[:, None, None], order[:, :, None], order[:, None]]
        first, second = np.triu_indices(size, 1)
        mask = second < molecules.n_heavy[rows][:, None]
        return BondGraph(torch.from_numpy(square[:, first, second]), torch.from_numpy(mask))

    def condition(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> Condition:
        """Formula and (corrupted) fingerprint, padded to `size` atoms."""
        offset = self.molecules.bit_offset
        owner, index = index_ranges(offset[rows], offset[rows + 1])
        bit = self.molecules.bits[index].astype(np.int64)
        parts = [(owner, bit, np.zeros(len(bit)))]
        if self.noise is not None:
            parts = self._corrupted(self.noise, len(rows), owner, bit, generator)
        counts = [np.bincount(owner, minlength=len(rows)) for owner, _, _ in parts]
        width = max(1, int(np.sum(counts, axis=0).max(initial=0)))
        bits = np.zeros((len(rows), width), np.int64)
        log_prob = np.full((len(rows), width), -np.inf, np.float32)
        before = np.zeros(len(rows), np.int64)
        for (owner, bit, value), count in zip(parts, counts, strict=True):
            _, position = index_ranges(before, before + count)
            bits[owner, position], log_prob[owner, position] = bit, value
            before += count
        known = torch.from_numpy(bits), torch.from_numpy(log_prob)
        return Condition(*self.formula(rows, size), *known)

    def formula(self, rows: NDArray[np.int64], size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """atom_class, atom_mask, formula and charge of a `Condition`."""
        counts = np.asarray(self.molecules.atom_counts[rows])
        mask = np.arange(size) < self.molecules.n_heavy[rows][:, None]
        atom_class = np.zeros((len(rows), size), np.int64)
        elements = np.tile(np.arange(N_HEAVY), len(rows))
        atom_class[mask] = np.repeat(elements, counts[:, :N_HEAVY].ravel())
        return (
            torch.from_numpy(atom_class),
            torch.from_numpy(mask),
            torch.from_numpy(counts.astype(np.float32)),
            torch.from_numpy(self.molecules.charge[rows].astype(np.float32)),
        )

    def _corrupted(
        self,
        noise: ConditionNoise,
        n_molecules: int,
        owner: NDArray[np.int64],
        bit: NDArray[np.int64],
        generator: np.random.Generator,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
        """Molecule, bit and log-probability of true bits and of false ones."""
        clean = generator.random(n_molecules) < noise.clean_share
        known = generator.random(n_molecules) < _ANALOGUE_SHARE
        alike = generator.uniform(2.0, 10.0, n_molecules)
        quality = np.where(known, alike, generator.normal(0.6, 1.2, n_molecules))
        logit = 0.8 * self.bit_logit[bit] + quality[owner] + generator.normal(0.0, 1.8, len(bit))
        logit[clean[owner]] = np.inf
        n_false = generator.poisson(noise.false_bits * np.exp(-np.maximum(quality, 0.0) / 6))
        n_false[clean] = 0
        drawn = self.false_bit[generator.integers(0, _DRAWS, n_false.sum())]
        present = np.zeros((n_molecules, len(self.bit_logit)), bool)
        present[np.repeat(np.arange(n_molecules), n_false), drawn] = True
        present[owner, bit] = False
        false_owner, false_bit = np.nonzero(present)
        softened = generator.normal(-2.4, 1.4, len(false_bit)) + 0.28 * self.bit_logit[false_bit]
        parts = (owner, bit, logit), (false_owner, false_bit, softened)
        # What is too unlikely goes first: the logarithm is the costliest part.
        seen = [value >= _LEAST_LOGIT for _, _, value in parts]
        return [
            (molecule[kept], number[kept], -np.logaddexp(0.0, -value[kept]))
            for (molecule, number, value), kept in zip(parts, seen, strict=True)
        ]
