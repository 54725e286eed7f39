"""The stages that train the denoiser: on bond graphs alone, or end to end on spectra.

The decoder stage gives it imitated predictions. In the joint stage steps on measured
spectra take turns with such steps, so that the denoiser does not forget the many molecules that
have no spectrum, and with steps on simulated spectra. Beside a frozen encoder there are no steps on
measured spectra: it knows their molecules by heart, and a denoiser that learns from that trusts it
too much. A stage takes the settings of the run, and this process's number among so many.

Letters: B graphs, M pairs, C bond classes, F fingerprint bits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from duallgd_cli.data.batches import BatchPlan, BondGraph, MoleculeCollator
from duallgd_cli.data.imitation import Imitation, neighbours
from duallgd_cli.data.peaks import packed_batch, prepared_batch
from duallgd_cli.data.prepared import FOLDS, Molecules, PreparedSpectra
from duallgd_cli.diffusion.sampler import alpha_bar, corrupt
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.model.duallgd import Condition, DualLGD, keep_bits
from duallgd_cli.model.encoder import PackedBatch, PeakBatch
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.model.settings import DiffusionSettings
from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.train.encoder import VALIDATION_SEED, EncoderStage, SpectrumSampler
from duallgd_cli.train.settings import TrainingSettings

NLL_STEPS: Final = (50, 150, 250, 350, 500)
_VALIDATION_MOLECULES: Final = 256
_FINGERPRINT_WEIGHT: Final = 0.02
Planned = tuple[NDArray[np.int64], int]


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """What a step of the denoiser needs, on one device.

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
    spectra: PackedBatch | None = None

    @property
    def n_samples(self) -> int:
        """B."""
        return len(self.level)


