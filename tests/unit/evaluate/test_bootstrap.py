import numpy as np
import pytest

from duallgd_cli.evaluate.bootstrap import independent, per_molecule, per_spectrum

VALUES = np.array([[1.0], [1.0], [1.0], [0.0]])
CLUSTERS = ["a", "a", "a", "b"]


def test_the_mean_over_spectra_weighs_spectra():
    assert per_spectrum(VALUES, CLUSTERS)[0].mean == 0.75


def test_the_mean_over_molecules_weighs_molecules():
    assert per_molecule(VALUES, CLUSTERS)[0].mean == 0.5


def test_the_interval_resamples_molecules_and_not_their_spectra():
    # Two molecules: every draw is (a, a), (a, b), (b, a) or (b, b).
    estimate = per_spectrum(VALUES, CLUSTERS)[0]

    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_copies_of_spectra_do_not_narrow_the_clustered_interval():
    generator = np.random.default_rng(0)
    values = generator.random((40, 1))
    names = [str(i) for i in range(40)]
    copied = np.repeat(values, 10, axis=0)
    copied_names = [name for name in names for _ in range(10)]

    once, ten = per_spectrum(values, names)[0], per_spectrum(copied, copied_names)[0]
    blind = independent(copied)[0]

    assert (ten.low, ten.high) == pytest.approx((once.low, once.high))
    assert blind.high - blind.low < (once.high - once.low) / 2


def test_the_interval_is_about_two_standard_errors_wide():
    values = np.random.default_rng(1).normal(size=(400, 1))

    estimate = independent(values)[0]

    expected = 2 * 1.96 * values.std() / 20
    assert estimate.high - estimate.low == pytest.approx(expected, rel=0.1)


def test_a_constant_has_no_interval_and_columns_do_not_mix():
    values = np.column_stack([np.full(5, 3.0), np.arange(5.0)])

    constant, ramp = per_molecule(values, list("aabbc"))

    assert (constant.mean, constant.low, constant.high) == (3.0, 3.0, 3.0)
    assert ramp.low < ramp.mean < ramp.high


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(2).random((30, 1))
    names = [str(i % 7) for i in range(30)]

    assert per_spectrum(values, names, seed=5) == per_spectrum(values, names, seed=5)
    assert per_spectrum(values, names, seed=5) != per_spectrum(values, names, seed=6)


def test_no_spectra_give_nan():
    assert np.isnan(per_spectrum(np.zeros((0, 1)), [])[0].mean)
