"""The download is tested against a stand-in for the hub: no test touches the network."""

import hashlib

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate.suites import massspecgym
from duallgd_cli.evaluate.suites.massspecgym import Release, suite
from tests import labelled_table


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file that stands for the published one, in its real layout."""
    path = labelled_table.write(tmp_path / "MassSpecGym1.5.tsv")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(massspecgym, "RELEASES", (Release("1.5", "MassSpecGym1.5.tsv", digest),))
    return path


class Hub:
    """Answers as `hf_hub_download` does, and remembers what it was asked."""

    def __init__(self, path, cached, error=None):
        self.path, self.cached, self.error, self.calls = path, cached, error, []

    def __call__(self, *, local_files_only=False, **where):
        self.calls.append((local_files_only, where))
        if local_files_only and not self.cached:
            raise LocalEntryNotFoundError("not in the cache")
        if not local_files_only and self.error is not None:
            raise self.error
        return str(self.path)


def test_a_folder_is_read_without_asking_the_hub(published, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", None)

    found = suite(published.parent)

    assert found.title == "MassSpecGym 1.5"
    assert found.submission
    assert not found.remarks
    assert len(list(found.rows())) == 10
    assert found.titled("test") == "MassSpecGym 1.5, fold test"
    assert {row.method for row in found.published} >= {"DiffMS", "FRIGID", "DualLGD"}


def test_a_file_that_is_not_the_published_one_is_used_but_said(published):
    published.write_text(published.read_text() + "\n")

    found = suite(published.parent)

    assert not found.submission
    assert "SHA-256 differs" in found.remarks[0]


def test_the_cache_is_asked_before_the_network(published, monkeypatch):
    hub = Hub(published, cached=True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)

    assert suite(None).files == (published,)
    assert [only_local for only_local, _ in hub.calls] == [True]


def test_the_download_is_of_a_pinned_revision(published, monkeypatch):
    hub = Hub(published, cached=False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)

    suite(None)

    [_, (only_local, where)] = hub.calls
    assert not only_local
    assert where["repo_id"] == "roman-bushuiev/MassSpecGym"
    assert where["repo_type"] == "dataset"
    assert where["filename"] == "data/MassSpecGym1.5.tsv"
    assert len(where["revision"]) == 40


def test_a_download_that_is_not_the_published_file_is_refused(published, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", Hub(published, cached=False))
    published.write_text("broken")

    with pytest.raises(UnreadableError, match=r"not MassSpecGym 1\.5 as published"):
        suite(None)


def test_without_a_network_the_message_says_what_to_do(published, monkeypatch):
    hub = Hub(published, cached=False, error=OSError("no route to host"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)

    with pytest.raises(MissingInputError, match=r"no route to host.*--data-dir"):
        suite(None)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(MissingInputError, match=r"holds no MassSpecGym1.5.tsv or MassSpecGym.tsv"):
        suite(tmp_path)
