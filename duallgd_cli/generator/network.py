"""The trained network behind the seam of `predict.generation`, drawn from in chunks.

Drawing keeps to a time and to a share of memory, whichever network denoises.

S samples, c samples of one chunk, N heavy atoms, M = N (N - 1) / 2 pairs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import Checkpoint, is_reference
from duallgd_cli.checkpoint.format import load as load_checkpoint
from duallgd_cli.checkpoint.lineage import require_trained
from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, parse
from duallgd_cli.data.peaks import from_annotated, peak_batch
from duallgd_cli.diffusion import (
    Denoise,
    Samples,
    SamplingTask,
    draw_in_chunks,
    parse_schedule,
    quadratic,
)
from duallgd_cli.errors import ConfigError, UsageError, WeightsError
from duallgd_cli.files import sha256
from duallgd_cli.generator.edits import changed, likeliest_starts, put_together
from duallgd_cli.generator.graphs import CapturedDenoiser
from duallgd_cli.generator.openvino import Converted, converted_for
from duallgd_cli.generator.reranker import CandidateScorer, Reranker
from duallgd_cli.generator.rewritten import Rewritten, for_inference, rewritten_for
from duallgd_cli.generator.sampling import deadline, on_one_thread, samples_at_once, sampling_task
from duallgd_cli.generator.templates import BEGUN, Templates, in_templates, starts
from duallgd_cli.guide import Known
from duallgd_cli.model.duallgd import Condition, Context, DualLGD, keep_bits, parameter_counts
from duallgd_cli.model.fragment_kernel import FragmentKernel
from duallgd_cli.predict.generation import Generated, LoadedModel
from duallgd_cli.predict.ranking import RankingModel
from duallgd_cli.runtime import Runtime, stage
from duallgd_cli.spectra.types import AnnotatedSpectrum

if TYPE_CHECKING:
    from duallgd_cli.chem.molecule import Mol

# Working memory of one atom pair in a forward pass, all layers' live tensors together.
BYTES_PER_PAIR: Final = 8_192
# Added to the seed of the noise: for samples that are made of known molecules, hold a core, start
# from molecules of the user, or hold required parts.
_OF_MADE, _OF_HELD, _OF_ANALOGUES, _OF_PARTS = 8, 16, 32, 48
# Share of the samples that holds a known core, half of them in templates if there are any.
_HELD_SHARE: Final = 0.75
# Shares of the way to pure noise that templates are noised, half of them each: little keeps their
# skeleton, more lets it change.
_NOISED: Final = (0.25, 0.1)
# Of the samples that begin from known molecules, those that are made of them, by one change or of
# building blocks; the others begin from a known molecule as it is. And evaluations that say how
# probable each is.
_MADE_SHARE: Final = 0.8
_JUDGED: Final = 5


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
    """

    model: DualLGD
    runtime: Runtime
    reranker: Reranker | None = None
    templates: Templates | None = None
    rewritten: Rewritten | None = None
    kernel: FragmentKernel | None = None
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
        formula, reranker, blocks = annotated.hypothesis.formula, self.reranker, self.blocks
        with on_one_thread():
            with stage("encode"):
                fingerprint = self.fingerprint(annotated)
            drawn, notes = self.draw(formula, fingerprint, settings, seed, check, known)
        return Generated(
            bond_class=drawn.bond_class.numpy().astype(np.int8),
            log_likelihood=drawn.log_likelihood.numpy(),
            bond_log_prob=drawn.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16),
            fingerprint=fingerprint.numpy(),
            scorer=None
            if reranker is None
            else CandidateScorer.of(reranker, blocks.ends, annotated),
            notes=notes,
        )

    @property
    def blocks(self) -> BuildingBlocks:
        """What molecules are put together from."""
        return NO_BLOCKS if self.templates is None else self.templates.blocks

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
    def draw(
        self,
        formula: Formula,
        fingerprint: Tensor,
        settings: SamplingSettings,
        seed: int,
        check: Callable[[], None] = lambda: None,
        known: Known | None = None,
    ) -> tuple[Samples, tuple[str, ...]]:
        """Draw graphs for a formula and a fingerprint (F,); samples come back on the CPU.

        Chunks follow from the formula and the settings alone; see `drawing.draw_in_chunks`. Where
        the weights hold templates, the last samples start from those; where the user knows
        molecules, the first start from these.
        """
        condition = formula_condition(formula, fingerprint, self.model.settings.memory_bits)
        tasks = self._tasks(formula, fingerprint, settings, seed, known)
        return self.draw_given(condition, settings, seed, tasks, check)

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
            tasks or [self._task(n_pairs, settings, seed)],
            lambda samples: chunk_size(n_pairs, replace(settings, samples=samples), device),
            check,
            self.runtime.chunks_at_once,
        )

    def _task(self, n_pairs: int, settings: SamplingSettings, seed: int) -> SamplingTask:
        process = self.model.settings.diffusion
        return sampling_task(process, settings, seed, n_pairs, self.runtime.device)

    def _tasks(
        self,
        formula: Formula,
        fingerprint: Tensor,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> list[SamplingTask]:
        """Samples from pure noise, and those from templates, by the noise that they start with."""
        n_atoms = formula.n_heavy
        whole = self._task(n_atoms * (n_atoms - 1) // 2, settings, seed)
        begun = min(round(settings.analogue_share * settings.samples), settings.samples - 1)
        if settings.core is not None:
            return self._held_tasks(whole, settings, formula, fingerprint, seed, known)
        half = settings.samples // 2  # of the samples, where the user knows something
        again = known is not None and known.is_short  # what is made would be the same again
        if known is not None and again and begun:
            others = replace(settings, samples=settings.samples - half, analogue_share=0.0)
            tasks = self._with_parts(whole, half, formula, fingerprint, known)
            if tasks:
                return [*self._tasks(formula, fingerprint, others, seed), *tasks]
        probability = fingerprint.numpy()
        graphs = known.graphs(probability, formula) if known is not None and begun else []
        if known is not None and graphs:
            made = () if again else changed(graphs, formula, self.blocks)
            tasks = self._made_tasks(whole, _fitting(made, known), fingerprint, half, _OF_ANALOGUES)
            n_left = half - sum(task.samples for task in tasks)
            own = torch.from_numpy(starts(graphs[:BEGUN], formula, n_left, seed))
            tasks += self._begun_tasks(whole, own, _OF_ANALOGUES)
            others = replace(settings, samples=whole.samples - sum(t.samples for t in tasks))
            rest = Known(known.guide, is_short=known.is_short)
            return [*self._tasks(formula, fingerprint, others, seed, rest), *tasks]
        if self.templates is None or not begun:
            return [whole]
        near = self.templates.near(probability, formula)
        made = (
            ()
            if again
            else chain(
                changed(near, formula, self.blocks), put_together(self.blocks, formula, probability)
            )
        )
        tasks = self._made_tasks(whole, _fitting(made, known), fingerprint, begun)
        n_left = begun - sum(task.samples for task in tasks)
        start = self.templates.starts(fingerprint, formula, n_left, seed)
        tasks += [] if start is None else self._begun_tasks(whole, start)
        return [replace(whole, samples=whole.samples - sum(t.samples for t in tasks)), *tasks]

    def _made_tasks(
        self,
        whole: SamplingTask,
        made: "Iterator[tuple[Mol, float]]",
        fingerprint: Tensor,
        begun: int,
        shift: int = 0,
    ) -> list[SamplingTask]:
        """Molecules made of known ones, of which the network only says how probable they are.

        They take most of the samples that begin from known molecules, as far as there are so many.
        """
        start = likeliest_starts(made, fingerprint.numpy(), int(_MADE_SHARE * begun))
        if start is None:
            return []
        most = max(1, round(_NOISED[0] * self.model.settings.diffusion.n_steps))
        plan, seed = quadratic(most, min(_JUDGED, most)), whole.seed + shift + _OF_MADE
        task = replace(whole, plan=plan, seed=seed, samples=len(start), is_given=True)
        return [replace(task, start=start.to(self.runtime.device))]

    def _begun_tasks(
        self,
        whole: SamplingTask,
        start: Tensor,
        shift: int = 0,
        held: Tensor | None = None,
    ) -> list[SamplingTask]:
        """Samples from these graphs (S, M), some noised more than others; none if all steps do.

        The noise of each task has a seed of its own, `shift` and a few on from that of the whole.
        Bonds (S, M) that are `held` do not change.
        """
        levels = (round(share * self.model.settings.diffusion.n_steps) for share in _NOISED)
        parts = (tuple(step for step in whole.plan if step <= most) for most in levels)
        plans = [plan for plan in parts if len(plan) > 1]
        rows = torch.arange(len(start)).chunk(len(plans)) if plans else ()
        device, seed = self.runtime.device, whole.seed + shift + 1
        return [
            replace(
                whole,
                plan=plan,
                seed=seed + number,
                samples=len(own),
                start=start[own].to(device),
                held=None if held is None else held[own].to(device),
            )
            for number, (plan, own) in enumerate(zip(plans, rows, strict=False))
        ]

    def _held_tasks(
        self,
        whole: SamplingTask,
        settings: SamplingSettings,
        formula: Formula,
        fingerprint: Tensor,
        seed: int,
        known: Known | None,
    ) -> list[SamplingTask]:
        """Samples that hold the core, some of them in known molecules; few are free."""
        from duallgd_cli.chem.guide import read_core  # rdkit loads only here

        core, probability = read_core(settings.core or ""), fingerprint.numpy()
        n_held = max(1, round(_HELD_SHARE * settings.samples))
        own = [] if known is None else known.graphs(probability, formula)[:BEGUN]
        if self.templates is not None:
            own += self.templates.holding(core, probability, formula)
        graphs = [(one, match) for one in own if (match := core.found(one)) is not None]
        n_begun = n_held // 2 if graphs and settings.analogue_share else 0
        tasks = []
        if n_held < settings.samples:
            free = replace(settings, core=None, samples=settings.samples - n_held)
            tasks = self._tasks(formula, fingerprint, free, seed, known)
        if n_begun:
            start, held = in_templates(graphs, formula, n_begun, seed, core)
            tasks += self._begun_tasks(whole, start, _OF_HELD + 1, held)
        n_other = settings.samples - sum(task.samples for task in tasks)
        held = torch.from_numpy(core.held(formula, core.places(formula, n_other, seed))).long()
        held, seed = held.to(self.runtime.device), whole.seed + _OF_HELD
        return [*tasks, replace(whole, seed=seed, samples=n_other, held=held)]

    def _with_parts(
        self, whole: SamplingTask, samples: int, formula: Formula, fingerprint: Tensor, known: Known
    ) -> list[SamplingTask]:
        """Samples that start from known molecules with required parts, and hold those."""
        graphs = []
        if self.templates is not None and known.guide is not None:
            graphs = self.templates.having(known.guide, fingerprint.numpy(), formula)
        if not graphs:
            return []
        start, held = in_templates(graphs, formula, samples, whole.seed)
        return self._begun_tasks(whole, start, _OF_PARTS, held)

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


def _fitting(
    made: "Iterable[tuple[Mol, float]]", known: Known | None
) -> "Iterator[tuple[Mol, float]]":
    """Those molecules that are as the user says."""
    guide = None if known is None else known.guide
    return (one for one in made if guide is None or not guide.fault(one[0]))


def load_model(weights: str | Path | None, runtime: Runtime) -> LoadedModel:
    """Load weights for prediction.

    Args:
        weights: A file or a name; None takes the shipped ones.
        runtime: Where to run.

    Raises:
        UsageError: The runtime's engine cannot evaluate the network here.
        WeightsError: Missing, broken, of another shape, or only a part of the authors' system.
    """
    path = resolve_weights(weights)
    if is_reference(path):
        if runtime.engine == "openvino":
            raise UsageError("OpenVINO cannot evaluate the authors' network; use --engine torch")
        from duallgd_cli.reference.generator import load_reference_model  # only if asked for

        return load_reference_model(path, runtime)
    checkpoint = load_checkpoint(path)
    require_trained(checkpoint.record, path)
    network, reranker, templates, kernel, ranking = parts_of(checkpoint, path)
    digest = sha256(path)
    rewritten = converted_for(network, runtime, digest) or rewritten_for(network, runtime)
    model = for_inference(network, runtime)
    kernel = None if kernel is None else kernel.to(runtime.device)
    return LoadedModel(
        generator=ModelGenerator(model, runtime, reranker, templates, rewritten, kernel),
        ranking=ranking,
        name=path.name,
        sha256=digest,
        record=checkpoint.record,
        parameters=parameter_counts(model),
        draws_aside=runtime.device.type == "cuda",
        known=() if templates is None else templates.names,
        engine="openvino" if isinstance(rewritten, Converted) else "torch",
    )


def parts_of(
    checkpoint: Checkpoint, path: Path
) -> tuple[DualLGD, Reranker | None, Templates | None, FragmentKernel | None, RankingModel]:
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
    return (
        checkpoint.build(),
        Reranker.of(arrays) if arrays else None,
        templates,
        None if templates is None or not checkpoint.kernel else templates.kernel(checkpoint.kernel),
        _ranking(checkpoint, path),
    )


def _ranking(checkpoint: Checkpoint, path: Path) -> RankingModel:
    try:
        return parse(RankingModel, checkpoint.ranking)
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
