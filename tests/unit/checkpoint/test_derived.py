"""Weights made from other weights: a mean that says of what, a network that keeps what matters."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli.checkpoint.derived import average, narrow_pair_feed
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.cli.app import app
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.model.settings import DenoiserSettings, EncoderSettings, ModelSettings
from tests.made_graphs import small_settings

A, B, C = Path("a.safetensors"), Path("b.safetensors"), Path("c.safetensors")


def made(seed: int, layers: int = 1) -> Checkpoint:
    settings = small_settings(layers=layers)
    torch.manual_seed(seed)
    tensors = dict(DualLGD(settings).state_dict())
    return Checkpoint(settings, tensors, {"seed": seed}, {"log_share": 2.0})


def test_every_weight_is_the_mean():
    parts = [made(seed) for seed in (1, 2, 3)]

    mean = average(dict(zip((A, B, C), parts, strict=True)))

    for name, tensor in mean.tensors.items():
        expected = sum(part.tensors[name].double() for part in parts) / 3
        torch.testing.assert_close(tensor.double(), expected, rtol=1e-5, atol=1e-6)


def test_what_was_fitted_to_one_of_them_is_left_out_and_all_are_on_the_record():
    mean = average({A: made(1), B: made(2)})

    assert not mean.ranking
    assert not mean.reranker
    assert sorted(mean.record["init"]) == ["mean_1", "mean_2"]
    assert [mean.record["ancestors"][key]["seed"] for key in mean.record["init"].values()] == [1, 2]


def test_networks_of_different_sizes_have_no_mean():
    with pytest.raises(WeightsError, match=r"b\.safetensors and a\.safetensors .* different sizes"):
        average({A: made(1), B: made(1, layers=2)})


def test_one_network_has_no_mean():
    with pytest.raises(WeightsError, match="at least two"):
        average({A: made(1)})


def test_the_command_writes_a_file_that_loads(tmp_path):
    for seed, name in ((1, A), (2, B)):
        save(tmp_path / name, made(seed))
    files = [str(tmp_path / name) for name in (A, B)]

    done = CliRunner().invoke(app, ["weights", "average", *files, "-o", str(tmp_path / C)])

    assert done.exit_code == 0
    assert "mean of 2" in done.stderr
    load(tmp_path / C).build()


WIDE = ModelSettings(
    denoiser=DenoiserSettings(
        layers=2, atom_width=16, pair_width=8, global_width=8, atom_heads=2, pair_heads=2,
        cross_heads=2, cross_width=8, pair_feed=4,
    ),
    encoder=EncoderSettings(layers=1, width=8, heads=2, summary=8),
)  # fmt: skip


def wide_network() -> Checkpoint:
    torch.manual_seed(3)
    return Checkpoint(WIDE, dict(DualLGD(WIDE).state_dict()), {"step": 9}, {"log_share": 2.0})


def test_dropping_channels_that_do_nothing_changes_nothing():
    wide = wide_network()
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
    wide = wide_network()

    narrow = narrow_pair_feed(wide, 2)

    changed = {
        name for name in wide.tensors if not torch.equal(wide.tensors[name], narrow.tensors[name])
    }
    assert all(".pair_feed." in name for name in changed)
    assert narrow.settings == replace(WIDE, denoiser=replace(WIDE.denoiser, pair_feed=2))
    assert narrow.record == {"narrowed": {"pair_feed": 2}, "from": {"step": 9}}
    assert not narrow.ranking


@pytest.mark.parametrize("factor", [0, 4, 5])
def test_a_network_cannot_be_narrowed_to_what_it_is(factor):
    with pytest.raises(WeightsError, match="1 to 3"):
        narrow_pair_feed(wide_network(), factor)
