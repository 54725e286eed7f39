import numpy as np
import pytest

from duallgd_cli.evaluate.intervals import (
    effective_sample_size,
    means,
    reliability,
    share,
)

VALUES = np.array([[1.0], [1.0], [1.0], [0.0]])
CLUSTERS = ["a", "a", "a", "b"]


def test_the_interval_resamples_molecules_and_not_their_spectra():
    # Two molecules: every draw is (a, a), (a, b), (b, a) or (b, b).
    estimate = means(VALUES, CLUSTERS)[0]

    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_copies_of_spectra_do_not_narrow_the_clustered_interval():
    generator = np.random.default_rng(0)
    values = generator.random((40, 1))
    names = [str(i) for i in range(40)]
    copied = np.repeat(values, 10, axis=0)
    copied_names = [name for name in names for _ in range(10)]

    once, ten = means(values, names)[0], means(copied, copied_names)[0]
    blind = means(copied, range(400))[0]

    assert (ten.low, ten.high) == pytest.approx((once.low, once.high))
    assert blind.high - blind.low < (once.high - once.low) / 2


def test_a_constant_has_no_interval_and_columns_do_not_mix():
    values = np.column_stack([np.full(5, 3.0), np.arange(5.0)])

    constant, ramp = means(values, list("aabbc"))

    assert (constant.mean, constant.low, constant.high) == (3.0, 3.0, 3.0)
    assert ramp.low < ramp.mean < ramp.high


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(2).random((30, 1))
    names = [str(i % 7) for i in range(30)]

    assert means(values, names, seed=5) == means(values, names, seed=5)
    assert means(values, names, seed=5) != means(values, names, seed=6)


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 5, 0.0, 0.4345), (5, 5, 0.5655, 1)],
)
def test_shares_have_the_textbook_s_wilson_interval(right, of, low, high):
    values = np.array([1.0] * right + [0.0] * (of - right))

    found = share(values, [str(i) for i in range(of)])

    assert (found.mean, found.low, found.high) == pytest.approx((right / of, low, high), abs=1e-4)


def test_copies_of_spectra_do_not_narrow_the_interval_of_a_share():
    right = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    names = list("abcdefgh")

    once = share(right, names)
    ten = share(np.repeat(right, 10), np.repeat(names, 10).tolist())

    assert (ten.mean, ten.low, ten.high) == pytest.approx((once.mean, once.low, once.high))
    assert share(np.zeros(80), np.repeat(names, 10).tolist()) == share(np.zeros(8), names)


def test_spectra_of_one_molecule_that_differ_as_strangers_do_count_one_by_one():
    generator = np.random.default_rng(0)
    right = (generator.random(2000) < 0.3).astype(float)
    sums, counts = right.reshape(-1, 2).sum(axis=1), np.full(1000, 2.0)

    assert effective_sample_size(sums, counts) == pytest.approx(2000, rel=0.1)
    assert effective_sample_size(2 * right[:1000], counts) == pytest.approx(1000, rel=0.01)


def test_wilson_covers_what_the_bootstrap_of_few_molecules_misses():
    generator = np.random.default_rng(0)
    covered, truth = 0, 0.1
    for _ in range(200):
        right = np.repeat((generator.random(20) < truth).astype(float), 3)
        found = share(right, np.repeat(np.arange(20), 3).astype(str).tolist())
        covered += found.low <= truth <= found.high

    assert covered >= 0.93 * 200


def test_a_share_of_nothing_is_no_number():
    assert share(VALUES[:, 0], CLUSTERS).mean == 0.75
    assert np.isnan(share(np.zeros(0), []).mean)


def test_a_calibrated_probability_has_hardly_any_error():
    generator = np.random.default_rng(0)
    stated = generator.random(4000)
    right = generator.random(4000) < stated

    table = reliability(stated, right, n_bins=10)

    assert table.expected_error < 0.03
    assert table.brier == pytest.approx(1 / 6, abs=0.01)
    assert table.base_brier == pytest.approx(1 / 4, abs=0.01)
    assert [part.count for part in table.bins] == [400] * 10
    assert sum(b.observed.low <= b.stated <= b.observed.high for b in table.bins) >= 8


def test_a_boastful_probability_shows_by_hand():
    table = reliability(np.full(4, 0.9), np.array([True, False, False, False]), n_bins=10)

    [only] = table.bins
    assert (only.count, only.observed.mean) == (4, 0.25)
    assert table.expected_error == pytest.approx(0.65)
    assert table.brier == pytest.approx((0.01 + 3 * 0.81) / 4)
