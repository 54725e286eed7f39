"""Where weights are looked for, and in which order."""

import pytest

from duallgd_cli import checkpoint
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.errors import WeightsError


@pytest.fixture
def top(tmp_path, monkeypatch):
    """Makes files in a folder of folders, of which ``work`` is the working folder."""
    monkeypatch.setattr(checkpoint, "_SHIPPED", [tmp_path / n for n in ("package", "checkout")])
    monkeypatch.delenv("DUALLGD_WEIGHTS", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def make(names=""):
        for name in names.split():
            path = tmp_path / f"{name}.safetensors"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("given", "files"),  # of which the first is meant
    [
        (None, "checkout/duallgd"),
        (None, "package/duallgd checkout/duallgd"),
        (None, "work/weights/duallgd package/duallgd"),
        # A folder that happens to have the default's name is not in the way.
        (None, "package/duallgd work/duallgd/other"),
        ("tiny", "package/tiny"),
        ("runs/mine.safetensors", "work/runs/mine package/mine"),
        ("run", "work/run/model work/run/state"),  # a run's folder
        ("run", "work/run/only"),
    ],
)
def test_weights_are_found_in_this_order(top, given, files):
    meant = top(files) / f"{files.split()[0]}.safetensors"

    assert resolve_weights(given).resolve() == meant


def test_the_environment_stands_in_for_the_option_alone(top, monkeypatch):
    folder = top("package/duallgd work/mine work/given")
    for text, name in (("mine.safetensors", "work/mine"), ("", "package/duallgd")):
        monkeypatch.setenv("DUALLGD_WEIGHTS", text)
        assert resolve_weights(None).resolve() == folder / f"{name}.safetensors"
        assert resolve_weights("given.safetensors").name == "given.safetensors"


@pytest.mark.parametrize(
    ("given", "files", "said"),
    [
        ("run", "work/run/a work/run/b", r"run holds 2 \.safetensors files; give one of them"),
        ("..", "package/duallgd", r"holds 0 \.safetensors files; give one of them"),
        (None, "", "no weights 'duallgd'; looked at .*; give a file with --weights"),
        *(
            (name, "package/duallgd", f"no weights '{name}'; looked at .*{name}.*; give a file")
            for name in ("other", "runs/none.safetensors", "none.safetensors", "/no/such/duallgd")
        ),
        ("a" * 300, "", "cannot be read: File name too long"),
        ("locked.safetensors", "work/locked", r"locked\.safetensors cannot be read: Permission"),
    ],
)
def test_what_is_not_there_or_cannot_be_read_is_an_error_in_words(
    top, monkeypatch, given, files, said
):
    top(files)
    monkeypatch.setattr(checkpoint.os, "access", lambda path, _: "locked" not in str(path))

    with pytest.raises(WeightsError, match=said):
        resolve_weights(given)
