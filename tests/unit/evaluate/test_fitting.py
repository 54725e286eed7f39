"""Ranking and calibration fitted on a finished run, and stored in a weights file."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.cli import app
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibrate import fit_weights_file, scored_cases, truths_of
from duallgd_cli.files import sha256
from duallgd_cli.predict.journal import read
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.train.run import fit_known
from tests.made_spectra import ALANINE, ASPIRIN, CAFFEINE, block, mgf
from tests.made_training import small_model
from tests.stub_model import stub_model

KEYS = ("QNAYBMKLOCPYGJ", "BSYNRYMUTXBXSQ", "RYYVLZVUVIJVGH")
SMILES = ("CC(N)C(=O)O", "CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O")
HEADER = "identifier\tinchikey\tsmiles\n"


@pytest.fixture
def folder(tmp_path):
    """Weights, and predictions of three spectra with the stand-in, said to be made with them."""
    network, path = small_model(), tmp_path / "w.safetensors"
    record = {"step": 7, "ranking_validation": {"top1": 0.125, "n_spectra": 80.0}}
    save(path, Checkpoint(network.settings, dict(network.state_dict()), record))
    predicted(tmp_path, "out.csv", replace(stub_model(), sha256=sha256(path)))
    return tmp_path


def predicted(folder, name, model, count=3):
    """Predictions of the first of the spectra."""
    spectra = mgf(folder / "s.mgf", *map(block, (ALANINE, ASPIRIN, CAFFEINE)[:count]))
    settings = PredictSettings(sampling=SamplingSettings(steps=1, samples=20))
    predict(PredictRequest((str(spectra),), str(folder / name), settings=settings), model)


def truth(folder, smiles=("", "", "")):
    """The table of the spectra, by default of all three."""
    rows = (f"s:{row}\t{KEYS[row]}\t{text}\n" for row, text in enumerate(smiles))
    (folder / "truth.tsv").write_text(HEADER + "".join(rows), "utf-8")
    return folder / "truth.tsv"


def fitted(folder, table, weights="w.safetensors", **how):
    out = folder / "fitted.safetensors"
    return fit_weights_file(folder / weights, [folder / "out.csv"], table, out, **how)


def test_the_fit_is_stored_and_the_weights_stay(folder):
    kept, _ = fitted(folder, truth(folder), keep_ranking=True)
    validated = load(folder / "fitted.safetensors").record["ranking_validation"]
    ranking, validation = fitted(folder, truth(folder))
    alike, _ = fitted(folder, truth(folder, SMILES))

    assert (validated["top1"], validated["n_spectra"]) == (0.125, 80.0)  # its order's own
    assert kept.weights.tolist() == RankingModel().weights.tolist() != alike.weights.tolist()
    stored = load(folder / "fitted.safetensors")
    assert RankingModel.stored(stored.ranking) == alike != ranking  # likeness to the truth teaches
    assert stored.record["step"] == 7
    assert stored.record["ranking_validation"]["top1"] == validation.top1
    assert stored.tensors.keys() == load(folder / "w.safetensors").tensors.keys()
    assert (ranking.n_spectra, ranking.least_samples, ranking.most_steps) == (3, 20, 1)


def test_a_run_of_other_weights_or_without_a_finished_spectrum_is_refused(folder):
    other = replace(load(folder / "w.safetensors"), record={"step": 8})
    save(folder / "other.safetensors", other)
    with pytest.raises(UsageError, match="was predicted with other weights"):
        fitted(folder, truth(folder), "other.safetensors")

    journal = folder / "out.csv.journal.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(UsageError, match="no finished spectrum"):
        fitted(folder, truth(folder))


def test_the_truth_of_a_run_is_its_own(folder):
    """Of fewer molecules a first run, as the draws of a recipe may be."""
    for name, count in (("few", 1), ("all", 3)):
        (folder / name).mkdir()
        predicted(folder / name, "predictions.csv", stub_model(), count)
        truth(folder / name, [""] * count)

    fitted, _ = fit_known(load(folder / "w.safetensors"), [folder / "few", folder / "all"])

    assert fitted.ranking["n_spectra"] == 4


def test_known_molecules_are_no_candidates_but_where_the_truth_is_one(folder):
    def candidates(*known):
        truths, start = truths_of(truth(folder)), RankingModel()
        cases = scored_cases(read([folder / "out.csv"]), truths, start, frozenset(known))
        return [set(case.keys) for case in cases]

    every = candidates()
    others = {key[:14] for keys in every for key in keys} - set(KEYS)
    own = [{key for key in every[row] if key[:14] == KEYS[row]} for row in range(3)]

    assert candidates(*others) == own != every
    assert candidates(*others, *KEYS) == every


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (f"s:0\t{KEYS[0]}\n", "the truth has no row for spectrum 's:1'"),
        (f"s:0\t{KEYS[0]}\tC1CC(\n", r"C1CC\(.*mend or empty that cell"),
        ("s:0\tx\n", "no InChIKey for spectrum 's:0'"),
        (f"s:0\t{KEYS[0]}\ns:0\t{KEYS[1]}\n", "'s:0' stands twice with different structures"),
    ],
)
def test_a_truth_that_does_not_name_one_structure_is_refused(folder, rows, said):
    (folder / "odd.tsv").write_text(HEADER + rows, "utf-8")

    with pytest.raises(UsageError, match=said):
        fitted(folder, folder / "odd.tsv")


def test_the_command_says_that_three_spectra_are_too_few(folder):
    table, out = truth(folder), folder / "new.safetensors"
    arguments = [folder / "w.safetensors", "--run", folder / "out.csv", "--truth", table, "-o", out]

    done = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])

    assert done.exit_code == 0
    assert "warning: 3 spectra are too few for probabilities that mean something" in done.stderr
    assert load(out).ranking["n_spectra"] == 3
