"""Reading pickles without running them."""

import os
import pickle
import zipfile
from collections import defaultdict
from contextlib import suppress
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


def test_unknown_objects_become_records_of_what_they_hold(saved):
    counted = defaultdict(int, {"a": 1})
    content = {"object": Plain({"deep": Plain(torch.ones(2))}), "path": PurePosixPath("x")}

    got = read(saved({**content, "mapping": Mapping(a=1), "counted": counted}))

    assert isinstance(got["object"], InertRecord)
    assert got["object"].class_name.endswith(".Plain")
    assert torch.equal(got["object"]["value"]["deep"]["value"], torch.ones(2))
    assert got["mapping"] == got["counted"] == {"a": 1}
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


def archive(path, parts, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as written:
        for name, raw in parts.items():
            written.writestr(name, raw)
    return path


def changed(path, ending, change):
    """The file with one of its parts changed."""
    with zipfile.ZipFile(path) as held:
        parts = {name: held.read(name) for name in held.namelist()}
    return archive(
        path, {n: change(raw) if n.endswith(ending) else raw for n, raw in parts.items()}
    )


def test_a_pickle_cannot_change_the_functions_it_may_call(saved, tmp_path):
    build = b"ctorch._utils\n_rebuild_tensor_v2\n}S'_function'\nNsb."

    with pytest.raises(WeightsError, match=r"cannot be read|refused"):
        read(archive(tmp_path / "bad.ckpt", {"archive/data.pkl": build}))

    assert torch.equal(read(saved({"t": torch.ones(2)}))["t"], torch.ones(2))


@pytest.mark.parametrize(
    "raw", [b"", b"not a zip file", pickle.dumps({"a": 1})], ids=["empty", "text", "bare pickle"]
)
def test_other_files_are_refused_with_a_sentence(tmp_path, raw):
    (tmp_path / "file.ckpt").write_bytes(raw)

    with pytest.raises(WeightsError, match=r"cannot be read as a file of torch\.save"):
        read(tmp_path / "file.ckpt")


def test_archives_that_torch_never_writes_are_refused(saved, tmp_path):
    short = changed(saved({"t": torch.ones(4)}), "data/0", lambda raw: raw[:8])
    with pytest.raises(WeightsError, match=r"authors\.ckpt cannot be read"):
        read(short)  # the tensor reaches beyond its storage

    parts = {"archive/data.pkl": b"}."}
    with pytest.raises(WeightsError, match="compressed"):
        read(archive(tmp_path / "bomb.ckpt", parts, zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("position", range(5, 200, 13))
def test_a_damaged_pickle_never_shows_a_traceback(saved, position):
    def damage(raw):
        return raw[:position] + bytes([raw[position] ^ 0x55]) + raw[position + 1 :]

    path = saved({"state_dict": torch.nn.Linear(3, 2).state_dict(), "o": Plain(1)})

    with suppress(WeightsError):
        assert isinstance(read(changed(path, "data.pkl", damage)), dict)
