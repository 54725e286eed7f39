"""From the molecules that samples became to a ranked list with probabilities.

Molecules are the same when the first blocks of their InChIKeys are. A candidate's score is a
linear combination of the features in `FEATURES`, read as the logarithm of a weight: the same
molecule under two hypotheses gets the log of the summed weights. Ties are broken by InChIKey, never
by order.
C candidates of one spectrum, F features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import require
from duallgd_cli.inference.prediction import Candidate, Case, Outcome, Structure

FEATURES: Final = (
    "log_share",
    "log_likelihood",
    "fingerprint_log_likelihood",
    "fingerprint_tanimoto",
    "log_prior",
    "repaired_share",
)
FIRST: Final = 10
_MOST_CERTAIN: Final = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class RankingModel:
    """Weights of the score and two two-parameter calibrations; fitted values live in a checkpoint.

    The defaults are neutral and unfitted: frequency among the samples, helped by agreement with the
    predicted fingerprint, and deliberately low probabilities.

    Attributes:
        log_share: Weight of the log share of the drawn samples that became the molecule.
        log_likelihood: Weight of the mean log-likelihood of those samples per heavy atom.
        fingerprint_log_likelihood: Weight of the log-likelihood of the molecule's Morgan bits under
            the predicted probabilities, relative to the most probable bits, per heavy atom.
        fingerprint_tanimoto: Weight of the soft Tanimoto similarity to those probabilities.
        log_prior: Weight of the log of the hypothesis's share among those of the feature.
        repaired_share: Weight of the share of samples that needed repair.
        alternative_weight: What a further reading of a sample counts for, next to 1 for the first.
        slope: Of the log-odds that a candidate is right, per unit of score.
        intercept: Of the same log-odds at score 0.
        top10_slope: Of the log-odds that one of the first ten is right, per unit of the log-odds of
            their summed confidence.
        top10_intercept: Of the same log-odds at even odds.
        n_spectra: Spectra the values were fitted on; 0 for the neutral defaults.
    """

    log_share: float = 1.0
    log_likelihood: float = 0.1
    fingerprint_log_likelihood: float = 0.0
    fingerprint_tanimoto: float = 5.0
    log_prior: float = 1.0
    repaired_share: float = -0.5
    alternative_weight: float = 0.5
    slope: float = 1.0
    intercept: float = -5.0
    top10_slope: float = 1.0
    top10_intercept: float = 0.0
    n_spectra: int = 0

    def __post_init__(self) -> None:
        require(0 < self.alternative_weight <= 1, "alternative_weight must be above 0, at most 1")
        require(self.slope >= 0, f"slope must not be negative: {self.slope}")
        require(self.top10_slope >= 0, f"top10_slope must not be negative: {self.top10_slope}")

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights in the order of `FEATURES`, shape (F,)."""
        return np.array([getattr(self, name) for name in FEATURES])


def rank(case: Case, model: RankingModel) -> tuple[tuple[Candidate, ...], float]:
    """Rank what the samples of a case became.

    Returns:
        All candidates, best first, and the probability that the first ten hold the right one.
    """
    by_block: dict[str, list[Candidate]] = {}
    for structure, outcome, features in described(case.outcomes, model):
        candidate = _candidate(structure, outcome, features, model)
        by_block.setdefault(candidate.inchikey14, []).append(candidate)
    merged = [_merge(same) for same in by_block.values()]
    merged.sort(key=lambda candidate: (-candidate.score, candidate.inchikey))
    scores = np.array([candidate.score for candidate in merged])
    confidence = candidate_confidence(scores, model)
    candidates = tuple(
        replace(candidate, rank=position + 1, confidence=float(confidence[position]))
        for position, candidate in enumerate(merged)
    )
    return candidates, top10_confidence(confidence, model)


def described(
    outcomes: Sequence[Outcome], model: RankingModel
) -> Iterator[tuple[Structure, Outcome, tuple[float, ...]]]:
    """Every structure of every hypothesis, with its features in the order of `FEATURES`."""
    priors = np.array([outcome.log_prior for outcome in outcomes])
    log_shares = priors - _log_sum_exp(priors) if priors.size else priors
    for outcome, log_prior in zip(outcomes, log_shares, strict=True):
        for structure in outcome.structures:
            yield structure, outcome, _features(structure, outcome, float(log_prior), model)


def candidate_confidence(scores: NDArray[np.float64], model: RankingModel) -> NDArray[np.float64]:
    """Probability that each candidate of a spectrum is right, shape (C,), summing to 1 at most."""
    probability = sigmoid(model.slope * scores + model.intercept)
    return probability / max(1.0, float(probability.sum()))


def top10_confidence(confidence: NDArray[np.float64], model: RankingModel) -> float:
    """Probability that one of the first ten is right; `confidence` (C,) is sorted, best first."""
    if not confidence.size:
        return 0.0
    odds = top10_log_odds(confidence)
    calibrated = float(sigmoid(np.array(model.top10_slope * odds + model.top10_intercept)))
    return max(calibrated, float(confidence[0]))


def top10_log_odds(confidence: NDArray[np.float64]) -> float:
    """Log-odds of the summed confidence of the first ten, finite at both ends."""
    total = float(np.clip(confidence[:FIRST].sum(), 1 - _MOST_CERTAIN, _MOST_CERTAIN))
    return float(np.log(total) - np.log1p(-total))


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _features(
    structure: Structure, outcome: Outcome, log_prior: float, model: RankingModel
) -> tuple[float, ...]:
    count = structure.samples + model.alternative_weight * structure.alternatives
    agreement = structure.fingerprint_log_likelihood or 0.0
    return (
        float(np.log(count / outcome.tallies.sampled)),
        structure.log_likelihood / outcome.n_heavy,
        agreement / outcome.n_heavy,
        structure.fingerprint_tanimoto or 0.0,
        log_prior,
        structure.repaired / max(1, structure.samples),
    )


def _candidate(
    structure: Structure, outcome: Outcome, features: tuple[float, ...], model: RankingModel
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
        samples=structure.samples,
        log_likelihood=structure.log_likelihood,
        score=float(np.dot(features, model.weights)),
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
