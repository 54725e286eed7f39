"""`duallgd weights evidence`, and what predictions make of the weights that it writes."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli import load as load_model
from duallgd_cli import predict_spectra
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.cli.app import app
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.ranking import FEATURES
from duallgd_cli.predict.settings import PredictSettings
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import spectra_folder, structures_folder
from tests.made_spectra import ASPIRIN, block, mgf
from tests.made_training import cpu


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    model = stirred(small_settings())
    path = tmp_path_factory.mktemp("weights") / "plain.safetensors"
    outdated = {"charm": 1.0}
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 7}, outdated))
    return path


@pytest.fixture(scope="module")
def asking(plain):
    folder = plain.parent
    structures = structures_folder(folder / "structures")
    spectra = spectra_folder(folder / "spectra")
    output = folder / "asking.safetensors"
    got = run(
        "weights", "evidence", plain, "--structures", structures, "--spectra", spectra,
        "-o", output, "--steps", 20,
    )  # fmt: skip
    assert got.exit_code == 0, got.stderr
    assert "wrote" in got.stderr
    return output


def test_the_network_stays_and_the_record_says_what_was_added(plain, asking):
    before, after = load(plain), load(asking)

    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert after.record["step"] == 7
    assert after.record["evidence"]["structures"] == 12
    assert after.reranker["log_prevalence"].shape == (4096,)
    assert (after.reranker["log_prevalence"] <= 0).all()
    assert not any(name.startswith("intensity") for name in after.reranker)


def candidates(weights, spectra, workers=1):
    settings = PredictSettings(sampling=SamplingSettings(steps=2, samples=12))
    (one,) = predict_spectra(load_model(weights, runtime=cpu()), spectra, settings, workers=workers)
    return one.candidates


def test_every_candidate_is_asked_and_nothing_else_changes(asking, tmp_path):
    silent = tmp_path / "silent.safetensors"
    save(silent, replace(load(asking), reranker={}))
    spectra = mgf(tmp_path / "made.mgf", block(ASPIRIN))

    without, asked = candidates(silent, spectra), candidates(asking, spectra)

    assert len(asked) > 1
    assert [one.smiles for one in asked] == [one.smiles for one in without]
    assert [one.score for one in asked] == [one.score for one in without]  # it was never fitted
    assert all(one.extra_scores[name] == 0 for one in without for name in FEATURES[-3:])
    said = {name: [one.extra_scores[name] for one in asked] for name in FEATURES[-3:]}
    assert len(set(said["familiarity"])) > 1
    assert max(said["peaks_found"]) == max(said["peaks_missed"]) == 0
    assert min(said["peaks_missed"]) < 0


def test_processes_that_assemble_ask_the_same(asking, tmp_path):
    spectra = mgf(tmp_path / "made.mgf", block(ASPIRIN))

    assert candidates(asking, spectra, workers=2) == candidates(asking, spectra)
