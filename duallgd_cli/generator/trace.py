"""How the samples of one spectrum are denoised, step by step.

S samples, N heavy atoms, M = N (N - 1) / 2 pairs, C bond classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.molecule import places
from duallgd_cli.chem.valence import Skeleton, bonds_of
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import sample
from duallgd_cli.errors import UsageError, quote
from duallgd_cli.generator.network import ModelGenerator, formula_condition
from duallgd_cli.generator.sampling import deadline, on_one_thread, sampling_task
from duallgd_cli.guide import Known
from duallgd_cli.predict.candidates import Assembled, Workers, assemble_all
from duallgd_cli.predict.generation import Generated, LoadedModel
from duallgd_cli.predict.pipeline import formula_source, results
from duallgd_cli.predict.prediction import HypothesisResult
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """All samples at one step of the walk.

    Attributes:
        t: The step, T at first and 0 at the end.
        bond_class: The noisy graphs there, int8 (S, M).
        bond_prob: What the network makes of them: probabilities of the clean bonds, float32
            (S, M, C); at 0 the graphs themselves.
    """

    t: int
    bond_class: NDArray[np.int8]
    bond_prob: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The walk of all samples of one hypothesis.

    Attributes:
        result: What the samples became.
        annotated: Its explained peaks, with formula and adduct.
        fingerprint: Predicted probability of each Morgan bit, (F,).
        steps: From noise to graphs.
        becomes: What each sample became, (S,).
        places: Where a drawing of the finished graph puts the atoms, (S, N, 2).
    """

    result: HypothesisResult
    annotated: AnnotatedSpectrum
    fingerprint: NDArray[np.float32]
    steps: tuple[Step, ...]
    becomes: tuple[Assembled, ...]
    places: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Recorder:
    """A generator that draws all samples from pure noise and remembers their way."""

    inner: ModelGenerator
    annotated: AnnotatedSpectrum | None = None
    steps: list[Step] = field(default_factory=list)
    drawn: Generated | None = None

    @torch.inference_mode()
    def generate(
        self,
        annotated: AnnotatedSpectrum,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> Generated:
        """Draw; see `predict.generation.Generator`."""
        model, runtime = self.inner.model, self.inner.runtime
        formula, samples = annotated.hypothesis.formula, settings.samples
        n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
        task = sampling_task(model.settings.diffusion, settings, seed, n_pairs, runtime.device)
        times = iter(task.plan[:-1])
        fingerprint = self.inner.fingerprint(annotated)
        condition = formula_condition(formula, fingerprint, model.settings.memory_bits)
        self.annotated, self.steps = annotated, []
        with on_one_thread(), runtime.autocast():
            context = model.denoiser.context(condition.to(runtime.device))
            logits_of = self.inner.denoiser_of(context, samples)

            def denoise(bond: Tensor, told: int) -> Tensor:
                logits = logits_of(bond, told)
                prob = torch.softmax(logits.float() / task.temperature, -1)
                self.steps.append(Step(next(times), _small(bond), prob.cpu().numpy()))
                return logits

            check = deadline(settings.timeout_s, runtime.synchronise)
            drawn = sample(denoise, task, slice(0, samples), check).cpu()
        graphs, n_classes = _small(drawn.bond_class), drawn.bond_log_prob.shape[-1]
        self.steps.append(Step(0, graphs, np.eye(n_classes, dtype=np.float32)[graphs]))
        self.drawn = Generated(
            bond_class=graphs,
            log_likelihood=drawn.log_likelihood.numpy(),
            bond_log_prob=drawn.bond_log_prob.clamp_min(-60_000).numpy().astype(np.float16),
            fingerprint=fingerprint.numpy(),
        )
        return self.drawn


def trace(
    model: LoadedModel,
    spectra: str,
    chosen: str,
    settings: PredictSettings,
    formulas: Path | None = None,
) -> Trace:
    """Follow the samples of one spectrum; of several formulas the first that can be drawn.

    Args:
        model: A trained one.
        spectra: File of spectra.
        chosen: Number of the spectrum among the features of the file, from 1, or its id.
        settings: As for a prediction; every sample is followed.
        formulas: Table of formulas by feature id, or None.

    Raises:
        UsageError: There is no such spectrum, or it cannot be predicted.
    """
    if not isinstance(model.generator, ModelGenerator):
        raise UsageError(f"weights {model.name} cannot be followed; take weights of duallgd")
    source, why = formula_source(settings, formulas, model.max_heavy_atoms), ""
    with Inputs((spectra,)) as inputs, Workers(1) as workers:
        item = _found(inputs.features(settings.group_by, settings.adduct), chosen, spectra)
        recorder = _Recorder(model.generator)
        recording = replace(model, generator=recorder)
        for result in results([(0, item)], recording, settings, workers, source=source):
            if recorder.drawn is not None and recorder.annotated is not None:
                return _trace(result, recorder.annotated, recorder.drawn, recorder.steps)
            why = why or result.message
    raise UsageError(f"spectrum {chosen} of {spectra} cannot be drawn: {why}")


def _trace(
    result: HypothesisResult, annotated: AnnotatedSpectrum, drawn: Generated, steps: list[Step]
) -> Trace:
    formula = annotated.hypothesis.formula
    becomes = assemble_all(formula, drawn)
    element = formula.atom_class.tolist()
    graphs = (Skeleton.of(element, bonds_of(len(element), one)) for one in drawn.bond_class)
    fingerprint = drawn.fingerprint if drawn.fingerprint is not None else np.zeros(0, np.float32)
    at = np.stack([places(graph) for graph in graphs])
    return Trace(result, annotated, fingerprint, tuple(steps), tuple(becomes), at)


def _found(features: Iterator[Feature], chosen: str, spectra: str) -> Feature:
    """The feature of a number from 1, or of an id of one of its spectra.

    Raises:
        UsageError: There is none.
    """
    if chosen.isdecimal():
        for item in islice(features, max(0, int(chosen) - 1), int(chosen)):
            return item
        raise UsageError(f"{spectra} has no feature number {chosen}; the first is 1")
    for item in features:
        if item.first.failure is None and any(
            chosen in (one.spectrum_id, one.feature_id, one.scans) for one in item.spectra
        ):
            return item
    raise UsageError(
        f"{spectra} has no spectrum {quote(chosen)}; give its number, from 1, or its id"
    )


def _small(bond: Tensor) -> NDArray[np.int8]:
    return bond.cpu().numpy().astype(np.int8)
