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
BENCHMARK = ("evaluate", "--benchmark", "labelled.tsv", "--fold", "test", *PLAIN)
TEST = (*BENCHMARK, "--samples", "4")
ASPIRIN, KEY = labelled_table.MOLECULES[0][0], "BSYNRYMUTXBXSQ"


@pytest.fixture
def evaluate(duallgd, tmp_path, monkeypatch):
    """Run a command into a folder; what was printed, and the results.

    The stand-in was trained on nothing: the list beside the shipped weights is not its own.
    """
    labelled_table.write(tmp_path / "labelled.tsv")
    (tmp_path / "known.smi").write_text(f"{ASPIRIN} the answer\nCCCCO another\n")
    beside = run._beside
    monkeypatch.setattr(
        run, "_beside", lambda given, *more: beside(given, *more) if given else None
    )

    def run_it(folder, *command):
        done = duallgd(*command, "-o", folder)
        assert done.code == 0, done.err
        results = (tmp_path / folder / "results.json").read_text()
        return " ".join(done.out.split()), json.loads(results)

    return run_it


def same(results, *more):
    """What two evaluations of the same predictions have in common."""
    return {name: results[name] for name in ("metrics", "groups", "calibration", "statuses", *more)}


def test_predicted_formulas_are_a_track_of_their_own(evaluate, tmp_path):
    out, results = evaluate("report", *TEST, "--formula", "predict")

    assert results["track"] == "formula predicted"
    assert results["statuses"] == {"ok": 6}
    # The precursors of the table are exact and its molecules well known.
    assert results["metrics"]["formula_accuracy@1"]["mean"] == 1
    assert "formula accuracy@5 │ 100.0%" in out
    assert "formula" not in (tmp_path / "report" / "spectra.tsv").read_text().splitlines()[0]


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
    again = (*BENCHMARK, "--predictions", "r/predictions.csv")

    out, results = evaluate("again", *again)
    weights.write_bytes(b"other weights")
    unknown, _ = evaluate("again", *again, "--force")

    assert "1 of the 3 test molecules are among the training molecules of the weights." in out
    assert f"LEFT OUT: 1 molecule trained on or given, with 2 spectra: {KEY}." in out
    assert results["data"]["left_out_as_trained_on"] == [KEY]
    assert (results["spectra"], results["molecules"]) == (4, 2)
    assert "training molecules of the weights was not checked" in unknown


@pytest.mark.parametrize("more", [(), ("--analogues", "known.smi")])
def test_test_molecules_that_samples_start_from_are_left_out(evaluate, tmp_path, monkeypatch, more):
    holding = replace(stub_model(), known=() if more else (KEY,))
    monkeypatch.setattr(api, "load", lambda *_, **__: holding)

    _, results = evaluate("report", *TEST, *more)

    assert results["data"]["left_out_as_trained_on"] == [KEY]
    assert KEY not in (tmp_path / "report" / "truth.tsv").read_text()


def test_test_molecules_may_be_in_the_database_and_the_report_says_that_there_was_one(evaluate):
    out, results = evaluate("report", *TEST, "--database", "known.smi", "--database-only")

    assert results["prediction"]["settings"]["databases"][0]["name"] == "known.smi"
    assert "chosen from a database" in out


def test_a_file_and_what_a_kill_left_give_the_numbers_of_scoring_while_predicting(
    evaluate, tmp_path
):
    _, whole = evaluate("one", *TEST)
    given = ("--predictions", "one/predictions.csv", "--truth", "one/truth.tsv")
    _, scored = evaluate("two", "evaluate", *given, *PLAIN)
    journal = tmp_path / "one" / "predictions.csv.journal.jsonl"
    torn = journal.read_bytes()
    journal.write_bytes(torn[: int(0.6 * len(torn))])  # as a kill leaves it: in mid-line
    for name in ("predictions.csv", "results.json"):
        (tmp_path / "one" / name).unlink()
    _, resumed = evaluate("one", *TEST, "--resume")

    assert same(scored, "mces_work") == same(whole, "mces_work")
    assert scored["prediction"]["samples"] == whole["prediction"]["samples"]
    assert scored["data"]["split_sha256"] == whole["data"]["split_sha256"]
    assert not any("given molecules" in sentence for sentence in scored["remarks"])
    assert same(resumed) == same(whole)
    assert journal.read_bytes() != torn  # times are measured anew


def test_everything_that_decides_the_numbers_is_in_the_results(evaluate):
    _, results = evaluate("r", *TEST, "--seed", "5", "--preset", "fast")

    prediction, data = results["prediction"], results["data"]
    assert prediction["settings"]["seed"] == results["scoring"]["seed"] == 5
    sampling = prediction["settings"]["sampling"]
    assert (sampling["samples"], sampling["steps"]) == (4, 6)
    assert prediction["weights"]["record"]
    digests = (prediction["weights"]["sha256"], prediction["sha256"], *data["files"].values())
    assert [len(digest) for digest in (data["split_sha256"], *digests)] == [64] * 4
    assert {"duallgd", "python", "torch", "rdkit", "myopic-mces"} <= set(results["versions"])


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
