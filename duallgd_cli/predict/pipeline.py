"""The stages of one spectrum, from a feature as read to the results of its hypotheses.

read -> clean -> formulas -> annotate -> generate -> assemble. Whatever is anticipated to go wrong
with one spectrum becomes a result with a status; whatever is not is a bug and is raised.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, Carrier
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure, FormulaError, RefusedError, UsageError
from duallgd_cli.files import sha256
from duallgd_cli.formulas import predicted_formulas
from duallgd_cli.guide import GuideFiles, Knowledge, Known
from duallgd_cli.predict.candidates import (
    AssemblyResult,
    Workers,
    collect,
    distinct,
    join,
)
from duallgd_cli.predict.generation import (
    Generated,
    Generator,
    LoadedModel,
    OutOfTimeError,
    noise_seed,
    require_core,
)
from duallgd_cli.predict.prediction import (
    OK,
    ExplainedPeak,
    HypothesisResult,
    SpectrumReference,
    sentences,
)
from duallgd_cli.predict.settings import PREDICT, PredictSettings
from duallgd_cli.runtime import stage
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.features import clean
from duallgd_cli.spectra.formulas import (
    FormulaSource,
    from_field,
    from_text,
    ion_with_metal,
    table_source,
)
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Spectrum, Unreadable

# For a formula that shares the samples of a feature with others.
_FEWEST_SAMPLES: Final = 15
_NOT_CALIBRATED: Final = "confidence is not calibrated for what is known"
_MOST_DRAWS: Final = 10  # times the samples, see `PredictSettings.max_draws`
_ROUND_BITS: Final = 8  # the seeds of one round are so many apart that no other's are among them
_MOST_SEED: Final = (1 << 63) - 1

# What was drawn, the distinct matrix of each sample, and a function that waits for what those are.
_Drawn: TypeAlias = tuple[Generated, NDArray[np.int64], Callable[[], list[AssemblyResult]]]


def results(
    features: Iterable[tuple[int, Feature | Unreadable]],
    model: LoadedModel,
    settings: PredictSettings,
    workers: Workers,
    *,
    source: FormulaSource | None = None,
    knowledge: Knowledge | None = None,
    held: Callable[[int, int], bool] = lambda *_: False,
) -> Iterator[HypothesisResult]:
    """What each hypothesis of each feature gives, in order: the loop of every prediction.

    Features are begun while the workers still assemble those before, as far as `workers.ahead`.

    Args:
        features: With their numbers in the whole input.
        model: Draws the molecules.
        settings: What decides the result.
        workers: Where drawing and assembly run.
        source: Of formulas; None for those of the spectra, and as the settings say.
        knowledge: Of the molecules; None for what the settings say alone.
        held: Whether the result of a feature's hypothesis, both by number, is known already.

    Yields:
        One result a hypothesis; a feature without any has one failure.
    """
    if settings.guide is not None:
        settings.guide.check()
    source = source or formula_source(settings, None, model.max_heavy_atoms)
    limit_s = settings.sampling.timeout_s
    waiting: deque[Callable[[], HypothesisResult]] = deque()
    for number, item in features:
        until = None if limit_s is None else time.monotonic() + limit_s
        with stage("clean"):
            spectra, usable = _cleaned(item, settings)
        tried = _hypotheses(spectra, usable, source)
        known = knowledge.of(Feature(usable)) if knowledge and usable else None
        for position, hypothesis in enumerate(tried):
            if held(number, position):
                continue
            started = time.perf_counter()
            described = replace(
                _described(hypothesis),
                feature=number,
                spectra=spectra,
                position=position,
                of=len(tried),
            )
            drawing = again = None
            if isinstance(hypothesis, Hypothesis):
                with stage("annotate"):
                    annotated = annotate(hypothesis, settings.annotation)
                    described = _annotated(described, annotated)
                work = partial(_draw, annotated, model.generator, settings, workers, until, known)
                drawing, again = workers.draw(work), partial(_again, work, workers)
            waiting.append(partial(_settled, described, drawing, again, settings, started, known))
            while len(waiting) > workers.ahead:
                yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def formula_source(
    settings: PredictSettings, table: Path | None, max_heavy_atoms: int
) -> FormulaSource:
    """Where formulas come from: a table, one formula for all, or a field of each spectrum.

    Where these have none, it is predicted; with the word ``predict`` for a formula, everywhere.

    Args:
        settings: Name at most one of the three.
        table: Of formulas by feature id, or None.
        max_heavy_atoms: Of the largest molecule that the model can draw.

    Raises:
        UsageError: More than one of them is asked for, the one formula is none, or the table has no
            usable columns.
        MissingInputError: There is no such table.
        UnreadableError: The table is empty or no text.
    """
    asked = [
        name
        for name, given in (
            ("--formulas", table),
            ("--formula", settings.formula),
            ("--formula-col", settings.formula_column),
        )
        if given is not None
    ]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other; give one of them")
    most_atoms = min(settings.limits.max_heavy_atoms, max_heavy_atoms)
    limits = replace(settings.limits, max_heavy_atoms=most_atoms)
    predicted = partial(
        predicted_formulas,
        settings=settings.formula_search,
        max_heavy_atoms=most_atoms,
        most=settings.formula_candidates,
    )
    if table is not None:
        return table_source(str(table), limits, predicted)
    if settings.formula == PREDICT:
        return predicted
    if settings.formula is not None:
        _require_formula(settings.formula)
        return partial(from_text, text=settings.formula, limits=limits)
    column = settings.formula_column
    return partial(from_field, column=column, limits=limits, otherwise=predicted)


def _require_formula(text: str) -> None:
    """The formula of a molecule, or of an ion that holds the metal of its adduct.

    Raises:
        UsageError: It can be neither, whatever the spectra are.
    """
    try:
        Formula.parse(text)
    except FormulaError as error:
        if all(ion_with_metal(text, adduct) is None for adduct in ADDUCTS):
            raise UsageError(f"--formula: {error}") from None


def table_identity(table: Path | None, guide: GuideFiles | None = None) -> dict[str, Any]:
    """Names and contents of formula table and guide files, for the header of a journal.

    Raises:
        MissingInputError: A guide file does not exist.
    """
    found: dict[str, Any] = {"formulas": None}
    if table is not None:
        found = {"formulas": str(table), "formulas_sha256": sha256(table)}
    return found if guide is None else found | guide.identity()


def by_feature(results: Iterable[HypothesisResult]) -> Iterator[tuple[HypothesisResult, ...]]:
    """All results of each feature together."""
    together: tuple[HypothesisResult, ...] = ()
    for result in results:
        together = (*together, result) if result.position else (result,)
        if len(together) == result.of:
            yield together


def _hypotheses(
    spectra: Sequence[SpectrumReference], usable: tuple[Spectrum, ...], source: FormulaSource
) -> Sequence[Hypothesis | Failure]:
    """What a feature may be, at least one.

    A spectrum that cannot be cleaned leaves the others of its feature to be predicted without it.
    """
    if not usable:
        return [Failure(spectra[0].status, spectra[0].message, "read")]
    with stage("annotate"):
        proposed = source(Feature(usable))
    return [proposed] if isinstance(proposed, Failure) else proposed


def _draw(
    annotated: AnnotatedSpectrum,
    generator: Generator,
    settings: PredictSettings,
    workers: Workers,
    until: float | None,
    known: Known | None,
    further: tuple[int, int] | None = None,
) -> _Drawn:
    """Draw samples and begin to assemble them.

    Args:
        annotated: Explained peaks with formula and adduct.
        generator: Draws.
        settings: What decides the result.
        workers: Assemble.
        until: When the feature's time is up, or None.
        known: Of the molecule, or None.
        further: How many samples, and how many there are already; None for the hypothesis' share
            of all.

    Raises:
        OutOfTimeError: The feature's time is up.
        RefusedError: The weights were not made for this hypothesis.
    """
    hypothesis, guide = annotated.hypothesis, settings.guide if known is None else known.guide
    samples, drawn = further or (0, 0)
    seed = (noise_seed(settings.seed, hypothesis) + (drawn << _ROUND_BITS)) & _MOST_SEED
    total = settings.sampling.samples
    share = max(min(_FEWEST_SAMPLES, total), round(total * hypothesis.share))
    sampling = replace(
        settings.sampling,
        samples=samples or share,
        core=None if guide is None else guide.core,
        timeout_s=_left(until),
    )
    if drawn and guide is not None and guide.require:
        known = replace(known or Known(guide), is_short=True)
    require_core(sampling.core, hypothesis.formula)
    with stage("sample"):
        given = (known,) if known is not None and (known.analogues or known.is_short) else ()
        generated = generator.generate(annotated, sampling, seed, *given)
    with stage("assemble"):
        chosen, matrix = distinct(generated)
        results = workers.assemble(hypothesis.formula, generated, chosen, _left(until), guide)
    return generated, matrix, results


def _again(work: Callable[..., _Drawn], workers: Workers, samples: int, drawn: int) -> _Drawn:
    """So many further samples, waited for."""
    return workers.draw(partial(work, further=(samples, drawn))).result()


def _settled(
    result: HypothesisResult,
    drawing: "Future[_Drawn] | None",
    again: Callable[[int, int], _Drawn] | None,
    settings: PredictSettings,
    started: float,
    known: Known | None,
) -> HypothesisResult:
    """The result, waited for."""
    if drawing is None or again is None:
        return result
    guide = settings.guide if known is None else known.guide
    try:
        rounds = [_waited_for(drawing.result())]
        message = _complete(rounds, again, settings) if guide is not None else ""
        with stage("assemble"):
            generated, assembled, matrix = join(rounds)
            result = collect(result, generated, assembled, matrix)
        smiles = {one.block: one.smiles for one in result.structures if known is not None}
        result = replace(
            result,
            message=sentences(generated.message, result.message, message),
            notes=generated.notes,
            known={} if known is None else known.told(smiles, result.formula),
        )
        if not result.structures:
            result = _failed(result, _empty(result))
        elif known.says_something if known is not None else guide is not None:
            result = replace(result, message=sentences(result.message, _NOT_CALIBRATED))
    except OutOfTimeError:
        message = (
            f"stopped after {settings.sampling.timeout_s:g} s; "
            "raise --timeout-per-spectrum, or lower --steps or --samples"
        )
        result = _failed(result, Failure("timeout", message, "sample"))
    except RefusedError as refused:
        result = _failed(result, refused.failure)
    return replace(result, seconds=time.perf_counter() - started)


def _complete(
    rounds: list[tuple[Generated, NDArray[np.int64], list[AssemblyResult]]],
    again: Callable[[int, int], _Drawn],
    settings: PredictSettings,
) -> str:
    """Draw until as many samples as were asked for have what is required; what to say of it.

    What is drawn is added to `rounds`. Each round is as large as the yield so far lets expect, and
    at most as the first; they end at `PredictSettings.max_draws`, or when the time is up.
    """
    wanted, total = len(rounds[0][1]), settings.sampling.samples
    most = (settings.max_draws or _MOST_DRAWS * total) * wanted / total
    while True:
        drawn = sum(len(matrix) for _, matrix, _ in rounds)
        valid = sum(
            int(np.isin(matrix, [n for n, one in enumerate(results) if one.fitting]).sum())
            for _, matrix, results in rounds
        )
        expected = math.ceil((wanted - valid) * drawn / max(valid, 1))
        more = min(wanted, max(expected, _FEWEST_SAMPLES), int(most) - drawn)
        if valid >= wanted or more <= 0:
            break
        try:
            rounds.append(_waited_for(again(more, drawn)))
        except OutOfTimeError:
            break
    if len(rounds) == 1 and valid >= wanted:
        return ""
    few = "; --max-draws limits them" if valid < wanted else ""
    return f"{valid} of {drawn} samples are as asked for{few}"


def _waited_for(
    drawn: _Drawn,
) -> tuple[Generated, NDArray[np.int64], list[AssemblyResult]]:
    """What was drawn, with its molecules."""
    generated, matrix, results = drawn
    with stage("assemble"):
        return generated, matrix, results()


def _left(until: float | None) -> float | None:
    """Seconds left.

    Raises:
        OutOfTimeError: None are.
    """
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise OutOfTimeError
    return left


def _cleaned(
    item: Feature | Unreadable, settings: PredictSettings
) -> tuple[tuple[SpectrumReference, ...], tuple[Spectrum, ...]]:
    """Names of a feature's spectra, and those that can be used, cleaned."""
    if isinstance(item, Unreadable):
        failure = item.failure
        reference = SpectrumReference(
            item.source, item.spectrum_id, status=failure.status, message=failure.message
        )
        return (reference,), ()
    spectra, usable = [], []
    for spectrum in item.spectra:
        cleaned = clean(spectrum, settings.cleaning)
        if isinstance(cleaned, Failure):
            spectra.append(SpectrumReference.of(spectrum, cleaned.status, cleaned.message))
        else:
            spectra.append(SpectrumReference.of(spectrum))
            usable.append(cleaned)
    return tuple(spectra), tuple(usable)


