"""Fitting the ranking of a weights file on finished runs: weights of the score, then probabilities.

The weights maximise the likelihood that candidates are drawn from the softmax of the scores in
proportion to how alike the truth they are, steeply so that the right one outweighs all others where
it is there; where it is not, a spectrum counts little. They are shrunk towards the weights one
starts from by an amount that cross-validation chooses. Whether the truth is among the candidates is
a logistic regression with Platt's smoothed targets on what the samples and their number say.
Folds are by molecule. C candidates of one spectrum, F features, B spectra, X observations.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.chem import identity
from duallgd_cli.config import dump
from duallgd_cli.errors import MoleculeError, UsageError, quote
from duallgd_cli.evaluate.intervals import CalibrationTable, reliability
from duallgd_cli.files import sha256
from duallgd_cli.model.tensors import minimum
from duallgd_cli.predict.journal import FinishedRun, read
from duallgd_cli.ranking.one_list import of_databases
from duallgd_cli.ranking.ranking import (
    CORRECTION,
    FEATURES,
    FIRST,
    PRESENCE,
    RankingModel,
    SampleStatistics,
    candidate_confidence,
    correction_features,
    described,
    presence_features,
)
from duallgd_cli.results import FeatureResult, Results
from duallgd_cli.sources.collection import Collection
from duallgd_cli.tables import table_rows

Array = NDArray[np.float64]

_SHRINKAGE: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
_LEAST: Final = 1e-12
_RIDGE: Final = 1.0
_SATURATION: Final = 0.01  # of samples; by cross-validation on fold val. A database has no samples
_FOLDS: Final = 5
# Chosen by cross-validation on fold val, where the right molecule first and likeness pull apart.
_TEMPERATURE: Final = 0.05
_WITHOUT_TRUTH: Final = 0.05
_NEVER_THE_SAME: Final = 0.95  # equal bits are not yet an equal molecule
DATABASES: Final = "databases"  # in the header of a run that had any
_BLOCK: Final = identity.BLOCK_LENGTH


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCase:
    """The candidates of one spectrum with the truth."""

    features: Array  # in the order of `FEATURES`, float64 (C, F)
    is_right: NDArray[np.bool_]  # which candidate is right, bool (C,); at most one, often none
    keys: tuple[str, ...]  # InChIKeys, for ties, (C,)
    molecule: str  # InChIKey first block of the truth; its spectra stay in one fold
    statistics: SampleStatistics  # of the samples they come from
    likeness: Array  # Tanimoto similarity of each to the truth, 0 to 1, (C,); 0 where it is unknown
    # whether candidates are the structures of a database, however many there are
    of_database: bool = False

    @property
    def wanted(self) -> Array:
        """Share that each candidate should have, (C,), summing to 1; all 0 without a hint."""
        if not self.likeness.any():
            return self.is_right.astype(np.float64)
        alike = np.where(self.is_right, 1.0, np.minimum(self.likeness, _NEVER_THE_SAME))
        share = np.exp((alike - alike.max()) / _TEMPERATURE)
        return np.asarray(share / share.sum())

    def ranked(self, model: RankingModel) -> tuple[Array, NDArray[np.bool_]]:
        """Scores, best first, ties by InChIKey, and which is right, both (C,)."""
        scores = self.features @ model.weights
        order = np.lexsort((np.array(self.keys, "S"), -scores))
        return scores[order], self.is_right[order]


@dataclass(frozen=True, slots=True)
class Validation:
    """Quality of a fit on spectra that took no part in it."""

    # share of spectra whose first candidate is right, at the number of samples and steps that most
    # spectra were drawn with; of all where structures of a database were ranked
    top1: float
    top10: float  # share of these spectra with the right one among the first ten
    n_spectra: int  # how many these are
    first: CalibrationTable  # of the confidence of first candidates, of all spectra

    def __str__(self) -> str:
        """In words, as part of a sentence."""
        return f"cross-validated: top-1 {self.top1:.3f}, top-10 {self.top10:.3f}"


def scored_case(
    results: Results, truth: str, model: RankingModel, alike: Mapping[str, float] | None = None
) -> ScoredCase:
    """Candidates with their scores; molecules of several hypotheses count once, at their best."""
    best: dict[str, tuple[float, str, NDArray[np.float64]]] = {}
    for structure, _, features in described(results):
        score = float(np.dot(features, model.weights))
        if structure.block not in best or score > best[structure.block][0]:
            best[structure.block] = (score, structure.inchikey, features)
    blocks = sorted(best)
    return ScoredCase(
        features=np.array([best[block][2] for block in blocks]).reshape(-1, len(FEATURES)),
        is_right=np.array([block == truth[:14] for block in blocks], dtype=np.bool_),
        keys=tuple(best[block][1] for block in blocks),
        molecule=truth[:14],
        statistics=SampleStatistics.of(results, model),
        likeness=np.array([(alike or {}).get(best[block][1], 0.0) for block in blocks]),
    )


def fit(
    cases: Sequence[ScoredCase], start: RankingModel | None = None, *, keep_ranking: bool = False
) -> RankingModel:
    """Weights, then calibrations; with `keep_ranking` the weights of `start` stay."""
    model = start or RankingModel()
    return fit_calibration(cases, model if keep_ranking else fit_ranking(cases, model))


def fit_ranking(cases: Sequence[ScoredCase], start: RankingModel | None = None) -> RankingModel:
    """Fit the weights of the score; calibration is left as it is in `start`.

    Spectra of which no candidate is right, nor known to be like the truth, say nothing. Without any
    others `start` is returned.
    """
    model = start or RankingModel()
    useful = [case for case in cases if len(case.keys) and case.wanted.any()]
    if not useful:
        return model
    held_out, ones = folds(useful), np.ones(len(FEATURES))
    losses = [
        sum(
            float(_loss(fold, ones)(torch.from_numpy(_fit_weights(rest, model.weights, amount))))
            for rest, fold in held_out
            if rest and fold
        )
        for amount in _SHRINKAGE
    ]
    # Where there is but one molecule nothing can be held out: the strongest shrinkage is chosen.
    amount = _SHRINKAGE[int(np.argmin(losses))] if any(losses) else _SHRINKAGE[-1]
    weights = _fit_weights(useful, model.weights, amount)
    values: dict[str, Any] = dict(zip(FEATURES, weights.tolist(), strict=True))
    return replace(model, n_spectra=len(cases), **values)


def fit_calibration(cases: Sequence[ScoredCase], model: RankingModel) -> RankingModel:
    """Fit, for given weights of the score, all that makes probabilities of scores."""
    told = [case for case in cases if len(case.keys)]
    if not told:
        return model
    right = [
        replace(case, features=(case.features @ model.weights)[:, None], likeness=0 * case.likeness)
        for case in told
        if case.is_right.any()
    ]
    # The factor of the scores under whose softmax the right candidates are likeliest.
    sharpness = float(_fit_weights(right, np.ones(1), _RIDGE)[0]) if right else model.sharpness
    steps = [round(np.exp(case.statistics.log_steps)) for case in told]
    samples = [round(np.exp(case.statistics.log_samples)) for case in told]
    model = replace(
        model,
        n_spectra=len(cases),
        sharpness=max(0.0, sharpness),
        saturation=0.0 if any(case.of_database for case in told) else _SATURATION,
        least_samples=min(samples),
        most_samples=max(samples),
        least_steps=min(steps),
        most_steps=max(steps),
    )
    scored = [case.ranked(model) for case in told]
    counted = [case.statistics.counted(model) for case in told]
    features = [
        presence_features(model.sharpness * score, statistics)
        for statistics, (score, _) in zip(counted, scored, strict=True)
    ]
    is_there = np.array([bool(is_right.any()) for _, is_right in scored])
    weights = logistic(np.array(features), is_there).tolist()
    uncorrected = dict.fromkeys(CORRECTION, 0.0) | {"corrected_odds": 1.0}
    values: dict[str, Any] = uncorrected | dict(zip(PRESENCE, weights, strict=True))
    model = replace(model, **values)
    first = [
        correction_features(candidate_confidence(score, case.statistics, model)[0], statistics)
        for case, statistics, (score, _) in zip(told, counted, scored, strict=True)
    ]
    weights = logistic(np.array(first), np.array([bool(right[0]) for _, right in scored])).tolist()
    return replace(model, **dict(zip(CORRECTION, weights, strict=True)))


def cross_validate(
    cases: Sequence[ScoredCase], start: RankingModel | None = None, *, keep_ranking: bool = False
) -> Validation:
    """Fit on all folds but one and judge on that one, in turn."""
    models, held_out = [], []
    for rest, fold in folds(cases):
        held_out += fold
        models += [fit(rest, start, keep_ranking=keep_ranking)] * len(fold)
    return judge(held_out, models)


def judge(cases: Sequence[ScoredCase], models: Sequence[RankingModel]) -> Validation:
    """How far the probabilities of models can be trusted, each for its spectrum.

    A spectrum without candidates counts as wrong, with probability 0.
    """
    stated, hits = [], []
    for case, model in zip(cases, models, strict=True):
        score, is_right = case.ranked(model)
        stated.append(candidate_confidence(score, case.statistics, model)[:1].sum())
        hits.append([is_right[:1].any(), is_right[:FIRST].any()])
    settings = [
        None if case.of_database else (case.statistics.log_samples, case.statistics.log_steps)
        for case in cases
    ]
    usual = Counter(settings).most_common(1)[0][0]
    is_usual = np.array([setting == usual for setting in settings])
    right = np.array(hits)
    top1, top10 = right[is_usual].mean(0).tolist()
    return Validation(top1, top10, int(is_usual.sum()), reliability(np.array(stated), right[:, 0]))


def folds(cases: Sequence[ScoredCase]) -> list[tuple[list[ScoredCase], list[ScoredCase]]]:
    """Pairs of the rest and a fold; a molecule's fold is a hash of its key, so order is nothing."""
    digests = (hashlib.blake2b(case.molecule.encode(), digest_size=8).digest() for case in cases)
    number = np.array([int.from_bytes(digest) % _FOLDS for digest in digests])
    return [
        (list(compress(cases, number != fold)), list(compress(cases, number == fold)))
        for fold in range(_FOLDS)
    ]


