from dataclasses import replace

import numpy as np
import pytest

from duallgd_cli.evaluate.calibrate import (
    ScoredCase,
    cross_validate,
    fit,
    fit_calibration,
    fit_ranking,
    judge,
    logistic,
    record_of,
    scored_case,
)
from duallgd_cli.ranking.ranking import FEATURES, RankingModel, SampleStatistics, sigmoid
from tests.unit.predict.test_ranking import outcome, structure

TRUE = np.array([1.5, 0.0, 6.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0])
MODEL = RankingModel(**dict(zip(FEATURES, TRUE, strict=True)))


def case_of(features, right=(), molecule="M", likeness=None, statistics=None):
    """A case of candidates by number, some of which are right."""
    n = len(features)
    keys = tuple(f"{place:014d}" for place in range(n))
    likeness = np.zeros(n) if likeness is None else np.array(likeness)
    statistics = statistics or SampleStatistics(20)
    return ScoredCase(features, np.isin(np.arange(n), right), keys, molecule, statistics, likeness)


def without_truth(case):
    return replace(case, is_right=np.zeros_like(case.is_right))


def drawn(cases, **statistics):
    """The same cases as if their samples had been drawn in another way."""
    told = SampleStatistics(20, **statistics)
    return [replace(case, statistics=told) for case in cases]


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


def test_the_true_weights_are_found_again():
    model = fit_ranking(synthetic(400))

    assert model.log_share == pytest.approx(1.5, abs=0.2)
    assert model.familiarity == pytest.approx(0.8, abs=0.3)
    assert model.fingerprint_tanimoto == pytest.approx(6.0, abs=0.9)
    assert model.fingerprint_log_likelihood == pytest.approx(0.0, abs=0.15)


def test_what_says_nothing_moves_no_weight():
    cases = synthetic(200)
    hopeless = [without_truth(case) for case in synthetic(50, 1)]
    start = RankingModel(log_share=0.3)

    assert fit_ranking(cases, RankingModel(log_prior=0.4)).log_prior == 0.4  # it never varies
    assert fit_ranking([*cases, *hopeless]).weights == pytest.approx(fit_ranking(cases).weights)
    assert fit_ranking(synthetic(5, present=0.0), start) == start
    assert fit_ranking([], start) == fit_calibration([], start) == start


def test_spectra_of_a_single_molecule_hardly_move_the_weights_from_where_they_were():
    start = replace(MODEL, fingerprint_tanimoto=3.0)

    assert fit_ranking(synthetic(3), start).weights == pytest.approx(start.weights, abs=0.1)


def test_a_right_candidate_outweighs_all_that_are_like_it():
    right = case_of(np.zeros((3, len(FEATURES))), [1], likeness=[0.9, 1.0, 0.3])
    wrong = without_truth(right)

    assert right.wanted.sum() == pytest.approx(1)
    assert right.wanted[1] > 0.8
    assert wrong.wanted[1] < 0.8  # equal bits, another molecule
    assert not replace(wrong, likeness=np.zeros(3)).wanted.any()


def test_candidates_like_the_truth_teach_where_it_is_absent():
    rng = np.random.default_rng(0)
    hopeless = [without_truth(case) for case in synthetic(300)]
    alike = [replace(one, likeness=0.3 + 0.5 * one.features[:, 2]) for one in hopeless]
    noise = [replace(one, likeness=rng.uniform(0.3, 0.6, 20)) for one in hopeless]

    fitted, unmoved = fit_ranking(alike), fit_ranking(noise)

    assert fitted.fingerprint_tanimoto > unmoved.fingerprint_tanimoto + 1


def test_sharpness_undoes_a_change_of_units():
    cases = synthetic(500)
    double = replace(MODEL, **dict(zip(FEATURES, 2 * TRUE, strict=True)))

    one, half = (fit_calibration(cases, given).sharpness for given in (MODEL, double))

    assert one == pytest.approx(1.0, abs=0.1)
    assert half == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("scores", "happened"),
    [
        ([0.0, 1.0, 2.0], [False, False, False]),
        ([0.0, 1.0, 2.0], [True, True, True]),
        ([0.0, 1.0, 2.0], [False, False, True]),
        ([1.0, 1.0], [False, True]),
        ([5.0], [True]),
    ],
)
def test_a_logistic_curve_is_finite_on_degenerate_data(scores, happened):
    told = np.stack([np.ones(len(scores)), scores], 1)

    weights = logistic(told, np.array(happened))

    chance = sigmoid(told @ weights)
    assert np.isfinite(weights).all()
    assert ((chance > 0) & (chance < 1)).all()
    assert (np.diff(chance) >= -1e-9).all()


