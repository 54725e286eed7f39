"""The studies are scripts beside the package; they import each other by name."""

import sys
from functools import partial
from pathlib import Path

import pytest

from plugins.authors_network.tests.conftest import installed  # noqa: F401 - a fixture
from tests import labelled_table
from tests.cli.conftest import in_process  # noqa: F401 - a fixture

STUDIES = Path(__file__).resolve().parents[2] / "examples" / "studies"
sys.path.insert(0, str(STUDIES))


@pytest.fixture
def study(in_process):  # noqa: F811 - the fixture
    """Run a study's command with arguments."""
    import command

    return lambda function, *arguments: in_process(partial(command.run, function), *arguments)


@pytest.fixture
def table(tmp_path):
    """A small table of labelled spectra."""
    return labelled_table.write(tmp_path / "labelled.tsv")