def logistic(told: Array, happened: NDArray[np.bool_]) -> Array:
    """Weights of a logistic regression, (K,), slightly shrunk but for the first.

    Observations are (X, K), their first column is 1; what came of each is (X,). Targets are
    smoothed as Platt's, so that few or no events give finite values.
    """
    n_right = int(happened.sum())
    n_wrong = happened.size - n_right
    centre, spread = told.mean(axis=0), told.std(axis=0)
    varies = spread > _LEAST
    centre[0], unit = 0.0, np.where(varies, spread, 1.0)
    design = np.where(varies, (told - centre) / unit, 0.0)
    design[:, 0] = 1.0
    x = torch.from_numpy(design)
    target = torch.from_numpy(np.where(happened, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2)))

    def loss(weights: Tensor) -> Tensor:
        logits = x @ weights
        entropy = torch.nn.functional.softplus(logits) - target * logits
        return entropy.sum() + 0.5 * _RIDGE * weights[1:].square().sum()

    start = torch.zeros(told.shape[1], dtype=torch.float64)
    start[0] = torch.logit(target.mean())
    weights = minimum(loss, start).numpy() / unit
    weights[0] -= np.dot(weights[1:], centre[1:])
    return np.asarray(weights)


def _loss(cases: Sequence[ScoredCase], unit: Array) -> Callable[[Tensor], Tensor]:
    """Negative log-likelihood of the wanted candidates, X of B spectra, under a softmax of scores.

    It is a function of weights, (F,), of features that are divided by `unit`, (F,).
    """
    counts = torch.tensor([len(case.keys) for case in cases])
    features = torch.from_numpy(np.concatenate([case.features for case in cases]) / unit)  # (X, F)
    weighed = [case.wanted * (1.0 if case.is_right.any() else _WITHOUT_TRUTH) for case in cases]
    wanted = torch.from_numpy(np.concatenate(weighed))

    def loss(weights: Tensor) -> Tensor:
        scores = features @ weights
        # Subtracting the highest score of each spectrum keeps the exponentials in range.
        highest = torch.segment_reduce(scores.detach(), "max", lengths=counts)
        shifted = scores - highest.repeat_interleave(counts)
        total = torch.segment_reduce(shifted.exp(), "sum", lengths=counts)
        return -(wanted * (shifted - total.log().repeat_interleave(counts))).sum()

    return loss


