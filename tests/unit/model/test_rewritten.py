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

SIZES = {
    "layers": (1, 2, 3), "atom_width": (8, 24, 64), "pair_width": (8, 16, 64),
    "cross_width": (8, 32), "pair_heads": (1, 4), "cross_heads": (1, 2, 8), "atom_heads": (1, 4),
    "pair_features": (3, 16), "pair_feed": (1, 2, 3), "fade_from": (-1, 100), "fade_to": (300, 500),
}  # fmt: skip
FORMULAS = ("CO", "C2H6O", "C4H7NO2S", "C12H10", "C9H8O4", "C17H19NO3")


@torch.inference_mode()
def both(model, known, samples, t, seed, dtype=torch.float32):
    """Noisy graphs, and logits of the modules in float32 and of the rewritten network."""
    n = known.atom_class.shape[1]
    generator = torch.Generator().manual_seed(seed)
    bonds = torch.randint(0, 5, (samples, n * (n - 1) // 2), generator=generator)
    context = model.denoiser.context(known)
    expected = model.denoiser(bonds, torch.full((samples,), t), context.expand(samples))
    return bonds, expected, Rewritten(model.denoiser, dtype).bound(context, samples)(bonds, t)


@settings(deadline=None, max_examples=25)
@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SIZES.items()}),
    st.sampled_from(FORMULAS),
    st.integers(1, 4),
    st.integers(0, 500),
    st.integers(1, 99),
    st.booleans(),
)
def test_logits_are_those_of_the_modules(sizes, formula, samples, t, seed, leaves_bits_out):
    model = stirred(small_settings(**sizes), seed=seed, share=0.5)
    known = condition([formula], seed=seed)
    if leaves_bits_out:
        known.bit_log_prob[:, 5:] = -torch.inf

    _, expected, got = both(model, known, samples, t, seed)

    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_bfloat16_is_as_near_to_float32_as_the_modules_are():
    """Mean squares over several networks: of one alone either may be the luckier."""
    errors, low = torch.zeros(2), Runtime(torch.device("cpu"), torch.bfloat16, False, 1)
    for seed in range(1, 5):
        settings = small_settings(layers=2, pair_width=32, atom_width=32, cross_width=32)
        model, known = stirred(settings, seed=seed), condition(["C9H8O4"], seed=seed)
        bonds, expected, got = both(model, known, 3, 250, seed, torch.bfloat16)
        cast = for_inference(model, low).denoiser
        with torch.inference_mode(), low.autocast():
            modules = cast(bonds, torch.full((3,), 250), cast.context(known).expand(3))
        errors += torch.stack([(x - expected).square().mean() for x in (modules, got)])

    assert errors[1] < 1.25 * errors[0]


def test_a_sampler_draws_the_same_graphs_with_either():
    model, settings = stirred(small_settings()), SamplingSettings(steps=4, samples=6)
    (bonds, log_prob), again = (
        sampler.draw(
            sampler.context_of(condition(["C9H8O4"])), [sampler.task(settings, 1, 6, 78)], settings
        )[0][::2]
        for sampler in (Sampler(model, cpu(), part) for part in (None, rewritten_for(model, cpu())))
    )

    assert torch.equal(bonds, again[0])
    torch.testing.assert_close(log_prob, again[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("device", "features"), [("meta", 8), ("cpu", 0)])
def test_where_it_was_not_rewritten_for_the_modules_run(device, features):
    model = stirred(small_settings(pair_features=features))

    assert rewritten_for(model, Runtime(torch.device(device), None, False, 1)) is None
