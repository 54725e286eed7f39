"""The decoder stage: denoise bond graphs given a (spoilt) true fingerprint.

Letters: B graphs, M pairs, C bond classes.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from duallgd_cli.data.batches import BatchPlan, BondGraph, ConditionNoise, MoleculeCollator
from duallgd_cli.data.prepared import FOLDS, Molecules
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.diffusion.transition import corrupt
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.condition import Condition
from duallgd_cli.model.denoiser import Denoiser
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.training.settings import TrainingSettings

NLL_STEPS: Final = (50, 150, 250, 350, 500)
_VALIDATION_MOLECULES: Final = 256


class DecoderStage:
    """Batches and losses of fingerprint-conditioned generation.

    Args:
        molecules: Prepared molecules; fold train is trained on, fold dev (or val) looked at.
        settings: Of the run.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self, molecules: Molecules, settings: TrainingSettings, rank: int = 0, world_size: int = 1
    ) -> None:
        data = settings.data
        fits = (molecules.n_heavy <= data.max_atoms) & (molecules.n_heavy >= 2)
        self.rows = np.flatnonzero(fits & (molecules.fold == FOLDS.index("train")))
        if not len(self.rows):
            raise UnreadableError("the prepared data hold no molecule of fold train")
        self.settings = settings
        self.rank, self.world_size = rank, world_size
        self.molecules = molecules
        self.plan = BatchPlan(data.pairs_per_batch, data.bucket, settings.seed)
        noise = ConditionNoise(data.clean_share, data.false_bits)
        self.collator = MoleculeCollator(molecules, noise, data.shuffle_share)
        held_out = (molecules.fold == FOLDS.index("dev")) | (molecules.fold == FOLDS.index("val"))
        generator = np.random.default_rng(settings.seed)
        chosen = np.flatnonzero(fits & held_out)
        self.validation_rows = np.sort(generator.permutation(chosen)[:_VALIDATION_MOLECULES])

    def batches(self, first_step: int) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Molecules and padded size of each step, from a step on."""
        sizes = self.molecules.n_heavy[self.rows]
        for members in self.plan.stream(sizes, first_step, self.rank, self.world_size):
            rows = self.rows[members]
            yield rows, int(self.plan.padded(self.molecules.n_heavy[rows]).max())

    def loss(
        self, model: DualLGD, batch: tuple[NDArray[np.int64], int], step: int
    ) -> tuple[Tensor, Tensor]:
        """Summed cross entropy over the real pairs, and how many there are."""
        rows, size = batch
        device = next(model.parameters()).device
        generator = np.random.default_rng((self.settings.seed, step, self.rank))
        graph = self.collator.graphs(rows, size, generator)
        condition = self.collator.condition(rows, size, generator).to(device)
        n_steps = model.settings.diffusion.n_steps
        t = noise_steps(len(rows), n_steps, generator)
        uniform = torch.from_numpy(generator.random(graph.bond_class.shape, np.float32))
        return bond_loss(model.denoiser, model, graph, condition, t.to(device), uniform.to(device))

    @torch.no_grad()
    def validate(self, model: DualLGD) -> dict[str, float]:
        """Mean cross entropy per pair at fixed noise levels, true fingerprints given.

        Nothing where no molecule is held out.
        """
        if not len(self.validation_rows):
            return {}
        device = next(model.parameters()).device
        clean = MoleculeCollator(self.molecules, None)
        n_steps = model.settings.diffusion.n_steps
        totals = {t: torch.zeros(2) for t in NLL_STEPS if t <= n_steps}
        sizes = self.molecules.n_heavy[self.validation_rows]
        for number, members in enumerate(self.plan.epoch(sizes, 0)):
            generator = np.random.default_rng((7, number))
            rows = self.validation_rows[members]
            size = int(self.plan.padded(self.molecules.n_heavy[rows]).max())
            graph = clean.graphs(rows, size, generator)
            condition = clean.condition(rows, size, generator).to(device)
            uniform = torch.from_numpy(generator.random(graph.bond_class.shape, np.float32))
            for t, total in totals.items():
                steps = torch.full((len(rows),), t, device=device)
                summed, count = bond_loss(
                    model.denoiser, model, graph, condition, steps, uniform.to(device)
                )
                total += torch.stack([summed, count]).cpu()
        return {f"nll_{t}": float(total[0] / total[1]) for t, total in totals.items()}


def noise_steps(n_graphs: int, n_steps: int, generator: np.random.Generator) -> Tensor:
    """Steps t in 1..T, int64 (B,); one stratum for each graph, which varies less than a draw."""
    strata = (generator.permutation(n_graphs) + generator.random(n_graphs)) / n_graphs
    return torch.from_numpy(1 + np.floor(strata * n_steps).astype(np.int64)).clamp_max(n_steps)


def bond_loss(
    denoiser: Denoiser,
    model: DualLGD,
    graph: BondGraph,
    condition: Condition,
    t: Tensor,
    uniform: Tensor,
) -> tuple[Tensor, Tensor]:
    """Noise clean graphs to step t and score the denoiser's guess of the clean classes.

    Args:
        denoiser: The network.
        model: Whose settings hold the noise process.
        graph: Clean graphs.
        condition: On the device of t.
        t: Noise steps, int64 (B,).
        uniform: Uniform numbers for the noise, (B, M).

    Returns:
        Summed cross entropy over real pairs and their number, both scalars.
    """
    process = model.settings.diffusion
    clean, mask = graph.bond_class.to(t.device), graph.pair_mask.to(t.device)
    marginal = torch.tensor(process.marginal, device=t.device)
    share = alpha_bar(process.n_steps).to(t.device)[t]
    noisy = torch.where(mask, corrupt(clean, share, marginal, uniform), 0)
    logits = denoiser(noisy, t, denoiser.context(condition))
    losses = cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="none")
    return (losses * mask.flatten()).sum(), mask.sum()
