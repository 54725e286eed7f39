"""`duallgd evaluate` from the command line, with the stand-in model."""

import json
from dataclasses import replace

import pytest

from duallgd_cli.evaluate import run
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.files import sha256
from duallgd_cli.predict import api
from tests import labelled_table
from tests.stub_model import stub_model

pytest.importorskip("scipy", reason="needs the evaluate extra")

PLAIN = ("--no-mces", "--workers", "1")
TEST = ("evaluate", "--benchmark", "labelled.tsv", "--fold", "test", "--samples", "4", *PLAIN)
ASPIRIN, KEY = labelled_table.MOLECULES[0][0], "BSYNRYMUTXBXSQ"


@pytest.fixture(autouse=True)
def without_the_shipped_list(monkeypatch):
    """The stand-in was trained on nothing: the list beside the shipped weights is not its own."""
    beside = run._beside
    monkeypatch.setattr(
        run, "_beside", lambda given, *more: beside(given, *more) if given else None
    )


@pytest.fixture(autouse=True)
def table(tmp_path):
    return labelled_table.write(tmp_path / "labelled.tsv")


@pytest.fixture
def evaluate(duallgd, tmp_path):
    """Run a command into a folder; what was printed, and the results."""

    def run_it(folder, *command):
        done = duallgd(*command, "-o", folder)
        assert done.code == 0, done.err
        return " ".join(done.out.split()), json.loads(
            (tmp_path / folder / "results.json").read_text()
        )

    return run_it


def test_predicted_formulas_are_a_track_of_their_own(evaluate, tmp_path):
    out, found = evaluate("report", *TEST, "--formula", "predict")

    assert found["track"] == "formula predicted"
    assert "formula" not in (tmp_path / "report" / "spectra.tsv").read_text().splitlines()[0]
    assert found["statuses"] == {"ok": 6}
    # The precursors of the table are exact and its molecules well known.
    assert found["metrics"]["formula_accuracy@1"]["mean"] == 1
    assert "formula accuracy@5 │ 100.0%" in out


def test_scores_are_printed_with_their_intervals_and_what_they_are_of(evaluate):
    out, _ = evaluate("report", *TEST, "--spectra-per-molecule", "1")

    assert "accuracy@10 │ 0.0% (0.0% to 56.1%) │" in out
    assert "3 spectra of 3 molecules" in out
    assert "Track: formula known. Predictions: 3 ok;" in out


def test_finished_predictions_are_checked_against_the_list_of_the_weights_that_made_them(
    evaluate, tmp_path, monkeypatch
):
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"stands for weights")
    made = replace(stub_model(), name=weights.name, sha256=sha256(weights))
    monkeypatch.setattr(api, "load", lambda *_, **__: made)
    evaluate("r", *TEST)
    TrainingHashes.of([KEY, "AAAAAAAAAAAAAA"]).write(tmp_path / "w.train.hashes")
    again = ("evaluate", "--predictions", "r/predictions.csv", "--benchmark", "labelled.tsv")

    out, found = evaluate("again", *again, "--fold", "test", *PLAIN)
    weights.write_bytes(b"other weights")
    unknown, _ = evaluate("again", *again, "--fold", "test", *PLAIN, "--force")

    assert "1 of the 3 test molecules are among the training molecules of the weights." in out
    assert f"LEFT OUT: 1 molecules that were trained on or given, with 2 spectra: {KEY}." in out
    assert found["data"]["left_out_as_trained_on"] == [KEY]
    assert (found["spectra"], found["molecules"]) == (4, 2)
    assert "training molecules of the weights was not checked" in unknown


@pytest.mark.parametrize("given", ["known to the model", "analogues"])
def test_test_molecules_that_samples_start_from_are_left_out(
    evaluate, tmp_path, monkeypatch, given
):
    more = ("--analogues", "known.smi") if given == "analogues" else ()
    if not more:
        holding = replace(stub_model(), known=(KEY,))
        monkeypatch.setattr(api, "load", lambda *_, **__: holding)
    (tmp_path / "known.smi").write_text(f"{ASPIRIN} the answer\nCCCCO another\n")

    _, found = evaluate("report", *TEST, *more)

    assert found["data"]["left_out_as_trained_on"] == [KEY]
    assert KEY not in (tmp_path / "report" / "truth.tsv").read_text()


def test_scoring_a_file_gives_the_numbers_of_scoring_while_predicting(evaluate):
    _, first = evaluate("one", *TEST)

    given = ("--predictions", "one/predictions.csv", "--truth", "one/truth.tsv")
    _, second = evaluate("two", "evaluate", *given, *PLAIN)

    for part in ("metrics", "groups", "calibration", "statuses", "mces_work"):
        assert second[part] == first[part]
    assert second["prediction"]["samples"] == first["prediction"]["samples"]
    assert second["data"]["split_sha256"] == first["data"]["split_sha256"]
    assert not any("given molecules" in sentence for sentence in second["remarks"])


def test_a_killed_run_is_resumed_to_the_same_report(evaluate, tmp_path):
    _, whole = evaluate("r", *TEST)
    journal = tmp_path / "r" / "predictions.csv.journal.jsonl"
    torn = journal.read_bytes()
    journal.write_bytes(torn[: int(0.6 * len(torn))])  # as a kill leaves it: in mid-line
    for name in ("predictions.csv", "results.json"):
        (tmp_path / "r" / name).unlink()

    _, resumed = evaluate("r", *TEST, "--resume")

    assert journal.read_bytes() != torn  # times are measured anew
    for part in ("metrics", "groups", "calibration", "statuses"):
        assert resumed[part] == whole[part]


def test_everything_that_decides_the_numbers_is_in_the_results(evaluate):
    _, found = evaluate("r", *TEST[:-2], "--workers", "1", "--seed", "5", "--preset", "fast")

    settings = found["prediction"]["settings"]
    assert settings["seed"] == found["scoring"]["seed"] == 5
    assert (settings["sampling"]["samples"], settings["sampling"]["steps"]) == (4, 6)
    assert len(found["prediction"]["weights"]["sha256"]) == 64
    assert found["prediction"]["weights"]["record"]
    digests = (found["prediction"]["sha256"], *found["data"]["files"].values())
    assert [len(digest) for digest in (found["data"]["split_sha256"], *digests)] == [64] * 3
    assert {"duallgd", "python", "torch", "rdkit", "myopic-mces"} <= set(found["versions"])


@pytest.mark.parametrize(
    ("option", "text"),
    [("--analogues", "smiles\nCCCO\n"), ("--guide", "feature_id,analogue\nS00,CCCO\n")],
)
def test_a_finished_run_that_was_given_molecules_is_stamped(
    evaluate, duallgd, tmp_path, option, text
):
    (tmp_path / "given.csv").write_text(text)
    done = duallgd("predict", "labelled.tsv", "--samples", "2", "-o", "w.csv", option, "given.csv")
    assert done.code == 0, done.err

    given = ("--predictions", "w.csv", "--truth", "labelled.tsv")
    out, _ = evaluate("with", "evaluate", *given, *PLAIN)

    assert "was given molecules" in out


def test_test_molecules_may_be_in_the_database_and_the_report_says_that_there_was_one(
    evaluate, tmp_path
):
    (tmp_path / "all.smi").write_text(f"{ASPIRIN} the answer\nCCCCO another\n")

    out, found = evaluate("report", *TEST, "--database", "all.smi", "--database-only")

    assert found["prediction"]["settings"]["databases"][0]["name"] == "all.smi"
    assert "chosen from a database" in out
