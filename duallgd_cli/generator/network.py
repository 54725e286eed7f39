"""The trained network behind the seam of `predict.generation`, drawn from in chunks.

Drawing keeps to a time and to a share of memory, whichever network denoises.

S samples, c samples of one chunk, N heavy atoms, M = N (N - 1) / 2 pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import Checkpoint
from duallgd_cli.checkpoint.format import load as load_checkpoint
from duallgd_cli.checkpoint.lineage import require_trained
from duallgd_cli.checkpoint.plugins import plugin_for
from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_BOND_CLASSES
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, parse
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.diffusion import (
    Denoise,
    Samples,
    SamplingTask,
    draw_in_chunks,
    parse_schedule,
)
from duallgd_cli.errors import ConfigError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.generator.graphs import CapturedDenoiser
from duallgd_cli.generator.planning import Plan, Planner, Unknown
from duallgd_cli.generator.reranker import CandidateScorer, Reranker
from duallgd_cli.generator.rewritten import Rewritten, for_inference, rewritten_for
from duallgd_cli.generator.sampling import deadline, on_one_thread, samples_at_once
from duallgd_cli.generator.templates import Templates
from duallgd_cli.guide import Known
from duallgd_cli.model.duallgd import Condition, Context, DualLGD, keep_bits, parameter_counts
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.predict.generation import Generated, LoadedModel
from duallgd_cli.predict.ranking import RankingModel
from duallgd_cli.runtime import Runtime, stage
from duallgd_cli.spectra.types import AnnotatedSpectrum

# Working memory of one atom pair in a forward pass, all layers' live tensors together.
BYTES_PER_PAIR: Final = 8_192


@dataclass(frozen=True, eq=False)
class ModelGenerator:
    """Draws bond matrices with a network.

    Attributes:
        model: On the runtime's device, in evaluation mode.
        runtime: Device and precision.
        reranker: Scores candidates, or None.
        templates: Known molecules to start some samples from, or None.
        rewritten: The denoiser as a CPU evaluates it faster, or None.
        kernel: What known molecules with like spectra say of the fingerprint, or None.
        contrast: Says what each bit speaks for a molecule beside isomers, or None.
    """

    model: DualLGD
    runtime: Runtime
    reranker: Reranker | None = None
    templates: Templates | None = None
    rewritten: Rewritten | None = None
    kernel: FragmentKernel | None = None
    contrast: FormulaTransformer | None = None
    _captured: CapturedDenoiser = field(init=False, repr=False)

    def __post_init__(self) -> None:
        captured = CapturedDenoiser(self.model.denoiser, self.runtime)
        object.__setattr__(self, "_captured", captured)

    def generate(
        self,
        annotated: AnnotatedSpectrum,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> Generated:
        """Draw `settings.samples` bond matrices; see `predict.generation.Generator`."""
        check = deadline(settings.timeout_s, self.runtime.synchronise)
        with on_one_thread():
            with stage("encode"):
                fingerprint, scorer = self.fingerprint(annotated), self.scorer(annotated)
            unknown = Unknown(annotated.hypothesis.formula, fingerprint, known, scorer, check)
            with stage("enumerate"):
                plan = self.planner.plan(unknown, settings, seed)
            drawn, notes = self.draw(unknown, settings, seed, plan)
        none_of = self.templates if settings.exclude_known else None
        return Generated(
            bond_class=drawn.bond_class.numpy().astype(np.int8),
            log_likelihood=drawn.log_likelihood.numpy(),
            bond_log_prob=drawn.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16),
            fingerprint=fingerprint.numpy(),
            scorer=scorer,
            sources=tuple(name for name, task in plan.tasks for _ in range(task.samples)),
            molecules=tuple(plan.molecules),
            notes=notes,
            excluded=frozenset(() if none_of is None else none_of.names),
        )

    @property
    def planner(self) -> Planner:
        """Says what samples begin as."""
        return Planner(self.model.settings.diffusion, self.runtime.device, self.templates)

    @torch.inference_mode()
    def fingerprint(self, annotated: AnnotatedSpectrum) -> Tensor:
        """Predicted probability of each Morgan bit, float32 (F,) on the CPU."""
        peaks = peak_batch([from_annotated(annotated)]).to(self.runtime.device)
        with self.runtime.autocast():
            logits = self.model.encoder(peaks)
        if self.kernel is not None:
            logits = self.kernel.mixed(logits, peaks)
        return torch.sigmoid(logits.float())[0].cpu()

    @torch.inference_mode()
    def scorer(self, annotated: AnnotatedSpectrum) -> CandidateScorer | None:
        """Scores candidates of a spectrum, or None where the weights hold no re-ranker."""
        if self.reranker is None:
            return None
        contrast = None
        if self.contrast is not None:
            peaks = peak_batch([from_annotated(annotated)]).to(self.runtime.device)
            with self.runtime.autocast():
                contrast = self.contrast(peaks)[0].float().cpu().numpy()
        return CandidateScorer.of(self.reranker, self.planner.blocks.ends, annotated, contrast)

    @torch.inference_mode()
    def draw(
        self,
        unknown: Unknown,
        settings: SamplingSettings,
        seed: int,
        plan: Plan | None = None,
    ) -> tuple[Samples, tuple[str, ...]]:
        """Draw the samples of a plan; they come back on the CPU.

        Chunks follow from the formula and the settings alone, see `diffusion.draw_in_chunks`.

        Args:
            unknown: What is drawn.
            settings: Steps, samples and so on.
            seed: Of the noise.
            plan: What samples begin as; None to make it.
        """
        tasks = [task for _, task in (plan or self.planner.plan(unknown, settings, seed)).tasks]
        if not tasks:
            n_pairs = unknown.formula.n_heavy * (unknown.formula.n_heavy - 1) // 2
            return Samples.none(n_pairs, N_BOND_CLASSES), ()
        bits = self.model.settings.memory_bits
        condition = formula_condition(unknown.formula, unknown.fingerprint, bits)
        return self.draw_given(condition, settings, seed, tasks, unknown.check)

    @torch.inference_mode()
    def draw_given(
        self,
        condition: Condition,
        settings: SamplingSettings,
        seed: int,
        tasks: Sequence[SamplingTask] = (),
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Samples, tuple[str, ...]]:
        """Draw graphs for a condition of one hypothesis, its atoms in any order; see `draw`.

        Args:
            condition: Of one hypothesis.
            settings: Steps, samples and so on.
            seed: Of the noise.
            tasks: What to draw; none for all samples from pure noise.
            check: Called before every evaluation; may raise to stop.
        """
        device, n_atoms = self.runtime.device, condition.atom_class.shape[1]
        n_pairs = n_atoms * (n_atoms - 1) // 2
        with self.runtime.autocast():
            context = self.model.denoiser.context(condition.to(device))
        return draw_in_chunks(
            partial(self.denoiser_of, context),
            tasks or [self.planner.fresh(n_pairs, settings, seed)],
            lambda samples: chunk_size(n_pairs, replace(settings, samples=samples), device),
            check,
            self.runtime.chunks_at_once,
        )

    def denoiser_of(self, context: Context, samples: int) -> Denoise:
        """The denoiser of so many samples of a spectrum, as this device evaluates it fastest."""
        if self.rewritten is not None:
            return self.rewritten.bound(context, samples)
        if self.runtime.captures:
            return self._captured.bound(context, samples)
        repeated = context.expand(samples)

        def denoise(bond_class: Tensor, t: int) -> Tensor:
            steps = torch.full((samples,), t, device=bond_class.device)
            with self.runtime.autocast():
                return self.model.denoiser(bond_class, steps, repeated)  # type: ignore[no-any-return]

        return denoise


def load_model(weights: str | Path | None, runtime: Runtime) -> LoadedModel:
    """Load weights for prediction.

    Args:
        weights: A file or a name; None takes the shipped ones.
        runtime: Where to run.

    Raises:
        WeightsError: Missing, broken, of another shape, or in a format that nothing here reads.
    """
    path = resolve_weights(weights)
    if (plugin := plugin_for(path)) is not None:
        return plugin.load(path, runtime)
    checkpoint = load_checkpoint(path)
    require_trained(checkpoint.record, path)
    parts, digest = parts_of(checkpoint, path), sha256(path)
    network, templates = parts.network, parts.templates
    rewritten = rewritten_for(network, runtime)
    model = for_inference(network, runtime)
    kernel = None if parts.kernel is None else parts.kernel.to(runtime.device)
    contrast = None if parts.contrast is None else parts.contrast.to(runtime.device)
    return LoadedModel(
        generator=ModelGenerator(
            model, runtime, parts.reranker, templates, rewritten, kernel, contrast
        ),
        ranking=parts.ranking,
        database=parts.database,
        name=path.name,
        sha256=digest,
        record=checkpoint.record,
        parameters=parameter_counts(model),
        again=None if runtime.device.type == "mps" else partial(_alone, path, runtime),
        known=() if templates is None else templates.names,
    )


def _alone(path: Path, runtime: Runtime) -> LoadedModel:
    """The same on one thread of another process."""
    own = Runtime.resolve(str(runtime.device), runtime.precision, threads=1)
    return load_model(path, own)


class Parts(NamedTuple):
    """What predicting takes from a weights file; see `ModelGenerator` for each."""

    network: DualLGD
    reranker: Reranker | None
    templates: Templates | None
    kernel: FragmentKernel | None
    contrast: FormulaTransformer | None
    ranking: RankingModel
    database: RankingModel | None


def parts_of(checkpoint: Checkpoint, path: Path) -> Parts:
    """All that predicting takes from a weights file, each part checked.

    Args:
        checkpoint: As read.
        path: Of the file, for messages.

    Raises:
        WeightsError: A part is broken or does not fit the others.
    """
    process, bits = checkpoint.settings.diffusion, checkpoint.settings.encoder.fingerprint_bits
    if bits != FINGERPRINT_BITS:
        raise WeightsError(
            f"weights {path} predict {bits} fingerprint bits, molecules have {FINGERPRINT_BITS}; "
            "train with the default fingerprint_bits"
        )
    try:
        parse_schedule(process.schedule, process.n_steps, 1)
    except ConfigError as error:
        raise WeightsError(f"weights {path} cannot be sampled from: {error}") from None
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.reranker.items()}
    templates = Templates.of(checkpoint.templates) if checkpoint.templates else None
    if checkpoint.kernel and templates is None:
        raise WeightsError(
            f"weights {path} hold spectra of known molecules without these; run 'duallgd weights "
            "analogues'"
        )
    return Parts(
        checkpoint.build(),
        Reranker.of(arrays) if arrays else None,
        templates,
        None
        if templates is None or not checkpoint.kernel
        else FragmentKernel.of(
            checkpoint.kernel, templates.molecules.bit_offset, templates.molecules.bits
        ),
        checkpoint.contrast_encoder(),
        _ranking(checkpoint.ranking, path),
        _ranking(checkpoint.database, path) if checkpoint.database else None,
    )


def _ranking(values: Mapping[str, Any], path: Path) -> RankingModel:
    try:
        return parse(RankingModel, values)
    except ConfigError as error:
        raise WeightsError(
            f"the ranking in weights {path} is of another version ({error}); take the weights that "
            "come with this one, or run 'duallgd weights evidence' and 'duallgd calibrate'"
        ) from None


def formula_condition(formula: Formula, fingerprint: Tensor, memory_bits: int) -> Condition:
    """What the denoiser is told: a function of the formula and the predicted fingerprint alone."""
    bit, log_prob = keep_bits(fingerprint[None], memory_bits)
    atom_class = torch.from_numpy(formula.atom_class)[None]
    return Condition(
        atom_class=atom_class,
        atom_mask=torch.ones_like(atom_class, dtype=torch.bool),
        formula=torch.from_numpy(formula.array.astype(np.float32))[None],
        charge=torch.tensor([float(formula.charge)]),
        bit=bit,
        bit_log_prob=log_prob,
    )


def chunk_size(n_pairs: int, settings: SamplingSettings, device: torch.device) -> int:
    """Samples drawn together: by the number of pairs, the settings and the kind of device alone."""
    return samples_at_once(n_pairs, settings, device, BYTES_PER_PAIR, most_pairs_on_cpu=16_384)