def _described(hypothesis: Hypothesis | Failure) -> HypothesisResult:
    """What is known of a hypothesis before it is annotated."""
    if isinstance(hypothesis, Failure):
        return HypothesisResult(hypothesis.status, hypothesis.message)
    return HypothesisResult(
        status=OK,
        message=sentences(*hypothesis.notes),
        formula=str(hypothesis.formula),
        adduct=hypothesis.adduct.name,
        n_heavy=hypothesis.formula.n_heavy,
        log_prior=hypothesis.log_prior,
        formula_source=hypothesis.source,
    )


def _annotated(result: HypothesisResult, annotated: AnnotatedSpectrum) -> HypothesisResult:
    unexplained = ""
    if not annotated.n_explained:
        unexplained = (
            f"none of the {annotated.n_peaks} peaks is explained by {result.formula}; "
            "predicted from the formula alone"
        )
    return replace(
        result,
        message=sentences(result.message, unexplained),
        n_peaks=annotated.n_peaks,
        n_explained=annotated.n_explained,
        explained_intensity=float(annotated.explained_intensity),
        peaks=_explained(annotated),
    )


def _explained(annotated: AnnotatedSpectrum) -> tuple[ExplainedPeak, ...]:
    carriers = annotated.hypothesis.adduct.carriers
    # float32 to the shortest decimal that is the same float32, not to its long double expansion.
    return tuple(
        ExplainedPeak(
            mz=_short(mz),
            intensity=_short(intensity),
            formula=_written(counts, carriers[carrier]),
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


def _written(counts: NDArray[np.int16], kept: Carrier) -> str:
    """A sub-formula with the metals that it keeps, and its charge where that is not one."""
    charge = f"{kept.charge:+d}" if abs(kept.charge) > 1 else ""
    return f"{Formula(tuple(counts.tolist()))}{kept.metals}{charge}"


def _short(value: np.float32) -> float:
    return float(np.format_float_positional(value, unique=True))


def _failed(result: HypothesisResult, failure: Failure) -> HypothesisResult:
    message = sentences(failure.message, result.message)
    return replace(result, status=failure.status, message=message)


def _empty(result: HypothesisResult) -> Failure:
    reasons = ", ".join(f"{count} {why}" for why, count in result.rejected.items())
    message = (
        f"none of {result.sampled} samples is a molecule of {result.formula} "
        f"({reasons}); more --samples or --steps may help"
    )
    return Failure("no_candidate", message, "assemble")
