"""`duallgd evaluate` from the command line, with the stand-in model."""

import json
from dataclasses import replace

import pytest

from duallgd_cli.evaluate import report, run
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.files import sha256
from duallgd_cli.predict import api
from tests import labelled_table
from tests.stub_model import stub_model

pytest.importorskip("scipy", reason="needs the evaluate extra")

FEW = ("--no-mces", "--workers", "1", "--samples", "4")
TEST = ("evaluate", "--benchmark", "labelled.tsv", "--fold", "test", *FEW)


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    monkeypatch.setattr(report, "write_plots", lambda *_: None)


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


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_nothing_about_the_answer_is_in_what_the_prediction_reads(duallgd, table, tmp_path):
    duallgd("evaluate", "--benchmark", table, "-o", "report", *FEW)

    text = (tmp_path / "report" / "spectra.tsv").read_text()
    assert text.splitlines()[0].split("\t") == [
        *("identifier", "mzs", "intensities", "precursor_mz", "adduct", "ion_mode"),
        *("instrument_type", "instrument", "resolution"),
        *("collision_energy", "collision_energy_text", "formula"),
    ]
    assert not any(smiles in text for smiles, *_ in labelled_table.MOLECULES)


def test_predicted_formulas_are_a_track_of_their_own(duallgd, tmp_path):
    done = duallgd(*TEST, "-o", "report", "--formula", "predict")

    found = results(tmp_path / "report")
    assert done.code == 0, done.err
    assert found["track"] == "formula predicted"
    assert "formula" not in (tmp_path / "report" / "spectra.tsv").read_text().splitlines()[0]
    assert found["statuses"] == {"ok": 6}
    # The precursors of the table are exact and its molecules well known.
    (everything,) = found["formula_accuracy"]
    means = [everything["estimates"][f"formula_accuracy@{k}"]["mean"] for k in (1, 5, 10)]
    assert (everything["spectra"], means) == (6, [1.0, 1.0, 1.0])
    assert "The true formula among the predicted ones, formula predicted" in done.out


@pytest.fixture
def seen(tmp_path):
    """A list of training molecules with one of the test molecules."""
    path = tmp_path / "w.train.hashes"
    TrainingHashes.of(["BSYNRYMUTXBXSQ", "AAAAAAAAAAAAAA"]).write(path)
    return path


def test_a_test_molecule_among_those_that_samples_start_from_is_refused(duallgd, monkeypatch):
    holding = replace(stub_model(), known=("BSYNRYMUTXBXSQ",))
    monkeypatch.setattr(api, "load", lambda *_, **__: holding)

    done = duallgd(*TEST, "-o", "r")

    assert done.code == 2
    assert "1 of the 3 test molecules are among the known molecules in stub" in done.err


def test_finished_predictions_are_checked_against_the_list_of_the_weights_that_made_them(
    duallgd, table, seen, tmp_path, monkeypatch
):
    (tmp_path / "w.safetensors").write_bytes(b"stands for weights")
    made = replace(stub_model(), name="w.safetensors", sha256=sha256(tmp_path / "w.safetensors"))
    monkeypatch.setattr(api, "load", lambda *_, **__: made)
    base = ("evaluate", "--fold", "test", "--no-mces", "--workers", "1")
    duallgd(
        *(*base, "--benchmark", table, "--samples", "4", "-o", "r"),
        *("--train-hashes", seen, "--allow-leakage"),
    )
    again = (*base, "--predictions", "r/predictions.csv", "--benchmark", table, "-o", "again")

    refused = duallgd(*again)
    stamped = duallgd(*again, "--allow-leakage")
    (tmp_path / "w.safetensors").write_bytes(b"other weights")
    unknown = duallgd(*again, "--force")

    assert refused.code == 2
    assert (
        "1 of the 3 test molecules are among the training molecules of the weights" in refused.err
    )
    assert "LEAKAGE: 1 of the 3" in stamped.out
    assert "training molecules of the weights was not checked" in unknown.out


