import numpy as np
import pytest

from duallgd_cli.evaluate.calibration import reliability


def names(n):
    return [str(i) for i in range(n)]


def test_a_calibrated_probability_has_hardly_any_error():
    generator = np.random.default_rng(0)
    stated = generator.random(4000)
    right = (generator.random(4000) < stated).astype(float)

    table = reliability(stated, right, names(4000))

    assert table.expected_error < 0.03
    assert table.brier == pytest.approx(1 / 6, abs=0.01)
    assert table.base_brier == pytest.approx(1 / 4, abs=0.01)
    assert sum(part.count for part in table.bins) == 4000
    inside = [b.observed.low <= b.stated <= b.observed.high for b in table.bins]
    assert sum(inside) >= 8


def test_a_boastful_probability_shows_by_hand():
    stated, right = np.array([0.9, 0.9, 0.9, 0.9]), np.array([1.0, 0.0, 0.0, 0.0])

    table = reliability(stated, right, names(4))

    [only] = table.bins
    assert (only.count, only.observed.mean) == (4, 0.25)
    assert table.expected_error == pytest.approx(0.65)
    assert table.brier == pytest.approx((0.01 + 3 * 0.81) / 4)


def test_cases_without_a_probability_are_left_out():
    table = reliability(np.array([np.nan, 0.5, 0.5]), np.array([1.0, 1.0, 0.0]), names(3))

    assert [part.count for part in table.bins] == [2]
    assert reliability(np.array([np.nan]), np.array([1.0]), ["a"]) is None
