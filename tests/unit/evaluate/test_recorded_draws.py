"""Confidence holds for any number of samples: judged on draws for molecules of known structure.

The numbers were recorded by ``recipes/recorded_draws.py`` on molecules that no network was
trained on; they hold scores and counts, no structures.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.evaluate.calibrate import cross_validate, judge
from duallgd_cli.ranking.ranking import FEATURES, RankingModel, SampleStatistics
from tests.unit.evaluate.test_calibrate import case_of

RECORDED = Path(__file__).with_name("recorded_draws.npz")
NUMBERS = (1, 5, 10, 30, 100, 300)
LARGEST_ERROR = 0.02  # beyond what as many outcomes of true probabilities would show


def beyond_chance(table):
    """The calibration error, less what it would be on average if all that is stated were true."""
    total = sum(one.count for one in table.bins)
    spread = (np.sqrt(2 / np.pi * one.count * one.stated * (1 - one.stated)) for one in table.bins)
    return table.expected_error - sum(spread) / total


@pytest.fixture(scope="module")
def model():
    """The shipped probabilities, over scores that were recorded as one feature."""
    shipped = RankingModel.stored(load(resolve_weights(None)).ranking)
    return replace(shipped, **{**dict.fromkeys(FEATURES, 0.0), "log_share": 1.0})


@pytest.fixture(scope="module")
def cases():
    recorded = dict(np.load(RECORDED))  # each read once
    ends = recorded["n_candidates"].cumsum()
    found = []
    for number, end in enumerate(ends.tolist()):
        count = int(recorded["n_candidates"][number])
        scores = recorded["best"][number] - recorded["below_best"][end - count : end].astype(float)
        features = np.zeros((count, len(FEATURES)))
        features[:, FEATURES.index("log_share")] = scores
        n_heavy, *rest = recorded["statistics"][number].astype(float).tolist()
        molecule = f"{recorded['molecule'][number]:014d}"
        statistics = SampleStatistics(round(n_heavy), *rest)
        right = recorded["right"][number]
        found.append(case_of(features, right, molecule, statistics=statistics))
    return found


@pytest.fixture(scope="module")
def judged(cases, model):
    """The shipped probabilities, and those of fits that have not seen the molecule."""
    fitted = cross_validate(cases, model, keep_ranking=True)
    return {"shipped": judge(cases, [model] * len(cases)).by_samples, "held": fitted.by_samples}


@pytest.mark.parametrize("which", ["shipped", "held"])
@pytest.mark.parametrize("number", NUMBERS)
def test_confidence_is_true_for_every_number_of_samples(judged, which, number):
    assert beyond_chance(judged[which][number]) < LARGEST_ERROR


def test_confidence_that_takes_one_sample_for_a_hundred_is_found_out(cases, model):
    taken = [
        replace(case, statistics=case.statistics._replace(log_samples=np.log(100.0), log_share=0.0))
        for case in cases
        if round(np.exp(case.statistics.log_samples)) == 1
    ]

    (held,) = judge(taken, [model] * len(taken)).by_samples.values()

    assert beyond_chance(held) > LARGEST_ERROR
