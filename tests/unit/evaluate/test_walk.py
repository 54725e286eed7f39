"""How much of the package the evaluation of one spectrum passes."""

import sys
import threading

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate import EvaluateSettings, report
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.predict.settings import PredictSettings
from tests import labelled_table
from tests.unit.predict.test_walk import DEEPEST, Walk

pytest.importorskip("scipy", reason="needs the evaluate extra")
# Of the room alone; what a prediction passes is held by its own walk, which this one contains.
MOST_MODULES, MOST_TYPES = 12, 13
MOST_ABOVE_PREDICT = 6  # own functions on the stack before and after those of the prediction


@pytest.mark.slow
def test_the_walk_of_one_scored_spectrum_does_not_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_plots", lambda *_: {})  # matplotlib walks far by itself
    settings = EvaluateSettings(
        benchmark=str(labelled_table.write(tmp_path / "labelled.tsv")),
        fold="test",
        limit=1,
        out=tmp_path / "report",
        mces_cache=tmp_path / "mces.sqlite",
        allow_leakage=True,
        prediction=PredictSettings(sampling=SamplingSettings(steps=2, samples=8)),
        device="cpu",
        precision="float32",
        threads=1,
        workers=1,
    )
    walk = Walk()

    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        found = evaluate(settings)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

    assert found["spectra"] == 1
    modules = {name for name in walk.modules if "/evaluate/" in name}
    types = {name for name in walk.types if ".evaluate." in name}
    assert len(modules) <= MOST_MODULES, sorted(modules)
    assert len(types) <= MOST_TYPES, sorted(types)
    assert walk.depth <= DEEPEST + MOST_ABOVE_PREDICT
