"""Reading pickles without running them."""

import os
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path, PurePosixPath

import pytest
import torch

from duallgd_authors_network.unpickle import InertRecord, read
from duallgd_cli.errors import WeightsError


class Plain:
    """Stands for a class that the reader does not know."""

    def __init__(self, value):
        self.value = value


class Mapping(dict):
    """Stands for a class that the reader does not know, one that is a mapping."""


class Acting:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_tensors_come_through_with_their_shape_type_and_values(saved):
    shared = torch.arange(12.0)
    content = {
        "view": shared.view(3, 4)[:, 1:],
        "transposed": shared.view(3, 4).T,
        "half": torch.tensor([1.5, 2.5], dtype=torch.float16),
        "whole": torch.tensor([[1, 2]]),
        "truth": torch.tensor([True, False]),
        "scalar": torch.tensor(3.0),
        "nothing": torch.empty(0, 2),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }

    got = read(saved(content))

    for name, tensor in content.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor.detach()), name


def test_an_unknown_object_becomes_a_record_of_its_attributes(saved):
    got = read(saved({"object": Plain({"deep": Plain(torch.ones(2))})}))["object"]

    assert isinstance(got, InertRecord)
    assert got.class_name.endswith(".Plain")
    assert torch.equal(got["value"]["deep"]["value"], torch.ones(2))


def test_unknown_containers_keep_what_they_hold(saved):
    counted = defaultdict(int, {"a": 1})

    got = read(saved({"mapping": Mapping(a=1), "counted": counted, "path": PurePosixPath("x")}))

    assert got["mapping"] == {"a": 1}
    assert got["counted"] == {"a": 1}
    assert got["path"].class_name.startswith("pathlib")


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch {}",)),
        (eval, ("__import__('pathlib').Path('{}').touch()",)),
        (exec, ("open('{}', 'w')",)),
        (__import__, ("os",)),
        (open, ("{}", "w")),
        (pickle.loads, (b"",)),
        (Path.touch, (Path("{}"),)),
    ],
)
def test_a_call_that_would_act_is_kept_and_not_made(saved, tmp_path, function, arguments):
    touched = tmp_path / "touched"
    filled = [type(a)(str(a).format(touched)) if a != b"" else a for a in arguments]

    got = read(saved({"bad": Acting(function, *filled)}))["bad"]

    assert type(got).__name__ == "InertRecord"
    assert not touched.exists()


def with_pickle(path, program):
    """A file of torch.save's layout around a pickle given as bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", program)
    return path


def test_a_pickle_cannot_change_the_functions_it_may_call(tmp_path):
    build = b"ctorch._utils\n_rebuild_tensor_v2\n}S'_function'\nNsb."

    with pytest.raises(WeightsError, match=r"cannot be read|refused"):
        read(with_pickle(tmp_path / "bad.ckpt", build))

    stored = {"t": torch.ones(2)}
    torch.save(stored, tmp_path / "good.ckpt")
    assert torch.equal(read(tmp_path / "good.ckpt")["t"], stored["t"])


def changed(path, ending, change):
    """The file with one of its parts changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in parts.items():
            archive.writestr(name, change(raw) if name.endswith(ending) else raw)
    return path


def test_a_tensor_that_reaches_beyond_its_storage_is_refused(saved):
    path = changed(saved({"t": torch.ones(4)}), "data/0", lambda raw: raw[:8])

    with pytest.raises(WeightsError, match=r"authors\.ckpt cannot be read"):
        read(path)


@pytest.mark.parametrize(
    "raw", [b"", b"not a zip file", pickle.dumps({"a": 1})], ids=["empty", "text", "bare pickle"]
)
def test_other_files_are_refused_with_a_sentence(tmp_path, raw):
    path = tmp_path / "file.ckpt"
    path.write_bytes(raw)

    with pytest.raises(WeightsError, match=r"cannot be read as a file of torch\.save"):
        read(path)


def test_a_compressed_archive_is_refused(tmp_path):
    path = tmp_path / "bomb.ckpt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"}.")

    with pytest.raises(WeightsError, match="compressed"):
        read(path)


@pytest.mark.parametrize("position", range(5, 200, 13))
def test_a_damaged_pickle_never_shows_a_traceback(saved, position):
    def damage(raw):
        return raw[:position] + bytes([raw[position] ^ 0x55]) + raw[position + 1 :]

    path = saved({"state_dict": torch.nn.Linear(3, 2).state_dict(), "o": Plain(1)})

    try:
        got = read(changed(path, "data.pkl", damage))
    except WeightsError:
        got = {}
    assert isinstance(got, dict)
