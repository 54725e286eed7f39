"""The command in this process, with a stand-in for the model; and pages in a browser."""

import io
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest

from duallgd_cli import __main__
from duallgd_cli.predict import api
from duallgd_cli.report.contents import ReportedRun
from tests.conftest import EXAMPLES
from tests.made_runs import rows_of
from tests.pages import ARGUMENTS, BROWSER, Visit
from tests.stub_model import stub_model


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


@pytest.fixture
def in_process(monkeypatch, capsys, tmp_path):
    """Call a program's function as if with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(function, *arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["duallgd", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            function()
        captured = capsys.readouterr()
        return Done(stopped.value.code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def duallgd(in_process, monkeypatch):
    """Run ``duallgd`` with arguments; the model is a stand-in."""
    monkeypatch.setattr(api, "load", lambda *_, **__: stub_model())
    return partial(in_process, __main__.main)


@pytest.fixture
def spectra():
    return EXAMPLES / "spectra.mgf"


@pytest.fixture
def formulas():
    return EXAMPLES / "formulas.csv"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=ARGUMENTS.split())
        yield opened
        opened.close()


@pytest.fixture
def visit(browser):
    """Open pages, of which none may complain or ask for anything."""
    visits = []

    def opened(page, **options):
        visits.append(Visit(browser, page, **options))
        return visits[-1]

    yield opened
    for each in visits:
        each.close()


@pytest.fixture(scope="module")
def features(example_run):
    """What the page of the example run should show."""
    return list(ReportedRun([example_run]).features())
