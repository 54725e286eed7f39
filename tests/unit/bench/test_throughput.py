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


@pytest.fixture
def weights(tmp_path):
    network, record = stirred(small_settings()), {"ranking_validation": {"top1": 0.25}}
    path = tmp_path / "small.safetensors"
    save(path, Checkpoint(network.settings, dict(network.state_dict()), record, {}))
    return str(path)


def test_figures_add_up(weights):
    figures, _ = measure_throughput(weights, cpu(), SETTINGS, made_formulas(9, 3))

    assert (figures["spectra"], figures["atoms"]) == (3, {9: 3})
    assert (figures["weights"], figures["val_top1"]) == ("small.safetensors", 0.25)
    assert figures["spectra_per_s"] == pytest.approx(3 / figures["seconds"])
    assert figures["candidates_per_s"] == pytest.approx(9 / figures["seconds"])
    assert figures["memory_mib"] > 0


def test_a_measurement_that_is_stopped_promises_nothing(weights, monkeypatch):
    def stopped(*_):
        raise InterruptedRunError("3 finished features are kept in /tmp/gone")

    monkeypatch.setattr(throughput, "predict", stopped)

    with pytest.raises(InterruptedRunError, match=r"^stopped; nothing of a measurement is kept$"):
        measure_throughput(weights, cpu(), SETTINGS, made_formulas(9, 1))


@pytest.mark.parametrize("n_atoms", [2, 5, 30, 100])
def test_made_spectra_are_of_the_size_asked_for_and_explained(n_atoms, tmp_path):
    formulas, path = made_formulas(n_atoms, 7), tmp_path / "made.mgf"
    path.write_text(throughput.made_mgf(formulas, seed=1), encoding="utf-8")

    with Inputs((str(path),)) as inputs:
        explained = [
            annotate(from_field(Feature(tuple(clean(s, CleaningSettings()) for s in f.spectra)))[0])
            for f in inputs.features("auto")
        ]

    assert [annotated.hypothesis.formula for annotated in explained] == formulas
    assert {formula.n_heavy for formula in formulas} == {n_atoms}
    assert n_atoms < 30 or len(set(formulas)) == 7
    assert n_atoms < 30 or min(annotated.n_explained for annotated in explained) >= 10
    assert throughput.made_mgf(formulas, seed=1) == path.read_text("utf-8")
