"""The plug-in as its users have it: its entry point is installed, whoever runs the tests."""

import pytest
import torch

from plugins.authors_network.tests.made_reference import stirred_network
from tests import made_plugins
from tests.cli.conftest import duallgd, in_process  # noqa: F401 - fixtures
from tests.conftest import own_logging, own_threads  # noqa: F401 - fixtures


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The entry point, which the environment may lack."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("installed")
        made_plugins.install(folder, monkeypatch, "duallgd_authors_network")
        yield


@pytest.fixture(scope="session")
def network():
    """A small network of the authors' shape, which nobody changes."""
    return stirred_network()


@pytest.fixture
def saved(tmp_path):
    """A function that writes a checkpoint as the authors do, and gives its path."""

    def save(content, name="authors.ckpt"):
        torch.save(content, tmp_path / name)
        return tmp_path / name

    return save