def bond_loss(model: DualLGD, batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Noise clean graphs and score the denoiser's guess of the clean classes.

    Returns:
        Summed cross entropy over real pairs, and their number, both scalars.
    """
    graph, diffusion = batch.graph, model.settings.diffusion
    t = (1 + torch.floor(batch.level * diffusion.n_steps).long()).clamp_max(diffusion.n_steps)
    clean, mask = graph.bond_class, graph.pair_mask
    share, marginal = _process(diffusion, t.device)
    noisy = torch.where(mask, corrupt(clean, share[t], marginal, batch.uniform), 0)
    logits = model.denoiser(noisy, t, model.denoiser.context(batch.condition))
    losses = cross_entropy(logits.flatten(0, 1), clean.flatten(), reduction="none")
    return (losses * mask.flatten()).sum(), mask.sum()


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _process(settings: DiffusionSettings, device: torch.device) -> tuple[Tensor, Tensor]:
    """Signal share by step and bond marginal, copied to a device once: a copy waits for the GPU."""
    return alpha_bar(settings.n_steps).to(device), torch.tensor(settings.marginal, device=device)


class _BySize:
    """Batches of molecules of like size, of the rows that are trained on, with noise to add.

    Fingerprints are imitated predictions or, without an imitation, the true ones. Spectra of the
    same molecules come with the graphs where there is a sampler of them.
    """

    def __init__(
        self,
        molecules: Molecules,
        rows: NDArray[np.int64],
        imitation: Imitation | None,
        settings: TrainingSettings,
        ranks: tuple[int, int],
        sampler: SpectrumSampler | None = None,
    ) -> None:
        data = settings.data
        self.molecules, self.rows, self.sampler = molecules, rows, sampler
        self.settings, self.ranks = settings, ranks
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, settings.seed)
        self.collator = MoleculeCollator(molecules, imitation, data.shuffle_share)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Rows of molecules and padded size of each step, from a step on."""
        sizes = self.molecules.n_heavy[self.rows]
        for members in self.plan_of.stream(sizes, first_step, *self.ranks):
            yield self.rows[members], int(self.plan_of.padded(sizes[members]).max())

    def collate(self, planned: Planned, step: int) -> GraphBatch:
        """Graphs, conditions and noise of one step: a function of seed, step and rank."""
        generator = np.random.default_rng((self.settings.seed, step, self.ranks[0]))
        if self.sampler is None:
            return graph_batch(self.collator, planned, generator)
        places = np.searchsorted(self.sampler.molecules, planned[0]).tolist()
        groups = [self.sampler.draw_from(place, generator)[1] for place in places]
        drawn = (self.sampler.spectra, groups, self.settings.data.peak_dropout)
        graphs = graph_batch(self.collator, planned, generator)
        return replace(graphs, spectra=packed_batch([drawn], generator))


class DecoderStage(_BySize):
    """Generation from fingerprints as an encoder would predict them.

    Trains on fold train and looks at fold dev (or val). Neighbours of the molecules, which
    predictions are imitated with, are found where they are not given.
    """

    def __init__(
        self,
        molecules: Molecules,
        settings: TrainingSettings,
        ranks: tuple[int, int] = (0, 1),
        alike: NDArray[np.int32] | None = None,
    ) -> None:
        data = settings.data
        fits = (molecules.n_heavy <= data.max_atoms) & (molecules.n_heavy >= 2)
        rows = np.flatnonzero(fits & molecules.in_folds("train"))
        if not len(rows):
            raise UnreadableError("the prepared data hold no molecule of fold train")
        if alike is None:
            alike = neighbours(molecules, torch.device("cpu"))
        imitation = Imitation.of(molecules, alike, data.clean_share)
        super().__init__(molecules, rows, imitation, settings, ranks)
        generator = np.random.default_rng(settings.seed)
        chosen = np.flatnonzero(fits & molecules.in_folds("dev", "val"))
        self.validation_rows = np.sort(generator.permutation(chosen)[:_VALIDATION_MOLECULES])

    loss = staticmethod(bond_loss)

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
    condition_of: Callable[[NDArray[np.int64], Condition], Condition] = lambda rows, true: true,
) -> dict[str, float]:
    """Mean cross entropy per pair at fixed noise levels; nothing where no molecule is held out.

    The noise of these rows is always the same. Figures are called by the name and the noise level.
    What the denoiser is given is a function of a batch's indices into `rows` and its formulas with
    true fingerprints.
    """
    if not len(rows):
        return {}
    device, clean = next(model.parameters()).device, MoleculeCollator(molecules, None)
    n_steps = model.settings.diffusion.n_steps
    steps = [t for t in NLL_STEPS if t <= n_steps]
    totals = torch.zeros(len(steps), 2)
    for number, members in enumerate(plan.epoch(molecules.n_heavy[rows], 0)):
        size = int(plan.padded(molecules.n_heavy[rows[members]]).max())
        batch = graph_batch(clean, (rows[members], size), np.random.default_rng((7, number)))
        batch = map_tensors(batch, lambda x: x.to(device))
        condition = condition_of(members, batch.condition)
        for t, total in zip(steps, totals, strict=True):
            level = torch.full_like(batch.level, (t - 0.5) / n_steps)
            noised = replace(batch, condition=condition, level=level)
            total += torch.stack(bond_loss(model, noised)).cpu()
    return {f"{name}_{t}": float(of[0] / of[1]) for t, of in zip(steps, totals, strict=True)}


def graph_batch(
    collator: MoleculeCollator, planned: Planned, generator: np.random.Generator
) -> GraphBatch:
    """Molecules of one padded size as graphs, conditions and the noise to add."""
    rows, size = planned
    graph = collator.graphs(rows, size, generator)
    condition = collator.condition(rows, size, generator)
    # A stratum of noise levels for each graph, which varies less than a draw.
    level = (generator.permutation(len(rows)) + generator.random(len(rows))) / len(rows)
    uniform = torch.from_numpy(generator.random(graph.bond_class.shape, np.float32))
    return GraphBatch(graph, condition, torch.from_numpy(level), uniform)


def _labelled_spectra(
    spectra: PreparedSpectra, settings: TrainingSettings, ranks: tuple[int, int]
) -> _BySize:
    """Batches of spectra of fold train, measured or simulated, with the graphs of their molecules.

    Raises:
        UnreadableError: None is of a molecule small enough.
    """
    sampler, most = SpectrumSampler(spectra), settings.data.max_atoms
    rows = sampler.molecules.astype(np.int64)
    rows = rows[spectra.molecules.n_heavy[rows] <= most]
    if not len(rows):
        raise UnreadableError(
            "the prepared data hold no spectrum of fold train of a molecule of at most "
            f"{most} heavy atoms"
        )
    return _BySize(spectra.molecules, rows, None, settings, ranks, sampler)


