"""The fragment model judges each fragment apart; its loss is the one that is written down."""

import math

import pytest
import torch

from duallgd_cli.data.fragmentation import SHIFTS
from duallgd_cli.data.simulation import (
    LOG_INTENSITY_SPREAD,
    FragmentModel,
    expected_intensity,
    fragment_loss,
)

N_INPUTS = 7


@pytest.fixture
def model():
    torch.manual_seed(1)
    made = FragmentModel(N_INPUTS, len(SHIFTS), width=12).eval()
    torch.nn.init.normal_(made.presence.weight)
    return made


def features(n, seed=1):
    return torch.randn(n, N_INPUTS, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_a_fragment_is_judged_apart_from_the_others(model):
    together = model(features(6))

    for row in range(6):
        for got, alone in zip(together, model(features(6)[row : row + 1]), strict=True):
            torch.testing.assert_close(got[row], alone[0], atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_the_loss_is_read_peak_by_peak(model):
    intensity = torch.zeros(4, len(SHIFTS))
    intensity[0, 3], intensity[2, 5], intensity[2, 6] = 1.0, 0.2, 1e-6
    presence, mean = (values.tolist() for values in model(features(4)))

    expected = 0.0
    for row, values in enumerate(intensity.tolist()):
        for column, value in enumerate(values):
            chance = 1 / (1 + math.exp(-presence[row][column]))
            expected -= math.log(chance if value else 1 - chance)
            if value:  # fainter than a thousandth counts as a thousandth
                off = mean[row][column] - math.log(max(value, 1e-3))
                expected += 0.5 * (off / LOG_INTENSITY_SPREAD) ** 2

    assert float(fragment_loss(model, features(4), intensity)) == pytest.approx(expected / 3)


def test_without_a_peak_there_is_still_a_loss_and_a_gradient(model):
    loss = fragment_loss(model, features(4), torch.zeros(4, len(SHIFTS)))
    loss.backward()

    assert float(loss.detach()) > 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert model.presence.bias.grad.abs().sum() > 0


@torch.no_grad()
def test_what_is_expected_is_the_chance_times_the_root_of_the_intensity(model):
    model.presence.weight.zero_()
    model.intensity.weight.zero_()
    model.presence.bias.fill_(math.log(3))  # three to one
    model.intensity.bias.fill_(math.log(0.25))
    model.intensity.bias[0] = 5  # brighter than the base peak is the base peak

    expected = expected_intensity(model, features(2))

    torch.testing.assert_close(expected[:, 1:], torch.full((2, len(SHIFTS) - 1), 0.75 * 0.5))
    torch.testing.assert_close(expected[:, 0], torch.full((2,), 0.75))
