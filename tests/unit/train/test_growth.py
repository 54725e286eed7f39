"""An encoder that grows keeps what it says, and has more to learn with."""

from dataclasses import replace

import pytest
import torch

from duallgd_cli.data.peaks import peak_batch
from duallgd_cli.errors import UsageError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.train.growth import grow
from tests.made_graphs import made_peaks

SMALL = EncoderSettings(layers=2, width=16, heads=4, summary=12, dropout=0.0, fingerprint_bits=64)


PEAKS = peak_batch([made_peaks(n_rows, seed=n_rows) for n_rows in range(0, 10, 2)])


def small_encoder():
    torch.manual_seed(1)
    net = FormulaTransformer(SMALL)
    for parameter in net.parameters():  # no bias or norm as it was drawn
        parameter.data += 0.1 * torch.randn_like(parameter)
    return net


def grown(net, **changes):
    settings = replace(SMALL, **changes)
    large = FormulaTransformer(settings)
    large.load_state_dict(grow(net.state_dict(), SMALL, settings, 1))
    return large


@pytest.mark.parametrize(
    "changes", [{"width": 48}, {"layers": 4}, {"summary": 20}, {"width": 32, "layers": 3}]
)
def test_a_grown_encoder_has_the_logits_of_the_smaller_one(changes):
    net = small_encoder()

    before, after = net(PEAKS), grown(net, **changes)(PEAKS)

    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


def test_copies_of_a_channel_part_as_soon_as_they_are_trained():
    net = grown(small_encoder(), width=32, summary=24)

    net(PEAKS).square().sum().backward()

    written = net.layers[0].out.weight.grad.unflatten(0, (-1, 2))
    assert not torch.allclose(written[:, 0], written[:, 1], rtol=1e-3)
    assert net.fingerprint.weight.grad[:, -1].abs().sum() > 0  # what nothing is read from yet


@pytest.mark.parametrize("changes", [{"width": 24}, {"layers": 1}, {"heads": 2}, {"summary": 8}])
def test_sizes_that_cannot_be_reached_are_refused(changes):
    with pytest.raises(UsageError, match="grows to a multiple of its width"):
        grown(small_encoder(), **changes)
