import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.bench.speed.fits import crossing, fit_exponent

X = (10.0, 20.0, 40.0, 80.0)


@given(st.floats(-3, 5), st.floats(1e-6, 1e6))
def test_a_power_law_is_found_exactly(exponent, scale):
    fitted = fit_exponent(X, [scale * x**exponent for x in X])

    assert fitted.value == pytest.approx(exponent, abs=1e-9)
    assert fitted.standard_error == pytest.approx(0, abs=1e-9)


def test_the_standard_error_is_that_of_the_textbook():
    fitted = fit_exponent([1, 10, 100], [1, 20, 100])

    # slope 1 on log10; residuals 0.301 x (-1, 2, -1) / 3; spread 2; one degree of freedom
    assert fitted.value == pytest.approx(1)
    assert fitted.standard_error == pytest.approx((0.30103**2 * 6 / 9 / 2) ** 0.5, rel=1e-5)


def test_two_points_have_no_standard_error():
    assert fit_exponent([1, 2], [1, 4]).standard_error is None


def test_points_at_zero_are_left_out():
    assert fit_exponent([1, 2, 4], [0, 2, 4]).points == 2


def test_one_size_has_no_exponent():
    assert fit_exponent([3, 3], [1, 2]) is None


def test_curves_cross_where_their_logarithms_do():
    found = crossing(X, [1, 2, 4, 8], [4, 4, 4, 4])

    assert found == pytest.approx(40)


def test_a_curve_below_from_the_start_crosses_at_the_first_size():
    assert crossing(X, [2, 2, 2, 2], [1, 1, 1, 1]) == 10


def test_a_curve_above_at_the_end_does_not_cross():
    assert crossing(X, [1, 3, 1, 1], [2, 2, 2, 2]) is None


def test_the_last_crossing_counts():
    found = crossing(X, [3, 1, 1, 4], [2, 2, 2, 2])

    assert 40 < found < 80
