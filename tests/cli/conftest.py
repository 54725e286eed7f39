"""The command in this process, with a stand-in for the model."""

import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from duallgd_cli import __main__
from duallgd_cli.cli.options import by_setting
from duallgd_cli.predict import api
from duallgd_cli.report import write_report
from duallgd_cli.report.contents import ReportedRun
from tests import made_plugins
from tests.made_prepared import spectra_folder, structures_folder
from tests.made_runs import rows_of
from tests.pages import ARGUMENTS, BROWSER
from tests.stub_model import stub_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self):
        return rows_of(self.out)


def python(*arguments, **options):
    """Run Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def command_without(*libraries):
    """A program that is `duallgd` where some libraries are absent, as a module is that is None."""
    return (
        f"import sys\nsys.modules.update(dict.fromkeys({libraries}))\n"
        "from duallgd_cli.__main__ import main\nmain()\n"
    )


@pytest.fixture
def duallgd(monkeypatch, capsys, tmp_path):
    """Run ``duallgd`` with arguments in an empty folder; the model is a stand-in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "load", lambda *_, **__: stub_model())

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["duallgd", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            __main__.main()
        captured = capsys.readouterr()
        return Done(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def spectra():
    return EXAMPLES / "spectra.mgf"


@pytest.fixture
def formulas():
    return EXAMPLES / "formulas.csv"


@pytest.fixture
def prepared(tmp_path):
    """A folder with prepared structures and spectra."""
    structures_folder(tmp_path / "structures")
    spectra_folder(tmp_path / "spectra")
    return tmp_path


@pytest.fixture
def made_plugin(tmp_path, monkeypatch):
    """Weights that only a plug-in reads, which is installed."""
    made_plugins.install(tmp_path / "installed", monkeypatch, "made_plugin", made_plugins.SOURCE)
    yield made_plugins.weights(tmp_path / "made.txt")
    sys.modules.pop("made_plugin", None)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=ARGUMENTS.split())
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def made(example_run, tmp_path_factory):
    """The page of a run, and what it should show."""
    page = tmp_path_factory.mktemp("made") / "out.html"
    write_report([example_run], page, options=by_setting())
    return page, list(ReportedRun([example_run]).features())
