"""`duallgd bench attention` by the command line."""

import json

import pytest

from duallgd_cli.checkpoint.format import Checkpoint, save
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import structures_folder


@pytest.fixture
def made(tmp_path):
    structures_folder(tmp_path / "data")
    model = stirred(small_settings())
    save(tmp_path / "small.safetensors", Checkpoint(model.settings, model.state_dict()))
    return (
        "bench", "attention", "--data", "data", "--fold", "train", "-o", "out", "--weights",
        "small.safetensors", "--device", "cpu", "--untrained", "1", "--no-plot",
    )  # fmt: skip


def test_a_study_prints_its_table_and_writes_its_files(duallgd, made, tmp_path):
    done = duallgd(*made, "--limit", "9", "--t", "20, 400", "--layers", "2")

    assert done.code == 0, done.err
    assert "Attention of bonds to their ends, 9 molecules" in done.out
    assert "unequal electronegativity" in done.out
    assert "wrote out" in done.err
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["noise"] == {"steps": [20, 400], "draws": 2, "seed": 0}
    assert found["layers"] == [2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "attention.md", "kinds.csv", "results.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--t", "50,x"], "--t takes numbers"),
        (["--t", "0"], "noise levels must be 1 to 500"),
        (["--layers", "7"], "layers must be 1 to 2"),
        (["--condition", "best"], "condition must be true or predicted"),
        (["--condition", "predicted"], "holds no spectra"),
        (["--fold", "val"], "no molecule of fold val"),
    ],
)
def test_wrong_options_get_one_sentence(duallgd, made, options, message):
    done = duallgd(*made, *options)

    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
