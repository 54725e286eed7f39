"""Where weights are looked for, and in which order."""

import pytest

from duallgd_cli import checkpoint
from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.errors import WeightsError


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty working folder, and empty folders for what comes with the package."""
    shipped = (tmp_path / "package" / "weights", tmp_path / "checkout" / "weights")
    work = tmp_path / "work"
    for folder in (*shipped, work):
        folder.mkdir(parents=True)
    monkeypatch.setattr(checkpoint, "_SHIPPED", shipped)
    monkeypatch.delenv("DUALLGD_WEIGHTS", raising=False)
    monkeypatch.chdir(work)
    return work, *shipped


def made(folder, name="duallgd.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


@pytest.mark.parametrize(
    ("given", "files", "found"),
    [
        (None, ["checkout/weights/duallgd"], "checkout/weights/duallgd"),
        (None, ["checkout/weights/duallgd", "package/weights/duallgd"], "package/weights/duallgd"),
        (None, ["package/weights/duallgd", "work/weights/duallgd"], "work/weights/duallgd"),
        # A folder that happens to have the default's name is not in the way.
        (None, ["package/weights/duallgd", "work/duallgd/other"], "package/weights/duallgd"),
        ("tiny", ["package/weights/tiny"], "package/weights/tiny"),
        ("runs/mine.safetensors", ["package/weights/mine", "work/runs/mine"], "work/runs/mine"),
        # Of the folder of a training run the model is meant.
        ("run", ["work/run/model", "work/run/state"], "work/run/model"),
    ],
)
def test_weights_are_found_in_this_order(folders, given, files, found):
    top = folders[0].parent
    for name in files:
        made((top / name).parent, f"{(top / name).name}.safetensors")

    assert resolve_weights(given).resolve() == top / f"{found}.safetensors"


def test_a_folder_with_none_or_several_is_refused_with_their_number(folders):
    (folders[0] / "run").mkdir()
    for n, name in ((0, "a"), (2, "b")):
        with pytest.raises(WeightsError, match=rf"holds {n} \.safetensors files; give one"):
            resolve_weights(folders[0] / "run")
        made(folders[0] / "run", "a.safetensors")
        made(folders[0] / "run", f"{name}b.safetensors")


def test_the_environment_stands_in_for_the_option_alone(folders, monkeypatch):
    default, named = made(folders[1]), made(folders[0], "mine.safetensors")
    given = made(folders[0], "given.safetensors")

    for text, expected in ((str(named), named), ("", default)):
        monkeypatch.setenv("DUALLGD_WEIGHTS", text)
        assert (resolve_weights(None), resolve_weights(given)) == (expected, given)


@pytest.mark.parametrize(
    "given", [None, "other", "runs/none.safetensors", "none.safetensors", "/no/such/duallgd"]
)
def test_what_is_not_there_is_refused_with_the_paths_looked_at(folders, given):
    if given is not None:
        made(folders[1])

    with pytest.raises(WeightsError, match=r"looked at .*; give a file with --weights") as raised:
        resolve_weights(given)

    assert repr(given or "duallgd") in str(raised.value)


def test_what_cannot_be_looked_at_or_read_is_an_error_in_words(folders, monkeypatch):
    path = made(folders[0], "locked.safetensors")

    with pytest.raises(WeightsError, match="cannot be read: File name too long"):
        resolve_weights("a" * 300)
    monkeypatch.setattr(checkpoint.os, "access", lambda *_: False)
    with pytest.raises(WeightsError, match=r"locked\.safetensors cannot be read: Permission den"):
        resolve_weights(str(path))
