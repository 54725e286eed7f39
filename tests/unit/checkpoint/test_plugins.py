"""Weights files that are not in our format go to plug-ins, or are refused with the next step."""

from pathlib import Path

import pytest
import torch

from duallgd_cli.checkpoint import plugins
from duallgd_cli.checkpoint.format import Checkpoint, load, save, write_tensors
from duallgd_cli.checkpoint.plugins import plugin_for
from duallgd_cli.errors import WeightsError
from duallgd_cli.predict.model import load_model
from tests import made_plugins
from tests.made_graphs import small_settings, stirred
from tests.made_training import cpu


def named(path, network):
    """A file of our layout that holds another network."""
    write_tensors(path, {"a": torch.ones(1)}, {"format_version": "1", "preset": network})
    return path


def test_no_plug_in_is_looked_for_where_weights_are_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda **_: pytest.fail("looked for plug-ins"))
    model, path = stirred(small_settings()), tmp_path / "ours.safetensors"
    save(path, Checkpoint(model.settings, model.state_dict()))

    assert plugin_for(path) is None


def test_a_file_of_another_format_is_loaded_by_the_plug_in_that_can(made_plugin):
    assert load_model(made_plugin, cpu()).name == "stub"


REFUSED = {
    "authors": (
        lambda path: named(path, "reference"),
        r"hold the authors' network, .* 'pip install \./plugins/authors_network'$",
    ),
    "others": (
        lambda path: named(path, "\x1b[1m"),
        r"the network '\\x1b\[1m', which nothing .* install the package that wrote them",
    ),
    "torch.save": (
        lambda path: torch.save({"a": torch.ones(1)}, path),
        r"torch\.save.*pip install \./plugins.*'python -m duallgd_authors_network convert'$",
    ),
    "damaged": (lambda path: path.write_bytes(b"damaged"), "are broken"),
    "nothing": (lambda path: None, "do not exist; give a .safetensors file"),
    "folder": (Path.mkdir, "do not exist; give a .safetensors file"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("others", ["", "made"], ids=["no plug-in", "another plug-in"])
def test_what_nothing_reads_is_refused_in_one_sentence(
    tmp_path, monkeypatch, made_plugin, kind, others
):
    found = plugins.entry_points(group=plugins.GROUP, name=others)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: found)
    (make, said), path = REFUSED[kind], tmp_path / "theirs"
    make(path)

    with pytest.raises(WeightsError, match=said) as refused:
        plugin_for(path)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("source", ["import nothing_of_that_name", "1 / 0", "("])
def test_a_plug_in_that_cannot_be_imported_is_named(tmp_path, monkeypatch, source):
    made_plugins.install(tmp_path / "installed", monkeypatch, "broken_plugin", source)

    with pytest.raises(WeightsError, match=r"the plug-in 'made' cannot be imported \(.*install it"):
        plugin_for(named(tmp_path / "w", "other"))


def test_commands_for_our_own_weights_say_that_these_are_others(tmp_path):
    with pytest.raises(WeightsError, match="hold the reference network, which this command"):
        load(named(tmp_path / "w", "reference"))
