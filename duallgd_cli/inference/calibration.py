"""Fitting the ranking model: weights of the score, then probabilities, on spectra of known truth.

The weights maximise the likelihood that the right candidate is drawn from the softmax of the scores
(a conditional logit over the spectra whose candidates hold the truth), shrunk towards the weights
one starts from by an amount that cross-validation chooses. The two calibrations are Platt's: a
logistic curve of two parameters with smoothed targets. Folds are by molecule. C candidates of one
spectrum, F features, B spectra, X observations.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.inference.prediction import Case
from duallgd_cli.inference.ranking import (
    FEATURES,
    FIRST,
    RankingModel,
    candidate_confidence,
    described,
    sigmoid,
    top10_confidence,
    top10_log_odds,
)
from duallgd_cli.inference.reliability import Reliability, reliability

Array = NDArray[np.float64]

_SHRINKAGE: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
_NEWTON_STEPS: Final = 50
_CONVERGED: Final = 1e-9
_LEAST: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCase:
    """The candidates of one spectrum with the truth.

    Attributes:
        features: In the order of `FEATURES`, float64 (C, F).
        is_right: Which candidate is right, bool (C,); at most one, often none.
        keys: InChIKeys, for ties, (C,).
        molecule: InChIKey first block of the truth; its spectra stay in one fold.
    """

    features: Array
    is_right: NDArray[np.bool_]
    keys: tuple[str, ...]
    molecule: str


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Candidates of B spectra under each other, X in all; every spectrum has at least one.

    Attributes:
        features: float64 (X, F).
        is_right: bool (X,).
        starts: Row of each spectrum's first candidate, (B,).
        owner: Spectrum of each row, (X,).
    """

    features: Array
    is_right: NDArray[np.bool_]
    starts: NDArray[np.int64]
    owner: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Validation:
    """Cross-validated quality of a fit.

    Attributes:
        top1: Share of spectra whose first candidate is right.
        top10: Share of spectra with the right one among the first ten.
        candidates: Reliability of the confidence of each candidate.
        first: Reliability of the confidence of first candidates alone.
        first_ten: Reliability of the probability that the first ten hold the right one.
    """

    top1: float
    top10: float
    candidates: Reliability
    first: Reliability
    first_ten: Reliability


def scored_case(case: Case, truth: str, model: RankingModel) -> ScoredCase:
    """Features of a predicted case; molecules under several hypotheses count once, at their best.

    Args:
        case: As predicted, all structures included.
        truth: InChIKey of the right structure, or its first block.
        model: Its `alternative_weight` enters the features, its weights choose the best hypothesis.
    """
    best: dict[str, tuple[float, str, tuple[float, ...]]] = {}
    for structure, _, features in described(case.outcomes, model):
        score = float(np.dot(features, model.weights))
        known = best.get(structure.block)
        if known is None or score > known[0]:
            best[structure.block] = (score, structure.inchikey, features)
    blocks = sorted(best)
    return ScoredCase(
        features=np.array([best[block][2] for block in blocks]).reshape(-1, len(FEATURES)),
        is_right=np.array([block == truth[:14] for block in blocks], dtype=np.bool_),
        keys=tuple(best[block][1] for block in blocks),
        molecule=truth[:14],
    )


def fit_ranking(
    cases: Sequence[ScoredCase], start: RankingModel | None = None, folds: int = 5
) -> RankingModel:
    """Fit the weights of the score; calibration is left as it is in `start`.

    Spectra whose candidates do not hold the truth say nothing about ranking. Without any that do,
    `start` is returned.

    Args:
        cases: Spectra with the truth.
        start: What weights are shrunk towards; None for the neutral defaults.
        folds: Of the cross-validation that chooses how far.
    """
    model = start or RankingModel()
    useful = [case for case in cases if case.is_right.any()]
    if not useful:
        return model
    held_out = _split(useful, folds)
    losses = [
        sum(
            _loss(_fit_weights(rest, model.weights, amount), fold)
            for rest, fold in held_out
            if rest and fold
        )
        for amount in _SHRINKAGE
    ]
    # Where there is but one molecule nothing can be held out: the strongest shrinkage is chosen.
    amount = _SHRINKAGE[int(np.argmin(losses))] if any(losses) else _SHRINKAGE[-1]
    weights = _fit_weights(useful, model.weights, amount)
    values = dict(zip(FEATURES, map(float, weights), strict=True))
    return replace(model, n_spectra=len(cases), **values)


