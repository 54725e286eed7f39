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


def plain(model, known, bonds, t):
    context = model.denoiser.context(known).expand(len(bonds))
    return model.denoiser(bonds, torch.full((len(bonds),), t), context)


def bonds_of(seed):
    return torch.stack([noisy_bonds(13, seed=seed + k) for k in range(SAMPLES)])


@torch.inference_mode()
def test_spectra_of_one_shape_take_turns_and_none_sees_another():
    model = stirred(small_settings())
    denoiser = CapturedDenoiser(model.denoiser, cpu())

    for seed, formula in enumerate(["C9H8O4", "C6H10N4O3", "C9H8O4"]):
        known = condition([formula], seed=seed)
        denoise = denoiser.bound(model.denoiser.context(known), SAMPLES)
        for t in (500, 250, 3):
            bonds = bonds_of(seed + t)
            assert torch.equal(denoise(bonds, t), plain(model, known, bonds, t))


@pytest.mark.parametrize(
    ("room_for", "captures"), [(9, [1, 2, 3]), (2, [1, 2, 3, 2]), (0, [1, 2, 1, 3, 1, 2])]
)
@torch.inference_mode()
def test_graphs_longest_unused_are_dropped_when_memory_is_full(monkeypatch, room_for, captures):
    model, made = stirred(small_settings()), []
    context = model.denoiser.context(condition(["C6H12O6"]))
    denoiser = CapturedDenoiser(model.denoiser, cpu())
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

    with low.autocast():
        logits = [plain(net, condition(["C9H8O4"]), bonds_of(7), 100) for net in (cast, kept)]

    assert torch.equal(*logits)
    readout = (cast.denoiser.readout, cast.denoiser.readout_norm)
    assert [part.weight.dtype for part in readout] == [torch.bfloat16, torch.float32]
