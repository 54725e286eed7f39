"""The network and its training on CUDA against the CPU; needs only torch, numpy and pytest."""

import copy
import math
from dataclasses import replace
from itertools import islice

import pytest
import torch

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.model.encoder import PackedBatch
from duallgd_cli.model.rewritten import for_inference
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.optimisers import optimisers, update_average
from duallgd_cli.train.run import compile_layers
from duallgd_cli.train.settings import OptimiserSettings
from duallgd_cli.train.trainer import batches
from tests.made_graphs import (
    FORMULAS,
    condition,
    made_peaks,
    noisy_bonds,
    peak_batch,
    real_pairs,
    small_settings,
    stirred,
)
from tests.made_training import decoder_stage, figures, made_settings, run, small_model, state

pytestmark = pytest.mark.gpu

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def exact_products():
    """Full float32 products, as on a CPU; the setting before is put back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def logits(bonds, t, known, settings, runtimes):
    """Of the same noisy graphs on the devices of two runtimes, each with its precision."""
    for runtime in runtimes:
        net = for_inference(stirred(settings), runtime).denoiser
        with runtime.autocast():
            context = net.context(known.to(runtime.device))
            yield net(bonds.to(runtime.device), t.to(runtime.device), context).cpu()


def runtimes(dtype=None, captured=False):
    return Runtime(CPU, None, False, 1), Runtime(CUDA, dtype, captured, 1)


@pytest.mark.parametrize(
    ("pair_features", "dtype", "near"),
    [(8, None, 1e-4), (0, None, 1e-4), (8, torch.bfloat16, 2e-2)],
)
@torch.no_grad()
def test_logits_are_those_of_the_cpu(pair_features, dtype, near):
    known, size = condition(FORMULAS), 13
    n_heavy = known.atom_mask.sum(1).tolist()
    bonds = torch.stack([noisy_bonds(n, size, seed=n) for n in n_heavy])
    t = torch.tensor([20, 120, 200, 350, 500])
    settings = small_settings(pair_features=pair_features)

    expected, got = logits(bonds, t, known, settings, runtimes(dtype))

    for row, n in enumerate(n_heavy):
        both = [real_pairs(part[row], n, size) for part in (got, expected)]
        torch.testing.assert_close(*both, atol=near, rtol=near)


@torch.no_grad()
def test_fingerprints_are_those_of_the_cpu_with_padding_or_without():
    peaks = peak_batch([made_peaks(n_rows) for n_rows in (0, 3, 20)])
    none = torch.zeros(0, dtype=torch.int64)
    packed = PackedBatch(**vars(peaks), bit=none, bit_spectrum=none).to(CUDA)
    network = stirred(small_settings()).encoder.to(CUDA)

    expected = stirred(small_settings()).encoder(peaks)

    torch.testing.assert_close(network(peaks.to(CUDA)).cpu(), expected, atol=1e-4, rtol=1e-4)
    # Attention in half precision.
    torch.testing.assert_close(network(packed).cpu(), expected, atol=3e-2, rtol=3e-2)


FINGERPRINTS = torch.rand(2, 4096, generator=torch.Generator().manual_seed(1)) ** 8


def sampler_of(runtime):
    return Sampler(for_inference(stirred(small_settings()), runtime), runtime)


def drawn(sampler, formula="C9H8O4", fingerprint=FINGERPRINTS[0], seed=3):
    """Samples of a formula from pure noise."""
    settings, parsed = SamplingSettings(steps=10, samples=200), Formula.parse(formula)
    n_pairs = parsed.n_heavy * (parsed.n_heavy - 1) // 2
    task = sampler.task(settings, seed, settings.samples, n_pairs)
    samples, notes = sampler.draw(sampler.context(parsed, fingerprint), [task], settings)
    assert notes == []
    return samples


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("formula", ["C9H8O4", "C24H30N3O3"])
def test_one_seed_is_one_trajectory_on_both_devices(formula, captured):
    """A draw on the edge between two classes may fall either way: one in a hundred samples may."""
    cpu, cuda = map(sampler_of, runtimes(captured=captured))

    expected, got, again = (drawn(sampler, formula) for sampler in (cpu, cuda, cuda))

    assert torch.equal(again.bond_class, got.bond_class)
    assert torch.equal(again.log_likelihood, got.log_likelihood)
    same = (got.bond_class == expected.bond_class).all(1)
    assert float(same.float().mean()) >= 0.99
    torch.testing.assert_close(
        got.log_likelihood[same], expected.log_likelihood[same], atol=1e-2, rtol=1e-3
    )


def test_spectra_take_turns_in_captured_graphs():
    """Sizes come and go and come back; what one spectrum left behind reaches no other."""
    _, captured = runtimes(captured=True)
    sampler = sampler_of(captured)
    turns = [("C9H8O4", 0), ("C6H12O6", 1), ("C9H8O4", 1), ("C12H10", 0), ("C9H8O4", 0)]

    found = [drawn(sampler, formula, FINGERPRINTS[which], seed=5) for formula, which in turns]

    assert torch.equal(found[0].bond_class, found[4].bond_class)
    assert not torch.equal(found[0].bond_class, found[2].bond_class)


def trained(out, settings, device, until=None):
    """Losses of a small network that is trained on a device."""
    runtime, model = Runtime(device, None, False, 1), small_model().to(device)
    run(out, settings, model=model, runtime=runtime, until=until)
    return figures(out, "loss")


def test_a_run_resumes_and_has_the_losses_of_a_run_on_the_cpu_whoever_makes_batches(tmp_path):
    settings = made_settings(steps=6)
    helped = replace(settings, data=replace(settings.data, workers=2))
    expected = trained(tmp_path / "cpu", settings, CPU)

    trained(tmp_path / "cuda", helped, CUDA, until=3)

    assert trained(tmp_path / "cuda", helped, CUDA) == pytest.approx(expected, rel=1e-3)
    assert all(tensor.isfinite().all() for tensor in state(tmp_path / "cuda").values())


def test_a_step_waits_for_nothing():
    settings = made_settings()
    stage, model = decoder_stage(settings), small_model().to(CUDA).train()
    (optimiser,) = optimisers(model, OptimiserSettings(matrices="adamw"))
    average = copy.deepcopy(model)

    def step(batch):
        with torch.autocast("cuda", torch.bfloat16):
            summed, count = stage.loss(model, batch)
        (summed / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        update_average(average, model, 0.9, 5)

    for batch in islice(batches(stage, 0, CUDA), 2):
        for mode in ("default", "error"):  # tables are filled in the first pass
            torch.cuda.set_sync_debug_mode(mode)
            try:
                step(batch)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_layers_have_the_losses_of_plain_ones():
    stage = decoder_stage(made_settings())
    plain, compiled = small_model().to(CUDA), small_model().to(CUDA)
    compile_layers(compiled)

    for batch in islice(batches(stage, 0, CUDA), 3):
        one, two = (float(stage.loss(model, batch)[0].detach()) for model in (plain, compiled))
        assert math.isclose(one, two, rel_tol=1e-3)
