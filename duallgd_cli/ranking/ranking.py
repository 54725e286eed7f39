"""From the molecules that samples became to a ranked list with probabilities.

Molecules are the same when the first blocks of their InChIKeys are. A candidate's score is a
linear combination of the features in `FEATURES`, read as the logarithm of a weight: the same
molecule under two hypotheses gets the log of the summed weights. Ties are broken by the likelihood
of the samples drawn, then by InChIKey, never by order. A candidate's confidence is its share of all
weights, times the probability that the right molecule was drawn at all. C candidates of one
spectrum, F features.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import parse, require
from duallgd_cli.results import LEAST_EXPLAINED, Candidate, HypothesisResult, Results, Structure
from duallgd_cli.spectra.types import PREDICTED

FIRST: Final = 10
# One sample of one is no agreement: shares count as if so many more samples had agreed with none.
_DISSENT: Final = 10.0
# Of the confidence, where so little is explained. On 33 molecules of fold val without an explained
# peak (30 samples, formula known) the first is right for 12 % where 19 % would be stated, the first
# ten for 30 % where 48 % would be.
_UNEXPLAINED: Final = 0.6
LEAST: Final = 1e-300  # a probability that has a logarithm
# Scores of which only differences between the molecules of a spectrum mean anything.
_RELATIVE: Final = frozenset({"peaks_found", "peaks_missed", "contrast"})
_RETIRED: Final = "alternative_weight"  # weight of what is no longer made
_LEAST_ODDS: Final = 1e-9  # one that has odds, as has its complement


@dataclass(frozen=True, slots=True)
class RankingModel:
    """Weights of the score, and of its calibration; fitted values live in a checkpoint.

    The defaults are neutral and unfitted: frequency among the samples, helped by agreement with the
    predicted fingerprint, and deliberately low probabilities. Weights have the names of the
    features that they are of: ``log_share`` of the log share of the drawn samples that became the
    molecule, ``log_prior`` of that of the hypothesis among those of the feature, ``repaired_share``
    of the samples that needed repair, others of scores (see `scores`). Those of
    ``present`` are of `presence_features`, those of ``corrected`` of `correction_features`.
    """

    log_share: float = 1.0
    fingerprint_log_likelihood: float = 0.0
    fingerprint_tanimoto: float = 5.0
    log_prior: float = 1.0
    repaired_share: float = -0.5
    familiarity: float = 0.0
    peaks_found: float = 0.0
    peaks_missed: float = 0.0
    known_halves: float = 0.0
    contrast: float = 0.0
    known_environments: float = 0.0
    sharpness: float = 1.0  # of scores before the softmax that shares come from
    # how soon more samples count for no more; see `SampleStatistics.counted`
    saturation: float = 0.0
    present: float = -2.0
    present_score: float = 0.0
    present_score_samples: float = 0.0
    present_atoms: float = 0.0
    present_share: float = 0.0
    present_distinct: float = 0.0
    present_samples: float = 0.0
    present_steps: float = 0.0
    present_environments: float = 0.0
    corrected: float = 0.0
    corrected_odds: float = 1.0
    corrected_odds_above_even: float = 0.0
    corrected_samples: float = 0.0
    corrected_odds_samples: float = 0.0
    steps: int = 10  # denoising steps of the samples that are ranked; a run sets it
    least_samples: int = 1  # the fewest samples that the probabilities were fitted on
    most_samples: int = 0  # the most; 0 if that is unknown
    least_steps: int = 0  # the fewest denoising steps that they were fitted on
    most_steps: int = 0  # the most denoising steps that they were fitted on
    n_spectra: int = 0  # spectra the values were fitted on; 0 for the neutral defaults

    def __post_init__(self) -> None:
        for name in ("sharpness", "saturation"):
            value = getattr(self, name)
            require(value >= 0, f"{name} must not be negative: {value}")

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> "RankingModel":
        """From the plain values of a weights file, as `config.parse`; it may be of before."""
        return parse(cls, {name: value for name, value in values.items() if name != _RETIRED})

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights in the order of `FEATURES`, (F,)."""
        return self.values(FEATURES)

    def values(self, names: Iterable[str]) -> NDArray[np.float64]:
        """Those of these names, in their order: of `FEATURES`, `PRESENCE` or `CORRECTION`."""
        return np.array([getattr(self, name) for name in names])


