"""The stages of one spectrum, from a feature as read to the results of its hypotheses.

read -> clean -> formulas -> annotate -> generate -> assemble. Whatever is anticipated to go wrong
with one spectrum becomes a result with a status; whatever is not is a bug and is raised.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, Carrier
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure, FormulaError, RefusedError, UsageError, counted
from duallgd_cli.files import sha256
from duallgd_cli.formulas import predicted_formulas
from duallgd_cli.guide import MOST_CHOSEN, GuideFiles, Knowledge, Known
from duallgd_cli.predict.candidates import (
    KNOWN_MOLECULE,
    Round,
    Workers,
    assemble_all,
    collect,
    fitting,
    proposals,
)
from duallgd_cli.predict.generation import (
    Generator,
    LoadedModel,
    OutOfTimeError,
    noise_seed,
)
from duallgd_cli.predict.prediction import (
    DATABASE,
    OK,
    ExplainedPeak,
    HypothesisResult,
    SpectrumReference,
    sentences,
)
from duallgd_cli.predict.ranking import LEAST_EXPLAINED
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
from duallgd_cli.spectra.resolution import resolved
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature, Hypothesis, Spectrum

# For a formula that shares the samples of a feature with others.
_FEWEST_SAMPLES: Final = 15
_NOT_CALIBRATED: Final = "confidence is not calibrated for what is known"
_AT_HAND: Final = 3  # features that are predicted before processes would be at work
_MOST_DRAWS: Final = 10  # times the samples, see `PredictSettings.max_draws`


def results(
    features: Iterable[tuple[int, Feature]],
    model: LoadedModel,
    settings: PredictSettings,
    workers: Workers,
    *,
    source: FormulaSource | None = None,
    knowledge: Knowledge | None = None,
) -> Iterator[HypothesisResult]:
    """What each hypothesis of each feature gives, in order: the loop of every prediction.

    With several workers each feature is predicted by one of them; otherwise, and where analogues
    are too many to be sent, one after the other in this process.

    Args:
        features: With their numbers in the whole input.
        model: Draws the molecules.
        settings: What decides the result.
        workers: Processes that predict features.
        source: Of formulas; None for those of the spectra, and as the settings say.
        knowledge: Of the molecules; None for what the settings say alone.

    Returns:
        One result a hypothesis; a feature without any has one failure.
    """
    of_all = None if (guide := settings.guide) is None else Known(guide)
    source = source or formula_source(settings, None, model.max_heavy_atoms)

    def asked() -> Iterator[_Asked]:
        for number, item in features:
            with stage("clean"):
                cleaned = [
                    resolved(clean(spectrum, settings.cleaning)) for spectrum in item.spectra
                ]
            spectra = tuple(map(SpectrumReference.of, cleaned))
            usable = tuple(one for one in cleaned if one.failure is None)
            tried = _hypotheses(spectra, usable, source)
            known = of_all
            if knowledge and usable:
                formulas = [one.formula for one in tried if isinstance(one, Hypothesis)]
                known = knowledge.of(Feature(usable)).within(formulas)
            yield _Asked(number, spectra, tried, known)

    if workers.again is None or (knowledge is not None and not knowledge.is_small):
        return _in_turn(asked(), model, settings)
    return _in_processes(asked(), model, settings, workers)


class _Asked(NamedTuple):
    """A feature, its formulas at hand.

    Attributes:
        number: In the whole input.
        spectra: It was measured with.
        tried: What it may be.
        known: Of its molecule, or None.
    """

    number: int
    spectra: tuple[SpectrumReference, ...]
    tried: Sequence[Hypothesis | Failure]
    known: Known | None


def _in_processes(
    features: Iterator[_Asked], model: LoadedModel, settings: PredictSettings, workers: Workers
) -> Iterator[HypothesisResult]:
    """Each feature by a process; the first few here, before these would be at work."""
    yield from _in_turn(islice(features, _AT_HAND), model, settings)
    waiting = deque[Callable[[], list[HypothesisResult]]]()
    for one in features:
        waiting.append(workers.predict(partial(_of_feature, one, settings)))
        while len(waiting) > 2 * workers.count:
            yield from waiting.popleft()()
    while waiting:
        yield from waiting.popleft()()


def _of_feature(
    asked: _Asked, settings: PredictSettings, model: LoadedModel
) -> list[HypothesisResult]:
    return list(_in_turn([asked], model, settings))


def _in_turn(
    features: Iterable[_Asked], model: LoadedModel, settings: PredictSettings
) -> Iterator[HypothesisResult]:
    """One result a hypothesis; see `results`."""
    limit_s = settings.sampling.timeout_s
    for number, spectra, tried, known in features:
        until = None if limit_s is None else time.monotonic() + limit_s
        for position, hypothesis in enumerate(tried):
            about = {"feature": number, "spectra": spectra, "position": position, "of": len(tried)}
            result, annotated = _described(hypothesis, settings, about)
            if annotated is not None:
                result = _predicted(result, annotated, model.generator, settings, until, known)
            yield result


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


def _predicted(
    result: HypothesisResult,
    annotated: AnnotatedSpectrum,
    generator: Generator,
    settings: PredictSettings,
    until: float | None,
    known: Known | None,
) -> HypothesisResult:
    """What a hypothesis gives; with a guide until enough samples are as asked for.

    Args:
        result: What is known before anything is proposed.
        annotated: Explained peaks with formula and adduct.
        generator: Proposes.
        settings: What decides the result.
        until: When the feature's time is up, or None.
        known: Of the molecule, or None.
    """
    started, rounds, failure = time.perf_counter(), list[Round](), None
    hypothesis, total = annotated.hypothesis, settings.sampling.samples
    guide = None if known is None else known.guide
    given = (known,) if known is not None and known.says_something else ()
    drawn, more = 0, max(min(_FEWEST_SAMPLES, total), round(total * hypothesis.share))
    try:
        if guide is not None:
            guide.require_room(hypothesis.formula)
        while more > 0:
            sampling = replace(
                settings.sampling,
                samples=more,
                core=None if guide is None else guide.core,
                timeout_s=_left(until),
            )
            with stage("sample"):
                seed = noise_seed(settings.seed, hypothesis, drawn)
                generated = generator.generate(annotated, sampling, seed, *given)
            with stage("assemble"):
                became = assemble_all(hypothesis.formula, generated, _left(until), guide)
            rounds.append((generated, became))
            more = 0
            if known is not None and known.is_demanding and not _is_chosen(known, settings):
                drawn, *_, more = _yield(rounds, settings)
                given = (replace(known, is_short=True),)
    except OutOfTimeError:
        failure = None if rounds else _timeout(settings)
    except RefusedError as refused:
        failure = refused.failure
    if failure is None:
        try:
            result = _collected(result, rounds, settings, known)
        except RefusedError as refused:
            failure = refused.failure
    if failure is not None:
        result = _failed(result, failure)
    return replace(result, seconds=time.perf_counter() - started)


def _is_chosen(known: Known, settings: PredictSettings) -> bool:
    """Whether the structures of databases alone are candidates."""
    return bool(known.databases) and settings.sampling.database_share == 1


def _yield(rounds: Sequence[Round], settings: PredictSettings) -> tuple[int, int, int, int]:
    """Samples so far, those as required, how many these should be, and how many to draw next.

    A round is as large as the yield so far lets expect, and at most as the first; they end at
    `PredictSettings.max_draws`.
    """
    made = [[one for source, _, one in proposals([each]) if source != DATABASE] for each in rounds]
    wanted, total = len(made[0]), settings.sampling.samples
    most = (settings.max_draws or _MOST_DRAWS * total) * wanted / total
    drawn = sum(map(len, made))
    valid = sum(bool(fitting(one)) for samples in made for one in samples)
    expected = math.ceil((wanted - valid) * drawn / max(valid, 1))
    more = min(wanted, max(expected, _FEWEST_SAMPLES), int(most) - drawn)
    return drawn, valid, wanted, more if valid < wanted else 0


def _collected(
    result: HypothesisResult,
    rounds: Sequence[Round],
    settings: PredictSettings,
    known: Known | None,
) -> HypothesisResult:
    """The result with what all rounds gave, and what is to be said of them."""
    with stage("assemble"):
        result = collect(result, rounds)
    said = []
    is_chosen = known is not None and _is_chosen(known, settings)
    if known is not None and known.databases:
        inside = sum(DATABASE in one.sources for one in result.structures)
        if not is_chosen and result.structures:
            likeliest = ", the likeliest of them" * (inside == MOST_CHOSEN)
            said = [
                f"{counted(inside, 'structure')} of the database among the candidates{likeliest}"
            ]
        elif inside:
            likeliest = "the likeliest " * (inside == MOST_CHOSEN)
            among = f"chosen among {likeliest}{inside} structures"
            said = [f"{among if inside > 1 else 'the only possible structure'} of the database"]
    if known is not None and known.is_demanding and not is_chosen:
        drawn, valid, wanted, _ = _yield(rounds, settings)
        few = "; --max-draws limits them" if valid < wanted else ""
        if len(rounds) > 1 or few:
            said.append(f"{valid} of {drawn} samples are as asked for{few}")
    smiles = {one.block: one.smiles for one in result.structures}
    result = replace(
        result,
        message=sentences(rounds[0][0].message, result.message, *said),
        notes=tuple(note for generated, _ in rounds for note in generated.notes),
        known={} if known is None else known.told(smiles, result.formula, rounds[0][0].fingerprint),
    )
    if not result.structures:
        return _failed(result, _empty(result))
    if known is not None and known.is_uncalibrated:
        return replace(result, message=sentences(result.message, _NOT_CALIBRATED))
    return result


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


def _described(
    hypothesis: Hypothesis | Failure, settings: PredictSettings, about: Mapping[str, Any]
) -> tuple[HypothesisResult, AnnotatedSpectrum | None]:
    """What is known of a hypothesis before anything is drawn, and its explained peaks.

    Args:
        hypothesis: Of a feature.
        settings: How peaks are explained.
        about: Fields of the result that name feature and hypothesis.
    """
    if isinstance(hypothesis, Failure):
        return HypothesisResult(hypothesis.status, hypothesis.message, **about), None
    with stage("annotate"):
        annotated = annotate(hypothesis, settings.annotation)
    unexplained = ""
    if not annotated.n_explained:
        unexplained = (
            f"none of the {annotated.n_peaks} peaks is explained by {hypothesis.formula}; "
            "predicted from the formula alone, with less confidence"
        )
    elif annotated.explained_intensity < LEAST_EXPLAINED:
        unexplained = (
            f"{hypothesis.formula} explains {annotated.explained_intensity:.1%} of the intensity "
            "of the peaks: check formula, adduct and instrument; less confidence is stated"
        )
    result = HypothesisResult(
        status=OK,
        message=sentences(*hypothesis.notes, unexplained),
        formula=str(hypothesis.formula),
        adduct=hypothesis.adduct.name,
        n_heavy=hypothesis.formula.n_heavy,
        log_prior=hypothesis.log_prior,
        formula_source=hypothesis.source,
        adduct_source=hypothesis.adduct_source,
        n_peaks=annotated.n_peaks,
        n_explained=annotated.n_explained,
        explained_intensity=float(annotated.explained_intensity),
        peaks=_explained(annotated),
        **about,
    )
    return result, annotated


def _explained(annotated: AnnotatedSpectrum) -> tuple[ExplainedPeak, ...]:
    carriers = annotated.hypothesis.adduct.carriers
    # float32 to the shortest decimal that is the same float32, not to its long double expansion.
    return tuple(
        ExplainedPeak(
            mz=float(str(mz)),
            intensity=float(str(intensity)),
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


def _failed(result: HypothesisResult, failure: Failure) -> HypothesisResult:
    message = sentences(failure.message, result.message)
    return replace(result, status=failure.status, message=message)


def _timeout(settings: PredictSettings) -> Failure:
    message = (
        f"stopped after {settings.sampling.timeout_s:g} s; "
        "raise --timeout-per-spectrum, or lower --steps or --samples"
    )
    return Failure("timeout", message, "sample")


def _empty(result: HypothesisResult) -> Failure:
    reasons = ", ".join(f"{count} {why}" for why, count in result.rejected.items())
    message = (
        f"none of {result.sampled} samples is a molecule of {result.formula} "
        f"({reasons}); more --samples or --steps may help"
    )
    if result.rejected.keys() == {KNOWN_MOLECULE}:
        message = f"all found for {result.formula} are known molecules; drop --exclude-known"
    return Failure("no_candidate", message, "assemble")
