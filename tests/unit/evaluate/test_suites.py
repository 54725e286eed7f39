"""Benchmarks; the download is tested against a stand-in: no test touches the network."""

import hashlib
import re
import urllib.error
import urllib.request
from unittest.mock import Mock

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate import suites
from duallgd_cli.evaluate.suites import find, write_unlabelled
from duallgd_cli.evaluate.tables import Truth
from tests import labelled_table

ROW = {"identifier": "a", "mzs": "59.01,73.03", "intensities": "1,2", "precursor_mz": "90.05"}
TRUTH = Truth("a", "CC(N)C(=O)O", "QNAYBMKLOCPYGJ", {"identifier": "a", "smiles": "CC(N)C(=O)O"})


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file that stands for the published one, in its real layout."""
    path = labelled_table.write(tmp_path / "MassSpecGym1.5.tsv")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(suites, "RELEASES", (("1.5", "MassSpecGym1.5.tsv", digest),))
    return path


@pytest.fixture
def hub(published, monkeypatch):
    """Addresses that were asked for; a stand-in for the network has the published file at each."""
    asked = []

    def answer(address, timeout):
        asked.append(address)
        return published.open("rb")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setenv("DUALLGD_CACHE", str(published.parent / "cache"))
    return asked


def test_the_published_file_is_that_benchmark_wherever_it_lies(hub, published):
    found = find(str(published))
    published.write_text(published.read_text() + "\n")
    changed = find(str(published))

    assert not hub
    assert (found.title, found.fold) == ("MassSpecGym 1.5", "test")
    assert len(list(found.rows())) == 10
    assert (changed.title, changed.fold) == ("MassSpecGym1.5.tsv", "")


def test_the_file_is_downloaded_once_at_a_pinned_revision(hub, published):
    found = [find("massspecgym") for _ in range(2)]

    downloaded = published.parent / "cache" / published.name
    assert [suite.files for suite in found] == [(downloaded,)] * 2
    assert downloaded.read_bytes() == published.read_bytes()
    [address] = hub
    assert re.fullmatch(
        "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/[0-9a-f]{40}/data/"
        r"MassSpecGym1\.5\.tsv",
        address,
    )


@pytest.mark.usefixtures("hub")
def test_a_download_that_is_not_the_published_file_is_refused(published):
    published.write_text("broken")

    with pytest.raises(UnreadableError, match=r"not MassSpecGym 1\.5 as published"):
        find("MassSpecGym")


@pytest.mark.usefixtures("hub")
def test_without_a_network_the_message_says_what_to_fetch_from_where(published, monkeypatch):
    broken = Mock(side_effect=urllib.error.URLError("no route to host"))
    monkeypatch.setattr(urllib.request, "urlopen", broken)

    with pytest.raises(MissingInputError, match="no route to host") as refused:
        find("massspecgym")

    [sentence] = str(refused.value).splitlines()
    assert "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/" in sentence
    assert "give the file with --benchmark, or a table of your own" in sentence
    assert broken.call_count == 1  # libraries that download try again and again
    assert not list((published.parent / "cache").iterdir())


def test_a_reader_of_the_spectra_is_not_disturbed_by_another_shard_writing_them(tmp_path):
    path = tmp_path / "spectra.tsv"
    write_unlabelled([ROW], [TRUTH], path, with_formula=False)
    whole = path.read_bytes()

    with path.open("rb") as reader:
        first = reader.read(10)
        write_unlabelled([ROW], [TRUTH], path, with_formula=False)
        rest = reader.read()

    assert first + rest == whole == path.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["spectra.tsv"]
