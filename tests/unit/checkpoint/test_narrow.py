"""A narrower network keeps the channels that matter."""

from dataclasses import replace

import pytest
import torch

from duallgd_cli.checkpoint.derived import narrow_pair_feed
from duallgd_cli.checkpoint.format import Checkpoint
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import DenoiserSettings, EncoderSettings, ModelSettings

SMALL = ModelSettings(
    denoiser=DenoiserSettings(
        layers=2, atom_width=16, pair_width=8, global_width=8, atom_heads=2, pair_heads=2,
        cross_heads=2, cross_width=8, pair_feed=4,
    ),
    encoder=EncoderSettings(layers=1, width=8, heads=2, summary=8),
)  # fmt: skip


def checkpoint() -> Checkpoint:
    torch.manual_seed(3)
    return Checkpoint(SMALL, dict(DualLGD(SMALL).state_dict()), {"step": 9}, {"log_share": 2.0})


def test_dropping_channels_that_do_nothing_changes_nothing():
    wide = checkpoint()
    idle = torch.arange(0, 32, 4)  # a quarter of the 4 x 8 hidden channels of each layer
    for layer in range(2):
        wide.tensors[f"denoiser.layers.{layer}.pair_feed.down.weight"][:, idle] = 0

    narrow = narrow_pair_feed(wide, 3)

    x = torch.randn(5, 8)
    for before, after in zip(
        wide.build().denoiser.layers, narrow.build().denoiser.layers, strict=True
    ):
        assert after.pair_feed.up.out_features == 24
        torch.testing.assert_close(after.pair_feed(x), before.pair_feed(x))


def test_all_else_is_kept_and_what_was_fitted_to_the_wide_network_is_not():
    wide = checkpoint()

    narrow = narrow_pair_feed(wide, 2)

    changed = {
        name for name in wide.tensors if not torch.equal(wide.tensors[name], narrow.tensors[name])
    }
    assert all(".pair_feed." in name for name in changed)
    assert narrow.settings == replace(SMALL, denoiser=replace(SMALL.denoiser, pair_feed=2))
    assert narrow.record == {"narrowed": {"pair_feed": 2}, "from": {"step": 9}}
    assert not narrow.ranking


@pytest.mark.parametrize("factor", [0, 4, 5])
def test_a_network_cannot_be_narrowed_to_what_it_is(factor):
    with pytest.raises(WeightsError, match="1 to 3"):
        narrow_pair_feed(checkpoint(), factor)
