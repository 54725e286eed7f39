"""Fitting the ranking model: weights of the score, then probabilities, on spectra of known truth.

The weights maximise the likelihood that candidates are drawn from the softmax of the scores in
proportion to how alike the truth they are, steeply so that the right one outweighs all others where
it is there; where it is not, a spectrum counts little. They are shrunk towards the weights one
starts from by an amount that cross-validation chooses. Whether the truth is among the
candidates is a logistic regression with Platt's smoothed targets. Folds are by molecule. C
candidates of one spectrum, F features, B spectra, X observations.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.predict.prediction import Case
from duallgd_cli.predict.ranking import (
    FEATURES,
    FIRST,
    PRESENCE,
    Drawn,
    RankingModel,
    candidate_confidence,
    described,
    presence_features,
    sigmoid,
)
from duallgd_cli.predict.reliability import Reliability, reliability

Array = NDArray[np.float64]

_SHRINKAGE: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
_NEWTON_STEPS: Final = 50
_CONVERGED: Final = 1e-9
_LEAST: Final = 1e-12
_RIDGE: Final = 1.0
# Chosen by cross-validation on fold val, where the right molecule first and likeness pull apart.
_TEMPERATURE: Final = 0.05
_WITHOUT_TRUTH: Final = 0.05
_NEVER_THE_SAME: Final = 0.95  # equal bits are not yet an equal molecule


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCase:
    """The candidates of one spectrum with the truth.

    Attributes:
        features: In the order of `FEATURES`, float64 (C, F).
        is_right: Which candidate is right, bool (C,); at most one, often none.
        keys: InChIKeys, for ties, (C,).
        molecule: InChIKey first block of the truth; its spectra stay in one fold.
        drawn: What they come from.
        likeness: Tanimoto similarity of each to the truth, 0 to 1, (C,); all 0 where only the key
            of the truth is known.
    """

    features: Array
    is_right: NDArray[np.bool_]
    keys: tuple[str, ...]
    molecule: str
    drawn: Drawn
    likeness: Array

    @property
    def wanted(self) -> Array:
        """Share that each candidate should have, (C,), summing to 1; all 0 without a hint."""
        if not self.likeness.any():
            return self.is_right.astype(np.float64)
        alike = np.where(self.is_right, 1.0, np.minimum(self.likeness, _NEVER_THE_SAME))
        share = np.exp((alike - alike.max()) / _TEMPERATURE)
        return np.asarray(share / share.sum())

    @property
    def weight(self) -> float:
        """What the spectrum counts for in the fit of the weights."""
        return 1.0 if self.is_right.any() else _WITHOUT_TRUTH


@dataclass(frozen=True, slots=True, eq=False)
class _Stack:
    """Candidates of B spectra under each other, X in all; every spectrum has at least one.

    Attributes:
        features: float64 (X, F).
        wanted: Share that each should have, float64 (X,).
        starts: Row of each spectrum's first candidate, (B,).
        owner: Spectrum of each row, (X,).
        weight: Of each spectrum, (B,).
    """

    features: Array
    wanted: Array
    starts: NDArray[np.int64]
    owner: NDArray[np.int64]
    weight: Array


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


def scored_case(
    case: Case, truth: str, model: RankingModel, alike: Mapping[str, float] | None = None
) -> ScoredCase:
    """Features of a predicted case; molecules under several hypotheses count once, at their best.

    Args:
        case: As predicted, all structures included.
        truth: InChIKey of the right structure, or its first block.
        model: Its `alternative_weight` enters the features, its weights choose the best hypothesis.
        alike: Similarity of candidates to the truth by InChIKey, if it is known.
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
        drawn=Drawn.of(case, model),
        likeness=np.array([(alike or {}).get(best[block][1], 0.0) for block in blocks]),
    )


def fit_ranking(
    cases: Sequence[ScoredCase], start: RankingModel | None = None, folds: int = 5
) -> RankingModel:
    """Fit the weights of the score; calibration is left as it is in `start`.

    Spectra of which no candidate is right, nor known to be like the truth, say nothing. Without any
    others `start` is returned.

    Args:
        cases: Spectra with the truth.
        start: What weights are shrunk towards; None for the neutral defaults.
        folds: Of the cross-validation that chooses how far.
    """
    model = start or RankingModel()
    useful = [case for case in cases if len(case.keys) and case.wanted.any()]
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
    """Fit sharpness and the chance that the truth is among the candidates, for given weights."""
    told = [case for case in cases if len(case.keys)]
    if not told:
        return model
    model = replace(model, n_spectra=len(cases), sharpness=_sharpness(told, model))
    scored = [_sorted_scores(case, model) for case in told]
    features = [
        presence_features(model.sharpness * score, case.drawn)
        for case, (score, _) in zip(told, scored, strict=True)
    ]
    is_there = np.array([bool(is_right.any()) for _, is_right in scored])
    weights = logistic(np.array(features), is_there).tolist()
    return replace(model, **dict(zip(PRESENCE, weights, strict=True)))