# Names of the weights, in their order: of the score, of `presence_features`, of
# `correction_features`.
_NAMES: Final = tuple(field.name for field in fields(RankingModel))
FEATURES: Final = _NAMES[: _NAMES.index("sharpness")]
PRESENCE: Final = tuple(name for name in _NAMES if name.startswith("present"))
CORRECTION: Final = tuple(name for name in _NAMES if name.startswith("corrected"))


class SampleStatistics(NamedTuple):
    """What the samples of a feature say, whatever their molecules are; in the order of `PRESENCE`.

    Heavy atoms of the largest molecule, 0 without any; logarithms of the share of the molecule that
    was drawn most often (as if ten more samples had been something else: one of one is less
    agreement than fifty of fifty), of distinct molecules a sample, of samples, and of denoising
    steps; the mean score ``known_environments`` of the ten that have the highest.
    """

    n_heavy: int = 0
    log_share: float = 0.0
    log_distinct: float = 0.0
    log_samples: float = 0.0
    log_steps: float = 0.0
    environments: float = 0.0

    def counted(self, model: RankingModel) -> "SampleStatistics":
        """With n samples as n / (1 + saturation n): what is likeliest is made of few too."""
        fewer = math.log1p(model.saturation * math.exp(self.log_samples))
        return self._replace(log_samples=self.log_samples - fewer)

    @classmethod
    def of(cls, results: Results, model: RankingModel) -> "SampleStatistics":
        """Count; a share is that among the samples of one hypothesis."""
        sampled = sum(result.sampled for result in results)
        if not sampled:
            return cls()
        counts = cls(log_samples=float(np.log(sampled)), log_steps=float(np.log(model.steps)))
        drawn = [(one, result) for result in results for one in result.structures]
        if not drawn:
            return counts
        distinct = {one.block: one.scores.get("known_environments") for one, _ in drawn}
        usual = sorted(value for value in distinct.values() if value is not None)[-FIRST:]
        with_structures = sum(result.sampled for result in results if result.structures)
        share = max(one.samples / (result.sampled + _DISSENT) for one, result in drawn)
        return counts._replace(
            n_heavy=max(result.n_heavy for _, result in drawn),
            log_share=float(np.log(share)),
            log_distinct=float(np.log(len(distinct) / with_structures)),
            environments=float(np.mean(usual)) if usual else 0.0,
        )


class Scored(NamedTuple):
    """A molecule of a feature, before it is a candidate."""

    score: float  # the logarithm of a weight
    # Under the best of its hypotheses; samples, likelihood and sources are those of all.
    structure: Structure
    result: HypothesisResult  # of that hypothesis
    features: NDArray[np.float64]  # in the order of `FEATURES`, there


def ranked(results: Results, model: RankingModel) -> tuple[list[Scored], list[float]]:
    """The molecules of a feature, best first, and the probability that each is right.

    Under predicted formulas that is, by the law of total probability, the probability given the
    formula times that of the formula; the score is its logarithm. Weights are not compared across
    formulas, since they grow with the molecule.
    """
    if any(result.formula_source != PREDICTED for result in results):
        return _under_given_formulas(results, model)
    merged = _merged(
        one._replace(score=math.log(max(confidence, LEAST)) + result.log_prior)
        for result in results
        for one, confidence in zip(*_under_given_formulas([result], model), strict=True)
    )
    return merged, [math.exp(one.score) for one in merged]


def rank(
    results: Results, model: RankingModel, most: int | None = None
) -> tuple[tuple[Candidate, ...], float]:
    """Candidates for a feature by one model, and the probability that ten hold the right one."""
    return to_candidates(*ranked(results, model), most)


