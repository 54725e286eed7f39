"""The network on CUDA against the CPU; needs only torch, numpy and pytest, and made molecules."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from duallgd_cli.data.peaks import PeakRows, peak_batch
from duallgd_cli.diffusion.jumps import evenly_spaced
from duallgd_cli.diffusion.sampler import Noise, SamplingTask, sample
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.training.decoder import DecoderStage
from duallgd_cli.training.optimiser import adamw
from duallgd_cli.training.prefetch import batches
from duallgd_cli.training.settings import OptimiserSettings, TrainingData, TrainingSettings
from tests.made_graphs import (
    FORMULAS,
    condition,
    made_molecules,
    noisy_bonds,
    real_pairs,
    small_settings,
    stirred,
)

pytestmark = pytest.mark.gpu

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
N_STEPS = 500


@pytest.fixture(autouse=True)
def exact_products():
    """Full float32 products, as on a CPU; the setting before is put back."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def on(device, settings=None):
    return stirred(settings or small_settings()).to(device)


@pytest.mark.parametrize("pair_features", [8, 0])
@torch.no_grad()
def test_logits_are_those_of_the_cpu(pair_features):
    known, size = condition(FORMULAS), 13
    n_heavy = known.atom_mask.sum(1).tolist()
    bonds = torch.stack([noisy_bonds(n, size, seed=n) for n in n_heavy])
    t = torch.tensor([20, 120, 200, 350, 500])

    found = []
    for device in (CPU, CUDA):
        net = on(device, small_settings(pair_features=pair_features)).denoiser
        context = net.context(known.to(device))
        found.append(net(bonds.to(device), t.to(device), context).cpu())

    for row, n in enumerate(n_heavy):
        expected, got = (real_pairs(logits[row], n, size) for logits in found)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_fingerprints_are_those_of_the_cpu():
    rng = np.random.default_rng(1)
    parent = rng.integers(1, 20, 13).astype(np.float32)
    spectra = [
        PeakRows(
            np.floor(parent * rng.random((n, 13))).astype(np.float32),
            (rng.random((n, 5)) * [1, 5, 500, 1, 60]).astype(np.float32),
            np.zeros(n, np.int64),
            parent,
            0,
            1,
        )
        for n in (0, 3, 20)
    ]
    peaks = peak_batch(spectra)

    expected, got = (on(device).encoder(peaks.to(device)).cpu() for device in (CPU, CUDA))

    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def drawn(device, rows=slice(0, 8)):
    net, known = on(device).denoiser, condition(["C9H8O4"]).to(device)
    with torch.inference_mode():
        context = net.context(known).expand(rows.stop - rows.start)
    marginal = torch.tensor(small_settings().diffusion.marginal, device=device)
    task = SamplingTask(
        evenly_spaced(N_STEPS, 10), marginal, alpha_bar(N_STEPS).to(device), Noise(3, 8, 78)
    )

    def denoise(bond_class, t):
        steps = torch.full((len(bond_class),), t, device=device)
        return net(bond_class, steps, context)

    return sample(denoise, task, rows).cpu()


def test_one_seed_is_one_trajectory_on_both_devices():
    """A draw on the edge between two classes may fall either way: at most one sample may."""
    expected, got = drawn(CPU), drawn(CUDA)

    same = (got.bond_class == expected.bond_class).all(1)
    assert int(same.sum()) >= 7
    torch.testing.assert_close(
        got.log_likelihood[same], expected.log_likelihood[same], atol=1e-2, rtol=1e-3
    )


def test_a_draw_is_repeated_exactly_on_one_device():
    first, again = drawn(CUDA), drawn(CUDA)

    assert torch.equal(first.bond_class, again.bond_class)


def test_chunks_draw_the_same_samples():
    whole, parts = drawn(CUDA), [drawn(CUDA, rows) for rows in (slice(0, 3), slice(3, 8))]

    joined = torch.cat([part.bond_class for part in parts])
    assert int((joined == whole.bond_class).all(1).sum()) >= 7


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_training_step_lowers_the_loss(precision):
    settings = TrainingSettings(data=TrainingData(pairs_per_batch=400))
    stage = DecoderStage(made_molecules(40), settings)
    model = on(CUDA).train()
    optimiser = adamw(model, OptimiserSettings(learning_rate=3e-3))
    lower = torch.autocast("cuda", torch.bfloat16) if precision == "bfloat16" else nullcontext()
    batch = next(batches(stage, 0, CUDA))

    losses = []
    for _ in range(8):
        with lower:
            summed, count = stage.loss(model, batch)
        optimiser.zero_grad()
        (summed / count).backward()
        optimiser.step()
        losses.append(float(summed.detach() / count))

    assert all(np.isfinite(losses))
    assert losses[-1] < losses[0]
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_one_step_in_bfloat16_is_close_to_one_in_float32():
    stage = DecoderStage(made_molecules(40), TrainingSettings())
    model = on(CUDA)
    batch = next(batches(stage, 0, CUDA))

    with torch.no_grad():
        exact, count = stage.loss(model, batch)
        with torch.autocast("cuda", torch.bfloat16):
            rough, _ = stage.loss(model, batch)

    assert abs(float((rough - exact) / count)) < 0.05
