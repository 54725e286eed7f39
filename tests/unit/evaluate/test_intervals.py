"""Intervals when spectra share a molecule, and how far stated probabilities can be trusted."""

from dataclasses import astuple

import numpy as np
import pytest

from duallgd_cli.evaluate.intervals import effective_sample_size, means, reliability, share

UNIFORM = np.random.default_rng(0).random(400)
NAMES = [str(number) for number in range(400)]


def copied(values):
    """Ten spectra in place of each."""
    return np.repeat(values, 10, axis=0), np.repeat(NAMES[: len(values)], 10).tolist()


def test_a_bootstrap_draws_molecules_each_column_for_itself_and_again_with_its_seed():
    # Of two molecules every draw is (a, a), (a, b), (b, a) or (b, b).
    [few] = means(np.array([[1.0], [1.0], [1.0], [0.0]]), list("aaab"))
    columns = np.column_stack([UNIFORM, np.full(400, 3.0)])
    many, constant = means(columns, NAMES, seed=5)

    assert astuple(few) == (0.75, 0.0, 1.0)
    reach = 1.96 * UNIFORM.std() / 20
    assert astuple(many) == pytest.approx(UNIFORM.mean() + reach * np.array([0, -1, 1]), abs=0.003)
    assert astuple(constant) == (3.0, 3.0, 3.0)
    assert means(columns, NAMES, seed=5) == [many, constant] != means(columns, NAMES, seed=6)


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 5, 0.0, 0.4345), (5, 5, 0.5655, 1)],
)
def test_shares_have_the_textbook_s_wilson_interval(right, of, low, high):
    found = share(np.array([1.0] * right + [0.0] * (of - right)), NAMES[:of])

    assert astuple(found) == pytest.approx((right / of, low, high), abs=1e-4)
    nothing = [*means(np.zeros((0, 1)), []), share(np.zeros(0), [])]
    assert np.isnan([astuple(estimate) for estimate in nothing]).all()


def test_copies_of_spectra_narrow_no_interval():
    values = UNIFORM[:40, None]

    assert astuple(means(*copied(values))[0]) == pytest.approx(
        astuple(means(values, NAMES[:40])[0])
    )
    for right in ([1.0, 0, 0, 1, 0, 0, 0, 0], [0.0] * 8, [1.0] * 8):
        once = share(np.array(right), NAMES[:8])
        assert astuple(share(*copied(np.array(right)))) == pytest.approx(astuple(once))


def test_spectra_of_one_molecule_that_differ_as_strangers_do_count_one_by_one():
    right = (np.random.default_rng(0).random(2000) < 0.3).astype(float)
    counts = np.full(1000, 2.0)

    assert effective_sample_size(right.reshape(-1, 2).sum(1), counts) == pytest.approx(
        2000, rel=0.1
    )
    assert effective_sample_size(2 * right[:1000], counts) == pytest.approx(1000, rel=0.01)
    assert effective_sample_size(np.ones(1000), counts) == 2000  # one of each two is right


def test_a_calibrated_probability_has_hardly_any_error():
    generator = np.random.default_rng(0)
    stated = generator.random(4000)

    table = reliability(stated, generator.random(4000) < stated)

    assert table.expected_error < 0.03
    assert (table.brier, table.base_brier) == pytest.approx((1 / 6, 1 / 4), abs=0.01)
    edges = (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1)
    assert [part.count for part in table.bins] == np.histogram(stated, edges)[0].tolist()
    assert sum(b.observed.low <= b.stated <= b.observed.high for b in table.bins) >= 8


def test_a_boastful_probability_shows_and_copies_of_it_are_no_more_certain():
    outcomes = np.array([True, False, False, False])

    table, ten = (
        reliability(np.full(4, 0.9), outcomes),
        reliability(np.full(40, 0.9), *copied(outcomes)),
    )

    [only], [copies] = table.bins, ten.bins
    assert (only.count, only.observed.mean) == (4, 0.25)
    assert (table.expected_error, table.brier) == pytest.approx((0.65, (0.01 + 3 * 0.81) / 4))
    assert copies.observed.high == pytest.approx(only.observed.high)
