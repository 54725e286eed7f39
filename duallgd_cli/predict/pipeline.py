"""The stages of one spectrum, from a feature as read to the results of its hypotheses.

clean -> formulas -> annotate -> encode -> propose -> merge and score. Whatever is anticipated to go
wrong with one spectrum becomes a result with a status; whatever is not is a bug and is raised.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.config import parse_quotas
from duallgd_cli.errors import (
    Failure,
    MoleculeError,
    OutOfTimeError,
    RefusedError,
    UsageError,
    counted,
    quote,
)
from duallgd_cli.predict.settings import PredictSettings, formula_source
from duallgd_cli.results import (
    FeatureResult,
    HypothesisResult,
    MeasuredPeaks,
    Structure,
    references,
    sentences,
)
from duallgd_cli.runtime import in_order
from duallgd_cli.scores import Molecule, Score, score
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
from duallgd_cli.sources.known import Knowledge, Known
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.cleaning import clean, resolved
from duallgd_cli.spectra.formulas import FormulaSource
from duallgd_cli.spectra.types import Feature, Hypothesis

if TYPE_CHECKING:  # PyTorch, which those who read results do without
    from duallgd_cli.predict.model import LoadedModel

# For a formula that shares the samples of a feature with others.
_FEWEST_SAMPLES: Final = 15
_AT_HAND: Final = 3  # features that are predicted before processes would be at work
_OF_AN_OWN_SOURCE: Final = 20  # proposals of one that the settings do not name
_SEED_BYTES: Final = 8
_SALT: Final = "internal salt"
_KNOWN_MOLECULE: Final = "known molecule"
_GO_ON: Final = "finished work is kept, and --resume with fewer --workers goes on"
_networks: "Final[list[LoadedModel]]" = []  # of a process that predicts


class Task(NamedTuple):
    """A feature that is to be predicted: what was measured, what it may be, what is known of it."""

    measured: FeatureResult
    hypotheses: Sequence[Hypothesis | Failure]
    known: Known | None


def results(
    features: Iterable[tuple[int, Feature]],
    model: "LoadedModel",
    settings: PredictSettings,
    workers: int = 1,
    *,
    source: FormulaSource | None = None,
    knowledge: Knowledge | None = None,
) -> Iterator[FeatureResult]:
    """What the hypotheses of each feature give, in order: the loop of every prediction.

    Features come with their numbers in the whole input. With several workers each is predicted by
    one of them, with a network of its own, but for the first few; otherwise, and where analogues
    are too many to be sent, in this process. Results do not depend on their number.

    Raises:
        UsageError: The settings name a source that does not exist, or that draws no samples.
    """
    names = (BUILT_IN | {each.name for each in model.sources}) - GIVEN
    if unknown := parse_quotas(settings.sampling.sources).keys() - names:
        raise UsageError(
            f"there is no source {quote(min(unknown))} to draw samples from; there are "
            f"{', '.join(sorted(names))}"
        )
    source = source or formula_source(settings, None, model.max_heavy_atoms)
    tasks = _tasks(features, settings, source, knowledge)
    here = partial(_results, model=model, settings=settings)
    is_large = knowledge is not None and bool(knowledge.analogues)
    if workers == 1 or model.again is None or is_large:
        return map(here, tasks)
    there = partial(_results_elsewhere, again=model.again, settings=settings)
    first = map(here, islice(tasks, _AT_HAND))
    return chain(first, in_order(there, tasks, workers, 1, _GO_ON))


def _tasks(
    features: Iterable[tuple[int, Feature]],
    settings: PredictSettings,
    source: FormulaSource,
    knowledge: Knowledge | None,
) -> Iterator[Task]:
    """What there is to predict, of each feature without the spectra that cannot be cleaned."""
    of_all = None if (guide := settings.guide) is None else Known(guide)
    for number, item in features:
        cleaned = [clean(spectrum, settings.cleaning) for spectrum in item.spectra]
        peaks = tuple(MeasuredPeaks.of(one) for one in cleaned if one.failure is None)
        cleaned = [*map(resolved, cleaned)]
        spectra, strongest = references(cleaned), item.precursor_intensity
        strongest = None if strongest is None else float(strongest)
        measured = FeatureResult(number, spectra, peaks, strongest, item.isotopes)
        usable = tuple(spectrum for spectrum in cleaned if spectrum.failure is None)
        if not usable:
            failure = Failure(spectra[0].status, spectra[0].message)
            yield Task(measured, [failure], of_all)
            continue
        proposed, known = source(Feature(usable)), of_all
        hypotheses = [proposed] if isinstance(proposed, Failure) else proposed
        if knowledge:
            formulas = [each.formula for each in hypotheses if isinstance(each, Hypothesis)]
            known = knowledge.of(Feature(usable)).within(formulas)
        yield Task(measured, hypotheses, known)


def _results_elsewhere(
    task: Task, again: "Callable[[], LoadedModel]", settings: PredictSettings
) -> FeatureResult:
    """What a process gives that has a network of its own, or loads it."""
    if not _networks:
        try:
            _networks.append(again())
        except RuntimeError as error:  # the GPU is full, or takes one process alone
            why = str(error).partition("\n")[0]
            raise UsageError(f"a process cannot load the network ({why}); {_GO_ON}") from None
    return _results(task, _networks[0], settings)


def _results(task: Task, model: "LoadedModel", settings: PredictSettings) -> FeatureResult:
    """What each hypothesis of a feature gives, in the time that the feature has."""
    samples, known = settings.sampling.samples, task.known
    check = _deadline(settings.sampling.timeout_s, model.synchronise)
    excluded = frozenset(model.known if settings.sampling.exclude_known else ())
    results = list[HypothesisResult]()
    for hypothesis in task.hypotheses:
        started = time.perf_counter()
        if isinstance(hypothesis, Failure):
            result = HypothesisResult(hypothesis.status, hypothesis.message)
        else:
            wanted = max(min(_FEWEST_SAMPLES, samples), round(samples * hypothesis.share))
            annotated = annotate(hypothesis, settings.annotation)
            result = HypothesisResult.of(annotated)
            try:
                check()
                if known is not None and known.guide is not None:
                    known.guide.require_room(hypothesis.formula)
                query = Query(annotated, *model.encode(annotated), known, settings.sampling, check)
                quotas = quotas_of(wanted, query, model.sources)
                seed = noise_seed(settings.seed, hypothesis)
                proposals = list(propose(model.sources, query, quotas, seed))
                result = merge(result, proposals, query, model.scores, excluded)
                result = _told(result, query, proposals, quotas, wanted)
            except OutOfTimeError:
                limit = f"stopped after {settings.sampling.timeout_s:g} s"
                more = "raise --timeout-per-spectrum, or lower --steps or --samples"
                result = _failed(result, "timeout", f"{limit}; {more}")
            except RefusedError as refused:
                result = _failed(result, refused.failure.status, refused.failure.message)
        results.append(replace(result, seconds=time.perf_counter() - started))
    return task.measured._replace(hypotheses=tuple(results))


def _deadline(limit_s: float | None, finish: Callable[[], None]) -> Callable[[], None]:
    """A function that raises OutOfTimeError once so much time has passed; None is never."""
    until = None if limit_s is None else time.monotonic() + limit_s

    def check() -> None:
        if until is not None:
            finish()  # a GPU's steps would all be begun before time is up
            if time.monotonic() > until:
                raise OutOfTimeError

    return check


def quotas_of(samples: int, query: Query, sources: Sequence[CandidateSource]) -> dict[str, int]:
    """How many proposals each source is asked for, by name.

    Samples are shared out as `SamplingSettings.sources` says, the last source taking the rest. Half
    begin with the user's analogues, if the setting does not say how many. Structures of databases
    stand beside these, or alone; so does what a source gives that the setting does not name.

    Raises:
        UsageError: The setting names none of the sources.
        RefusedError: Something is known that none of the sources takes.
    """
    names = [source.name for source in sources]
    has_database = bool(query.known and query.known.databases)
    for name, is_given in {DATABASE: has_database, ANALOGUES: bool(query.analogues)}.items():
        if is_given and name not in names:
            message = f"these weights take no {name}; use duallgd's own"
            raise RefusedError(Failure("core_mismatch", message))
    quotas = {LIBRARY: 1} if query.known is not None and query.known.matches else {}
    if has_database:
        quotas[DATABASE] = MOST_OF_A_DATABASE
        if query.sampling.database_share == 1:
            return quotas
    asked = parse_quotas(query.sampling.sources)
    if ANALOGUES not in asked and query.analogues and samples > 1:
        quotas[ANALOGUES] = samples // 2
        samples -= samples // 2
    parts = {name: part for name, part in asked.items() if part and name in names}
    if not parts:
        raise UsageError(
            f"none of the sources {', '.join(asked)} is there; there are {', '.join(names)}"
        )
    shares = {name: samples * part // sum(parts.values()) for name, part in parts.items()}
    shares[next(reversed(parts))] += samples - sum(shares.values())
    beside = {
        source.name: getattr(source, "most", _OF_AN_OWN_SOURCE)
        for source in sources
        if source.name not in BUILT_IN | asked.keys()
    }
    return quotas | shares | beside


def noise_seed(seed: int, hypothesis: Hypothesis) -> int:
    """Seed of all random numbers of one hypothesis, 0 to 2^63 - 1.

    A hash of the user's seed, the peaks of the (cleaned) spectra, the formula and the adduct: where
    the spectrum stands, what it is called and what else is in the run play no part, nor does the
    order of a feature's spectra.
    """
    total = hashlib.blake2b(digest_size=_SEED_BYTES)
    total.update(f"{seed}|{hypothesis.formula}|{hypothesis.adduct.name}".encode())
    peaks = (
        np.ascontiguousarray([spectrum.mz, spectrum.intensity], dtype="<f8").tobytes()
        for spectrum in hypothesis.feature.spectra
    )
    for digest in sorted(hashlib.blake2b(values).digest() for values in peaks):
        total.update(digest)
    return int.from_bytes(total.digest(), "little") >> 1


def merge(
    result: HypothesisResult,
    proposals: Iterable[Proposal],
    query: Query,
    scores: Sequence[Score],
    excluded: Set[str] = frozenset(),
) -> HypothesisResult:
    """The result with distinct molecules, in the order of their keys, their scores, and tallies.

    Molecules are told apart by the first block of their InChIKey; one that is `excluded` is no
    candidate. Each is named once, however often it was proposed: naming takes longest.
    """
    named: dict[str, Molecule | None] = {}  # by SMILES
    together = defaultdict[str, list[Proposal]](list)
    spellings = defaultdict[str, Counter[str]](Counter)
    rejected, sampled = Counter[str](), 0
    for proposal in proposals:
        is_sample, molecule = proposal.source not in GIVEN, None
        sampled += is_sample
        if proposal.mol is not None and not proposal.rejection:
            smiles = identity.canonical_smiles(proposal.mol)
            if smiles not in named:
                query.check()
                try:
                    named[smiles] = Molecule.of(proposal.mol, smiles)
                except MoleculeError:
                    named[smiles] = None
            molecule = named[smiles]
        if molecule is not None:
            together[molecule.block].append(proposal)
            spellings[molecule.block][molecule.smiles] += is_sample
        elif is_sample:
            rejected[proposal.rejection or "no InChI"] += 1
    # Of molecules with one block the one proposed most often.
    spelled = {smiles: molecule for smiles, molecule in named.items() if molecule is not None}
    molecules = {
        block: spelled[min(counts, key=lambda text: (-counts[text], text))]
        for block, counts in spellings.items()
    }
    rejected[_SALT] += _without_strays(together, molecules)
    for block in excluded & together.keys():
        rejected[_KNOWN_MOLECULE] += _n_samples(together.pop(block))
    blocks = sorted(together)
    scored = score(scores, query, [molecules[block] for block in blocks])
    structures = tuple(
        _structure(molecules[block], together[block], values)
        for block, values in zip(blocks, scored, strict=True)
    )
    repaired = sum(structure.repaired for structure in structures)
    return replace(
        result,
        structures=structures,
        sampled=sampled,
        assembled=sampled - repaired - rejected.total(),
        repaired=repaired,
        rejected=dict(sorted((+rejected).items())),
    )


def _n_samples(proposals: Sequence[Proposal]) -> int:
    """Proposals that count: structures of the user's are there or not, however often."""
    return sum(proposal.source not in GIVEN for proposal in proposals)


