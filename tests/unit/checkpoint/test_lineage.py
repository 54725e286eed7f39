"""Records of what weights stem from, each kept once."""

import json

import pytest

from duallgd_cli.checkpoint.lineage import lineage, require_trained
from duallgd_cli.errors import WeightsError


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
