"""Ranking and calibration fitted on a finished run, and stored in a weights file."""

from dataclasses import replace

import pytest

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibrate import fit_weights_file, scored_cases, truths_of
from duallgd_cli.files import sha256
from duallgd_cli.predict.journal import read
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.made_training import small_model
from tests.stub_model import stub_model

KEYS = ("QNAYBMKLOCPYGJ", "BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH")


@pytest.fixture
def weights(tmp_path):
    model = small_model()
    path = tmp_path / "w.safetensors"
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 7}))
    return path


@pytest.fixture
def run(tmp_path, weights):
    """Predictions of three spectra with the stand-in, said to be made with the weights."""
    spectra = mgf(tmp_path / "s.mgf", block(ALANINE), block(ASPIRIN), block(CAFFEINE))
    settings = PredictSettings(sampling=SamplingSettings(steps=1, samples=20))
    model = replace(stub_model(), sha256=sha256(weights))
    predict(PredictRequest((str(spectra),), str(tmp_path / "out.csv"), settings=settings), model)
    return tmp_path / "out.csv"


def truth(tmp_path, smiles=None):
    """Keys of the three spectra, and a column of their SMILES where these are given."""
    columns = [("identifier", "s:0", "s:1", "s:2"), ("inchikey", *KEYS)]
    columns += [("smiles", *smiles)] if smiles else []
    path = tmp_path / "truth.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)), "utf-8")
    return path


def test_the_fit_is_stored_and_the_weights_stay(tmp_path, weights, run):
    out = tmp_path / "fitted.safetensors"
    smiles = ("CC(N)C(=O)O", "CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O")

    ranking, validation = fit_weights_file(weights, [run], truth(tmp_path), out)
    alike, _ = fit_weights_file(weights, [run], truth(tmp_path, smiles), out)

    stored = load(out)
    assert RankingModel.stored(stored.ranking) == alike
    assert alike != ranking  # structures of the truth teach by likeness
    assert stored.record["step"] == 7
    assert "brier" in stored.record["ranking_validation"]["candidates"]
    assert stored.tensors.keys() == load(weights).tensors.keys()
    assert (ranking.n_spectra, ranking.least_samples, ranking.most_samples) == (3, 20, 20)
    assert ranking.most_steps == ranking.least_steps == 1
    assert set(validation.by_samples) == {20}


def test_a_run_of_other_weights_or_without_a_finished_spectrum_is_refused(tmp_path, weights, run):
    other, out = tmp_path / "other.safetensors", tmp_path / "out.safetensors"
    save(other, replace(load(weights), record={"step": 8}))

    with pytest.raises(UsageError, match="was predicted with other weights"):
        fit_weights_file(other, [run], truth(tmp_path), out)

    journal = tmp_path / "out.csv.journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(UsageError, match="no finished spectrum"):
        fit_weights_file(weights, [run], truth(tmp_path), out)


def candidates_of(path, truth_, known):
    cases = scored_cases(read([path]), truths_of(truth_), RankingModel(), frozenset(known))
    return [set(case.keys) for case in cases]


def test_known_molecules_are_no_candidates_but_where_the_truth_is_one(tmp_path, run):
    every = candidates_of(run, truth(tmp_path), ())
    others = {key[:14] for found in every for key in found} - set(KEYS)

    assert candidates_of(run, truth(tmp_path), others) != every
    for left, found, right in zip(
        candidates_of(run, truth(tmp_path), others), every, KEYS, strict=True
    ):
        assert left == {key for key in found if key[:14] == right}
    assert candidates_of(run, truth(tmp_path), others | set(KEYS)) == every


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (f"s:0\t{KEYS[0]}\n", "the truth has no row for spectrum 's:1'"),
        (f"s:0\t{KEYS[0]}\tC1CC(\n", r"C1CC\(.*mend or empty that cell"),
        ("s:0\n", "no InChIKey for spectrum 's:0'"),
        ("s:0\tx\n", "no InChIKey for spectrum 's:0'"),
        (f"s:0\t{KEYS[0]}\ns:0\t{KEYS[1]}\n", "'s:0' stands twice with different structures"),
    ],
)
def test_a_truth_that_does_not_name_one_structure_is_refused(tmp_path, weights, run, rows, said):
    path = tmp_path / "odd.tsv"
    path.write_text("identifier\tinchikey\tsmiles\n" + rows, "utf-8")

    with pytest.raises(UsageError, match=said):
        fit_weights_file(weights, [run], path, tmp_path / "out.safetensors")