def _fit_weights(cases: Sequence[ScoredCase], centre: Array, shrinkage: float) -> Array:
    """The penalised conditional logit; convex, so there is one minimum.

    The penalty is on weights times the spread of their features within spectra, so that units do
    not matter; a feature that never varies keeps its weight.
    """
    scale = np.sqrt(np.mean([case.features.var(axis=0) for case in cases], axis=0))  # (F,)
    varies = scale > _LEAST
    unit = np.where(varies, scale, 1.0)
    likelihood, start = _loss(cases, unit), torch.from_numpy(centre * unit)

    def penalised(weights: Tensor) -> Tensor:
        return likelihood(weights) + 0.5 * shrinkage * (weights - start).square().sum()

    return np.asarray(np.where(varies, minimum(penalised, start).numpy() / unit, centre))


def fit_weights_file(
    weights: Path,
    runs: Sequence[Path],
    truth: Path,
    out: Path,
    *,
    keep_ranking: bool = False,
) -> tuple[RankingModel, Validation]:
    """Fit the ranking of a weights file on runs that were made with it, into another such file.

    The runs are outputs or journals; of one that was stopped, what is there counts. See
    `fit_checkpoint`, which also says what comes back, and `truths_of` for the table of the truth.

    Raises:
        UsageError: Runs, weights and truth do not belong together, or lack what is asked of them.
    """
    truths, digest = truths_of(truth), sha256(weights)
    finished = [read([path], partial=True) for path in runs]
    for path, run in zip(runs, finished, strict=True):
        if run.header.model.get("sha256") != digest:
            raise UsageError(
                f"{path} was predicted with other weights than {weights}; predict again"
            )
    fitted, ranking, validation = fit_checkpoint(
        load(weights), finished, truths, keep_ranking=keep_ranking
    )
    save(out, fitted, torch.float16, short_codes=True)
    return ranking, validation