def to_candidates(
    scored: Sequence[Scored], confidence: Sequence[float], most: int | None = None
) -> tuple[tuple[Candidate, ...], float]:
    """The first of ranked molecules as candidates; the probability that ten hold the right one."""
    scored, confidence = _with_own_scores(scored, confidence)
    groups = defaultdict[tuple[str, str], float](float)
    for one, value in zip(scored, confidence, strict=True):
        groups["family", one.structure.family] += value
        groups["scaffold", one.structure.scaffold] += value

    def summed(kind: str, name: str) -> float:
        return min(1.0, groups[kind, name]) if name else 0.0

    candidates = []
    for place, (one, value) in enumerate(zip(scored[:most], confidence, strict=False), 1):
        structure, result = one.structure, one.result
        extra = dict(zip(FEATURES, one.features.tolist(), strict=True))
        candidates.append(
            Candidate(
                rank=place,
                smiles=structure.smiles,
                inchi=structure.inchi,
                inchikey=structure.inchikey,
                formula=result.formula,
                adduct=result.adduct,
                samples=structure.samples,
                log_likelihood=structure.log_likelihood,
                score=one.score,
                confidence=value,
                extra_scores={**extra, "repaired": structure.repaired, **_own_scores(structure)},
                sources=structure.sources,
                family=structure.family,
                family_confidence=summed("family", structure.family),
                scaffold=structure.scaffold,
                scaffold_confidence=summed("scaffold", structure.scaffold),
            )
        )
    return tuple(candidates), math.fsum(confidence[:FIRST])


def _own_scores(structure: Structure) -> dict[str, float]:
    """Scores of a structure that are the user's own."""
    return {name: value for name, value in structure.scores.items() if name not in FEATURES}


def _with_own_scores(
    scored: Sequence[Scored], confidence: Sequence[float]
) -> tuple[Sequence[Scored], Sequence[float]]:
    """Ranked molecules, ranked anew where there are scores of the user's own.

    These count as logarithms of a likelihood ratio, and all confidences are scaled to their former
    sum, the probability that the right molecule is among them. 0 for all changes nothing.
    """
    added = np.array([math.fsum(_own_scores(one.structure).values()) for one in scored])
    if not added.any():
        return scored, confidence
    logs = np.log(np.maximum(confidence, LEAST)) + added
    logs += np.log(max(math.fsum(confidence), LEAST)) - np.logaddexp.reduce(logs)
    anew = [one._replace(score=log) for one, log in zip(scored, logs.tolist(), strict=True)]
    anew.sort(key=lambda one: (-one.score, one.structure.inchikey))
    return anew, [math.exp(one.score) for one in anew]


def _under_given_formulas(
    results: Results, model: RankingModel
) -> tuple[list[Scored], list[float]]:
    """Molecules of all hypotheses, best first, their weights compared; and their confidence."""
    weights = model.weights
    scored = list[Scored]()
    for structure, result, features in described(results):
        scored.append(Scored(float(np.dot(features, weights)), structure, result, features))
    merged = _merged(scored)
    scores = np.array([one.score for one in merged])
    confidence = candidate_confidence(scores, SampleStatistics.of(results, model), model)
    if all(result.n_peaks and result.explained_intensity < LEAST_EXPLAINED for result in results):
        confidence = confidence * _UNEXPLAINED
    return merged, confidence.tolist()


def _merged(scored: Iterable[Scored]) -> list[Scored]:
    """Each molecule once, best first; the best of several hypotheses names it.

    What was drawn stands before what was not, where scores are the same.
    """
    by_block = defaultdict[str, list[Scored]](list)
    for one in scored:
        by_block[one.structure.block].append(one)
    merged = [same[0] if len(same) == 1 else _merge(same) for same in by_block.values()]

    def order(one: Scored) -> tuple[float, float, str]:
        likelihood = one.structure.log_likelihood
        return -one.score, math.inf if likelihood is None else -likelihood, one.structure.inchikey

    return sorted(merged, key=order)


