"""From the molecules that samples became to a ranked list with probabilities.

Molecules are the same when the first blocks of their InChIKeys are. A candidate's score is a
linear combination of the features in `FEATURES`, read as the logarithm of a weight: the same
molecule under two hypotheses gets the log of the summed weights. Ties are broken by InChIKey, never
by order. A candidate's confidence is its share of all weights, times the probability that the right
molecule was drawn at all. C candidates of one spectrum, F features.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import parse, require
from duallgd_cli.errors import ConfigError, UnreadableError, UsageError
from duallgd_cli.guide.files import GuideFiles
from duallgd_cli.predict.prediction import Candidate, Case, Outcome, Structure
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.types import PREDICTED

logger = logging.getLogger(__name__)

FEATURES: Final = (
    "log_share",
    "log_likelihood",
    "fingerprint_log_likelihood",
    "fingerprint_tanimoto",
    "log_prior",
    "repaired_share",
    "familiarity",
    "peaks_found",
    "peaks_missed",
)
PRESENCE: Final = (
    "present",
    "present_score",
    "present_atoms",
    "present_share",
    "present_distinct",
    "present_samples",
    "present_steps",
)
FIRST: Final = 10
# One sample of one is no agreement: shares count as if so many more samples had agreed with none.
_DISSENT: Final = 10.0
_LEAST: Final = 1e-300  # a probability that has a logarithm


@dataclass(frozen=True, slots=True)
class RankingModel:
    """Weights of the score, and of its calibration; fitted values live in a checkpoint.

    The defaults are neutral and unfitted: frequency among the samples, helped by agreement with the
    predicted fingerprint, and deliberately low probabilities.

    Attributes:
        log_share: Weight of the log share of the drawn samples that became the molecule.
        log_likelihood: Weight of the mean log-likelihood of those samples.
        fingerprint_log_likelihood: Weight of the log-likelihood of the molecule's Morgan bits under
            the predicted probabilities, relative to the most probable bits.
        fingerprint_tanimoto: Weight of the soft Tanimoto similarity to those probabilities.
        log_prior: Weight of the log of the hypothesis's share among those of the feature.
        repaired_share: Weight of the share of samples that needed repair.
        familiarity: Weight of the substructure prior of `generator.reranker`.
        peaks_found: Weight of the log-likelihood of matched fragments, less the highest among the
            molecules of the hypothesis.
        peaks_missed: Weight of the log-likelihood of predicted but absent fragments, less the
            highest among the molecules of the hypothesis.
        alternative_weight: What a further reading of a sample counts for, next to 1 for the first.
        sharpness: Of scores before the softmax that shares come from.
        present: Log-odds, but for what follows, that the right molecule is among the candidates.
        present_score: Weight there of the highest score.
        present_atoms: Weight there of the number of heavy atoms.
        present_share: Weight there of the log share of the candidate that was drawn most often; the
            share is that of `SampleStatistics`.
        present_distinct: Weight there of the log number of candidates a sample.
        present_samples: Weight there of the log number of samples.
        present_steps: Weight there of the log number of denoising steps.
        steps: Denoising steps of the samples that are ranked; a run sets it.
        most_samples: The probabilities were fitted on 1 to so many samples; 0 if that is unknown.
        least_steps: The fewest denoising steps that they were fitted on.
        most_steps: The most denoising steps that they were fitted on.
        n_spectra: Spectra the values were fitted on; 0 for the neutral defaults.
    """

    log_share: float = 1.0
    log_likelihood: float = 0.005
    fingerprint_log_likelihood: float = 0.0
    fingerprint_tanimoto: float = 5.0
    log_prior: float = 1.0
    repaired_share: float = -0.5
    familiarity: float = 0.0
    peaks_found: float = 0.0
    peaks_missed: float = 0.0
    alternative_weight: float = 0.5
    sharpness: float = 1.0
    present: float = -2.0
    present_score: float = 0.0
    present_atoms: float = 0.0
    present_share: float = 0.0
    present_distinct: float = 0.0
    present_samples: float = 0.0
    present_steps: float = 0.0
    steps: int = 10
    most_samples: int = 0
    least_steps: int = 0
    most_steps: int = 0
    n_spectra: int = 0

    def __post_init__(self) -> None:
        require(self.sharpness >= 0, f"sharpness must not be negative: {self.sharpness}")
        require(0 < self.alternative_weight <= 1, "alternative_weight must be above 0, at most 1")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights in the order of `FEATURES`, shape (F,)."""
        return np.array([getattr(self, name) for name in FEATURES])

    @property
    def presence_weights(self) -> NDArray[np.float64]:
        """Weights in the order of `PRESENCE`."""
        return np.array([getattr(self, name) for name in PRESENCE])


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """What the samples of a feature say, whatever their molecules are.

    Attributes:
        n_heavy: Heavy atoms of the largest molecule, 0 without any.
        log_share: Log share of the molecule that was drawn most often, as if ten more samples had
            been something else: one sample of one is less agreement than fifty of fifty.
        log_distinct: Log number of distinct molecules a sample.
        log_samples: Log number of samples.
        log_steps: Log number of denoising steps of each.
    """

    n_heavy: int = 0
    log_share: float = 0.0
    log_distinct: float = 0.0
    log_samples: float = 0.0
    log_steps: float = 0.0

    @classmethod
    def of(cls, case: Case, model: RankingModel) -> "SampleStatistics":
        """Count; a share is that among the samples of one hypothesis."""
        sampled = sum(outcome.tallies.sampled for outcome in case.outcomes)
        if not sampled:
            return cls()
        log_samples, log_steps = float(np.log(sampled)), float(np.log(model.steps))
        outcomes = [outcome for outcome in case.outcomes if outcome.structures]
        if not outcomes:
            return cls(log_samples=log_samples, log_steps=log_steps)
        distinct = {one.block for outcome in outcomes for one in outcome.structures}
        with_structures = sum(outcome.tallies.sampled for outcome in outcomes)
        return cls(
            n_heavy=max(outcome.n_heavy for outcome in outcomes),
            log_share=max(
                float(np.log(_count(one, model) / (outcome.tallies.sampled + _DISSENT)))
                for outcome in outcomes
                for one in outcome.structures
            ),
            log_distinct=float(np.log(len(distinct) / with_structures)),
            log_samples=log_samples,
            log_steps=log_steps,
        )


