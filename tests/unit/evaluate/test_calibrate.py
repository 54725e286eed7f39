"""Weights of the ranking and probabilities, fitted on cases whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.evaluate import calibrate
from duallgd_cli.evaluate.calibrate import ScoredCase, fit, fit_ranking, judge, logistic
from duallgd_cli.ranking.ranking import FEATURES, RankingModel, SampleStatistics, sigmoid
from tests.unit.predict.test_ranking import outcome, structure

TRUE = np.array([1.5, 0.0, 6.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0])
MODEL = RankingModel(**dict(zip(FEATURES, TRUE, strict=True)))


def case_of(features, right=(), molecule="M", likeness=0.0, statistics=None):
    """A case of candidates by number, some of which are right."""
    numbers = np.arange(len(features))
    keys = tuple(f"{number:014d}" for number in numbers)
    statistics = statistics or SampleStatistics(20)
    likeness = np.zeros(len(features)) + likeness
    return ScoredCase(features, np.isin(numbers, right), keys, molecule, statistics, likeness)


def without_truth(case, likeness=0.0):
    return replace(case, is_right=case.is_right & False, likeness=0 * case.likeness + likeness)


def synthetic(count, seed=0, present=1.0, n_candidates=20):
    """Spectra whose right candidate is drawn from the softmax of the true weights."""
    rng = np.random.default_rng(seed)
    cases = []
    for number in range(count):
        features = np.zeros((n_candidates, len(FEATURES)))
        features[:, 0] = np.log(rng.integers(1, 30, n_candidates) / 100)
        features[:, 5] = rng.normal(-1, 0.5, n_candidates)
        features[:, 1] = rng.normal(-3, 1, n_candidates)  # says nothing
        features[:, 2] = rng.uniform(0, 0.6, n_candidates)
        scores = features @ TRUE
        chance = np.exp(scores - np.logaddexp.reduce(scores))
        right = [rng.choice(n_candidates, p=chance)] if rng.random() < present else []
        cases.append(case_of(features, right, f"M{number // 3:013d}"))
    return cases


def test_the_true_weights_are_found_again_and_hopeless_spectra_change_nothing():
    cases = synthetic(400)
    fitted = fit_ranking(cases)

    off = np.abs(fitted.weights - TRUE)
    assert (off[[0, 1, 2, 5]] < (0.2, 0.15, 0.9, 0.3)).all()
    hopeless = [without_truth(case) for case in synthetic(50, 1)]
    assert fit_ranking([*cases, *hopeless]).weights == pytest.approx(fitted.weights)


def test_what_says_nothing_leaves_the_weights_where_they_were():
    start, near = RankingModel(log_share=0.3), replace(MODEL, fingerprint_tanimoto=3.0)

    assert fit_ranking(synthetic(50), RankingModel(log_prior=0.4)).log_prior == 0.4  # never varies
    assert fit_ranking(synthetic(5, present=0.0), start) == start
    assert fit_ranking([], start) == calibrate.fit_calibration([], start) == start
    assert fit_ranking(synthetic(3), near).weights == pytest.approx(near.weights, abs=0.1)


def test_a_right_candidate_outweighs_all_that_are_like_it():
    right = case_of(np.zeros((3, len(FEATURES))), [1], likeness=[0.9, 1.0, 0.3])
    wrong = without_truth(right, right.likeness)  # equal bits, another molecule

    assert right.wanted.sum() == pytest.approx(1)
    assert wrong.wanted[1] < 0.8 < right.wanted[1]
    assert not without_truth(right).wanted.any()


def test_candidates_like_the_truth_teach_where_it_is_absent():
    rng, cases = np.random.default_rng(0), synthetic(300)
    alike = [without_truth(case, 0.3 + 0.5 * case.features[:, 2]) for case in cases]
    noise = [without_truth(case, rng.uniform(0.3, 0.6, 20)) for case in cases]

    taught, not_taught = (fit_ranking(each).fingerprint_tanimoto for each in (alike, noise))
    assert taught > not_taught + 1


@pytest.mark.parametrize(
    ("scores", "happened"),
    [
        *(([0.0, 1.0, 2.0], [False, False, last]) for last in (False, True)),
        ([0.0, 1.0, 2.0], [True, True, True]),
        ([1.0, 1.0], [False, True]),
        ([5.0], [True]),
    ],
)
def test_a_logistic_curve_is_finite_on_degenerate_data(scores, happened):
    told = np.stack([np.ones(len(scores)), scores], 1)
    chance = sigmoid(told @ logistic(told, np.array(happened)))

    assert ((chance > 0) & (chance < 1)).all()
    assert (np.diff(chance) >= -1e-9).all()


def test_a_case_is_scored_with_its_truth_by_first_block_each_molecule_once_at_its_best():
    outcomes = (outcome(structure("A", 10), structure("B", 3)), outcome(structure("A", 5)))

    scored = calibrate.scored_case(outcomes, "BXXXXXXXXXXXXX", RankingModel(log_share=1.0))

    assert scored.features.shape == (2, len(FEATURES))
    assert scored.is_right.tolist() == [False, True]
    assert scored.features[0, 0] == pytest.approx(np.log(0.1))


def test_a_calibration_undoes_a_change_of_units_and_knows_what_it_was_fitted_on():
    cases = [
        replace(case, statistics=SampleStatistics(20, log_samples=np.log(1 + 99 * (number % 2))))
        for number, case in enumerate(synthetic(500))
    ]
    double = replace(MODEL, **dict(zip(FEATURES, 2 * TRUE, strict=True)))

    one, half = (fit(cases, given, keep_ranking=True) for given in (MODEL, double))

    assert (one.sharpness, half.sharpness) == pytest.approx((1.0, 0.5), abs=0.1)
    assert half.weights == pytest.approx(2 * TRUE)  # an order that is kept
    assert (one.n_spectra, one.least_samples, one.most_samples) == (500, 1, 100)


def test_accuracy_is_that_of_the_settings_that_most_spectra_have_none_left_out():
    empty = case_of(np.zeros((0, len(FEATURES))))
    usual = [
        replace(case, statistics=SampleStatistics(20, log_steps=2.3)) for case in synthetic(60)
    ]
    given = ([*usual, *synthetic(50, present=0.0)], usual, [*synthetic(60), *[empty] * 60])

    both, alone, half = (judge(cases, [MODEL] * len(cases)) for cases in given)

    assert (both.top1, both.top10, both.n_spectra) == (alone.top1, alone.top10, 60)
    assert (half.top10, half.n_spectra) == (alone.top10 / 2, 120)  # no candidate is a wrong one
    assert sum(part.count for part in half.first.bins) == 120
    record = {"top1": 0.159, "top10": 0.264, "first": {"count": 522.0}}
    kept, new = (calibrate.record_of(alone, known) for known in (record, {}))
    assert (kept["top1"], kept["top10"], kept["n_spectra"]) == (0.159, 0.264, 522)
    assert (new["top1"], new["n_spectra"], new["first"]) == (alone.top1, 60, kept["first"])
