import numpy as np
import pytest

from duallgd_cli.evaluate.intervals import effective_sample_size, means, reliability, share

RNG = np.random.default_rng(0)
VALUES = RNG.random((400, 2))
NAMES = [str(i) for i in range(400)]


def repeated(values, times=10):
    return np.repeat(values, times, axis=0), np.repeat(NAMES[: len(values)], times).tolist()


def test_the_interval_resamples_molecules_and_not_their_spectra():
    # Two molecules: every draw is (a, a), (a, b), (b, a) or (b, b).
    estimate = means(np.array([[1.0], [1.0], [1.0], [0.0]]), list("aaab"))[0]

    assert (estimate.mean, estimate.low, estimate.high) == (0.75, 0.0, 1.0)


def test_the_interval_of_many_is_that_of_the_normal_distribution_and_columns_do_not_mix():
    uniform, constant = means(np.column_stack([VALUES[:, 0], np.full(400, 3.0)]), NAMES)

    reach = 1.96 * VALUES[:, 0].std() / 20
    assert uniform.high - uniform.mean == pytest.approx(reach, rel=0.1)
    assert uniform.mean - uniform.low == pytest.approx(reach, rel=0.1)
    assert (constant.mean, constant.low, constant.high) == (3.0, 3.0, 3.0)


def test_copies_of_spectra_do_not_narrow_an_interval():
    once, ten = means(VALUES[:40], NAMES[:40]), means(*repeated(VALUES[:40]))
    right = np.array([1.0, 0, 0, 1, 0, 0, 0, 0])

    for one, copies in zip(once, ten, strict=True):
        assert (copies.low, copies.high) == pytest.approx((one.low, one.high))
    ours, copies = share(right, NAMES[:8]), share(*repeated(right))
    assert (copies.low, copies.high) == pytest.approx((ours.low, ours.high))
    for same in (np.zeros(8), np.ones(8)):
        assert share(*repeated(same)) == share(same, NAMES[:8])


def test_the_same_seed_gives_the_same_interval():
    assert means(VALUES, NAMES, seed=5) == means(VALUES, NAMES, seed=5)
    assert means(VALUES, NAMES, seed=5) != means(VALUES, NAMES, seed=6)


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 5, 0.0, 0.4345), (5, 5, 0.5655, 1)],
)
def test_shares_have_the_textbook_s_wilson_interval(right, of, low, high):
    found = share(np.array([1.0] * right + [0.0] * (of - right)), NAMES[:of])

    assert (found.mean, found.low, found.high) == pytest.approx((right / of, low, high), abs=1e-4)
    assert np.isnan(share(np.zeros(0), []).mean)


def test_spectra_of_one_molecule_that_differ_as_strangers_do_count_one_by_one():
    right = (np.random.default_rng(0).random(2000) < 0.3).astype(float)
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


def test_a_calibrated_probability_has_hardly_any_error():
    generator = np.random.default_rng(0)
    stated = generator.random(4000)

    table = reliability(stated, generator.random(4000) < stated)

    assert table.expected_error < 0.03
    assert table.brier == pytest.approx(1 / 6, abs=0.01)
    assert table.base_brier == pytest.approx(1 / 4, abs=0.01)
    assert sum(part.count for part in table.bins) == 4000
    assert sum(b.observed.low <= b.stated <= b.observed.high for b in table.bins) >= 8


def test_a_boastful_probability_shows_by_hand_and_copies_of_it_are_no_more_certain():
    table = reliability(np.full(4, 0.9), np.array([True, False, False, False]))
    ten = reliability(np.full(40, 0.9), *repeated(np.array([True, False, False, False])))

    [only], [copies] = table.bins, ten.bins
    assert (only.count, only.observed.mean) == (4, 0.25)
    assert table.expected_error == pytest.approx(0.65)
    assert table.brier == pytest.approx((0.01 + 3 * 0.81) / 4)
    assert copies.observed.high == pytest.approx(only.observed.high)
