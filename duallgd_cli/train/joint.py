"""The joint stage: encoder and denoiser end to end on spectra, or the denoiser alone.

Steps on measured spectra take turns with steps on structures and corrupted fingerprints, so that
the denoiser does not forget the many molecules that have no spectrum, and on simulated ones. Beside
a frozen encoder there are no steps on measured spectra: it knows their molecules by heart, and a
denoiser that learns from that trusts it too much.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.data.batches import BatchPlan, MoleculeCollator
from duallgd_cli.data.peaks import from_prepared, peak_batch
from duallgd_cli.data.prepared import FOLDS, Molecules, PreparedSpectra
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.model.denoiser import Condition, keep_bits
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.encoder import PeakBatch
from duallgd_cli.train.decoder import (
    DecoderStage,
    GraphBatch,
    Planned,
    graph_batch,
    graph_loss,
    held_out_nll,
)
from duallgd_cli.train.encoder import (
    VALIDATION_SEED,
    EncoderStage,
    SpectrumSampler,
    spectrum_batch,
)
from duallgd_cli.train.settings import TrainingSettings

_FINGERPRINT_WEIGHT: Final = 0.02


class _LabelledSpectra:
    """Batches of spectra with the graphs of their molecules.

    Args:
        spectra: Measured or simulated; fold train is drawn from.
        settings: Settings of the run.
        rank: This process.
        world_size: Number of processes.
    """

    def __init__(
        self, spectra: PreparedSpectra, settings: TrainingSettings, rank: int, world_size: int
    ) -> None:
        data = settings.data
        self.molecules, self.settings = spectra.molecules, settings
        self.rank, self.world_size = rank, world_size
        self.sampler = SpectrumSampler(spectra, "train")
        sizes = spectra.molecules.n_heavy[self.sampler.molecules]
        self.indices = np.flatnonzero(sizes <= data.max_atoms)
        if not len(self.indices):
            raise UnreadableError(
                "the prepared data hold no spectrum of fold train of a molecule of at most "
                f"{data.max_atoms} heavy atoms"
            )
        self.sizes = sizes[self.indices]
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, settings.seed)
        self.collator = MoleculeCollator(
            spectra.molecules, None, data.shuffle_share, data.core_share
        )

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Indices of molecules in the sampler, and their padded size."""
        for members in self.plan_of.stream(self.sizes, first_step, self.rank, self.world_size):
            yield self.indices[members], int(self.plan_of.padded(self.sizes[members]).max())

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Spectra with their graphs: a function of seed, step and rank."""
        indices, size = planned
        generator = np.random.default_rng((self.settings.seed, step, self.rank))
        drawn = [self.sampler.rows(self.settings, generator, int(index)) for index in indices]
        molecules = self.sampler.molecules[indices].astype(np.int64)
        graphs = graph_batch(self.collator, (molecules, size), generator)
        return replace(graphs, spectra=spectrum_batch(drawn))


class JointStage:
    """Spectrum-conditioned generation with a fingerprint loss beside the bond loss.

    Args:
        spectra: Prepared spectra.
        structures: Collections of molecules without spectra, each with a turn of its own, so that a
            small one is trained on as much as a large one; none for spectra alone.
        simulated: Prepared simulated spectra, or None for measured ones alone.
        settings: Settings of the run.
        rank: This process.
        world_size: Number of processes.

    Raises:
        UsageError: The encoder is frozen and there are no simulated spectra.
    """

    def __init__(
        self,
        spectra: PreparedSpectra,
        structures: Sequence[Molecules],
        simulated: PreparedSpectra | None,
        settings: TrainingSettings,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        ranks = (rank, world_size)
        self.frozen = settings.freeze_encoder
        if self.frozen and simulated is None:
            raise UsageError(
                "freeze_encoder trains the denoiser on simulated spectra; make some with "
                "'duallgd data simulate' and give them as --simulated"
            )
        self.encoder = EncoderStage(spectra, None, settings, *ranks)
        self.decoders = [DecoderStage(molecules, settings, *ranks) for molecules in structures]
        self.turns: list[_LabelledSpectra | DecoderStage] = []
        if not self.frozen:
            self.turns.append(_LabelledSpectra(spectra, settings, *ranks))
        self.turns += self.decoders
        if simulated is not None:
            self.turns.append(_LabelledSpectra(simulated, settings, *ranks))
        # One spectrum of each molecule of fold val, always the same.
        self.spectra = spectra
        members = np.flatnonzero(spectra.spectrum_fold == FOLDS.index("val"))
        sizes = spectra.molecules.n_heavy[spectra.molecule[members]]
        members = members[sizes <= settings.data.max_atoms]
        mixed = np.random.default_rng(VALIDATION_SEED).permutation(members)
        molecules, first = np.unique(spectra.molecule[mixed], return_index=True)
        self.held_out, self.chosen = molecules.astype(np.int64), mixed[first]
        data = settings.data
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, VALIDATION_SEED)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Rows or indices of molecules, and their padded size, of whose turn it is."""
        n = len(self.turns)
        done = [(first_step + n - 1 - turn) // n for turn in range(n)]
        streams = [turn.plan(before) for turn, before in zip(self.turns, done, strict=True)]
        for step in count(first_step):
            yield next(streams[step % n])

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Spectra with their graphs, or structures: a function of seed, step and rank."""
        return self.turns[step % len(self.turns)].collate(planned, step)

    def loss(self, model: DualLGD, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Summed bond cross entropy, plus the fingerprint loss weighted, and the pairs."""
        if self.frozen:
            model.encoder.eval()  # it says what it will say in use
        if batch.spectra is None:
            return graph_loss(model, batch)
        condition, logits = _predicted(model, batch.spectra.peaks, batch.condition)
        summed, pairs = graph_loss(model, replace(batch, condition=condition))
        if self.frozen:
            return summed, pairs
        truth = batch.spectra.fingerprint.float()
        entropy = binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        return summed + _FINGERPRINT_WEIGHT * entropy / truth.sum() * pairs, pairs

    def validate(self, model: DualLGD) -> dict[str, float]:
        """Figures of fingerprints and of the denoiser on fold val, and on the first structures."""

        def told(indices: NDArray[np.int64], known: Condition) -> Condition:
            chosen = [from_prepared(self.spectra, [int(s)]) for s in self.chosen[indices]]
            peaks = peak_batch(chosen).to(known.atom_class.device)
            return _predicted(model, peaks, known)[0]

        figures = self.encoder.validate(model)
        molecules = self.spectra.molecules, self.held_out
        figures |= held_out_nll(model, *molecules, self.plan_of, "predicted_nll", told)
        return figures | self.decoders[0].validate(model) if self.decoders else figures


def _predicted(model: DualLGD, peaks: PeakBatch, known: Condition) -> tuple[Condition, Tensor]:
    """Formulas with the fingerprints predicted from spectra, and the logits of those (B, F)."""
    logits = model.encoder(peaks).float()
    bit, log_prob = keep_bits(torch.sigmoid(logits), model.settings.memory_bits)
    return replace(known, bit=bit, bit_log_prob=log_prob), logits
