"""The stages of one spectrum, from a feature as read to the outcomes of its hypotheses.

read -> clean -> formulas -> annotate -> generate -> assemble. Whatever is anticipated to go wrong
with one spectrum becomes an `Outcome` with a status; whatever is not is a bug and is raised.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure
from duallgd_cli.predict import stages
from duallgd_cli.predict.assembly import collect, distinct
from duallgd_cli.predict.generation import (
    Generator,
    OutOfTimeError,
    RefusedError,
    noise_seed,
)
from duallgd_cli.predict.prediction import OK, Case, ExplainedPeak, Member, Outcome, sentences
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.predict.workers import Workers
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.cleaning import clean
from duallgd_cli.spectra.formulas import FormulaSource
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Spectrum

_METALS = ("", "Na", "K")


@dataclass(slots=True)
class Budget:
    """Seconds that one case may still take, None for any number."""

    seconds: float | None
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float | None:
        """Seconds left.

        Raises:
            OutOfTimeError: None are.
        """
        if self.seconds is None:
            return None
        left = self.seconds - (time.monotonic() - self.started)
        if left <= 0:
            raise OutOfTimeError
        return left


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One hypothesis of a case, or the one failure of a case without any.

    Attributes:
        case: Number and members; the outcomes are still empty.
        place: 0-based number of the hypothesis.
        of: How many the case has.
        hypothesis: What to predict, or why nothing can be.
        budget: Time of the case, shared by its hypotheses.
    """

    case: Case
    place: int
    of: int
    hypothesis: Hypothesis | Failure
    budget: Budget

    def done(self, outcome: Outcome) -> Case:
        """The case with the outcome of this hypothesis alone."""
        return replace(self.case, outcomes=(outcome,))


def tasks_of(
    number: int, item: Feature | Unreadable, source: FormulaSource, settings: PredictSettings
) -> Iterator[Task]:
    """What is to be predicted for a feature: at least one task, all with the same members.

    A spectrum that cannot be cleaned leaves the others of its feature to be predicted without it.
    """
    budget = Budget(settings.sampling.timeout_s)
    with stages.stage(stages.CLEAN):
        members, usable = _members(item, settings)
    case = Case(number, members, ())
    proposed: list[Hypothesis] | Failure
    if usable:
        with stages.stage(stages.ANNOTATE):
            proposed = source.propose(Feature(usable))
    else:
        proposed = Failure(members[0].status, members[0].message, "read")
    tried: Sequence[Hypothesis | Failure] = (
        [proposed] if isinstance(proposed, Failure) else proposed
    )
    for place, hypothesis in enumerate(tried):
        yield Task(case, place, len(tried), hypothesis, budget)


def start(
    task: Task, generator: Generator, settings: PredictSettings, workers: Workers
) -> Callable[[], Outcome]:
    """Annotate now, and generate now or in the workers' drawing thread; assembly may go on later.

    Returns:
        A function that waits for the outcome.
    """
    hypothesis = task.hypothesis
    if isinstance(hypothesis, Failure):
        failed = _failed(hypothesis)
        return lambda: failed
    started = time.perf_counter()
    with stages.stage(stages.ANNOTATE):
        annotated = annotate(hypothesis, settings.annotation)
        described = _described(annotated)
        seed = noise_seed(settings.seed, hypothesis)

    def draw() -> Callable[[], Outcome]:
        try:
            sampling = replace(settings.sampling, timeout_s=task.budget.left())
            with stages.stage(stages.SAMPLE):
                generated = generator.generate(annotated, sampling, seed)
            with stages.stage(stages.ASSEMBLE):
                matrices, place = distinct(hypothesis.formula, generated)
                readings = workers.submit(replace(matrices, timeout_s=task.budget.left()))
        except OutOfTimeError:
            late = _late(described, settings, started)
            return lambda: late
        except RefusedError as refused:
            refusal = _refused(described, refused.failure)
            return lambda: refusal

        def finish() -> Outcome:
            try:
                with stages.stage(stages.ASSEMBLE):
                    structures, tallies = collect(generated, readings(), place)
            except OutOfTimeError:
                return _late(described, settings, started)
            outcome = replace(
                described,
                message=sentences(generated.message, described.message),
                structures=structures,
                tallies=tallies,
                notes=generated.notes,
                seconds=time.perf_counter() - started,
            )
            return outcome if structures else _empty(outcome)

        return finish

    drawn = workers.draw(draw)
    return lambda: drawn()()


