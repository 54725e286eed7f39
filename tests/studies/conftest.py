"""The studies are scripts beside the package; they import each other by name."""

import sys
from pathlib import Path

import pytest

from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.run import evaluate
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict import api
from duallgd_cli.predict.settings import PredictSettings
from plugins.authors_network.tests.conftest import installed  # noqa: F401 - a fixture
from tests import labelled_table
from tests.cli.conftest import Done
from tests.stub_model import stub_model

STUDIES = Path(__file__).resolve().parents[2] / "examples" / "studies"
sys.path.insert(0, str(STUDIES))


@pytest.fixture
def study(monkeypatch, capsys, tmp_path):
    """Run a study's command in an empty folder, in this process."""
    import command

    monkeypatch.chdir(tmp_path)

    def run(function, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{function.__name__}.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            command.run(function)
        captured = capsys.readouterr()
        return Done(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def table(tmp_path):
    """A small table of labelled spectra."""
    return labelled_table.write(tmp_path / "labelled.tsv")


@pytest.fixture
def hashes(tmp_path):
    """A list of training molecules that holds none of the table."""
    TrainingHashes.of(["AAAAAAAAAAAAAA"]).write(tmp_path / "none.train.hashes")
    return tmp_path / "none.train.hashes"


@pytest.fixture
def stand_in(monkeypatch):
    """Random graphs of the formula come from every network that is loaded."""
    monkeypatch.setattr(api, "load", lambda *_, **__: stub_model())


@pytest.fixture
def evaluated(tmp_path, table, hashes):
    """Evaluate the test fold of the table into a folder of a name, four samples a spectrum."""

    def run(name, steps=10, **changes):
        sampling = SamplingSettings(samples=4, steps=steps)
        given = {"train_hashes": hashes, "mces": False, "workers": 1, "out": tmp_path / name}
        prediction = PredictSettings(sampling=sampling)
        evaluate(
            EvaluateSettings(benchmark=table, fold="test", prediction=prediction, **given | changes)
        )

    return run
