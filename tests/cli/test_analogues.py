"""`duallgd weights analogues`, and what predictions make of the weights that it writes."""

from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from duallgd_cli import load as load_model
from duallgd_cli import predict_spectra
from duallgd_cli.checkpoint.format import Checkpoint, load, save
from duallgd_cli.cli.app import app
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.settings import PredictSettings
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import spectra_folder
from tests.made_spectra import ASPIRIN, block, mgf
from tests.made_training import cpu


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    model = stirred(small_settings())
    path = tmp_path_factory.mktemp("weights") / "plain.safetensors"
    save(path, Checkpoint(model.settings, dict(model.state_dict()), {"step": 7}))
    return path


def with_analogues(weights):
    spectra = spectra_folder(weights.parent / "spectra")
    output = weights.with_stem(f"{weights.stem}-starting")
    command = ["weights", "analogues", weights, "--molecules", spectra, "-o", output]
    got = CliRunner().invoke(app, [*map(str, command)], catch_exceptions=False)
    assert got.exit_code == 0, got.stderr
    assert "3 templates" in got.stderr  # of fold train
    return output


@pytest.fixture(scope="module")
def starting(plain):
    return with_analogues(plain)


def test_the_network_and_its_evidence_stay_and_the_ranking_goes(plain, tmp_path):
    before = replace(
        load(plain), reranker={"log_prevalence": torch.ones(3)}, ranking={"log_share": 0.7}
    )
    save(tmp_path / "asking.safetensors", before)

    after = load(with_analogues(tmp_path / "asking.safetensors"))

    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert torch.equal(after.reranker["log_prevalence"], torch.ones(3))
    assert after.record["step"] == 7
    assert after.ranking == {}


def drawn(weights, spectra, share):
    sampling = SamplingSettings(steps=10, samples=20, analogue_share=share)
    model = load_model(weights, runtime=cpu())
    (one,) = predict_spectra(model, spectra, PredictSettings(sampling=sampling))
    assert one.hypotheses[0].tallies.sampled == 20
    return {candidate.smiles: candidate.samples for candidate in one.candidates}


def test_only_a_share_of_the_samples_starts_from_known_molecules(plain, starting, tmp_path):
    spectra = mgf(tmp_path / "made.mgf", block(ASPIRIN))

    without, with_none = drawn(plain, spectra, 0.5), drawn(starting, spectra, 0.0)
    some = drawn(starting, spectra, 0.5)

    assert with_none == without
    assert some != without
    assert some.keys() & without.keys()  # the first ten samples are the same
