"""What every test shares: threads, hypothesis, folders of its own, and a finished run."""

import json
import logging
import os
import random
import shutil
import signal
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin

from pathlib import Path

import pytest

try:
    import hypothesis
except ModuleNotFoundError:  # the GPU tests run where only torch, numpy and pytest are
    hypothesis = None

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

if hypothesis is not None:
    profiles = {
        "default": {"derandomize": True, "max_examples": 50},
        "thorough": {"max_examples": 1000},
    }
    for name, how in profiles.items():
        hypothesis.settings.register_profile(name, deadline=None, **how)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure():
    import torch

    torch.set_num_threads(min(2, torch.get_num_threads()))
    # Processes that share the tests must list them alike, and some tables of theirs are sets.
    os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(1 << 32)))
    # A shell starts background jobs deaf to Ctrl-C, and their children too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_threads():
    """What a test makes of torch's threads ends with it: the last bits of a sum depend on them."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_logging():
    """What commands and fixtures make of the package's logger is no matter of the next test."""
    logger = logging.getLogger("duallgd_cli")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


def pytest_make_parametrize_id(val):
    """The name of a packed file, which holds the time: it must be the same in every process."""
    return f"gzip{len(val)}" if isinstance(val, bytes) and val[:2] == b"\x1f\x8b" else None


def pytest_collection_modifyitems(items):
    import torch

    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def example_run(tmp_path_factory):
    """Output of a finished run of the example spectra, a stand-in for the model; leave it alone."""
    from duallgd_cli.config import SamplingSettings
    from duallgd_cli.predict.run import predict
    from duallgd_cli.predict.settings import PredictRequest, PredictSettings
    from tests.stub_model import stub_model

    folder = tmp_path_factory.mktemp("example")
    shutil.copy(EXAMPLES / "spectra.mgf", folder)
    files = (str(folder / "spectra.mgf"),), str(folder / "out.csv")
    settings = PredictSettings(sampling=SamplingSettings(samples=20))
    more = {"formulas": EXAMPLES / "formulas.csv", "settings": settings, "parts": True}
    predict(PredictRequest(*files, **more), stub_model())
    return folder / "out.csv"


@pytest.fixture
def own_run(example_run, tmp_path):
    """A copy of that run and of its input, to be changed."""
    shutil.copytree(example_run.parent, tmp_path / "own")
    from tests.made_runs import rewrite

    def move(lines):
        text = json.dumps(lines).replace(str(example_run.parent), str(tmp_path / "own"))
        return json.loads(text)

    rewrite(tmp_path / "own" / "out.csv.journal.jsonl", move)
    return tmp_path / "own" / "out.csv"


@pytest.fixture(autouse=True)
def databases(monkeypatch, tmp_path):
    """The folder of databases of this test, not the user's; what is read is kept beside it."""
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DUALLGD_DATABASES", str(tmp_path / "databases"))
    return tmp_path / "databases"


@pytest.fixture
def made_plugin(tmp_path, monkeypatch):
    """Weights that only a plug-in reads, which is installed."""
    from tests import made_plugins

    made_plugins.install(tmp_path / "installed", monkeypatch, "made_plugin", made_plugins.SOURCE)
    (tmp_path / "made.txt").write_text("made")
    yield tmp_path / "made.txt"
    sys.modules.pop("made_plugin", None)
