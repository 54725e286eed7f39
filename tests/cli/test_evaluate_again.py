"""`duallgd evaluate` run again: after a kill, on its own output, and on a wrong truth."""

import json

import pytest

from duallgd_cli.evaluate import report
from duallgd_cli.evaluate.leakage import TrainingHashes
from tests import labelled_table

pytest.importorskip("scipy", reason="needs the evaluate extra")


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    monkeypatch.setattr(report, "write_plots", lambda *_: {})


@pytest.fixture
def evaluate(duallgd, tmp_path):
    """Predict and score the test fold of the small table, MCES included, into a folder."""
    table = labelled_table.write(tmp_path / "labelled.tsv")
    hashes = tmp_path / "none.train.hashes"
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(hashes)

    def run(folder, *more):
        done = duallgd(
            *("evaluate", "--benchmark", table, "--fold", "test", "--samples", "4", "-o", folder),
            *("--workers", "1", "--mces-cache", "mces.sqlite"),
            *("--train-hashes", hashes, *more),
        )
        assert done.code == 0, done.err
        return results(tmp_path / folder)

    return run


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_scoring_a_file_gives_the_numbers_of_scoring_while_predicting(evaluate, duallgd, tmp_path):
    first = evaluate("one")

    duallgd(
        *("evaluate", "--predictions", "one/predictions.csv", "--truth", "one/truth.tsv"),
        *("--workers", "1", "--mces-cache", "other.sqlite", "-o", "two"),
    )

    second = results(tmp_path / "two")
    assert {"mces@1", "mces@10", "accuracy@1", "tanimoto@10"} <= set(first["metrics"])
    for part in ("metrics", "groups", "calibration", "statuses", "candidates", "mces_work"):
        assert second[part] == first[part]
    assert second["prediction"]["samples"] == first["prediction"]["samples"]
    assert second["data"]["split_sha256"] == first["data"]["split_sha256"]


def test_a_killed_run_is_resumed_to_the_same_report(evaluate, tmp_path):
    whole = evaluate("r")
    journal = tmp_path / "r" / "predictions.csv.journal.jsonl"
    torn = journal.read_bytes()
    journal.write_bytes(torn[: int(0.6 * len(torn))])  # as a kill leaves it: in mid-line
    for name in ("predictions.csv", "results.json"):
        (tmp_path / "r" / name).unlink()

    resumed = evaluate("r", "--resume")

    assert journal.read_bytes() != torn  # times are measured anew
    for part in ("metrics", "groups", "calibration", "statuses", "candidates"):
        assert resumed[part] == whole[part]


def test_everything_that_decides_the_numbers_is_in_the_results(evaluate):
    found = evaluate("r", "--seed", "5")

    assert found["prediction"]["settings"]["seed"] == found["scoring"]["seed"] == 5
    assert len(found["prediction"]["weights"]["sha256"]) == 64
    assert found["prediction"]["weights"]["record"]
    assert all(len(digest) == 64 for digest in found["data"]["files"].values())
    assert found["data"]["files"]
    assert len(found["data"]["split_sha256"]) == 64
    assert len(found["prediction"]["sha256"]) == 64
    assert {"python", "torch", "rdkit", "scipy"} <= set(found["versions"])
    assert found["duallgd"]
    assert found["mces_work"]["mces"]["timeouts"] == 0
