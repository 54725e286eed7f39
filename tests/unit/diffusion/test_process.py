"""Schedules, counter-based noise and sampling, step by step."""

import numpy as np
import pytest
import torch

from duallgd_cli.diffusion.sampler import (
    SamplingTask,
    alpha_bar,
    evenly_spaced,
    parse_schedule,
    sample,
)
from duallgd_cli.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "n_steps", "evaluations", "steps"),
    [
        # Short where little noise is left.
        ("quadratic", 500, 10, (500, 405, 320, 245, 180, 125, 80, 45, 20, 5, 0)),
        ("uniform", 5, 2, (5, 2, 0)),  # rounded half to even
        ("uniform", 7, 2, (7, 4, 0)),
    ],
)
def test_a_schedule_has_a_name(text, n_steps, evaluations, steps):
    assert parse_schedule(text, n_steps, evaluations) == steps


@pytest.mark.parametrize(
    ("text", "evaluations", "message"),
    [
        ("sometimes", 4, "schedule 'sometimes' is not quadratic or uniform"),
        ("uniform", 0, "steps must be 1 to 20, not 0"),
        ("quadratic", 21, "steps must be 1 to 20, not 21"),
    ],
)
def test_another_one_and_more_evaluations_than_steps_are_refused(text, evaluations, message):
    with pytest.raises(ConfigError, match=message):
        parse_schedule(text, 20, evaluations)


MARGINAL = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1])
GIVEN = torch.tensor([[1, 0], [2, 3], [4, 4]])


def task(plan, **changes):
    return SamplingTask(plan, MARGINAL, alpha_bar(100), 4, 3, 2, **changes)


@pytest.mark.parametrize("n_pairs", [1, 4, 6])
def test_numbers_are_the_upper_bits_of_philox_counted_by_sample_and_evaluation(n_pairs):
    seed, width = (1 << 63) - 1, -(-n_pairs // 4) * 4
    own = SamplingTask((100, 0), MARGINAL, alpha_bar(100), seed, 9, n_pairs)

    for evaluation in (0, 7):
        generator = np.random.Generator(np.random.Philox(key=seed + (evaluation << 64)))
        raw = generator.bit_generator.random_raw(9 * width).reshape(9, width)[:, :n_pairs]
        expected = torch.tensor((raw >> 40).tolist()) / (1 << 24)
        assert torch.equal(own.uniform(evaluation, slice(0, 9)), expected)
        assert torch.equal(own.uniform(evaluation, slice(3, 5)), expected[3:5])
        assert own.uniform(evaluation, slice(4, 4)).shape == (0, n_pairs)


def noting():
    """A network that prefers single bonds, more of them early, and what it is shown."""
    seen = []

    def noted(bond_class, t):
        seen.append((bond_class.clone(), t))
        return torch.tensor([0.0, t / 50, 0.0, 0.0, 0.0]).expand(*bond_class.shape, -1)

    return noted, seen


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_mode_is_taken_and_its_likelihood_is_the_mean_over_the_last_five(temperature):
    network, _ = noting()
    plan = evenly_spaced(100, 10)

    drawn = sample(network, task(plan, temperature=temperature), slice(0, 3))

    logits = torch.zeros(11, 5)
    logits[:, 1] = torch.tensor(plan) / 50
    log_prob = torch.log_softmax(logits / temperature, -1)
    assert (drawn.bond_class == 1).all()
    torch.testing.assert_close(drawn.bond_log_prob, log_prob[9].expand(3, 2, 5))
    expected = 2 * log_prob[5:10, 1].mean()  # two pairs, steps 50 to 10
    torch.testing.assert_close(drawn.log_likelihood, expected.expand(3))


@pytest.mark.parametrize(("offset", "given"), [(0.0, [100, 40, 8]), (0.25, [100, 55, 31])])
def test_the_network_is_given_a_step_nearer_to_pure_noise_than_the_samples_are(offset, given):
    network, seen = noting()

    sample(network, task((100, 40, 8, 0), timestep_offset=offset), slice(0, 3))

    assert [t for _, t in seen] == given


def test_a_walk_begins_at_the_graphs_it_is_given_noised_to_the_first_step():
    network, seen = noting()

    sample(network, task((1, 0), start=GIVEN), slice(1, 3))  # hardly any noise
    sample(network, task((100, 0), start=GIVEN), slice(1, 3))
    sample(network, task((100, 0)), slice(1, 3))

    (almost, one), (noised, _), (noise, _) = seen
    assert one == 1
    torch.testing.assert_close(almost, GIVEN[1:])
    torch.testing.assert_close(noised, noise)  # nothing is left of them
