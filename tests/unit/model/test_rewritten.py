"""The denoiser rewritten for a CPU is the network that was trained."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.model.rewritten import Rewritten, for_inference, rewritten_for
from duallgd_cli.runtime import Runtime
from tests.made_graphs import condition, small_settings, stirred
from tests.made_training import cpu

LOW = Runtime(torch.device("cpu"), torch.bfloat16, False, 1)
SIZES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "atom_width": st.sampled_from([8, 24, 64]),
        "pair_width": st.sampled_from([8, 16, 64]),
        "cross_width": st.sampled_from([8, 32]),
        "pair_heads": st.sampled_from([1, 4]),
        "cross_heads": st.sampled_from([1, 2, 8]),
        "atom_heads": st.sampled_from([1, 4]),
        "pair_features": st.sampled_from([3, 16]),
        "pair_feed": st.integers(1, 3),
        "fade_from": st.sampled_from([-1, 100]),
        "fade_to": st.sampled_from([300, 500]),
    }
)


def noisy(n_atoms, samples, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 5, (samples, n_atoms * (n_atoms - 1) // 2), generator=generator)


@torch.inference_mode()
def both(model, known, samples, t, seed, dtype=torch.float32):
    """Logits of the modules in float32 and of the rewritten network."""
    bonds = noisy(known.atom_class.shape[1], samples, seed)
    context = model.denoiser.context(known)
    expected = model.denoiser(bonds, torch.full((samples,), t), context.expand(samples))
    return expected, Rewritten(model.denoiser, dtype).bound(context, samples)(bonds, t)


@settings(deadline=None, max_examples=25)
@given(
    SIZES,
    st.sampled_from(["CO", "C2H6O", "C4H7NO2S", "C12H10", "C9H8O4", "C17H19NO3"]),
    st.integers(1, 4),
    st.integers(0, 500),
    st.integers(1, 99),
)
def test_logits_are_those_of_the_modules(sizes, formula, samples, t, seed):
    model = stirred(small_settings(**sizes), seed=seed, share=0.5)

    expected, got = both(model, condition([formula], seed=seed), samples, t, seed)

    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_bits_that_are_left_out_are_not_looked_up():
    rewritten = []
    for log_prob in (-1.0, -torch.inf):
        known = condition(["C6H12O6"])
        known.bit_log_prob[:, 5:] = log_prob
        expected, got = both(stirred(small_settings()), known, 2, 9, 1)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        rewritten.append(got)

    assert not torch.equal(*rewritten)


def test_bfloat16_is_as_near_to_float32_as_the_modules_are():
    """Mean squares over several networks: of one alone either may be the luckier."""
    errors = torch.zeros(2)
    for seed in range(1, 5):
        sizes = {"layers": 2, "pair_width": 32, "atom_width": 32, "cross_width": 32}
        model, known = stirred(small_settings(**sizes), seed=seed), condition(["C9H8O4"], seed=seed)
        expected, got = both(model, known, 3, 250, seed, torch.bfloat16)
        cast = for_inference(model, LOW)
        with torch.inference_mode(), LOW.autocast():
            context = cast.denoiser.context(known).expand(3)
            modules = cast.denoiser(noisy(13, 3, seed), torch.full((3,), 250), context)
        errors += torch.stack([(x - expected).square().mean() for x in (modules, got)])

    assert errors[1] < 1.25 * errors[0]


def test_a_sampler_draws_the_same_graphs_with_either():
    model, runtime = stirred(small_settings()), cpu()
    settings, drawn = SamplingSettings(steps=4, samples=6), []
    for part in (None, rewritten_for(model, runtime)):
        sampler = Sampler(model, runtime, part)
        context, task = sampler.context_of(condition(["C9H8O4"])), sampler.task(settings, 1, 6, 78)
        drawn.append(sampler.draw(context, [task], settings)[0])

    assert torch.equal(drawn[0].bond_class, drawn[1].bond_class)
    torch.testing.assert_close(drawn[0].bond_log_prob, drawn[1].bond_log_prob, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("device", "features"), [("meta", 8), ("cpu", 0)])
def test_where_it_was_not_rewritten_for_the_modules_run(device, features):
    model = stirred(small_settings(pair_features=features))

    assert rewritten_for(model, Runtime(torch.device(device), None, False, 1)) is None
