"""The decoder stage: denoise bond graphs given a (corrupted) true fingerprint.

Letters: B graphs, M pairs, C bond classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from duallgd_cli.data.batches import BatchPlan, BondGraph, ConditionNoise, MoleculeCollator
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.diffusion.process import alpha_bar, corrupt
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.denoiser import KNOWN, Condition
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.train.encoder import SpectrumBatch
from duallgd_cli.train.settings import TrainingSettings

NLL_STEPS: Final = (50, 150, 250, 350, 500)
_VALIDATION_MOLECULES: Final = 256
Planned = tuple[NDArray[np.int64], int]


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """What a decoder step needs, on one device.

    Attributes:
        graph: Clean graphs.
        condition: What is known of each.
        level: Noise level as a share of all steps, in [0, 1), float64 (B,).
        uniform: Uniform numbers for the noise, float32 (B, M).
        spectra: Spectra of the same molecules, where the fingerprints in `condition`, which are the
            true ones, give way to those predicted from them.
    """

    graph: BondGraph
    condition: Condition
    level: Tensor
    uniform: Tensor
    spectra: SpectrumBatch | None = None

    @property
    def n_samples(self) -> int:
        """B."""
        return len(self.level)


class DecoderStage:
    """Batches and losses of fingerprint-conditioned generation.

    Args:
        molecules: Prepared molecules; fold train is trained on, fold dev (or val) looked at.
        settings: Settings of the run.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self, molecules: Molecules, settings: TrainingSettings, rank: int = 0, world_size: int = 1
    ) -> None:
        data = settings.data
        fits = (molecules.n_heavy <= data.max_atoms) & (molecules.n_heavy >= 2)
        self.rows = np.flatnonzero(fits & molecules.in_folds("train"))
        if not len(self.rows):
            raise UnreadableError("the prepared data hold no molecule of fold train")
        self.settings = settings
        self.rank, self.world_size = rank, world_size
        self.molecules = molecules
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, settings.seed)
        noise = ConditionNoise(data.clean_share, data.false_bits)
        self.collator = MoleculeCollator(molecules, noise, data.shuffle_share, data.core_share)
        held_out = molecules.in_folds("dev", "val")
        generator = np.random.default_rng(settings.seed)
        chosen = np.flatnonzero(fits & held_out)
        self.validation_rows = np.sort(generator.permutation(chosen)[:_VALIDATION_MOLECULES])

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Molecules and padded size of each step, from a step on."""
        sizes = self.molecules.n_heavy[self.rows]
        for members in self.plan_of.stream(sizes, first_step, self.rank, self.world_size):
            rows = self.rows[members]
            yield rows, int(self.plan_of.padded(self.molecules.n_heavy[rows]).max())

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Graphs, conditions and noise of one step: a function of seed, step and rank."""
        generator = np.random.default_rng((self.settings.seed, step, self.rank))
        return graph_batch(self.collator, planned, generator)

    def loss(self, model: DualLGD, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Summed cross entropy over the real pairs, and how many there are."""
        return graph_loss(model, batch)

    def validate(self, model: DualLGD) -> dict[str, float]:
        """Mean cross entropy per pair, true fingerprints given; see `held_out_nll`."""
        return held_out_nll(model, self.molecules, self.validation_rows, self.plan_of, "nll")


@torch.no_grad()
def held_out_nll(
    model: DualLGD,
    molecules: Molecules,
    rows: NDArray[np.int64],
    plan: BatchPlan,
    name: str,
    told: Callable[[NDArray[np.int64], Condition], Condition] = lambda indices, known: known,
) -> dict[str, float]:
    """Mean cross entropy per pair at fixed noise levels; nothing where no molecule is held out.

    Args:
        model: To judge.
        molecules: Prepared.
        rows: Rows of the molecules to judge, with noise that is always the same.
        plan: Size of batches.
        name: What the figures are called, with the noise level behind it.
        told: What the denoiser is told, from indices into `rows` of a batch's molecules and their
            formulas with true fingerprints.
    """
    if not len(rows):
        return {}
    device, clean = next(model.parameters()).device, MoleculeCollator(molecules, None)
    levels = [t for t in NLL_STEPS if t <= model.settings.diffusion.n_steps]
    totals = torch.zeros(len(levels), 2)
    for number, members in enumerate(plan.epoch(molecules.n_heavy[rows], 0)):
        size = int(plan.padded(molecules.n_heavy[rows[members]]).max())
        batch = graph_batch(clean, (rows[members], size), np.random.default_rng((7, number)))
        batch = map_tensors(batch, lambda x: x.to(device))
        condition = told(members, batch.condition)
        for t, total in zip(levels, totals, strict=True):
            steps = torch.full((batch.n_samples,), t, device=device)
            loss = bond_loss(model, batch.graph, condition, steps, batch.uniform)
            total += torch.stack(loss).cpu()
    return {f"{name}_{t}": float(of[0] / of[1]) for t, of in zip(levels, totals, strict=True)}


def graph_loss(model: DualLGD, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Summed cross entropy over the real pairs of a batch, and how many there are."""
    t = noise_steps(batch.level, model.settings.diffusion.n_steps)
    return bond_loss(model, batch.graph, batch.condition, t, batch.uniform)


def graph_batch(
    collator: MoleculeCollator, planned: Planned, generator: np.random.Generator
) -> GraphBatch:
    """Molecules of one padded size as graphs, conditions and the noise to add."""
    rows, size = planned
    graph = collator.graphs(rows, size, generator)
    condition = collator.condition(rows, size, generator)
    level = noise_levels(len(rows), generator)
    uniform = torch.from_numpy(generator.random(graph.bond_class.shape, np.float32))
    return GraphBatch(graph, condition, level, uniform)


def noise_levels(n_graphs: int, generator: np.random.Generator) -> Tensor:
    """Uniform in [0, 1), float64 (B,); a stratum for each graph, which varies less than a draw."""
    strata = (generator.permutation(n_graphs) + generator.random(n_graphs)) / n_graphs
    return torch.from_numpy(strata)


def noise_steps(level: Tensor, n_steps: int) -> Tensor:
    """Steps t in 1..T, int64 (B,), of levels in [0, 1)."""
    return (1 + torch.floor(level * n_steps).long()).clamp_max(n_steps)


def bond_loss(
    model: DualLGD,
    graph: BondGraph,
    condition: Condition,
    t: Tensor,
    uniform: Tensor,
) -> tuple[Tensor, Tensor]:
    """Noise clean graphs to step t and score the denoiser's guess of the clean classes.

    Pairs whose class is given have no noise and no score.

    Args:
        model: Its denoiser guesses, its settings hold the noise process.
        graph: Clean graphs, on the device of t.
        condition: What is known of each graph, on the same device.
        t: Noise steps, int64 (B,).
        uniform: Uniform numbers for the noise, (B, M).

    Returns:
        Summed cross entropy over real pairs that are not given, and their number, both scalars.
    """
    clean, mask = graph.bond_class, graph.pair_mask & ~graph.is_known
    share, marginal = _process(model.settings.diffusion, t.device)
    noisy = torch.where(mask, corrupt(clean, share[t], marginal, uniform), 0)
    noisy = torch.where(graph.is_known, clean + KNOWN, noisy)
    logits = model.denoiser(noisy, t, model.denoiser.context(condition))
    losses = cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="none")
    return (losses * mask.flatten()).sum(), mask.sum()


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _process(settings: DiffusionSettings, device: torch.device) -> tuple[Tensor, Tensor]:
    """Signal share by step and bond marginal, copied to a device once: a copy waits for the GPU."""
    return alpha_bar(settings.n_steps).to(device), torch.tensor(settings.marginal, device=device)