def fit_calibration(cases: Sequence[ScoredCase], model: RankingModel) -> RankingModel:
    """Fit both calibrations for the weights that the model has."""
    scores = [_sorted_scores(case, model) for case in cases if len(case.keys)]
    if not scores:
        return model
    slope, intercept = platt(
        np.concatenate([score for score, _ in scores]),
        np.concatenate([is_right for _, is_right in scores]),
    )
    model = replace(model, slope=slope, intercept=intercept, n_spectra=len(cases))
    odds = [top10_log_odds(candidate_confidence(score, model)) for score, _ in scores]
    found = [bool(is_right[:FIRST].any()) for _, is_right in scores]
    slope, intercept = platt(np.array(odds), np.array(found))
    return replace(model, top10_slope=slope, top10_intercept=intercept)


def fit(cases: Sequence[ScoredCase], start: RankingModel | None = None) -> RankingModel:
    """Weights, then calibrations."""
    return fit_calibration(cases, fit_ranking(cases, start))


def cross_validate(
    cases: Sequence[ScoredCase], start: RankingModel | None = None, folds: int = 5
) -> Validation:
    """Fit on all folds but one and judge on that one, in turn.

    A spectrum without candidates counts as wrong, with probability 0.

    Raises:
        ValueError: No spectra.
    """
    if not cases:
        raise ValueError("no spectra to validate on")
    confidences, rights, tens, hits = [], [], [], []
    for rest, fold in _split(cases, folds):
        model = fit(rest, start)
        for case in fold:
            score, is_right = _sorted_scores(case, model)
            confidence = candidate_confidence(score, model)
            confidences.append(confidence)
            rights.append(is_right)
            tens.append(top10_confidence(confidence, model))
            hits.append(bool(is_right[:FIRST].any()))
    first = [confidence[0] if confidence.size else 0.0 for confidence in confidences]
    first_right = [bool(is_right[:1].any()) for is_right in rights]
    return Validation(
        top1=float(np.mean(first_right)),
        top10=float(np.mean(hits)),
        candidates=reliability(np.concatenate(confidences), np.concatenate(rights)),
        first=reliability(np.array(first), np.array(first_right)),
        first_ten=reliability(np.array(tens), np.array(hits)),
    )


