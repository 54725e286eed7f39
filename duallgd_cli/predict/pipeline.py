"""The stages of one spectrum, from a feature as read to the results of its hypotheses.

read -> clean -> formulas -> annotate -> encode -> propose -> merge and score. Whatever is
anticipated to go wrong with one spectrum becomes a result with a status; whatever is not is a bug
and is raised.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, Carrier
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, parse_quotas
from duallgd_cli.errors import (
    Failure,
    FormulaError,
    OutOfTimeError,
    RefusedError,
    UsageError,
    counted,
    quote,
)
from duallgd_cli.files import sha256
from duallgd_cli.formulas import predicted_formulas
from duallgd_cli.predict.merging import KNOWN_MOLECULE, merge
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.settings import PREDICT, PredictSettings
from duallgd_cli.ranking.ranking import LEAST_EXPLAINED
from duallgd_cli.results import (
    OK,
    ExplainedPeak,
    HypothesisResult,
    SpectrumReference,
    references,
    sentences,
)
from duallgd_cli.runtime import ELSEWHERE, Processes, add_seconds, stage
from duallgd_cli.sources import (
    ANALOGUES,
    BUILT_IN,
    DATABASE,
    GIVEN,
    LIBRARY,
    MOST_OF_A_DATABASE,
    CandidateSource,
    Proposal,
    Query,
    propose,
)
from duallgd_cli.sources.known import GuideFiles, Knowledge, Known
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
_OF_AN_OWN_SOURCE: Final = 20  # proposals of one that the settings do not name
_SEED_BYTES: Final = 8
_GO_ON: Final = "finished work is kept, and --resume with fewer --workers goes on"
_networks: Final = list[LoadedModel]()  # of a process that predicts


def results(
    features: Iterable[tuple[int, Feature]],
    model: LoadedModel,
    settings: PredictSettings,
    workers: int = 1,
    *,
    source: FormulaSource | None = None,
    knowledge: Knowledge | None = None,
) -> Iterator[HypothesisResult]:
    """What each hypothesis of each feature gives, in order: the loop of every prediction.

    With several workers each feature is predicted by one of them, with a network of its own;
    otherwise, and where analogues are too many to be sent, one after the other in this process.

    Args:
        features: With their numbers in the whole input.
        model: Draws the molecules.
        settings: What decides the result.
        workers: Processes that predict features; results do not depend on their number.
        source: Of formulas; None for those of the spectra, and as the settings say.
        knowledge: Of the molecules; None for what the settings say alone.

    Returns:
        One result a hypothesis; a feature without any has one failure.
    """
    _require_sources(settings, model)
    of_all = None if (guide := settings.guide) is None else Known(guide)
    source = source or formula_source(settings, None, model.max_heavy_atoms)

    def asked() -> Iterator[_Asked]:
        for number, item in features:
            with stage("clean"):
                cleaned = [
                    resolved(clean(spectrum, settings.cleaning)) for spectrum in item.spectra
                ]
            spectra = references(cleaned)
            usable = tuple(one for one in cleaned if one.failure is None)
            tried = _hypotheses(spectra, usable, source)
            known = of_all
            if knowledge and usable:
                formulas = [one.formula for one in tried if isinstance(one, Hypothesis)]
                known = knowledge.of(Feature(usable)).within(formulas)
            yield _Asked(number, spectra, tried, known)

    is_large = knowledge is not None and bool(knowledge.analogues)
    if workers == 1 or model.again is None or is_large:
        return _in_turn(asked(), model, settings)
    return _in_processes(asked(), model, settings, workers)


def _require_sources(settings: PredictSettings, model: LoadedModel) -> None:
    """Refuse the name of a source that does not exist, or that draws no samples.

    Raises:
        UsageError: There is one.
    """
    names = (BUILT_IN | {source.name for source in model.sources}) - GIVEN
    for name in parse_quotas(settings.sampling.sources):
        if name in GIVEN:
            raise UsageError(
                f"structures of a {name} stand beside the samples and have no part of them; leave "
                f"{name} out of sources"
            )
        if name not in names:
            raise UsageError(
                f"there is no source {quote(name)}; there are {', '.join(sorted(names))}"
            )


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
    features: Iterator[_Asked], model: LoadedModel, settings: PredictSettings, workers: int
) -> Iterator[HypothesisResult]:
    """Each feature by a process; the first few here, before these would be at work."""
    yield from _in_turn(islice(features, _AT_HAND), model, settings)
    waiting = deque[Callable[[], tuple[list[HypothesisResult], float]]]()
    for following in features:  # only then are there processes
        with Processes(workers, _GO_ON) as processes:
            for one in chain((following,), features):
                waiting.append(processes.submit(_of_feature, model.again, one, settings))
                if len(waiting) > 2 * workers:
                    yield from _awaited(waiting.popleft())
            while waiting:
                yield from _awaited(waiting.popleft())


def _awaited(
    wait: Callable[[], tuple[list[HypothesisResult], float]],
) -> list[HypothesisResult]:
    found, seconds = wait()
    add_seconds(ELSEWHERE, seconds)
    return found


def _of_feature(
    again: Callable[[], LoadedModel], asked: _Asked, settings: PredictSettings
) -> tuple[list[HypothesisResult], float]:
    """What a process that has a network of its own, or loads it, gives; and the seconds it took."""
    started = time.perf_counter()
    if not _networks:
        try:
            _networks.append(again())
        except RuntimeError as error:  # the GPU is full, or takes one process alone
            why = str(error).partition("\n")[0]
            raise UsageError(f"a process cannot load the network ({why}); {_GO_ON}") from None
    return list(_in_turn([asked], _networks[0], settings)), time.perf_counter() - started


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
                result = _predicted(result, annotated, model, settings, until, known)
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
    model: LoadedModel,
    settings: PredictSettings,
    until: float | None,
    known: Known | None,
) -> HypothesisResult:
    """What a hypothesis gives: encode, propose, merge, score.

    Args:
        result: What is known before anything is proposed.
        annotated: Explained peaks with formula and adduct.
        model: Proposes and scores.
        settings: What decides the result.
        until: When the feature's time is up, or None.
        known: Of the molecule, or None.
    """
    started, hypothesis, proposals = time.perf_counter(), annotated.hypothesis, list[Proposal]()
    samples = max(
        min(_FEWEST_SAMPLES, settings.sampling.samples),
        round(settings.sampling.samples * hypothesis.share),
    )
    sampling = replace(settings.sampling, samples=samples)
    check = _deadline(until, model.synchronise)
    try:
        check()
        if known is not None and known.guide is not None:
            known.guide.require_room(hypothesis.formula)
        with stage("encode"):
            fingerprint, isomers = model.encode(annotated)
        query = Query(annotated, fingerprint, isomers, known, sampling, check)
        quotas = quotas_of(sampling, query, model.sources)
        most = _most_draws(settings)
        seed = noise_seed(settings.seed, hypothesis)
        try:
            with stage("sample"):
                proposals.extend(propose(model.sources, query, quotas, seed, most))
        except OutOfTimeError:
            if not proposals or known is None or known.guide is None:
                raise
            # What was proposed before counts, and is merged however late it is.
            query = replace(query, check=lambda: None)
        excluded = frozenset(model.known if sampling.exclude_known else ())
        with stage("assemble"):
            result = merge(result, proposals, query, model.scores, excluded)
        result = _told(result, query, proposals, quotas)
    except OutOfTimeError:
        result = _failed(result, _timeout(settings))
    except RefusedError as refused:
        result = _failed(result, refused.failure)
    return replace(result, seconds=time.perf_counter() - started)


def quotas_of(
    sampling: SamplingSettings, query: Query, sources: Sequence[CandidateSource]
) -> dict[str, int]:
    """How many proposals each source is asked for, by name.

    The samples are shared out as `SamplingSettings.sources` says among the sources that there are,
    the last one taking the rest. Where the user knows molecules that are like this one, half of the
    samples begin with these, if the setting does not say how many. Structures of databases stand
    beside all these, or alone; so do the proposals of a source that the setting does not name.

    Raises:
        UsageError: The setting names none of the sources.
    """
    names = [source.name for source in sources]
    given = {
        DATABASE: bool(query.known and query.known.databases),
        ANALOGUES: bool(query.analogues),
    }
    for name, is_given in given.items():
        if is_given and name not in names:
            message = f"these weights take no {name}; use duallgd's own"
            raise RefusedError(Failure("core_mismatch", message, "sample"))
    quotas = {LIBRARY: 1} if query.known is not None and query.known.matches else {}
    if query.known is not None and query.known.databases:
        quotas[DATABASE] = MOST_OF_A_DATABASE
        if sampling.database_share == 1:
            return quotas
    left = sampling.samples
    asked = parse_quotas(sampling.sources)
    if ANALOGUES not in asked and query.analogues and left > 1:
        quotas[ANALOGUES] = left // 2
        left -= left // 2
    parts = {name: part for name, part in asked.items() if part and name in names}
    if not parts:
        raise UsageError(
            f"none of the sources {', '.join(asked)} is there; there are {', '.join(names)}"
        )
    shares = {name: left * part // sum(parts.values()) for name, part in parts.items()}
    shares[next(reversed(parts))] += left - sum(shares.values())
    beside = {
        source.name: getattr(source, "most", _OF_AN_OWN_SOURCE)
        for source in sources
        if source.name not in BUILT_IN | asked.keys()
    }
    return quotas | shares | beside


def _most_draws(settings: PredictSettings) -> float:
    """How many times its quota a source may be asked for."""
    if settings.max_draws is None:
        return _MOST_DRAWS
    return settings.max_draws / settings.sampling.samples


def noise_seed(seed: int, hypothesis: Hypothesis) -> int:
    """Seed of all random numbers of one hypothesis, 0 to 2^63 - 1.

    A hash of the user's seed, the peaks of the (cleaned) spectra, the formula and the adduct: where
    the spectrum stands, what it is called and what else is in the run play no part, nor does the
    order of a feature's spectra.
    """
    total = hashlib.blake2b(digest_size=_SEED_BYTES)
    total.update(f"{seed}|{hypothesis.formula}|{hypothesis.adduct.name}".encode())
    peaks = (
        hashlib.blake2b(
            np.ascontiguousarray([spectrum.mz, spectrum.intensity], dtype="<f8").tobytes()
        ).digest()
        for spectrum in hypothesis.feature.spectra
    )
    for digest in sorted(peaks):
        total.update(digest)
    return int.from_bytes(total.digest(), "little") >> 1


def _told(
    result: HypothesisResult,
    query: Query,
    proposals: Sequence[Proposal],
    quotas: Mapping[str, int],
) -> HypothesisResult:
    """The result with what is to be said of it."""
    said, known = [], query.known
    inside = sum(DATABASE in one.sources for one in result.structures)
    if DATABASE in quotas and set(quotas) - GIVEN and result.structures:
        likeliest = ", the likeliest of them" * (inside == MOST_OF_A_DATABASE)
        said = [f"{counted(inside, 'structure')} of the database among the candidates{likeliest}"]
    elif inside:
        likeliest = "the likeliest " * (inside == MOST_OF_A_DATABASE)
        among = f"chosen among {likeliest}{inside} structures"
        said = [f"{among if inside > 1 else 'the only possible structure'} of the database"]
    if query.constraints is not None and set(quotas) - GIVEN:
        said += _yield(proposals, query.sampling.samples)
    smiles = {one.block: one.smiles for one in result.structures}
    result = replace(
        result,
        message=sentences(result.message, *query.remarks, *said),
        notes=tuple(query.notes),
        known={} if known is None else known.told(smiles, result.formula, query.fingerprint),
    )
    if not result.structures:
        only_database = not set(quotas) - GIVEN
        return _failed(result, _no_structure(query) if only_database else _empty(result))
    if known is not None and known.is_uncalibrated:
        return replace(result, message=sentences(result.message, _NOT_CALIBRATED))
    return result


def _yield(proposals: Sequence[Proposal], wanted: int) -> Iterator[str]:
    """How many samples are as they must be, where not all of the first ones are."""
    made = [one for one in proposals if one.source not in GIVEN]
    valid = sum(not one.rejection for one in made)
    few = "; --max-draws limits them" if valid < wanted else ""
    if len(made) > wanted or few:
        yield f"{valid} of {len(made)} samples are as asked for{few}"


def _deadline(until: float | None, finish: Callable[[], None]) -> Callable[[], None]:
    """A function that raises OutOfTimeError once a time is over.

    Args:
        until: By the monotonic clock; None is never over.
        finish: Waits for what the device was asked to do; without it a GPU's steps would all be
            begun before the clock has moved. Called before each look at the clock, if there is one.
    """
    if until is None:
        return lambda: None

    def check() -> None:
        finish()
        if time.monotonic() > until:
            raise OutOfTimeError

    return check


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


def _no_structure(query: Query) -> Failure:
    asked = "" if query.constraints is None else " and is as asked for"
    message = (
        f"no structure of the database has the formula {query.formula}{asked}; without "
        "--database-only structures are generated too"
    )
    return Failure("no_candidate", message, "sample")


def _empty(result: HypothesisResult) -> Failure:
    reasons = ", ".join(f"{count} {why}" for why, count in result.rejected.items())
    message = (
        f"none of {result.sampled} samples is a molecule of {result.formula} "
        f"({reasons}); more --samples or --steps may help"
    )
    if result.rejected.keys() == {KNOWN_MOLECULE}:
        message = f"all found for {result.formula} are known molecules; drop --exclude-known"
    return Failure("no_candidate", message, "assemble")
