"""Laws of the noise process, read literally: explicit (C, C) matrices, Bayes, frequencies."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from duallgd_cli.diffusion.sampler import (
    Samples,
    SamplingTask,
    alpha_bar,
    corrupt,
    draw_classes,
    evenly_spaced,
    quadratic,
    sample,
    skipped_posterior,
)
from tests.made_graphs import transition_matrix

N_CLASSES = 5
N_STEPS = 500
SHIPPED_MARGINAL = (0.924, 0.044, 0.0055, 0.0002, 0.0263)


@st.composite
def corruptions(draw):
    """A marginal and alpha_bar at s and t > s, in float64."""
    weights = draw(st.lists(st.floats(1e-3, 1), min_size=N_CLASSES, max_size=N_CLASSES))
    marginal = torch.tensor(weights, dtype=torch.float64)
    a_s = draw(st.floats(1e-3, 0.9999))
    ratio = draw(st.floats(1e-3, 0.9999))
    a_s, a_t = (torch.tensor(a, dtype=torch.float64) for a in (a_s, a_s * ratio))
    return marginal / marginal.sum(), a_s, a_t


@st.composite
def plans(draw):
    """Any jump plan of T = 500."""
    visited = draw(st.sets(st.integers(1, N_STEPS - 1), max_size=12))
    return (N_STEPS, *sorted(visited, reverse=True), 0)


def clean_probabilities(seed, n_pairs, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(1, n_pairs, N_CLASSES, generator=generator, dtype=dtype)
    return torch.softmax(logits, -1)


def task(plan, *, samples=4, n_pairs=6, seed=1):
    return SamplingTask(
        plan, torch.tensor(SHIPPED_MARGINAL), alpha_bar(N_STEPS), seed, samples, n_pairs
    )


def oracle(clean, sure=60.0):
    """A denoiser that knows the clean graph, and the states it was shown."""
    seen = {}

    def denoise(bond_class, t):
        seen[t] = bond_class.clone()
        logits = torch.nn.functional.one_hot(clean, N_CLASSES).float() * sure
        return logits.expand(*bond_class.shape, -1)

    return denoise, seen


def untrained(bond_class, t):
    """A denoiser with an opinion of its own about every pair, given its class and the step."""
    pair = torch.arange(bond_class.shape[1])[:, None] + 1.0
    wave = torch.sin(pair * torch.arange(1, N_CLASSES + 1) + t / 100)
    return wave + torch.nn.functional.one_hot(bond_class, N_CLASSES)


@given(corruptions(), st.integers(0, 1000))
def test_the_skipped_posterior_is_bayes_rule_with_explicit_matrices(case, seed):
    marginal, a_s, a_t = case
    clean = clean_probabilities(seed, N_CLASSES)
    bond_t = torch.arange(N_CLASSES)[None]
    q_s, q_t = transition_matrix(a_s, marginal), transition_matrix(a_t, marginal)
    q_ts = transition_matrix(a_t / a_s, marginal)

    got = skipped_posterior(clean, bond_t, a_s, a_t, marginal)

    for pair in range(N_CLASSES):
        expected = torch.zeros(N_CLASSES, dtype=torch.float64)
        for e_0 in range(N_CLASSES):
            bayes = q_ts[:, pair] * q_s[e_0] / q_t[e_0, pair]
            torch.testing.assert_close(bayes.sum(), torch.tensor(1.0, dtype=torch.float64))
            expected += clean[0, pair, e_0] * bayes
        torch.testing.assert_close(got[0, pair], expected)
    low = skipped_posterior(clean.float(), bond_t, a_s.float(), a_t.float(), marginal.float())
    torch.testing.assert_close(low.sum(-1), torch.ones(1, N_CLASSES))
    assert (low >= 0).all()


@given(corruptions(), st.integers(0, 1000))
def test_a_jump_of_no_length_changes_nothing_and_one_from_pure_noise_is_the_guess(case, seed):
    marginal, a_s, _ = case
    clean = clean_probabilities(seed, N_CLASSES)
    bond_t = torch.arange(N_CLASSES)[None]
    one, nothing = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)

    stayed = skipped_posterior(clean, bond_t, a_s, a_s, marginal)
    guessed = skipped_posterior(clean, bond_t, one, nothing, marginal)

    torch.testing.assert_close(stayed[0], torch.eye(N_CLASSES, dtype=torch.float64))
    torch.testing.assert_close(guessed, clean)


def test_each_graph_of_a_batch_may_stand_at_a_step_of_its_own():
    marginal = torch.tensor(SHIPPED_MARGINAL, dtype=torch.float64)
    clean = clean_probabilities(3, 8).reshape(2, 4, N_CLASSES)
    bond_t = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    a_s, a_t = torch.tensor([0.9, 0.4]).double(), torch.tensor([0.5, 0.1]).double()

    both = skipped_posterior(clean, bond_t, a_s, a_t, marginal)

    for b in range(2):
        one = skipped_posterior(clean[b : b + 1], bond_t[b : b + 1], a_s[b], a_t[b], marginal)
        torch.testing.assert_close(both[b : b + 1], one)


@given(st.integers(0, 1000))
def test_drawn_classes_have_the_frequencies_asked_for(seed):
    n = 20_000
    probability = clean_probabilities(seed, 1, torch.float32)[0, 0]
    uniform = (torch.arange(n) + 0.5) / n

    drawn = draw_classes(probability.expand(n, -1), uniform)

    share = torch.bincount(drawn, minlength=N_CLASSES) / n
    torch.testing.assert_close(share, probability, atol=2 / n, rtol=0)
    short = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.1999])  # rounding leaves a gap at the end
    edges = draw_classes(short.expand(3, -1), torch.tensor([0.0, 0.99995, 1 - 2**-24]))
    assert edges.tolist() == [0, 4, 4]


@pytest.mark.parametrize("e_0", range(N_CLASSES))
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.98])
def test_corruption_follows_the_transition_matrix(e_0, alpha):
    n = 40_000
    marginal = torch.tensor(SHIPPED_MARGINAL)
    uniform = ((torch.arange(n) + 0.5) / n)[None]
    clean = torch.full((1, n), e_0)

    noisy = corrupt(clean, torch.tensor([alpha]), marginal, uniform)

    share = torch.bincount(noisy[0], minlength=N_CLASSES) / n
    expected = transition_matrix(torch.tensor(alpha), marginal)[e_0]
    torch.testing.assert_close(share, expected, atol=4 / n, rtol=0)


@example(N_STEPS)
@given(st.integers(1, 600))
def test_the_schedule_starts_almost_clean_and_only_falls(n_steps):
    share = alpha_bar(n_steps)

    assert share.shape == (n_steps + 1,)
    assert 0 < share[-1] < 1e-3 or n_steps < 40
    assert share[-1] < 1e-6 or n_steps < N_STEPS
    assert 0 < 1 - share[0] <= 1
    assert share[0] > 0.999 or n_steps < N_STEPS
    assert (share[1:] < share[:-1]).all()


@given(plans(), st.integers(0, 2**62))
def test_an_oracle_gives_the_clean_graph_back_whatever_the_plan(plan, seed):
    clean = torch.randint(N_CLASSES, (6,), generator=torch.Generator().manual_seed(seed % 2**31))
    denoise, seen = oracle(clean)

    drawn = sample(denoise, task(plan, seed=seed), slice(0, 4))

    assert (drawn.bond_class == clean).all()
    assert list(seen) == list(plan[:-1])
    torch.testing.assert_close(drawn.log_likelihood, torch.zeros(4), atol=1e-4, rtol=0)


@pytest.mark.parametrize("steps", [(500, 350, 120, 0), (500, 499, 40, 0)])
def test_with_an_oracle_every_visited_state_is_distributed_as_the_forward_process(steps):
    samples = 20_000
    clean = torch.arange(N_CLASSES)
    denoise, seen = oracle(clean)
    wide = task(steps, samples=samples, n_pairs=N_CLASSES)

    sample(denoise, wide, slice(0, samples))

    for t, state in seen.items():
        expected = transition_matrix(wide.alpha_bar[t], wide.marginal)
        got = torch.stack(
            [torch.bincount(state[:, e_0], minlength=N_CLASSES) / samples for e_0 in clean]
        )
        tolerance = 5 * (expected * (1 - expected) / samples).sqrt() + 1 / samples
        assert ((got - expected).abs() < tolerance).all()


@given(plans(), st.lists(st.integers(1, 8), max_size=4), st.integers(0, 2**62))
def test_samples_drawn_in_chunks_are_the_samples_drawn_at_once(plan, cuts, seed):
    whole_task = task(plan, samples=9, seed=seed)
    edges = sorted({0, 9, *cuts})

    whole = sample(untrained, whole_task, slice(0, 9))
    parts = [sample(untrained, whole_task, slice(a, b)) for a, b in itertools.pairwise(edges)]

    joined = Samples.join(parts)
    assert torch.equal(joined.bond_class, whole.bond_class)
    torch.testing.assert_close(joined.log_likelihood, whole.log_likelihood)
    torch.testing.assert_close(joined.bond_log_prob, whole.bond_log_prob)


@pytest.mark.parametrize("planned", [evenly_spaced, quadratic])
@given(n_steps=st.integers(1, 1000), data=st.data())
def test_a_plan_makes_as_many_evaluations_as_asked_for(planned, n_steps, data):
    evaluations = data.draw(st.integers(1, n_steps))
    plan = planned(n_steps, evaluations)

    share = np.arange(evaluations, -1, -1) / evaluations
    exact = n_steps * share
    if planned is quadratic:
        exact = np.maximum(exact * share, share * evaluations)
    assert len(plan) == evaluations + 1
    assert np.abs(np.asarray(plan) - exact).max() <= 0.5 + 1e-9
    assert (plan[0], plan[-1]) == (n_steps, 0)
