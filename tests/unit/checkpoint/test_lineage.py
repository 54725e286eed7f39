"""Records of what weights stem from, and means of weights, which say of what."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.checkpoint.lineage import average, lineage, require_trained
from duallgd_cli.cli import app
from duallgd_cli.errors import WeightsError
from duallgd_cli.model.duallgd import DualLGD
from tests.made_graphs import small_settings


def descendant(parent, step):
    """The record of a run whose two parts both start from `parent`."""
    return {"step": step, **lineage({"denoiser": parent, "encoder": parent})}


def test_parts_that_start_from_one_file_share_its_record_which_leads_to_its_own_start():
    newest = descendant(descendant({"step": 0}, 1), 2)

    assert newest["init"]["denoiser"] == newest["init"]["encoder"]
    parent = newest["ancestors"][newest["init"]["denoiser"]]
    assert parent["step"] == 1
    assert newest["ancestors"][parent["init"]["encoder"]] == {"step": 0}


def test_a_chain_grows_by_one_record_a_run():
    record, sizes = {"step": 0}, []
    for step in range(1, 12):
        record = descendant(record, step)
        sizes.append(len(json.dumps(record)))

    assert len(record["ancestors"]) == 11
    assert sizes[-1] - sizes[-2] < 1.1 * (sizes[2] - sizes[1])


def test_how_well_confidence_held_is_not_handed_on():
    fitted = descendant({"step": 0, "ranking_validation": {"top1": 0.1}}, 1)
    newest = descendant(fitted | {"ranking_validation": {"top1": 0.2}}, 2)

    assert "ranking_validation" not in json.dumps(newest)
    assert sorted(record["step"] for record in newest["ancestors"].values()) == [0, 1]


def run_of(stage, **starts):
    return {"training": {"stage": stage, "freeze_encoder": False}, **lineage(starts)}


DECODER, ENCODER = run_of("decoder"), run_of("encoder")
FROZEN = {"training": {"stage": "joint", "freeze_encoder": True}}


@pytest.mark.parametrize(
    ("record", "untrained"),
    [
        (DECODER, "encoder"),
        (ENCODER, "denoiser"),
        (run_of("decoder", encoder=DECODER), "encoder"),
        (run_of("decoder", denoiser=ENCODER), "encoder"),
        (FROZEN | lineage({"denoiser": DECODER}), "encoder"),
        (lineage({"mean_1": DECODER, "mean_2": DECODER}), "encoder"),
        ({"narrowed": {"pair_feed": 2}, "from": DECODER}, "encoder"),
        ({"training": {"stage": "decoder"}, "init": {"encoder": "a"},
          "ancestors": {"a": {"training": {}, "init": {"encoder": "a"}, "from": "a"}}}, "encoder"),
    ],
)  # fmt: skip
def test_weights_with_a_part_that_was_never_trained_do_not_predict(record, untrained):
    with pytest.raises(WeightsError, match=f"the {untrained} of weights w was never trained"):
        require_trained(record, "w")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"step": 7},
        run_of("joint"),
        run_of("joint", denoiser=DECODER, encoder=ENCODER),
        run_of("decoder", encoder=ENCODER),
        FROZEN | lineage({"encoder": ENCODER, "denoiser": DECODER}),
        lineage({"mean_1": run_of("joint"), "mean_2": run_of("joint")}),
        {"narrowed": {"pair_feed": 2}, "from": run_of("joint")},
    ],
)
def test_weights_whose_parts_were_trained_at_some_time_do(record):
    require_trained(record, "w")


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


def test_the_command_writes_a_file_that_loads(tmp_path):
    for seed, name in ((1, A), (2, B)):
        save(tmp_path / name, made(seed))
    files = [str(tmp_path / name) for name in (A, B)]

    done = CliRunner().invoke(app, ["weights", "average", *files, "-o", str(tmp_path / C)])

    assert done.exit_code == 0
    assert "mean of 2" in done.stderr
    load(tmp_path / C).build()
