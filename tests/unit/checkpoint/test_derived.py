"""Weights made from other weights: a mean that says of what."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.checkpoint.lineage import average
from duallgd_cli.cli.app import app
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
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