def _without_strays(together: dict[str, list[Proposal]], molecules: Mapping[str, Molecule]) -> int:
    """Take out what only a wrong placement of charges made, in place; samples of internal salts.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was proposed. Structures of the
    user stay as they are.
    """
    n_samples = {block: _n_samples(proposals) for block, proposals in together.items()}
    kept = {block for block, n in n_samples.items() if n < len(together[block])}
    best: dict[str, str] = {}
    for block in sorted(together, key=lambda block: (-n_samples[block], block)):
        placement = molecules[block].placement
        first = best.setdefault(placement, block) if placement and block not in kept else block
        if first != block:
            together[first] += together.pop(block)
    salts = [block for block in together if molecules[block].is_salt and block not in kept]
    if len(salts) == len(together):
        return 0
    return sum(_n_samples(together.pop(block)) for block in salts)


def _structure(
    molecule: Molecule, proposals: Sequence[Proposal], scores: Mapping[str, float]
) -> Structure:
    samples = [proposal for proposal in proposals if proposal.source not in GIVEN]
    drawn = [one.log_likelihood for one in samples if one.log_likelihood is not None]
    return Structure(
        *(molecule.smiles, molecule.inchi, molecule.inchikey, len(samples)),
        repaired=sum(one.is_repaired for one in samples),
        log_likelihood=sum(drawn) / len(drawn) if drawn else None,
        sources=tuple(sorted({one.source for one in proposals})),
        family=molecule.family,
        scaffold=molecule.scaffold,
        scores=scores,
    )


