"""Laws of the noise process, read literally: explicit (C, C) matrices, Bayes, frequencies."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn.functional import one_hot
from torch.testing import assert_close

from duallgd_cli.diffusion.sampler import (
    Samples,
    SamplingTask,
    alpha_bar,
    corrupt,
    draw_classes,
    quadratic,
    sample,
    skipped_posterior,
)
from tests.made_graphs import transition_matrix

C = 5
N_STEPS = 500
MARGINAL = torch.tensor((0.924, 0.044, 0.0055, 0.0002, 0.0263))  # of the shipped weights


@st.composite
def corruptions(draw):
    """A marginal, alpha_bar at s and t > s, and a guess of the clean classes of C pairs."""
    marginal = torch.tensor(draw(st.lists(st.floats(1e-3, 1), min_size=C, max_size=C))).double()
    a_s, ratio = torch.tensor(draw(st.tuples(*[st.floats(1e-3, 0.9999)] * 2))).double()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    clean = torch.softmax(3 * torch.randn(1, C, C, generator=generator).double(), -1)
    return marginal / marginal.sum(), a_s, a_s * ratio, clean


@st.composite
def plans(draw):
    """Any jump plan of T = 500."""
    visited = draw(st.sets(st.integers(1, N_STEPS - 1), max_size=12))
    return (N_STEPS, *sorted(visited, reverse=True), 0)


def task(plan, samples=4, n_pairs=6, seed=1):
    return SamplingTask(plan, MARGINAL, alpha_bar(N_STEPS), seed, samples, n_pairs)


def oracle(clean):
    """A denoiser that knows the clean graph, and the states it was shown."""
    seen = {}

    def denoise(bond_class, t):
        seen[t] = bond_class.clone()
        return (60.0 * one_hot(clean, C)).expand(*bond_class.shape, -1)

    return denoise, seen


def untrained(bond_class, t):
    """A denoiser with an opinion of its own about every pair, given its class and the step."""
    pair = torch.arange(bond_class.shape[1])[:, None] + 1.0
    return torch.sin(pair * torch.arange(1, C + 1) + t / 100) + one_hot(bond_class, C)


def frequencies(classes):
    return torch.bincount(classes, minlength=C) / len(classes)


BONDS = torch.arange(C)[None]


@given(corruptions())
def test_the_skipped_posterior_is_bayes_rule_with_explicit_matrices(case):
    marginal, a_s, a_t, clean = case
    q_s, q_t, q_ts = (transition_matrix(a, marginal) for a in (a_s, a_t, a_t / a_s))
    one, nothing = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)

    got = skipped_posterior(clean, BONDS, a_s, a_t, marginal)

    # q(e_s | e_0, e_t) for every e_t, e_0, e_s.
    bayes = q_ts.T[:, None] * q_s[None] / q_t.T[:, :, None]
    assert_close(bayes.sum(-1), torch.ones(C, C, dtype=torch.float64))
    assert_close(got[0], torch.einsum("po,pos->ps", clean[0], bayes))
    low = skipped_posterior(clean.float(), BONDS, a_s.float(), a_t.float(), marginal.float())
    assert_close(low.sum(-1), torch.ones(1, C))
    assert (low >= 0).all()
    # A jump of no length changes nothing, and one from pure noise is the guess.
    stayed = skipped_posterior(clean, BONDS, a_s, a_s, marginal)
    assert_close(stayed[0], torch.eye(C, dtype=torch.float64))
    assert_close(skipped_posterior(clean, BONDS, one, nothing, marginal), clean)
    # Each graph of a batch may stand at a step of its own.
    steps = torch.stack([a_s, one]), torch.stack([a_t, nothing])
    both = skipped_posterior(clean.expand(2, C, C), BONDS.expand(2, C), *steps, marginal)
    assert_close(both, torch.cat([got, clean]))


@given(corruptions())
def test_drawn_classes_have_the_frequencies_asked_for(case):
    n, probability = 20_000, case[-1][0, 0].float()

    drawn = draw_classes(probability.expand(n, -1), (torch.arange(n) + 0.5) / n)

    assert_close(frequencies(drawn), probability, atol=2 / n, rtol=0)
    short = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.1999])  # rounding leaves a gap at the end
    edges = draw_classes(short.expand(3, -1), torch.tensor([0.0, 0.99995, 1 - 2**-24]))
    assert edges.tolist() == [0, 4, 4]


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.98])
def test_corruption_follows_the_transition_matrix(alpha):
    n = 40_000
    clean = torch.arange(C)[:, None].expand(C, n)
    uniform = ((torch.arange(n) + 0.5) / n).expand(C, n)

    noisy = corrupt(clean, torch.full((C,), alpha), MARGINAL, uniform)

    expected = transition_matrix(torch.tensor(alpha), MARGINAL)
    assert_close(torch.stack(list(map(frequencies, noisy))), expected, atol=4 / n, rtol=0)


@example(N_STEPS)
@given(st.integers(1, 600))
def test_the_schedule_starts_almost_clean_and_only_falls(n_steps):
    share = alpha_bar(n_steps)

    assert share.shape == (n_steps + 1,)
    assert 0 < share[-1] < (1 if n_steps < 40 else 1e-3 if n_steps < N_STEPS else 1e-6)
    assert (0 if n_steps < N_STEPS else 0.999) <= share[0] < 1
    assert (share[1:] < share[:-1]).all()


@given(plans(), st.integers(0, 2**62))
def test_an_oracle_gives_the_clean_graph_back_whatever_the_plan(plan, seed):
    clean = torch.randint(C, (6,), generator=torch.Generator().manual_seed(seed % 2**31))
    denoise, seen = oracle(clean)

    drawn = sample(denoise, task(plan, seed=seed), slice(0, 4))

    assert (drawn.bond_class == clean).all()
    assert list(seen) == list(plan[:-1])
    assert_close(drawn.log_likelihood, torch.zeros(4), atol=1e-4, rtol=0)


@pytest.mark.parametrize("steps", [(500, 350, 120, 0), (500, 499, 40, 0)])
def test_with_an_oracle_every_visited_state_is_distributed_as_the_forward_process(steps):
    samples = 20_000
    denoise, seen = oracle(torch.arange(C))
    wide = task(steps, samples, C)

    sample(denoise, wide, slice(0, samples))

    for t, state in seen.items():
        expected = transition_matrix(wide.alpha_bar[t], MARGINAL)
        tolerance = 5 * (expected * (1 - expected) / samples).sqrt() + 1 / samples
        got = torch.stack(list(map(frequencies, state.T)))
        assert ((got - expected).abs() < tolerance).all()


@given(plans(), st.lists(st.integers(1, 8), max_size=4), st.integers(0, 2**62))
def test_samples_drawn_in_chunks_are_the_samples_drawn_at_once(plan, cuts, seed):
    whole_task = task(plan, samples=9, seed=seed)
    edges = sorted({0, 9, *cuts})

    whole = sample(untrained, whole_task, slice(0, 9))
    parts = [sample(untrained, whole_task, slice(a, b)) for a, b in itertools.pairwise(edges)]

    assert torch.equal(whole.bond_class, Samples.join(parts).bond_class)
    assert_close(tuple(Samples.join(parts)), tuple(whole))


@given(n_steps=st.integers(1, 1000), data=st.data())
def test_a_plan_makes_as_many_evaluations_as_asked_for(n_steps, data):
    evaluations = data.draw(st.integers(1, n_steps))
    share = np.arange(evaluations, -1, -1) / evaluations
    exact = np.maximum(n_steps * share**2, share * evaluations)  # never fewer steps than jumps left

    plan = quadratic(n_steps, evaluations)

    np.testing.assert_allclose(plan, exact, rtol=0, atol=0.5 + 1e-9)
    assert (plan[0], plan[-1]) == (n_steps, 0)