def platt(scores: Array, is_right: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and intercept of the log-odds of being right, by Platt's method.

    Targets are smoothed, so that few or no right observations give finite values. A slope below 0
    would turn the ranking round and becomes 0.

    Args:
        scores: Shape (X,), X at least 1.
        is_right: Shape (X,).
    """
    n_right = int(is_right.sum())
    n_wrong = is_right.size - n_right
    target = np.where(is_right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    base = float(target.mean())
    flat = float(np.log(base) - np.log1p(-base))
    spread = float(scores.std())
    if spread < _LEAST:
        return 0.0, flat
    centre = float(scores.mean())
    design = np.stack([(scores - centre) / spread, np.ones_like(scores)], axis=1)  # (X, 2)
    slope, intercept = _logistic(design, target, np.array([0.0, flat]))
    if slope <= 0:
        return 0.0, flat
    return float(slope / spread), float(intercept - slope * centre / spread)


def _sorted_scores(case: ScoredCase, model: RankingModel) -> tuple[Array, NDArray[np.bool_]]:
    """Scores, best first, ties by InChIKey, and which is right, both (C,)."""
    scores = case.features @ model.weights
    order = sorted(range(len(case.keys)), key=lambda i: (-scores[i], case.keys[i]))
    chosen = np.array(order, dtype=np.int64)
    return scores[chosen], case.is_right[chosen]


def _split(
    cases: Sequence[ScoredCase], folds: int
) -> list[tuple[list[ScoredCase], list[ScoredCase]]]:
    """Pairs of the rest and a fold; a molecule's fold is a hash of its key, so order is nothing."""
    number = [_fold(case.molecule, folds) for case in cases]
    return [
        (
            [case for case, at in zip(cases, number, strict=True) if at != fold],
            [case for case, at in zip(cases, number, strict=True) if at == fold],
        )
        for fold in range(folds)
    ]


def _fold(molecule: str, folds: int) -> int:
    return int.from_bytes(hashlib.blake2b(molecule.encode(), digest_size=8).digest()) % folds


def _stack(cases: Sequence[ScoredCase]) -> _Stack:
    counts = np.array([len(case.keys) for case in cases])
    return _Stack(
        features=np.concatenate([case.features for case in cases]),
        is_right=np.concatenate([case.is_right for case in cases]),
        starts=np.concatenate([[0], np.cumsum(counts)[:-1]]),
        owner=np.repeat(np.arange(len(cases)), counts),
    )


def _log_softmax(scores: Array, stack: _Stack) -> Array:
    """Log-probability of each candidate among those of its spectrum, shape (X,)."""
    shifted = scores - np.maximum.reduceat(scores, stack.starts)[stack.owner]
    total = np.add.reduceat(np.exp(shifted), stack.starts)
    return np.asarray(shifted - np.log(total)[stack.owner])


def _loss(weights: Array, cases: Sequence[ScoredCase]) -> float:
    """Negative log-likelihood of the right candidates."""
    stack = _stack(cases)
    return -float(_log_softmax(stack.features @ weights, stack)[stack.is_right].sum())


def _fit_weights(cases: Sequence[ScoredCase], centre: Array, shrinkage: float) -> Array:
    """Newton's method on the penalised conditional logit; convex, so it finds the one minimum.

    The penalty is on weights times the spread of their features within spectra, so that units do
    not matter; a feature that never varies keeps its weight.
    """
    stack = _stack(cases)
    scale = np.sqrt(np.mean([case.features.var(axis=0) for case in cases], axis=0))  # (F,)
    varies = scale > _LEAST
    unit = np.where(varies, scale, 1.0)
    x = stack.features / unit  # (X, F)
    truth = x[stack.is_right].sum(axis=0)
    z, z0 = centre * unit, centre * unit
    for _ in range(_NEWTON_STEPS):
        expected = np.exp(_log_softmax(x @ z, stack))[:, None] * x  # (X, F)
        mean = np.add.reduceat(expected, stack.starts)  # (B, F)
        gradient = shrinkage * (z - z0) + mean.sum(axis=0) - truth
        hessian = shrinkage * np.eye(len(z)) + expected.T @ x - mean.T @ mean
        step = np.linalg.solve(hessian, gradient)
        # The objective is steep only far out: a bounded step keeps Newton from overshooting there.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), _LEAST))
        z = z - step
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return np.asarray(np.where(varies, z / unit, centre))


def _logistic(design: Array, target: Array, start: Array) -> Array:
    """Newton's method on the cross entropy with soft targets, with step halving; design (X, 2)."""
    weights, value = start, _cross_entropy(design, target, start)
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(design @ weights)
        gradient = design.T @ (p - target)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + _LEAST * np.eye(design.shape[1])
        step = np.linalg.solve(hessian, gradient)
        while (after := _cross_entropy(design, target, weights - step)) > value + _CONVERGED:
            step = step / 2
        weights, value = weights - step, after
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return weights


def _cross_entropy(design: Array, target: Array, weights: Array) -> float:
    logits = design @ weights
    return float(np.sum(np.logaddexp(0.0, logits) - target * logits))
