"""The benchmark that is downloaded, against a stand-in: no test touches the network."""

import hashlib
import re
import urllib.error
import urllib.request
from unittest.mock import Mock

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate import massspecgym
from duallgd_cli.evaluate.massspecgym import downloaded, title_of
from duallgd_cli.evaluate.run import inputs_of
from duallgd_cli.evaluate.settings import EvaluateSettings
from tests import labelled_table


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file that stands for the published one, in its real layout."""
    path = labelled_table.write(tmp_path / "MassSpecGym1.5.tsv")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(massspecgym, "_PUBLISHED", {digest: "MassSpecGym 1.5"})
    return path


@pytest.fixture
def asked(published, monkeypatch):
    """Addresses that were asked for; the published file is at each."""
    addresses = []

    def answer(address, timeout):
        addresses.append(address)
        return published.open("rb")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setenv("DUALLGD_CACHE", str(published.parent / "cache"))
    return addresses


def test_by_its_name_it_is_downloaded_once_and_its_test_fold_scored(asked, published):
    settings = EvaluateSettings(benchmark="MassSpecGym", out=published.parent / "out")
    first, again = inputs_of(settings), inputs_of(settings)

    assert first.source == again.source == published.parent / "cache" / published.name
    assert first.source.read_bytes() == published.read_bytes()
    assert {truth.fields["fold"] for truth in first.truths} == {"test"}
    assert title_of(first.source) == "MassSpecGym 1.5"
    [address] = asked
    assert re.fullmatch(
        "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/[0-9a-f]{40}/data/"
        r"MassSpecGym1\.5\.tsv",
        address,
    )


def test_a_file_that_is_not_the_published_one_is_another_benchmark(published):
    published.write_text(published.read_text() + "\n")

    assert title_of(published) == "MassSpecGym1.5.tsv"


@pytest.mark.usefixtures("asked")
def test_a_download_that_is_not_the_published_file_is_refused(published):
    published.write_text("broken")

    with pytest.raises(UnreadableError, match="is not MassSpecGym as published"):
        downloaded()


@pytest.mark.usefixtures("asked")
def test_without_a_network_the_message_says_what_to_fetch_from_where(published, monkeypatch):
    broken = Mock(side_effect=urllib.error.URLError("no route to host"))
    monkeypatch.setattr(urllib.request, "urlopen", broken)

    with pytest.raises(MissingInputError, match="no route to host") as refused:
        downloaded()

    assert "fetch https://huggingface.co/" in str(refused.value)
    assert "give the file with --benchmark, or a table of your own" in str(refused.value)
    assert broken.call_count == 1
    assert not list((published.parent / "cache").iterdir())