def for_run(
    model: RankingModel, settings: PredictSettings, files: GuideFiles | None = None
) -> RankingModel:
    """The model for samples of a run; warns where its confidence was not calibrated.

    Args:
        model: As fitted.
        settings: Of the run.
        files: That say what is known of the molecules, if there are any.
    """
    sampling = settings.sampling
    guided = settings.guide is not None or files is not None
    steps, samples = sampling.steps, sampling.samples
    others = (
        f"schedule {sampling.schedule}" if sampling.schedule is not None else "",
        f"temperature {sampling.temperature:g}" if sampling.temperature != 1 else "",
    )
    if not model.n_spectra:
        logger.warning("the ranking of these weights was never fitted: confidence means nothing")
    elif samples > model.most_samples or not model.least_steps <= steps <= model.most_steps:
        logger.warning(
            "confidence was calibrated for 1 to %d samples and %d to %d steps, not for %d samples "
            "and %d steps: take it as a rough guide",
            *(model.most_samples, model.least_steps, model.most_steps, samples, steps),
        )
    elif guided:
        logger.warning(
            "confidence was calibrated without a core, parts or analogues that are known: with "
            "them it is too low where they are right, and means nothing where they are wrong"
        )
    elif any(others):
        logger.warning(
            "confidence was calibrated with the weights' own schedule at temperature 1, not with "
            "%s: take it as a rough guide",
            " and ".join(filter(None, others)),
        )
    return replace(model, steps=steps)