def _members(
    item: Feature | Unreadable, settings: PredictSettings
) -> tuple[tuple[Member, ...], tuple[Spectrum, ...]]:
    """Names of a feature's spectra, and those that can be used, cleaned."""
    if isinstance(item, Unreadable):
        failure = item.failure
        member = Member(
            item.source, item.spectrum_id, status=failure.status, message=failure.message
        )
        return (member,), ()
    members, usable = [], []
    for spectrum in item.spectra:
        cleaned = clean(spectrum, settings.cleaning)
        if isinstance(cleaned, Failure):
            members.append(Member.of(spectrum, cleaned.status, cleaned.message))
        else:
            members.append(Member.of(spectrum))
            usable.append(cleaned)
    return tuple(members), tuple(usable)


def _described(annotated: AnnotatedSpectrum) -> Outcome:
    hypothesis = annotated.hypothesis
    unexplained = ""
    if not annotated.n_explained:
        unexplained = (
            f"none of the {annotated.n_peaks} peaks is explained by {hypothesis.formula}; "
            "predicted from the formula alone"
        )
    return Outcome(
        status=OK,
        message=sentences(*hypothesis.notes, unexplained),
        formula=str(hypothesis.formula),
        adduct=hypothesis.adduct.name,
        n_heavy=hypothesis.formula.n_heavy,
        log_prior=hypothesis.log_prior,
        n_peaks=annotated.n_peaks,
        n_explained=annotated.n_explained,
        explained_intensity=float(annotated.explained_intensity),
        peaks=_explained(annotated),
    )


def _explained(annotated: AnnotatedSpectrum) -> tuple[ExplainedPeak, ...]:
    # float32 to the shortest decimal that is the same float32, not to its long double expansion.
    return tuple(
        ExplainedPeak(
            mz=_short(mz),
            intensity=_short(intensity),
            formula=str(Formula(tuple(map(int, counts)))) + _METALS[carrier],
            ppm=round(float(ppm), 2),
        )
        for mz, intensity, counts, carrier, ppm in zip(
            annotated.mz,
            annotated.intensity,
            annotated.subformula,
            annotated.carrier,
            annotated.ppm,
            strict=True,
        )
    )


def _short(value: np.float32) -> float:
    return float(np.format_float_positional(value, unique=True))


def _failed(failure: Failure) -> Outcome:
    return Outcome(status=failure.status, message=failure.message)


def _refused(described: Outcome, failure: Failure) -> Outcome:
    message = sentences(failure.message, described.message)
    return replace(described, status=failure.status, message=message)


def _late(described: Outcome, settings: PredictSettings, started: float) -> Outcome:
    message = (
        f"stopped after {settings.sampling.timeout_s:g} s; "
        "raise --timeout-per-spectrum, or lower --steps or --samples"
    )
    return replace(
        described,
        status="timeout",
        message=sentences(message, described.message),
        seconds=time.perf_counter() - started,
    )


def _empty(outcome: Outcome) -> Outcome:
    reasons = ", ".join(f"{count} {why}" for why, count in outcome.tallies.rejected.items())
    message = (
        f"none of {outcome.tallies.sampled} samples is a molecule of {outcome.formula} "
        f"({reasons}); "
        "more --samples or --steps may help"
    )
    return replace(outcome, status="no_candidate", message=sentences(message, outcome.message))