def test_calibrated_confidence_is_reliable_on_unseen_spectra():
    validation = cross_validate(synthetic(1000, seed=2, present=0.6))

    assert validation.candidates.expected_error < 0.01
    assert validation.candidates.brier < validation.candidates.base_brier
    assert validation.first_ten.expected_error < 0.06
    assert 0.1 < validation.top1 < validation.top10 < 0.62
    covered = [one.observed.low <= one.stated <= one.observed.high for one in validation.first.bins]
    assert sum(covered) >= len(covered) - 1


def test_a_spectrum_without_candidates_counts_as_wrong():
    empty = case_of(np.zeros((0, len(FEATURES))), statistics=SampleStatistics())
    cases = synthetic(30)

    with_empty, without = cross_validate([*cases, *[empty] * 30]), cross_validate(cases)

    assert with_empty.top10 == pytest.approx(without.top10 / 2)
    assert sum(part.count for part in with_empty.first.bins) == 60


def test_a_case_is_scored_with_its_truth_by_first_block():
    outcomes = (outcome(structure("A", 10), structure("B", 3)), outcome(structure("A", 5)))

    scored = scored_case(outcomes, "BXXXXXXXXXXXXX", RankingModel())

    assert scored.features.shape == (2, len(FEATURES))
    assert scored.is_right.tolist() == [False, True]
    assert scored.features[0, 0] == pytest.approx(np.log(0.1))


def test_a_spectrum_whose_samples_agree_is_trusted_more_once_that_was_seen_to_help():
    cases = synthetic(600, seed=4, present=0.5)
    says = {True: SampleStatistics(20, -0.5, -2.0), False: SampleStatistics(20, -3.0, -0.3)}
    agreeing = [replace(case, statistics=says[bool(case.is_right.any())]) for case in cases]

    with_counts, without = (
        cross_validate(given, MODEL, keep_ranking=True) for given in (agreeing, cases)
    )

    assert with_counts.first_ten.brier < 0.5 * without.first_ten.brier


def test_few_samples_are_trusted_less_once_that_was_seen():
    many = drawn(synthetic(400, present=0.8), log_samples=np.log(100.0))
    few = drawn(synthetic(400, present=0.05), log_samples=0.0)

    validation = cross_validate([*many, *few], MODEL, keep_ranking=True)

    assert validation.by_samples.keys() == {1, 100}
    assert all(one.expected_error < 0.05 for one in validation.by_samples.values())
    fitted = fit([*many, *few], MODEL, keep_ranking=True)
    assert (fitted.least_samples, fitted.most_samples) == (1, 100)


def test_accuracy_is_that_of_the_settings_that_most_spectra_have():
    usual = drawn(synthetic(60), log_samples=4.6, log_steps=2.3)
    hopeless = drawn(synthetic(50, present=0.0), log_samples=4.6)

    both, alone = judge([*usual, *hopeless], [fit(usual)] * 110), judge(usual, [fit(usual)] * 60)

    assert (both.top1, both.top10, both.n_spectra) == (alone.top1, alone.top10, 60)


def test_an_order_that_is_kept_keeps_its_weights_and_its_own_accuracy():
    start, cases = RankingModel(log_share=0.3), synthetic(200, present=0.5)
    validation = judge(cases, [RankingModel()] * 200)
    known = {"top1": 0.159, "top10": 0.264, "first": {"count": 522.0}}

    fitted = fit(cases, start, keep_ranking=True)
    kept, new = record_of(validation, known), record_of(validation, {})

    assert fitted.weights == pytest.approx(start.weights)
    assert fitted.present != start.present
    assert (kept["top1"], kept["top10"], kept["n_spectra"]) == (0.159, 0.264, 522)
    assert (new["top1"], new["n_spectra"]) == (pytest.approx(validation.top1), 200)
    assert kept["first"] == new["first"]