def described(
    results: Results,
) -> Iterator[tuple[Structure, HypothesisResult, NDArray[np.float64]]]:
    """Every structure of every hypothesis, with its features in the order of `FEATURES`, (F,)."""
    priors = np.array([result.log_prior for result in results])
    log_shares = priors - np.logaddexp.reduce(priors) if priors.size else priors
    for result, log_prior in zip(results, log_shares, strict=True):
        if result.structures:
            rows = _features(result, float(log_prior))
            yield from zip(result.structures, repeat(result), rows, strict=False)


def candidate_confidence(
    scores: NDArray[np.float64], statistics: SampleStatistics, model: RankingModel
) -> NDArray[np.float64]:
    """Probability that each candidate is right, (C,), summing to 1 at most; scores best first."""
    if not scores.size:
        return scores
    sharp, statistics = model.sharpness * scores, statistics.counted(model)
    present = sigmoid(presence_features(sharp, statistics) @ model.values(PRESENCE))
    stated = present * np.exp(sharp - np.logaddexp.reduce(sharp))
    odds = correction_features(float(stated[0]), statistics) @ model.values(CORRECTION)
    # What the first gains the others lose, so that all sum to the chance that the truth is there.
    first = min(float(present), float(sigmoid(odds)))
    left = min(1.0, (present - first) / max(present - stated[0], _LEAST_ODDS))
    return np.append(first, np.minimum(left * stated[1:], first))


def correction_features(first: float, statistics: SampleStatistics) -> NDArray[np.float64]:
    """What the probability of the first candidate is corrected by, in the order of `CORRECTION`.

    The best of many scores is too good by chance as well, and more so of many samples.
    """
    chance = min(max(first, _LEAST_ODDS), 1 - _LEAST_ODDS)
    odds = math.log(chance / (1 - chance))
    samples = statistics.log_samples
    return np.array([1.0, odds, max(0.0, odds), samples, odds * samples])


def presence_features(
    scores: NDArray[np.float64], statistics: SampleStatistics
) -> NDArray[np.float64]:
    """What says whether the right molecule is among the candidates, in the order of `PRESENCE`.

    Scores are sharpened, best first, (C,), C at least 1.
    """
    return np.array([1.0, scores[0], scores[0] * statistics.log_samples, *statistics])


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _features(result: HypothesisResult, log_prior: float) -> NDArray[np.float64]:
    """Features of the structures of a hypothesis in the order of `FEATURES`, (C, F).

    Some are next to the best of the molecules: only differences mean anything. A molecule that
    could not be scored counts like the worst that could.
    """
    structures = result.structures
    samples, repaired = np.array([one[3:5] for one in structures], np.float64).T
    told = {
        "log_share": np.log(samples / result.sampled),
        "log_prior": np.full(len(structures), log_prior),
        "repaired_share": repaired / np.maximum(1.0, samples),
    }
    columns = []
    for name in FEATURES:
        values = told.get(name)
        if values is None:
            values = np.array([one.scores.get(name, np.nan) for one in structures], np.float64)
            known = ~np.isnan(values)
            worst = values[known].min() if known.any() else 0.0
            values = np.where(known, values, worst)
        columns.append(values - values.max() if name in _RELATIVE else values)
    return np.column_stack(columns)


def _merge(same: list[Scored]) -> Scored:
    """One molecule under several hypotheses."""
    same.sort(
        key=lambda one: (
            -one.score, one.structure.inchikey, one.result.formula, one.result.adduct
        )
    )  # fmt: skip
    each = [one.structure for one in same]
    drawn = [(one.log_likelihood, one.samples) for one in each if one.log_likelihood is not None]
    weight = sum(count for _, count in drawn)
    structure = each[0]._replace(
        samples=sum(one.samples for one in each),
        log_likelihood=sum(mean * n for mean, n in drawn) / weight if weight else None,
        sources=tuple(sorted({name for one in each for name in one.sources})),
    )
    score = float(np.logaddexp.reduce([one.score for one in same]))
    return same[0]._replace(score=score, structure=structure)