def fit_checkpoint(
    checkpoint: Checkpoint,
    finished: Sequence[FinishedRun],
    truths: Mapping[str, Mapping[str, str]],
    *,
    keep_ranking: bool = False,
) -> tuple[Checkpoint, RankingModel, Validation]:
    """Fit the ranking of a network on runs that were made with it.

    The runs have different numbers of samples and steps, so that confidence holds for these. With a
    database they give the ranking of its structures, else that of drawn ones. Where the truth has
    SMILES, candidates that are like it count a little too. With `keep_ranking` the order of
    candidates stays as it is.

    Returns:
        The network with its ranking, the ranking, and how well it holds, cross-validated by
        molecule.

    Raises:
        UsageError: Runs and truth do not belong together, or lack what is asked of them.
    """
    searched = {DATABASES in run.header.settings for run in finished}
    if len(searched) > 1:
        raise UsageError("some of the runs had a database and some had none; fit one at a time")
    kind = "database" if searched == {True} else "ranking"
    start = RankingModel.stored(getattr(checkpoint, kind)) if keep_ranking else RankingModel()
    known = known_blocks(checkpoint)
    cases = [case for run in finished for case in scored_cases(run, truths, start, known)]
    if not cases:
        raise UsageError("the runs hold no finished spectrum; let them go on with --resume")
    ranking = fit(cases, start, keep_ranking=keep_ranking)
    validation = cross_validate(cases, start, keep_ranking=keep_ranking)
    name = f"{kind}_validation"
    kept = checkpoint.record.get(name, {}) if keep_ranking else {}
    record = {**checkpoint.record, name: record_of(validation, kept)}
    changes: dict[str, Any] = {"record": record, kind: dump(ranking)}
    return replace(checkpoint, **changes), ranking, validation