def _told(
    result: HypothesisResult,
    query: Query,
    proposals: Sequence[Proposal],
    quotas: Mapping[str, int],
    wanted: int,
) -> HypothesisResult:
    """The result with what is to be said of it; so many samples were wanted."""
    said, known, draws = [], query.known, bool(set(quotas) - GIVEN)
    inside = sum(DATABASE in one.sources for one in result.structures)
    is_full = inside == MOST_OF_A_DATABASE
    if DATABASE in quotas and draws and result.structures:
        likeliest = ", the likeliest of them" * is_full
        said = [f"{counted(inside, 'structure')} of the database among the candidates{likeliest}"]
    elif inside:
        among = f"chosen among {'the likeliest ' * is_full}{inside} structures"
        said = [f"{among if inside > 1 else 'the only possible structure'} of the database"]
    if query.constraints is not None and query.constraints.remark:
        said.append(query.constraints.remark)
    if query.constraints is not None and draws:
        made = [one for one in proposals if one.source not in GIVEN]
        valid = sum(not one.rejection for one in made)
        if valid < wanted:
            said.append(f"{valid} of {len(made)} samples are as asked for")
    if known is not None and known.is_uncalibrated and result.structures:
        said.append("confidence is not calibrated for what is known")
    smiles = {one.block: one.smiles for one in result.structures}
    result = replace(
        result,
        message=sentences(result.message, *query.remarks, *said),
        notes=tuple(query.notes),
        known={} if known is None else known.told(smiles, result.formula, query.fingerprint),
    )
    if result.structures:
        return result
    reasons = ", ".join(f"{count} {why}" for why, count in result.rejected.items())
    asked = "" if query.constraints is None else " and is as asked for"
    why = (
        f"none of {counted(result.sampled, 'sample')} is a molecule of {result.formula}"
        f"{asked} ({reasons}); more --samples or --steps may help"
    )
    if not draws:
        why = (
            f"no structure of the database has the formula {query.formula}{asked}; without "
            "--database-only structures are generated too"
        )
    elif result.rejected.keys() == {_KNOWN_MOLECULE}:
        why = f"all found for {result.formula} are known molecules; drop --exclude-known"
    return _failed(result, "no_candidate", why)


def _failed(result: HypothesisResult, status: str, why: str) -> HypothesisResult:
    return replace(result, status=status, message=sentences(why, result.message))
