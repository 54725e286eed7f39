"""The joint stage: encoder and denoiser end to end on measured spectra.

Every other step goes on with structures and spoilt fingerprints, so that the denoiser does not
forget the many molecules that have no spectrum.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.data.batches import BatchPlan, MoleculeCollator
from duallgd_cli.data.peaks import augment, from_prepared, peak_batch
from duallgd_cli.data.prepared import Molecules, PreparedSpectra
from duallgd_cli.errors import UnreadableError
from duallgd_cli.model.condition import keep_bits
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.training.decoder import (
    DecoderStage,
    GraphBatch,
    Planned,
    bond_loss,
    graph_batch,
    graph_loss,
    noise_steps,
)
from duallgd_cli.training.encoder import EncoderStage, SpectrumBatch, SpectrumSampler, dense_bits
from duallgd_cli.training.settings import TrainingSettings

_FINGERPRINT_WEIGHT: Final = 0.02


@dataclass(frozen=True, eq=False)
class JointBatch:
    """What a step on measured spectra needs, on one device; B spectra and their molecules.

    Attributes:
        spectra: Peaks and true fingerprints.
        graphs: Graphs and noise; the fingerprint in their condition is the true one, not used.
    """

    spectra: SpectrumBatch
    graphs: GraphBatch

    @property
    def n_samples(self) -> int:
        """B."""
        return self.graphs.n_samples


class JointStage:
    """Spectrum-conditioned generation with a fingerprint loss beside the bond loss.

    Args:
        spectra: Prepared spectra.
        structures: Molecules without spectra, or None to train on spectra alone.
        settings: Of the run.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self,
        spectra: PreparedSpectra,
        structures: Molecules | None,
        settings: TrainingSettings,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.spectra, self.settings = spectra, settings
        self.rank, self.world_size = rank, world_size
        ranks = (rank, world_size)
        self.decoder = None if structures is None else DecoderStage(structures, settings, *ranks)
        self.encoder = EncoderStage(spectra, None, settings, *ranks)
        self.sampler = SpectrumSampler(spectra, "train")
        fits = spectra.molecules.n_heavy[self.sampler.molecules] <= settings.data.max_atoms
        self.places = np.flatnonzero(fits)
        if not len(self.places):
            raise UnreadableError(
                "the prepared data hold no spectrum of fold train of a molecule of at most "
                f"{settings.data.max_atoms} heavy atoms"
            )
        self.plan_of = BatchPlan(settings.data.pairs_per_batch, settings.data.bucket, settings.seed)
        self.collator = MoleculeCollator(spectra.molecules, None, settings.data.shuffle_share)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Places of molecules in the sampler, or structures, and their padded size."""
        share = 1 if self.decoder is None else 2
        sizes = self.spectra.molecules.n_heavy[self.sampler.molecules[self.places]]
        own = self.plan_of.stream(sizes, -(-first_step // share), self.rank, self.world_size)
        others = None if self.decoder is None else self.decoder.plan(first_step // share)
        step = first_step
        while True:
            if others is not None and step % 2:
                yield next(others)
            else:
                members = next(own)
                yield self.places[members], int(self.plan_of.padded(sizes[members]).max())
            step += 1

    def collate(self, planned: Planned, step: int) -> JointBatch | GraphBatch:
        """Spectra with their graphs, or structures: a function of seed, step and rank."""
        if self.decoder is not None and step % 2:
            return self.decoder.collate(planned, step)
        places, size = planned
        generator = np.random.default_rng((self.settings.seed, step, self.rank))
        drawn = [self.sampler.draw_from(int(place), generator) for place in places]
        molecules = np.asarray([molecule for molecule, _ in drawn])
        dropout = self.settings.data.peak_dropout
        rows = [
            augment(from_prepared(self.spectra, numbers), dropout, generator)
            for _, numbers in drawn
        ]
        truth = dense_bits([self.spectra.molecules.fingerprint_bits(m) for m in molecules])
        peaks = SpectrumBatch(peak_batch(rows), truth.bool())
        return JointBatch(peaks, graph_batch(self.collator, (molecules, size), generator))

    def loss(self, model: DualLGD, batch: JointBatch | GraphBatch) -> tuple[Tensor, Tensor]:
        """Summed bond cross entropy, plus the fingerprint loss weighted, and the pairs."""
        if isinstance(batch, GraphBatch):
            return graph_loss(model, batch)
        t = noise_steps(batch.graphs.level, model.settings.diffusion.n_steps)
        logits = model.encoder(batch.spectra.peaks).float()
        bit, log_prob = keep_bits(torch.sigmoid(logits), model.settings.memory_bits)
        condition = replace(batch.graphs.condition, bit=bit, bit_log_prob=log_prob)
        graph, uniform = batch.graphs.graph, batch.graphs.uniform
        summed, count = bond_loss(model, graph, condition, t, uniform)
        truth = batch.spectra.fingerprint.float()
        entropy = binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        return summed + _FINGERPRINT_WEIGHT * entropy / truth.sum() * count, count

    def validate(self, model: DualLGD) -> dict[str, float]:
        """Fingerprint figures on fold val, and the denoiser's where structures are given."""
        figures = self.encoder.validate(model)
        return figures if self.decoder is None else figures | self.decoder.validate(model)
