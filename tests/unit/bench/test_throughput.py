"""End-to-end throughput: figures that add up, spectra that are made."""

import pytest

from duallgd_cli.bench import throughput
from duallgd_cli.bench.scaling import made_formulas
from duallgd_cli.bench.throughput import measure_throughput
from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import from_field
from duallgd_cli.spectra.types import Feature
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu

SETTINGS = PredictSettings(sampling=SamplingSettings(steps=2, samples=3))


def test_figures_add_up(tmp_path):
    model = stirred(small_settings())
    record = {"ranking_validation": {"top1": 0.25}}
    weights = tmp_path / "small.safetensors"
    save(weights, Checkpoint(model.settings, dict(model.state_dict()), record, {}))

    figures, _ = measure_throughput(str(weights), cpu(), SETTINGS, made_formulas(9, 3))

    assert (figures["spectra"], figures["atoms"]) == (3, {9: 3})
    assert (figures["weights"], figures["val_top1"]) == ("small.safetensors", 0.25)
    assert figures["spectra_per_s"] == pytest.approx(3 / figures["seconds"])
    assert figures["candidates_per_s"] == pytest.approx(9 / figures["seconds"])
    assert figures["memory_mib"] > 0


@pytest.mark.parametrize("n_atoms", [2, 5, 30, 100])
def test_made_spectra_are_of_the_size_asked_for_and_explained(n_atoms, tmp_path):
    formulas = made_formulas(n_atoms, 7)
    (tmp_path / "made.mgf").write_text(throughput.made_mgf(formulas, seed=1), encoding="utf-8")

    with Inputs((str(tmp_path / "made.mgf"),)) as inputs:
        features = [
            Feature(tuple(clean(one, CleaningSettings()) for one in feature.spectra))
            for feature in inputs.features("auto")
        ]
    explained = [annotate(from_field(feature)[0]) for feature in features]

    assert [one.hypothesis.formula for one in explained] == formulas
    assert all(formula.n_heavy == n_atoms for formula in formulas)
    assert n_atoms < 30 or len(set(formulas)) == 7
    assert n_atoms < 30 or all(one.n_explained >= 10 for one in explained)
    assert throughput.made_mgf(formulas, seed=1) == (tmp_path / "made.mgf").read_text("utf-8")


def test_a_measurement_that_is_stopped_promises_nothing(tmp_path, monkeypatch):
    model, weights = stirred(small_settings()), tmp_path / "small.safetensors"
    save(weights, Checkpoint(model.settings, dict(model.state_dict()), {}, {}))

    def stopped(*_):
        raise InterruptedRunError("3 finished features are kept in /tmp/gone")

    monkeypatch.setattr(throughput, "predict", stopped)

    with pytest.raises(InterruptedRunError, match=r"^stopped; nothing of a measurement is kept$"):
        measure_throughput(str(weights), cpu(), SETTINGS, made_formulas(9, 1))
