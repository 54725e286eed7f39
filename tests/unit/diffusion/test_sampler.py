"""Schedules, counted noise and sampling step by step; drawing in chunks that fit the memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion import sampler as module
from duallgd_cli.diffusion.sampler import (
    BYTES_PER_PAIR,
    Sampler,
    SamplingTask,
    alpha_bar,
    chunk_size,
    formula_condition,
    quadratic,
    sample,
)
from duallgd_cli.errors import ConfigError, OutOfTimeError
from duallgd_cli.model.duallgd import parameter_counts
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu


@pytest.mark.parametrize(
    ("n_steps", "evaluations", "steps"),
    [
        # Short where little noise is left.
        (500, 10, (500, 405, 320, 245, 180, 125, 80, 45, 20, 5, 0)),
        (20, 0, "steps must be 1 to 20, not 0"),
        (20, 21, "steps must be 1 to 20, not 21"),
    ],
)
def test_a_plan_has_no_more_evaluations_than_steps(n_steps, evaluations, steps):
    if isinstance(steps, tuple):
        assert quadratic(n_steps, evaluations) == steps
    else:
        with pytest.raises(ConfigError, match=steps):
            quadratic(n_steps, evaluations)


def task(plan, samples=3, n_pairs=2, seed=4, **changes):
    marginal = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1])
    return SamplingTask(plan, marginal, alpha_bar(100), seed, samples, n_pairs, **changes)


@pytest.mark.parametrize("n_pairs", [1, 4, 6])
def test_numbers_are_the_upper_bits_of_philox_counted_by_sample_and_evaluation(n_pairs):
    seed, width = (1 << 63) - 1, -(-n_pairs // 4) * 4
    own = task((100, 0), 9, n_pairs, seed)

    for evaluation in (0, 7):
        generator = np.random.Philox(key=seed + (evaluation << 64))
        raw = generator.random_raw(9 * width).reshape(9, width)[:, :n_pairs]
        expected = torch.tensor((raw >> 40).tolist()) / (1 << 24)
        for rows in (slice(0, 9), slice(3, 5), slice(4, 4)):
            assert torch.equal(own.uniform(evaluation, rows), expected[rows])


def drawn_with(own, rows=slice(0, 3)):
    """Samples by a network that prefers single bonds, more of them early; what it is shown."""
    seen = []

    def noted(bond_class, t):
        seen.append((bond_class.clone(), t))
        return torch.tensor([0.0, t / 50, 0.0, 0.0, 0.0]).expand(*bond_class.shape, -1)

    return sample(noted, own, rows), seen


def test_the_mode_is_taken_and_its_likelihood_is_the_mean_over_the_last_five():
    plan = tuple(range(100, -1, -10))

    drawn, _ = drawn_with(task(plan))

    logits = torch.zeros(11, 5)
    logits[:, 1] = torch.tensor(plan) / 50
    log_prob = torch.log_softmax(logits, -1)
    assert (drawn.bond_class == 1).all()
    assert_close(drawn.bond_log_prob, log_prob[9].expand(3, 2, 5))
    # Two pairs, steps 50 to 10.
    assert_close(drawn.log_likelihood, 2 * log_prob[5:10, 1].mean().expand(3))


@pytest.mark.parametrize(("offset", "given"), [(0.0, [100, 40, 8]), (0.25, [100, 55, 31])])
def test_the_network_is_given_a_step_nearer_to_pure_noise_than_the_samples_are(offset, given):
    _, seen = drawn_with(task((100, 40, 8, 0), timestep_offset=offset))

    assert [t for _, t in seen] == given


def test_a_walk_begins_at_the_graphs_it_is_given_noised_to_the_first_step():
    start = torch.tensor([[1, 0], [2, 3], [4, 4]])

    (almost, one), (noised, _), (noise, _) = (
        drawn_with(task(plan, start=graphs), slice(1, 3))[1][0]
        for plan, graphs in (((1, 0), start), ((100, 0), start), ((100, 0), None))
    )

    assert one == 1
    assert_close(almost, start[1:])  # hardly any noise
    assert_close(noised, noise)  # nothing is left of them


SETTINGS = SamplingSettings(steps=4, samples=7)
FINGERPRINT = torch.rand(4096, generator=torch.Generator().manual_seed(1)) ** 8


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings())


@pytest.fixture(scope="module")
def sampler(model):
    return Sampler(model, cpu())


def draw(sampler, *seeds, settings=SETTINGS, formula="C4H7NO2S", check=lambda: None):
    """Samples from pure noise, and the notes on how they were drawn."""
    parsed = Formula.parse(formula)
    n_pairs = parsed.n_heavy * (parsed.n_heavy - 1) // 2
    tasks = [sampler.task(settings, seed, settings.samples, n_pairs) for seed in seeds or (1,)]
    return sampler.draw(sampler.context(parsed, FINGERPRINT), tasks, settings, check)


@pytest.fixture(scope="module")
def whole(sampler):
    return draw(sampler)[0]


def test_a_draw_has_the_shape_of_the_formula_and_follows_from_its_arguments(sampler, whole):
    """Not from the number of threads, which is put back."""
    torch.set_num_threads(3)
    again, notes = draw(sampler)
    assert torch.get_num_threads() == 3
    other = draw(sampler, 2)[0].bond_class
    both = draw(sampler, 1, 2)[0].bond_class  # one after the other, each with noise of its own

    assert whole.bond_class.shape == (7, 28)
    assert set(whole.bond_class.unique().tolist()) <= set(range(5))
    assert (whole.log_likelihood < 0).all()
    assert_close(whole.bond_log_prob.exp().sum(-1), torch.ones(7, 28))
    assert_close(tuple(again), tuple(whole), rtol=0, atol=0)
    assert (whole.bond_class != other).any()
    assert torch.equal(both, torch.cat([whole.bond_class, other]))
    assert notes == []


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

    for owner, name, limited, sizes in (
        (model.denoiser, "forward", small_memory, (3, 1)),
        (Sampler, "denoiser", capture, (3,)),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, limited)
            drawn, notes = draw(sampler)
        assert torch.equal(drawn.bond_class, whole.bond_class)
        said = "out of device memory: samples per chunk halved to "
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


@pytest.mark.parametrize("formula", ["CH4O", "C2H6", "C60H122", "[C5H14NO]+"])
def test_small_and_large_molecules_and_ions_are_drawn_from_formula_and_fingerprint(
    sampler, formula
):
    parsed, fingerprint = Formula.parse(formula), FINGERPRINT**0.125
    n = parsed.n_heavy

    known = formula_condition(parsed, fingerprint, 160)
    drawn, _ = draw(sampler, settings=SamplingSettings(steps=2, samples=2), formula=formula)

    assert drawn.bond_class.shape == (2, n * (n - 1) // 2)
    assert known.atom_class.tolist() == [parsed.atom_class.tolist()]
    assert known.atom_mask.tolist() == [[True] * n]
    assert known.formula.tolist() == [list(parsed.counts)]
    assert known.charge.tolist() == [parsed.charge]
    assert_close(known.bit_log_prob[0].exp(), fingerprint.sort().values[-160:].flip(0))


@given(samples=st.integers(1, 10_000), n_pairs=st.integers(1, 4950))
def test_chunks_follow_from_size_and_settings_and_fit_the_memory(samples, n_pairs):
    small, large = SamplingSettings(max_memory_mib=64), SamplingSettings(max_memory_mib=8192)
    cpu_device, cuda = torch.device("cpu"), torch.device("cuda")

    for device in (cpu_device, cuda):
        chunk = chunk_size(n_pairs, samples, small, device)
        assert 1 <= chunk <= samples
        assert chunk == 1 or chunk * n_pairs * BYTES_PER_PAIR <= 64 * (1 << 20)
        count = -(-samples // chunk)
        assert chunk - (samples - (count - 1) * chunk) < count  # the last is of like size
    # Used on CUDA and not on a CPU.
    on_cpu = chunk_size(435, 10_000, large, cpu_device)
    assert chunk_size(435, 10_000, large, cuda) > 10 * on_cpu


def test_layers_of_a_stack_are_counted_together():
    network, outer = torch.nn.Module(), torch.nn.Module()
    network.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2) for _ in range(4)])
    network.readout = torch.nn.Linear(2, 1, bias=False)
    outer.inner = network

    assert parameter_counts(network) == {"layers": 4 * 8, "readout": 2}
    assert parameter_counts(outer, depth=1) == {"inner": 4 * 8 + 2}
