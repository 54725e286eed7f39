"""A captured denoiser is the plain one; on a CPU nothing is captured, only the tensors are kept."""

import pytest
import torch

from duallgd_cli.model import captured
from duallgd_cli.model.captured import CapturedDenoiser
from duallgd_cli.model.rewritten import for_inference
from duallgd_cli.runtime import Runtime
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred
from tests.made_training import cpu

SAMPLES = 3


@pytest.fixture(scope="module")
def model():
    return stirred(small_settings())


def plain(model, context, bonds, t):
    steps = torch.full((len(bonds),), t)
    return model.denoiser(bonds, steps, context.expand(len(bonds)))


def bonds_of(n_atoms, seed):
    return torch.stack([noisy_bonds(n_atoms, seed=seed + k) for k in range(SAMPLES)])


@torch.inference_mode()
def test_spectra_of_one_shape_take_turns_and_none_sees_another(model):
    denoiser = CapturedDenoiser(model.denoiser, cpu())

    for seed, formula in enumerate(["C9H8O4", "C6H10N4O3", "C9H8O4"]):
        context = model.denoiser.context(condition([formula], seed=seed))
        denoise = denoiser.bound(context, SAMPLES)
        for t in (500, 250, 3):
            bonds = bonds_of(13, seed + t)
            assert torch.equal(denoise(bonds, t), plain(model, context, bonds, t))


@pytest.mark.parametrize(
    ("room_for", "captures"), [(9, [1, 2, 3]), (2, [1, 2, 3, 2]), (0, [1, 2, 1, 3, 1, 2])]
)
@torch.inference_mode()
def test_graphs_longest_unused_are_dropped_when_memory_is_full(
    model, monkeypatch, room_for, captures
):
    context = model.denoiser.context(condition(["C6H12O6"]))
    denoiser, made = CapturedDenoiser(model.denoiser, cpu()), []
    capture = denoiser._capture
    sizes = [capture(context, samples)[2] for samples in (3, 2, 1)]
    each = 66 * (8 + 5 * 4) + 8  # a class and five logits a pair, and the step
    assert (sizes[0] - sizes[1], sizes[1] - sizes[2]) == (each, each)
    monkeypatch.setattr(captured, "_MOST_BYTES", sum(sizes[:room_for]))
    monkeypatch.setattr(denoiser, "_capture", lambda c, n: made.append(n) or capture(c, n))

    for samples in (1, 2, 1, 3, 1, 2):
        denoiser.bound(context, samples)

    assert made == captures


@torch.inference_mode()
def test_weights_cast_once_give_what_autocast_gives():
    low = Runtime(torch.device("cpu"), torch.bfloat16, compile=False, threads=1)
    cast, kept = for_inference(stirred(small_settings()), low), stirred(small_settings())
    known, bonds = condition(["C9H8O4"]), bonds_of(13, 7)

    with low.autocast():
        found = [plain(net, net.denoiser.context(known), bonds, 100) for net in (cast, kept)]

    assert torch.equal(*found)
    assert cast.denoiser.readout.weight.dtype == torch.bfloat16
    assert cast.denoiser.readout_norm.weight.dtype == torch.float32
