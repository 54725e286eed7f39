"""The study of what it is worth to know a core, with a stand-in for the network."""

import json

import known_core
import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate import report
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict import api
from duallgd_cli.predict.settings import PredictSettings
from tests import labelled_table
from tests.stub_model import stub_model

pytest.importorskip("scipy", reason="needs the evaluate extra")


@pytest.mark.slow
def test_every_molecule_is_predicted_with_each_thing_that_is_known(study, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_plots", lambda *_: {})
    monkeypatch.setattr(api, "load", lambda *_, **__: stub_model())
    monkeypatch.setattr(known_core, "load", lambda *_, **__: stub_model())
    table = labelled_table.write(tmp_path / "labelled.tsv")
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    settings = EvaluateSettings(
        benchmark=str(table),
        fold="test",
        spectra_per_molecule="1",
        out=tmp_path / "val",
        mces=False,
        train_hashes=tmp_path / "none.train.hashes",
        prediction=PredictSettings(sampling=SamplingSettings(samples=4, steps=2)),
    )
    evaluate(settings)

    done = study(known_core.main, "val", table, "--samples", 2, "-o", "known.jsonl")
    again = study(known_core.main, "val", table, "--samples", 2, "-o", "known.jsonl")

    assert done.code == 0, done.err
    assert again.out == done.out
    found = [json.loads(line) for line in (tmp_path / "known.jsonl").read_text().splitlines()]
    told = {(row["known"], row["what"]) for row in found}
    assert {("scaffold", "c1ccccc1"), ("ring", "c1ccccc1"), ("nothing", "")} <= told
    assert len([row for row in found if row["known"] == "nothing"]) == 3
    assert [line.split(" | ")[2] for line in done.out.splitlines()[2:4]] == ["3", "3"]
