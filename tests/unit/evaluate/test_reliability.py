import numpy as np
import pytest

from duallgd_cli.evaluate.reliability import reliability, wilson


def test_reliability_of_a_perfect_forecast():
    found = reliability(np.array([0.0, 0.0, 1.0]), np.array([False, False, True]))

    assert found.brier == 0
    assert found.calibration_error == 0
    assert [(one.low, one.high, one.count) for one in found.bins] == [(0.0, 0.01, 2), (0.9, 1.0, 1)]


def test_wilson_intervals_agree_with_the_textbook():
    low, high = wilson(8, 10)

    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == pytest.approx(1)


def test_probabilities_at_the_edges_have_a_bin():
    found = reliability(np.array([0.0, 0.01, 1.0]), np.array([False, True, True]))

    assert sum(one.count for one in found.bins) == 3


def test_no_observations_give_no_bins():
    found = reliability(np.zeros(0), np.zeros(0, dtype=bool))

    assert (found.bins, found.count, found.brier) == ((), 0, 0)