def _sharpness(cases: Sequence[ScoredCase], model: RankingModel) -> float:
    """Factor of the scores under whose softmax the right candidates are likeliest."""
    right = [
        replace(
            case,
            features=(case.features @ model.weights)[:, None],
            likeness=np.zeros_like(case.likeness),
        )
        for case in cases
        if case.is_right.any()
    ]
    if not right:
        return model.sharpness
    return max(0.0, float(_fit_weights(right, np.ones(1), _RIDGE)[0]))


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
            confidence = candidate_confidence(score, case.drawn, model)
            confidences.append(confidence)
            rights.append(is_right)
            tens.append(float(confidence[:FIRST].sum()))
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


def logistic(told: Array, happened: NDArray[np.bool_]) -> Array:
    """Weights of a logistic regression, (K,), slightly shrunk but for the first.

    Targets are smoothed as Platt's, so that few or no events give finite values.

    Args:
        told: Observations, (X, K), X at least 1; the first column is 1.
        happened: Shape (X,).
    """
    n_right = int(happened.sum())
    n_wrong = happened.size - n_right
    target = np.where(happened, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    centre, spread = told.mean(axis=0), told.std(axis=0)
    varies = spread > _LEAST
    centre[0], unit = 0.0, np.where(varies, spread, 1.0)
    design = np.where(varies, (told - centre) / unit, 0.0)
    design[:, 0] = 1.0
    base = float(target.mean())
    start = np.zeros(told.shape[1])
    start[0] = np.log(base) - np.log1p(-base)
    weights = _logistic(design, target, start) / unit
    weights[0] -= np.dot(weights[1:], centre[1:])
    return np.asarray(weights)


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
        wanted=np.concatenate([case.wanted for case in cases]),
        starts=np.concatenate([[0], np.cumsum(counts)[:-1]]),
        owner=np.repeat(np.arange(len(cases)), counts),
        weight=np.array([case.weight for case in cases]),
    )


def _log_softmax(scores: Array, stack: _Stack) -> Array:
    """Log-probability of each candidate among those of its spectrum, shape (X,)."""
    shifted = scores - np.maximum.reduceat(scores, stack.starts)[stack.owner]
    total = np.add.reduceat(np.exp(shifted), stack.starts)
    return np.asarray(shifted - np.log(total)[stack.owner])


def _loss(weights: Array, cases: Sequence[ScoredCase]) -> float:
    """Negative log-likelihood of the candidates that are wanted."""
    stack = _stack(cases)
    log_share = _log_softmax(stack.features @ weights, stack)
    return -float((stack.weight[stack.owner] * stack.wanted * log_share).sum())


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
    weight = stack.weight[stack.owner]
    truth = (weight * stack.wanted) @ x
    z, z0 = centre * unit, centre * unit
    for _ in range(_NEWTON_STEPS):
        share = np.exp(_log_softmax(x @ z, stack))[:, None]
        expected = weight[:, None] * share * x  # (X, F)
        mean = np.add.reduceat(share * x, stack.starts)  # (B, F)
        gradient = shrinkage * (z - z0) + expected.sum(axis=0) - truth
        weighted = stack.weight[:, None] * mean
        hessian = shrinkage * np.eye(len(z)) + expected.T @ x - weighted.T @ mean
        step = np.linalg.solve(hessian, gradient)
        # The objective is steep only far out: a bounded step keeps Newton from overshooting there.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), _LEAST))
        z = z - step
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return np.asarray(np.where(varies, z / unit, centre))


def _logistic(design: Array, target: Array, start: Array) -> Array:
    """Newton's method on the penalised cross entropy, with step halving; design (X, K)."""
    penalty = np.full(len(start), _RIDGE)
    penalty[0] = _LEAST
    weights, value = start, _cross_entropy(design, target, start, penalty)
    for _ in range(_NEWTON_STEPS):
        p = sigmoid(design @ weights)
        gradient = design.T @ (p - target) + penalty * weights
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        for _ in range(_NEWTON_STEPS):
            after = _cross_entropy(design, target, weights - step, penalty)
            if after <= value + _CONVERGED:
                break
            step = step / 2
        weights, value = weights - step, after
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return weights


def _cross_entropy(design: Array, target: Array, weights: Array, penalty: Array) -> float:
    logits = design @ weights
    entropy = np.sum(np.logaddexp(0.0, logits) - target * logits)
    return float(entropy + 0.5 * np.sum(penalty * weights**2))
