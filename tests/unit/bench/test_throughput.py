"""End-to-end throughput: figures that add up, files, the network alone where rdkit is absent."""

import pytest
import torch

from duallgd_cli.bench import throughput
from duallgd_cli.bench.measure import made_formulas
from duallgd_cli.bench.throughput import measure_throughput
from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.runtime import STAGES
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=2, samples=3))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    model = stirred(small_settings())
    record = {"ranking_validation": {"top1": 0.25}}
    save(path, Checkpoint(model.settings, dict(model.state_dict()), record, {}))
    return str(path)


@pytest.fixture(autouse=True)
def quick_ceilings(monkeypatch):
    ceilings = throughput.work.Ceilings({"float32": 1e11}, 1e9, 1e10, False)
    monkeypatch.setattr(throughput.work, "measure_ceilings", lambda *_: ceilings)


def test_figures_add_up(weights):
    found, _ = measure_throughput(weights, cpu(), SETTINGS, made_formulas(9, 3))

    assert (found["spectra"], found["atoms"], found["assembled"]) == (3, {9: 3}, True)
    assert (found["weights"], found["val_top1"]) == ("small.safetensors", 0.25)
    assert set(found["stages_s"]) == {*STAGES, "other"}
    assert sum(found["stages_s"].values()) == pytest.approx(found["seconds"], rel=1e-3)
    assert found["spectra_per_s"] == pytest.approx(3 / found["seconds"])
    assert found["candidates_per_s"] == pytest.approx(9 / found["seconds"])
    done = found["gflop"] * 3 * 3 * 2 / found["stages_s"]["sample"]
    assert found["share_of_ceiling"] == pytest.approx(done / 100)
    assert found["memory_mib"] >= 0


@pytest.mark.parametrize("n_atoms", [2, 5, 30, 100])
def test_made_spectra_are_of_the_size_asked_for_and_explained(n_atoms):
    formulas = made_formulas(n_atoms, 7)
    spectra = throughput.made_spectra(formulas, seed=1)

    assert all(formula.n_heavy == n_atoms for formula in formulas)
    assert n_atoms < 30 or len(set(formulas)) == 7
    assert n_atoms < 30 or all(spectrum.n_explained >= 10 for spectrum in spectra)
    assert all(torch.isfinite(torch.from_numpy(s.intensity)).all() for s in spectra)
    again = throughput.made_spectra(formulas, seed=1)
    assert [s.mz.tolist() for s in again] == [s.mz.tolist() for s in spectra]