def test_what_would_be_said_twice_is_said_once(duallgd, tmp_path):
    done = duallgd(
        *(*TEST, "-o", "r"),
        *("--spectra-per-molecule", "1"),
    )

    text = " ".join(done.out.split())
    assert "candidates = valid = formula exact = distinct" in text
    assert "accuracy@1 = accuracy@10 = oracle accuracy │ 0.0% (0.0% to 56.1%) │" in text
    assert "over molecules" not in text
    assert len((tmp_path / "r" / "metrics.tsv").read_text().splitlines()) == 11


@pytest.fixture
def evaluate(duallgd, table, tmp_path):
    """Predict and score the test fold of the small table into a folder."""
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")

    def run(folder, *more):
        done = duallgd(*TEST, "-o", folder, "--train-hashes", "none.train.hashes", *more)
        assert done.code == 0, done.err
        return results(tmp_path / folder)

    return run


def test_scoring_a_file_gives_the_numbers_of_scoring_while_predicting(evaluate, duallgd, tmp_path):
    first = evaluate("one")

    given = ("--predictions", "one/predictions.csv", "--truth", "one/truth.tsv", "--no-mces")
    duallgd("evaluate", *given, "--workers", "1", "-o", "two")

    second = results(tmp_path / "two")
    assert {"accuracy@1", "tanimoto@10"} <= set(first["metrics"])
    for part in ("metrics", "groups", "calibration", "statuses", "candidates", "mces_work"):
        assert second[part] == first[part]
    assert second["prediction"]["samples"] == first["prediction"]["samples"]
    assert second["data"]["split_sha256"] == first["data"]["split_sha256"]
    assert not any("given molecules" in sentence for sentence in second["remarks"])


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
    digests = (found["prediction"]["sha256"], *found["data"]["files"].values())
    assert [len(digest) for digest in (found["data"]["split_sha256"], *digests)] == [64] * 3
    assert {"python", "torch", "rdkit", "scipy", "myopic-mces"} <= set(found["versions"])
    assert found["duallgd"]


@pytest.mark.parametrize(
    ("option", "text"),
    [("--analogues", "smiles\nCCCO\n"), ("--guide", "feature_id,analogue\nS00,CCCO\n")],
)
def test_a_finished_run_that_was_given_molecules_is_stamped(duallgd, table, tmp_path, option, text):
    (tmp_path / "given.csv").write_text(text)
    done = duallgd("predict", table, "--samples", "2", "-o", "with.csv", option, "given.csv")
    assert done.code == 0, done.err

    asked = ("--predictions", "with.csv", "--truth", table, "--no-mces", "-o", "with")
    assert duallgd("evaluate", *asked).code == 0

    assert "was given molecules" in " ".join(results(tmp_path / "with")["remarks"])


def test_test_molecules_may_be_in_the_database_and_the_report_says_that_there_was_one(
    duallgd, tmp_path
):
    smiles = labelled_table.MOLECULES[0][0]
    (tmp_path / "all.smi").write_text(f"{smiles} the answer\nCCCCO another\n")

    done = duallgd(*TEST, "--database", "all.smi", "--database-only", "-o", "report")

    assert done.code == 0, done.err
    found = results(tmp_path / "report")
    assert found["prediction"]["settings"]["databases"][0]["name"] == "all.smi"
    assert any("chosen from a database" in sentence for sentence in found["remarks"])


def test_test_molecules_among_the_analogues_are_refused_or_left_out(duallgd, tmp_path):
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    smiles = labelled_table.MOLECULES[0][0]
    (tmp_path / "known.smi").write_text(f"{smiles} the answer\nCCCCO another\n")
    given = (*TEST, "--analogues", "known.smi", "-o", "report")

    refused = duallgd(*given)
    done = duallgd(*given, "--drop-leaked", "--train-hashes", "none.train.hashes")

    assert refused.code == 2
    assert "1 of the 3 test molecules are among the analogues of known.smi" in refused.err
    assert done.code == 0, done.err
    found = results(tmp_path / "report")
    assert found["prediction"]["settings"]["analogues"][0]["name"] == "known.smi"
    assert found["data"]["left_out_as_trained_on"] == ["BSYNRYMUTXBXSQ"]
    assert "LEFT OUT: 1 molecules" in done.out
    assert "with 2 spectra: BSYNRYMUTXBXSQ" in done.out
    assert (found["spectra"], found["molecules"]) == (4, 2)
    assert not any(sentence.startswith("LEAKAGE") for sentence in found["remarks"])