class JointStage:
    """Spectrum-conditioned generation with a fingerprint loss beside the bond loss.

    Args:
        spectra: Prepared spectra.
        decoders: Collections of molecules without spectra, each with a turn of its own, so that a
            small one is trained on as much as a large one; none for spectra alone.
        simulated: Prepared simulated spectra, or None for measured ones alone.
        settings: Settings of the run.
        ranks: This process, from 0, and the number of processes.
        kernel: What the weights will say beside the encoder, on the model's device; None while the
            encoder trains, on spectra that it knows.

    Raises:
        UsageError: The encoder is frozen and there are no simulated spectra.
    """

    def __init__(
        self,
        spectra: PreparedSpectra,
        decoders: Sequence[DecoderStage],
        simulated: PreparedSpectra | None,
        settings: TrainingSettings,
        ranks: tuple[int, int] = (0, 1),
        kernel: FragmentKernel | None = None,
    ) -> None:
        self.spectra, self.kernel, self.frozen = spectra, kernel, settings.freeze_encoder
        if self.frozen and simulated is None:
            raise UsageError(
                "freeze_encoder trains the denoiser on simulated spectra, and there are none; "
                "give the recipe simulate"
            )
        self.encoder = EncoderStage(spectra, None, settings, ranks)
        self.decoders = list(decoders)
        measured = [] if self.frozen else [_labelled_spectra(spectra, settings, ranks)]
        drawn = [] if simulated is None else [_labelled_spectra(simulated, settings, ranks)]
        self.turns: list[_BySize] = [*measured, *self.decoders, *drawn]
        # One spectrum of each molecule of fold val, always the same.
        members = np.flatnonzero(spectra.spectrum_fold == FOLDS.index("val"))
        sizes = spectra.molecules.n_heavy[spectra.molecule[members]]
        members = members[sizes <= settings.data.max_atoms]
        mixed = np.random.default_rng(VALIDATION_SEED).permutation(members)
        molecules, first = np.unique(spectra.molecule[mixed], return_index=True)
        self.held_out, self.chosen = molecules.astype(np.int64), mixed[first]
        data = settings.data
        self.plan_of = BatchPlan(data.pairs_per_batch, data.bucket, VALIDATION_SEED)

    def plan(self, first_step: int) -> Iterator[Planned]:
        """Rows of molecules, and their padded size, of whose turn it is."""
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
            return bond_loss(model, batch)
        condition, logits = self._predicted(model, batch.spectra, batch.condition)
        summed, pairs = bond_loss(model, replace(batch, condition=condition))
        if self.frozen:
            return summed, pairs
        truth = batch.spectra.truth(logits.shape[1])
        entropy = binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        return summed + _FINGERPRINT_WEIGHT * entropy / truth.sum() * pairs, pairs

    def validate(self, model: DualLGD) -> dict[str, float]:
        """Figures of fingerprints and of the denoiser on fold val, and on the first structures."""

        def predicted(indices: NDArray[np.int64], true: Condition) -> Condition:
            peaks = prepared_batch(self.spectra, self.chosen[indices])
            return self._predicted(model, peaks.to(true.atom_class.device), true)[0]

        figures = self.encoder.validate(model)
        molecules = self.spectra.molecules, self.held_out
        figures |= held_out_nll(model, *molecules, self.plan_of, "predicted_nll", predicted)
        return figures | self.decoders[0].validate(model) if self.decoders else figures

    def _predicted(
        self, model: DualLGD, peaks: PeakBatch | PackedBatch, true: Condition
    ) -> tuple[Condition, Tensor]:
        """Formulas with the fingerprints predicted from spectra, and the logits of those (B, F)."""
        logits = model.encoder(peaks).float()
        if self.kernel is not None:
            whole = peaks.padded() if isinstance(peaks, PackedBatch) else peaks
            logits = self.kernel.mixed(logits, whole)
        bit, log_prob = keep_bits(torch.sigmoid(logits), model.settings.memory_bits)
        return replace(true, bit=bit, bit_log_prob=log_prob), logits
