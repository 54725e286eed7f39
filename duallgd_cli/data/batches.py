"""Training batches of molecules: similar sizes together, within a budget of atom pairs.

Letters: B graphs, N atoms (padded), M pairs, K fingerprint bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.data.imitation import Imitation
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.model.duallgd import Condition, keep_bits
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.spectra.annotation import index_ranges

_KEPT: Final = ModelSettings().memory_bits  # as in use


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


class MoleculeCollator:
    """Turns molecules into tensors; a function of the molecules and a generator alone.

    Without an imitation of predictions fingerprints are the true ones. Of a share of the molecules,
    atoms are relabelled at random within an element.
    """

    def __init__(
        self, molecules: Molecules, imitation: Imitation | None, shuffle_share: float = 0.0
    ) -> None:
        self.molecules, self.imitation, self.shuffle_share = molecules, imitation, shuffle_share

    def graphs(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Bond classes padded to `size` atoms, int64 (B, M), and which pairs are real, bool."""
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
        return torch.from_numpy(square[:, first, second]), torch.from_numpy(mask)

    def condition(
        self, rows: NDArray[np.int64], size: int, generator: np.random.Generator
    ) -> Condition:
        """Formula and fingerprint, true or imitated, padded to `size` atoms."""
        formula = self.formula(rows, size)
        if self.imitation is not None:
            return Condition(*formula, *keep_bits(self.imitation(rows, generator), _KEPT))
        offset = self.molecules.bit_offset
        owner, index = index_ranges(offset[rows], offset[rows + 1])
        n_bits = offset[rows + 1] - offset[rows]
        _, position = index_ranges(np.zeros_like(n_bits), n_bits)
        bits = np.zeros((len(rows), max(1, int(n_bits.max(initial=0)))), np.int64)
        log_prob = np.full(bits.shape, -np.inf, np.float32)
        bits[owner, position], log_prob[owner, position] = self.molecules.bits[index], 0.0
        return Condition(*formula, torch.from_numpy(bits), torch.from_numpy(log_prob))

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
