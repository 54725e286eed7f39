"""Schedules, counted noise and sampling step by step; drawing in chunks that fit the memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import sampler as module
from duallgd_cli.diffusion.sampler import (
    BYTES_PER_PAIR,
    Sampler,
    SamplingTask,
    alpha_bar,
    chunk_size,
    evenly_spaced,
    formula_condition,
    parse_schedule,
    sample,
)
from duallgd_cli.errors import ConfigError, OutOfTimeError
from duallgd_cli.model.duallgd import parameter_counts
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu


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


def test_the_mode_is_taken_and_its_likelihood_is_the_mean_over_the_last_five():
    network, _ = noting()
    plan = evenly_spaced(100, 10)

    drawn = sample(network, task(plan), slice(0, 3))

    logits = torch.zeros(11, 5)
    logits[:, 1] = torch.tensor(plan) / 50
    log_prob = torch.log_softmax(logits, -1)
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


SETTINGS = SamplingSettings(steps=4, samples=7)
FINGERPRINT = torch.rand(4096, generator=torch.Generator().manual_seed(1)) ** 8


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings())


@pytest.fixture(scope="module")
def sampler(model):
    return Sampler(model, cpu())


def draw(sampler, settings=SETTINGS, seed=1, formula="C4H7NO2S", check=lambda: None):
    """Samples from pure noise, and the notes on how they were drawn."""
    parsed = Formula.parse(formula)
    n_pairs = parsed.n_heavy * (parsed.n_heavy - 1) // 2
    task = sampler.task(settings, seed, settings.samples, n_pairs)
    return sampler.draw(sampler.context(parsed, FINGERPRINT), [task], settings, check)


@pytest.fixture(scope="module")
def whole(sampler):
    return draw(sampler)[0]


def test_a_draw_has_the_shape_of_the_formula_and_follows_from_its_arguments(sampler, whole):
    (again, notes), (other, _) = draw(sampler), draw(sampler, seed=2)

    assert whole.bond_class.shape == (7, 28)
    assert set(whole.bond_class.unique().tolist()) <= set(range(5))
    assert whole.log_likelihood.shape == (7,)
    assert (whole.log_likelihood < 0).all()
    torch.testing.assert_close(whole.bond_log_prob.exp().sum(-1), torch.ones(7, 28))
    assert all(torch.equal(one, two) for one, two in zip(whole, again, strict=True))
    assert (whole.bond_class != other.bond_class).any()
    assert notes == []


def test_the_number_of_threads_changes_no_digit_and_is_put_back(sampler):
    drawn = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        drawn.append(draw(sampler)[0])
        assert torch.get_num_threads() == threads

    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))


def test_tasks_are_drawn_one_after_the_other_each_with_noise_of_its_own(sampler, whole):
    context = sampler.context(Formula.parse("C4H7NO2S"), FINGERPRINT)
    tasks = [sampler.task(SETTINGS, seed, samples, 28) for seed, samples in ((1, 7), (5, 2))]

    both, _ = sampler.draw(context, tasks, SETTINGS)

    second, _ = sampler.draw(context, tasks[1:], SETTINGS)
    assert torch.equal(both.bond_class, torch.cat([whole.bond_class, second.bond_class]))


def test_a_check_stops_the_drawing_between_evaluations_of_any_chunk(sampler, monkeypatch):
    monkeypatch.setattr(module, "chunk_size", lambda *_: 2)
    evaluations = []

    def stop():
        evaluations.append(None)
        if len(evaluations) == 6:  # of four a chunk
            raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        draw(sampler, check=stop)
    assert len(evaluations) == 6


def test_running_out_of_memory_halves_the_chunk_and_says_so(sampler, whole, model, monkeypatch):
    forward, denoiser = model.denoiser.forward, Sampler.denoiser

    def small_memory(bond_class, t, context):
        if len(bond_class) > 2:
            raise torch.OutOfMemoryError
        return forward(bond_class, t, context)

    def capture(self, context, samples):
        """Memory that ends while a graph is captured."""
        try:
            if samples > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            if samples > 4:
                raise RuntimeError("operation failed due to a previous error during capture")
        return denoiser(self, context, samples)

    said = "out of device memory: samples per chunk halved to "
    for owner, name, limited, sizes in (
        (model.denoiser, "forward", small_memory, (3, 1)),
        (Sampler, "denoiser", capture, (3,)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, limited)
            drawn, notes = draw(sampler)
        assert torch.equal(drawn.bond_class, whole.bond_class)
        assert notes == [f"{said}{size}" for size in sizes]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("of one sample"), RuntimeError("not permitted when capturing")]
)
def test_what_no_smaller_chunk_mends_is_an_error(sampler, model, monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr(model.denoiser, "forward", broken)

    with pytest.raises(type(error), match=str(error)):
        draw(sampler)


@pytest.mark.parametrize("formula", ["CH4O", "C2H6", "C60H122"])
def test_small_and_large_molecules_are_drawn(sampler, formula):
    n = Formula.parse(formula).n_heavy

    drawn, _ = draw(sampler, SamplingSettings(steps=2, samples=2), formula=formula)

    assert drawn.bond_class.shape == (2, n * (n - 1) // 2)


@pytest.mark.parametrize(("text", "charge"), [("C4H7NO2S", 0), ("[C5H14NO]+", 1)])
def test_the_condition_is_a_function_of_formula_and_fingerprint(text, charge):
    formula, fingerprint = Formula.parse(text), FINGERPRINT**0.125

    known = formula_condition(formula, fingerprint, 160)

    assert known.atom_class.tolist() == [formula.atom_class.tolist()]
    assert known.atom_mask.all()
    assert known.formula.tolist() == [formula.array.tolist()]
    assert known.charge.tolist() == [charge]
    expected = fingerprint.sort().values[-160:].flip(0)
    torch.testing.assert_close(known.bit_log_prob[0].exp(), expected)


@given(samples=st.integers(1, 10_000), n_pairs=st.integers(1, 4950))
def test_chunks_follow_from_size_and_settings_and_fit_the_memory(samples, n_pairs):
    settings = SamplingSettings(max_memory_mib=64)

    for device in ("cpu", "cuda"):
        chunk = chunk_size(n_pairs, samples, settings, torch.device(device))

        assert 1 <= chunk <= samples
        assert chunk == 1 or chunk * n_pairs * BYTES_PER_PAIR <= 64 * (1 << 20)
        count = -(-samples // chunk)
        assert chunk - (samples - (count - 1) * chunk) < count  # the last is of like size
    large = SamplingSettings(max_memory_mib=8192)  # used on CUDA and not on a CPU
    on_cpu, on_cuda = (chunk_size(435, 10_000, large, torch.device(n)) for n in ("cpu", "cuda"))
    assert on_cuda > 10 * on_cpu


def test_layers_of_a_stack_are_counted_together():
    network = torch.nn.Module()
    network.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2) for _ in range(4)])
    network.readout = torch.nn.Linear(2, 1, bias=False)
    outer = torch.nn.Module()
    outer.inner = network

    assert parameter_counts(network) == {"layers": 4 * 8, "readout": 2}
    assert parameter_counts(outer, depth=1) == {"inner": 4 * 8 + 2}