def record_of(validation: Validation, known: Mapping[str, Any]) -> dict[str, Any]:
    """What a weights file says of how good its ranking is.

    An order that was kept has a record: it was fitted, perhaps on these very molecules, so its own
    cross-validated accuracy stays and is not measured again.
    """
    kept = {name: known[name] for name in ("top1", "top10") if name in known}
    if kept:
        kept["n_spectra"] = known.get("n_spectra", known.get("first", {}).get("count", 0))
    # As JSON knows them, every number a float.
    figures = json.loads(json.dumps(asdict(validation)), parse_int=float)
    return {**figures, **kept}


def known_blocks(checkpoint: Checkpoint) -> frozenset[str]:
    """First blocks of the InChIKeys of the molecules that come with weights."""
    return frozenset(Collection.of(checkpoint.templates).names if checkpoint.templates else ())


def scored_cases(
    run: FinishedRun,
    truths: Mapping[str, Mapping[str, str]],
    start: RankingModel,
    known: frozenset[str],
) -> Iterator[ScoredCase]:
    """Every feature of a run.

    Known molecules, of which `known` has the first blocks of the InChIKeys, are no candidates where
    the truth is none of them: a fold that was held out cannot say how often they are right.
    """
    of_database = DATABASES in run.header.settings
    model = replace(start, steps=int(run.header.settings["sampling"]["steps"]))
    for feature in run.features():
        truth, results = truth_of(truths, feature), feature.hypotheses
        key, smiles = truth["inchikey"], truth["smiles"]
        if key[:_BLOCK] not in known:
            results = tuple(
                replace(one, structures=tuple(s for s in one.structures if s.block not in known))
                for one in results
            )
        results = tuple(of_databases(results) if of_database else results)
        try:
            bits = _bits(smiles) if smiles else None
        except MoleculeError as error:
            raise UsageError(
                f"the truth holds {quote(smiles)} ({error}); mend or empty that cell"
            ) from None
        alike = {
            structure.inchikey: identity.tanimoto(_bits(structure.smiles), bits)
            for result in results
            for structure in result.structures
            if bits is not None
        }
        yield replace(scored_case(results, key, model, alike), of_database=of_database)


def _bits(smiles: str) -> NDArray[np.uint16]:
    """Set bits of a molecule's fingerprint."""
    return identity.fingerprint(identity.parse_smiles(smiles))


def truth_of(truths: Mapping[str, Mapping[str, str]], feature: FeatureResult) -> Mapping[str, str]:
    """InChIKey and SMILES of a feature.

    Raises:
        UsageError: There is no row for it, or no InChIKey in it.
    """
    name = feature.spectra[0].spectrum_id
    if name not in truths:
        raise UsageError(f"the truth has no row for spectrum {quote(name)}; add its identifier")
    if len(truths[name]["inchikey"]) < _BLOCK:
        raise UsageError(f"the truth has no InChIKey for spectrum {quote(name)}; fill that cell")
    return truths[name]


def truths_of(*paths: Path) -> dict[str, dict[str, str]]:
    """InChIKey and SMILES of every row of tables, "" where there is none, by identifier."""
    truths: dict[str, dict[str, str]] = {}
    for path in paths:
        for row in table_rows(path, required=("identifier", "inchikey")):
            name = row["identifier"]
            known = {column: row.get(column, "") for column in ("inchikey", "smiles")}
            if truths.setdefault(name, known) != known:
                raise UsageError(
                    f"{quote(name)} stands twice with different structures in truth {path}; "
                    "remove one"
                )
    return truths
