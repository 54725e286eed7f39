"""The studies are scripts beside the package; they import each other by name."""

import sys
from pathlib import Path

import pytest

from plugins.authors_network.tests.conftest import installed  # noqa: F401 - a fixture
from tests import labelled_table
from tests.cli.conftest import Done

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