def recorded(values: Mapping[str, object], name: object) -> RankingModel:
    """The model that ranked a finished run.

    Args:
        values: As its journal has them.
        name: Of the run, for the message.

    Raises:
        UnreadableError: They are those of another version.
    """
    try:
        return parse(RankingModel, values)
    except ConfigError:
        raise UnreadableError(
            f"{name} was ranked by another version of duallgd; use that version, or predict again"
        ) from None


def rank(case: Case, model: RankingModel) -> tuple[tuple[Candidate, ...], float]:
    """Rank what the samples of a case became.

    Returns:
        All candidates, best first, and the probability that the first ten hold the right one.
    """
    if all(outcome.formula_source == PREDICTED for outcome in case.outcomes):
        candidates = _under_predicted_formulas(case, model)
    else:
        candidates = _under_given_formulas(case, model)
    top = math.fsum(candidate.confidence for candidate in candidates[:FIRST])
    return tuple(candidates), top


def rescored(
    candidates: Sequence[Candidate], added: Sequence[float], name: str
) -> tuple[Candidate, ...]:
    """Candidates of a feature ranked anew by a further score.

    It counts as the logarithm of a likelihood ratio: each confidence is multiplied by its
    exponential, and all are scaled to their former sum, the probability that the right molecule is
    among them. 0 for all changes nothing.

    Args:
        candidates: All of a feature, best first.
        added: One number for each.
        name: Of whatever gave them, for messages.

    Raises:
        UsageError: There are more numbers or fewer, or one is not finite.
    """
    extra = np.asarray(added, np.float64)
    if extra.shape != (len(candidates),) or not np.isfinite(extra).all():
        raise UsageError(
            f"{name} must give one finite number for each of {len(candidates)} candidates"
        )
    confidence = np.array([one.confidence for one in candidates])
    logs = np.log(np.maximum(confidence, _LEAST)) + extra
    logs += np.log(max(confidence.sum(), _LEAST)) - _log_sum_exp(logs)
    found = [
        replace(
            one,
            score=float(log),
            confidence=math.exp(log),
            extra_scores={**one.extra_scores, "rescore": float(score)},
        )
        for one, log, score in zip(candidates, logs, extra, strict=True)
    ]
    found.sort(key=lambda one: (-one.score, one.inchikey))
    return tuple(replace(one, rank=place) for place, one in enumerate(found, 1))


def _under_given_formulas(case: Case, model: RankingModel) -> list[Candidate]:
    """Candidates of all hypotheses, best first, their weights compared."""
    weights = model.weights
    merged = _merged(
        _candidate(structure, outcome, features, float(np.dot(features, weights)))
        for structure, outcome, features in described(case.outcomes, model)
    )
    scores = np.array([candidate.score for candidate in merged])
    confidence = candidate_confidence(scores, SampleStatistics.of(case, model), model)
    return [
        replace(candidate, rank=place, confidence=float(value))
        for place, (candidate, value) in enumerate(zip(merged, confidence, strict=True), 1)
    ]


def _under_predicted_formulas(case: Case, model: RankingModel) -> list[Candidate]:
    """Candidates of all formulas, best first, by the law of total probability.

    Their confidence is that given the formula, times the formula's probability; the score is its
    logarithm. Weights are not compared across formulas, since they grow with the molecule.
    """
    found = [
        replace(candidate, score=math.log(max(candidate.confidence, _LEAST)) + outcome.log_prior)
        for outcome in case.outcomes
        for candidate in _under_given_formulas(replace(case, outcomes=(outcome,)), model)
    ]
    return [
        replace(one, rank=place, confidence=math.exp(one.score))
        for place, one in enumerate(_merged(found), 1)
    ]


