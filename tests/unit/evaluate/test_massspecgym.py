"""The benchmark that is downloaded, against a stand-in: no test touches the network."""

import re
import urllib.error
import urllib.request
from unittest.mock import Mock

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.evaluate import tables
from duallgd_cli.evaluate.run import inputs_of
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import massspecgym, title_of
from duallgd_cli.files import sha256
from tests import labelled_table


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small file that stands for the published one, in its real layout, at every address."""
    path = labelled_table.write(tmp_path / "MassSpecGym1.5.tsv")
    monkeypatch.setattr(tables, "_PUBLISHED", {sha256(path): "MassSpecGym 1.5"})
    asked = Mock(side_effect=lambda address, timeout: path.open("rb"))
    monkeypatch.setattr(urllib.request, "urlopen", asked)
    monkeypatch.setenv("DUALLGD_CACHE", str(tmp_path / "cache"))
    return path


def test_by_its_name_it_is_downloaded_once_and_its_test_fold_scored(published):
    settings = EvaluateSettings(benchmark="MassSpecGym", out=published.parent / "out")
    first, again = inputs_of(settings), inputs_of(settings)

    assert first.source == again.source == published.parent / "cache" / published.name
    assert first.source.read_bytes() == published.read_bytes()
    assert {truth.fields["fold"] for truth in first.truths} == {"test"}
    assert title_of(first.source) == "MassSpecGym 1.5"
    [(address,)] = [call.args for call in urllib.request.urlopen.call_args_list]
    place = "datasets/roman-bushuiev/MassSpecGym/resolve/[0-9a-f]{40}/data/MassSpecGym1[.]5[.]tsv"
    assert re.fullmatch(f"https://huggingface.co/{place}", address)


def test_another_file_or_no_network_is_said_with_what_to_do(published):
    published.write_text(published.read_text() + "\n")
    assert title_of(published) == "MassSpecGym1.5.tsv"
    with pytest.raises(UnreadableError, match=r"is not MassSpecGym as published.*delete it"):
        massspecgym()

    (published.parent / "cache" / published.name).unlink()
    urllib.request.urlopen.side_effect = urllib.error.URLError("no route to host")
    with pytest.raises(MissingInputError, match=r"no route to host.*fetch https://hug.*or a table"):
        massspecgym()
    assert not list((published.parent / "cache").iterdir())
