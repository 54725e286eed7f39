"""The stage that trains the denoiser: bond graphs, by fingerprints as an encoder predicts them.

Similar sizes come together, within a budget of atom pairs. Letters: B graphs, N atoms (padded),
M pairs, K fingerprint bits, C bond classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.data.imitation import Imitation, neighbours
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.diffusion.sampler import alpha_bar, corrupt
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.duallgd import Condition, DualLGD, keep_bits
from duallgd_cli.model.settings import ModelSettings
from duallgd_cli.model.tensors import Movable, constants
from duallgd_cli.spectra.annotation import index_ranges
from duallgd_cli.train.settings import TrainingSettings

NLL_STEPS: Final = (50, 150, 250, 350, 500)
_VALIDATION_MOLECULES: Final = 256
# Of so many steps each further collection has one: often enough for a few thousand large molecules
# to count among hundreds of thousands, seldom enough not to learn them by heart.
_ROUND: Final = 10
_KEPT: Final = ModelSettings().memory_bits  # as in use
Planned = tuple[NDArray[np.int64], int]


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
        order = order[np.argsort(self.padded(n_heavy[order]), kind="stable")]
        sizes, start = np.unique(self.padded(n_heavy[order]), return_index=True)
        batches: list[NDArray[np.int64]] = []
        for size, members in zip(sizes.tolist(), np.split(order, start[1:]), strict=True):
            most = max(1, self.pairs_per_batch // max(1, size * (size - 1) // 2))
            batches += np.array_split(members, -(-len(members) // most))
        return [batches[i] for i in generator.permutation(len(batches))]

    def padded(self, n_heavy: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sizes rounded up to the bucket."""
        return -(-n_heavy // self.bucket) * self.bucket

    def stream(
        self, n_heavy: NDArray[np.int64], first: int, rank: int = 0, world_size: int = 1
    ) -> Iterator[NDArray[np.int64]]:
        """Batches from step `first` on, for ever; ranks take turns within a step."""
        batches = (batch for epoch in count() for batch in self.epoch(n_heavy, epoch))
        yield from islice(batches, first * world_size + rank, None, world_size)


@dataclass(frozen=True, eq=False)
class GraphBatch(Movable):
    """What a step of the denoiser needs, on one device."""

    bond_class: Tensor  # clean classes, int64 (B, M), none at padding
    pair_mask: Tensor  # real pairs, bool (B, M)
    condition: Condition  # what is known of each
    level: Tensor  # noise level as a share of all steps, in [0, 1), float64 (B,)
    uniform: Tensor  # uniform numbers for the noise, float32 (B, M)

    @property
    def n_samples(self) -> int:
        """B."""
        return len(self.level)


@dataclass(frozen=True, eq=False)
class MoleculeCollator:
    """Turns molecules into tensors; a function of the molecules and a generator alone."""

    molecules: Molecules
    imitation: Imitation | None  # of predictions; fingerprints are the true ones without it

    def batch(self, planned: Planned, generator: np.random.Generator) -> GraphBatch:
        """Molecules of one padded size as graphs, conditions and the noise to add."""
        rows, size = planned
        bond_class, pair_mask = self.graphs(rows, size)
        condition = self.condition(rows, size, generator)
        # A stratum of noise levels for each graph, which varies less than a draw.
        level = (generator.permutation(len(rows)) + generator.random(len(rows))) / len(rows)
        uniform = torch.from_numpy(generator.random(bond_class.shape, np.float32))
        return GraphBatch(bond_class, pair_mask, condition, torch.from_numpy(level), uniform)

    def graphs(self, rows: NDArray[np.int64], size: int) -> tuple[Tensor, Tensor]:
        """Bond classes padded to `size` atoms, int64 (B, M), and which pairs are real, bool."""
        molecules = self.molecules
        offset = molecules.bond_offset
        owner, index = index_ranges(offset[rows], offset[rows + 1])
        one, other = molecules.bond_pair[index].T.astype(np.int64)
        square = np.zeros((len(rows), size, size), np.int64)
        square[owner, one, other] = square[owner, other, one] = molecules.bond_type[index]
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
        owner, set_bits = self.molecules.bits_of(rows)
        position = np.arange(len(owner)) - np.searchsorted(owner, owner)
        bits = np.zeros((len(rows), 1 + position.max(initial=0)), np.int64)
        log_prob = np.full(bits.shape, -np.inf, np.float32)
        bits[owner, position], log_prob[owner, position] = set_bits, 0.0
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


def bond_loss(model: DualLGD, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Noise clean graphs and score the denoiser's guess of the clean classes.

    Returns:
        Summed cross entropy over real pairs, and their number, both scalars.
    """
    diffusion, clean, mask = model.settings.diffusion, batch.bond_class, batch.pair_mask
    t = (1 + torch.floor(batch.level * diffusion.n_steps).long()).clamp_max(diffusion.n_steps)
    share = alpha_bar(diffusion.n_steps, t.device)[t]
    marginal = constants(diffusion.marginal, t.device)
    noisy = torch.where(mask, corrupt(clean, share, marginal, batch.uniform), 0)
    logits = model.denoiser(noisy, t, model.denoiser.context(batch.condition))
    losses = cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="none")
    return (losses * mask.flatten()).sum(), mask.sum()


class DecoderStage:
    """Batches of the molecules of fold train of a collection, those of like size together.

    The ranks are this process, from 0, and the number of processes. With the molecules' neighbours
    predictions are imitated; None looks for them. Held-out molecules are what is judged by, where
    the collection has none of fold dev or val.
    """

    def __init__(
        self,
        molecules: Molecules,
        settings: TrainingSettings,
        ranks: tuple[int, int] = (0, 1),
        alike: NDArray[np.int32] | None = None,
        held_out: Molecules | None = None,
    ) -> None:
        data = settings.data

        def rows_of(some: Molecules, *folds: str) -> NDArray[np.int64]:
            fits = (some.n_heavy <= data.max_atoms) & (some.n_heavy >= 2)
            return np.flatnonzero(fits & some.in_folds(*folds))

        self.molecules, self.settings, self.ranks = molecules, settings, ranks
        self.rows = rows_of(molecules, "train")
        if not len(self.rows):
            raise UnreadableError(
                "the prepared data hold no molecule of fold train of at most "
                f"{data.max_atoms} heavy atoms"
            )
        if alike is None:
            alike = neighbours(molecules, torch.device("cpu"))
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, settings.seed)
        imitation = Imitation(molecules, alike, data.clean_share)
        self.collator = MoleculeCollator(molecules, imitation)
        generator = np.random.default_rng(settings.seed)
        self.held_out = molecules
        if held_out is not None and not molecules.in_folds("dev", "val").any():
            self.held_out = held_out
        chosen = rows_of(self.held_out, "dev", "val")
        self.validation_rows = np.sort(generator.permutation(chosen)[:_VALIDATION_MOLECULES])

    loss = staticmethod(bond_loss)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Rows of molecules and padded size of each step, from a step on."""
        sizes = self.molecules.n_heavy[self.rows]
        for members in self.plan_of.stream(sizes, first_step, *self.ranks):
            yield self.rows[members], int(self.plan_of.padded(sizes[members]).max())

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Graphs, conditions and noise of one step: a function of seed, step and rank."""
        generator = np.random.default_rng((self.settings.seed, step, self.ranks[0]))
        return self.collator.batch(planned, generator)

    @torch.no_grad()
    def validate(self, model: DualLGD) -> dict[str, float]:
        """Mean cross entropy per pair at fixed noise levels, true fingerprints given.

        Figures are called ``nll_`` and the noise level; there are none where no molecule is held
        out. The noise is always the same.
        """
        rows, molecules, plan = self.validation_rows, self.held_out, self.plan_of
        if not len(rows):
            return {}
        device, clean = next(model.parameters()).device, MoleculeCollator(molecules, None)
        n_steps = model.settings.diffusion.n_steps
        steps = [t for t in NLL_STEPS if t <= n_steps]
        totals = torch.zeros(len(steps), 2)
        for number, members in enumerate(plan.epoch(molecules.n_heavy[rows], 0)):
            size = int(plan.padded(molecules.n_heavy[rows[members]]).max())
            generator = np.random.default_rng((7, number))
            batch = clean.batch((rows[members], size), generator).to(device)
            for t, total in zip(steps, totals, strict=True):
                noised = replace(batch, level=torch.full_like(batch.level, (t - 0.5) / n_steps))
                total += torch.stack(bond_loss(model, noised)).cpu()
        return {f"nll_{t}": float(of[0] / of[1]) for t, of in zip(steps, totals, strict=True)}


class InTurns:
    """Collections that are trained on in turns: most steps on the first, one in ten on each other.

    So a small one counts beside a large one.
    """

    def __init__(self, stages: Sequence[DecoderStage]) -> None:
        self.stages = stages
        others = [*range(1, len(stages))]
        self.turns = [0] * max(1, _ROUND - len(others)) + others
        self.validate = stages[0].validate

    loss = staticmethod(bond_loss)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Rows of molecules, and their padded size, of whose turn it is."""
        rounds, rest = divmod(first_step, len(self.turns))
        streams = [
            stage.plan(rounds * self.turns.count(n) + self.turns[:rest].count(n))
            for n, stage in enumerate(self.stages)
        ]
        for step in count(first_step):
            yield next(streams[self.turns[step % len(self.turns)]])

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Graphs of whose turn it is: a function of seed, step and rank."""
        return self.stages[self.turns[step % len(self.turns)]].collate(planned, step)