def _merged(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One candidate for each molecule, best first."""
    by_block: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_block.setdefault(candidate.inchikey14, []).append(candidate)
    merged = [_merge(same) for same in by_block.values()]
    return sorted(merged, key=lambda candidate: (-candidate.score, candidate.inchikey))


def described(
    outcomes: Sequence[Outcome], model: RankingModel
) -> Iterator[tuple[Structure, Outcome, tuple[float, ...]]]:
    """Every structure of every hypothesis, with its features in the order of `FEATURES`."""
    priors = np.array([outcome.log_prior for outcome in outcomes])
    log_shares = priors - _log_sum_exp(priors) if priors.size else priors
    for outcome, log_prior in zip(outcomes, log_shares, strict=True):
        evidence = _evidence(outcome.structures)
        for structure, said in zip(outcome.structures, evidence, strict=True):
            own = _features(structure, outcome, float(log_prior), model)
            yield structure, outcome, (*own, *said)


def candidate_confidence(
    scores: NDArray[np.float64], statistics: SampleStatistics, model: RankingModel
) -> NDArray[np.float64]:
    """Probability that each candidate of a spectrum is right, shape (C,), summing to 1 at most.

    Args:
        scores: Best first, (C,).
        statistics: Of the samples they come from.
        model: Weights.
    """
    if not scores.size:
        return scores
    sharp = model.sharpness * scores
    present = sigmoid(np.dot(presence_features(sharp, statistics), model.presence_weights))
    return np.asarray(present * np.exp(sharp - _log_sum_exp(sharp)))


def presence_features(
    scores: NDArray[np.float64], statistics: SampleStatistics
) -> NDArray[np.float64]:
    """What says whether the right molecule is among the candidates, in the order of `PRESENCE`.

    Args:
        scores: Sharpened, best first, (C,), C at least 1.
        statistics: Of the samples they come from.
    """
    return np.array([1.0, scores[0], *astuple(statistics)])


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _features(
    structure: Structure, outcome: Outcome, log_prior: float, model: RankingModel
) -> tuple[float, ...]:
    agreement = structure.fingerprint_log_likelihood or 0.0
    return (
        float(np.log(_count(structure, model) / outcome.tallies.sampled)),
        structure.log_likelihood,
        agreement,
        structure.fingerprint_tanimoto or 0.0,
        log_prior,
        structure.repaired / max(1, structure.samples),
    )


def _count(structure: Structure, model: RankingModel) -> float:
    """Samples that became the structure; a further reading of a sample counts less."""
    return structure.samples + model.alternative_weight * structure.alternatives


def _evidence(structures: Sequence[Structure]) -> list[list[float]]:
    """Familiarity, and peaks found and missed next to the best of these; (C, 3).

    A molecule that could not be asked counts like the worst that could.
    """
    said = [(one.familiarity, one.peaks_found, one.peaks_missed) for one in structures]
    values = np.array(said, np.float64).reshape(-1, 3)
    asked = ~np.isnan(values)
    if not asked.any():
        return np.zeros_like(values).tolist()
    worst = np.where(asked, values, np.inf).min(0)
    values = np.where(asked, values, worst)
    values[:, 1:] -= values[:, 1:].max(0)
    return values.tolist()


def _candidate(
    structure: Structure, outcome: Outcome, features: tuple[float, ...], score: float
) -> Candidate:
    extra = dict(zip(FEATURES, features, strict=True))
    extra |= {"repaired": structure.repaired, "alternatives": structure.alternatives}
    return Candidate(
        rank=0,
        smiles=structure.smiles,
        inchi=structure.inchi,
        inchikey=structure.inchikey,
        formula=outcome.formula,
        adduct=outcome.adduct,
        samples=structure.samples or structure.alternatives,
        log_likelihood=structure.log_likelihood,
        score=score,
        confidence=0.0,
        extra_scores=extra,
    )


def _merge(same: list[Candidate]) -> Candidate:
    """One candidate of the same molecule under several hypotheses; the best of them names it."""
    if len(same) == 1:
        return same[0]
    same = sorted(same, key=lambda one: (-one.score, one.inchikey, one.formula, one.adduct))
    samples = sum(one.samples for one in same)
    weighted = sum(one.log_likelihood * one.samples for one in same)
    return replace(
        same[0],
        samples=samples,
        log_likelihood=weighted / samples if samples else same[0].log_likelihood,
        score=_log_sum_exp(np.array([one.score for one in same])),
    )


def _log_sum_exp(values: NDArray[np.float64]) -> float:
    return float(np.logaddexp.reduce(values))
