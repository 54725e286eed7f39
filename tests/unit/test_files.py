"""Files are written whole or not at all, and no command loses one of the user's."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import sys

import pytest

from duallgd_cli import files
from duallgd_cli.errors import UsageError
from duallgd_cli.files import (
    claim,
    open_text,
    replaced,
    replaced_text,
    sha256,
    unpacked,
    write_atomically,
)


def test_a_digest_is_that_of_what_is_left_to_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")

    with (tmp_path / "a").open("rb") as stream:
        assert sha256(tmp_path / "a") == sha256(stream) == hashlib.sha256(b"content").hexdigest()


def test_a_file_is_replaced_only_when_its_block_ends_well_and_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)

    with pytest.raises(UnicodeError), replaced(link) as temporary:
        temporary.write_text("half of the \udcff", encoding="ascii")
    assert path.read_text() == "old"
    with replaced(link) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"

    assert (path.read_text(), link.is_symlink()) == ("new", True)
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_what_a_killed_process_left_goes_but_not_what_another_is_writing(tmp_path):
    for name, age_s in ((".a.1.part", 7200), (".a.2.part", 0)):
        (tmp_path / name).write_text("")
        modified = (tmp_path / name).stat().st_mtime - age_s
        os.utime(tmp_path / name, (modified, modified))

    write_atomically(tmp_path / "a", ["text"])

    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.2.part", "a"]


@pytest.mark.parametrize("ending", ["", ".gz", ".GZ", ".xz", ".bz2"])
def test_text_is_read_as_it_was_written(tmp_path, ending):
    packed, plain, named = tmp_path / f"a.txt{ending}", tmp_path / "b", tmp_path / f"b{ending}"

    with replaced_text(packed) as stream:
        stream.write("é\udce9\r\n")  # which UTF-8 cannot hold
    write_atomically(plain, ["é\udce9", "\r\n"])
    write_atomically(named, ["plain"])

    with open_text(packed) as stream, open_text(plain if ending else packed) as other:
        assert stream.read() == other.read() == "é\\udce9\r\n"
    assert named.read_bytes() == b"plain"  # what is packed has a time in it
    with pytest.raises(UsageError, match="cannot write"), replaced_text(tmp_path / "none" / "a"):
        pass
    with pytest.raises(UsageError, match="cannot write"):
        write_atomically(tmp_path / "none" / "a", [""])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_archives_in_a_row_are_one_text_that_may_be_read_again(pack):
    content = unpacked(io.BytesIO(pack(b"one\n" * 9999) + pack(b"") + pack(b"two")))

    first = content.read()
    content.seek(0)

    assert content.read() == first == b"one\n" * 9999 + b"two"


INPUTS = ["in.mgf", "prepared", "r.json"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Inputs under several names, what must not be touched, and what is no ordinary file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prepared").mkdir()
    for name in ("in.mgf", "prepared/manifest.json", "r.json", "mine.csv"):
        (tmp_path / name).write_text(name)
    links = {"link.csv": "in.mgf", "aside": tmp_path, "dead.csv": "nowhere", "null.csv": os.devnull}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "hard.csv").hardlink_to("in.mgf")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("in.mgf", "./in.mgf", "prepared/../in.mgf", "link.csv", "hard.csv", "aside/in.mgf"),
        *("r.json", "aside/r.json"),
    ],
)
def test_an_input_is_no_output_whatever_it_is_called(folder, name):
    for path in (name, folder / name):
        with pytest.raises(UsageError, match=r"the output \S+ would overwrite an input"):
            claim({"the output": path}, INPUTS, force=True)


@pytest.mark.parametrize("other", ["out.csv", "./out.csv", "aside/out.csv"])
def test_two_outputs_are_never_one_file(folder, other):
    with pytest.raises(UsageError, match=r"the page \S+ would overwrite the output; name an"):
        claim({"the output": "out.csv", "the page": other}, INPUTS)


def test_outputs_that_cost_nobody_a_file_are_claimed(folder):
    claim({"the output": "out.csv", "the page": "again.csv"}, INPUTS)
    claim({"the output": "new.csv", "the record": "r.json"}, own=["the record"])
    claim({"the output": "prepared/new.csv", "the page": "-"}, INPUTS)
    claim({"the output": "mine.csv"}, INPUTS, force=True)
    claim({"the output": "dead.csv"}, INPUTS)
    claim({"the output": "absent/below/out.csv"}, INPUTS, makes_folders=True)


def test_what_exists_is_replaced_only_when_asked(folder):
    for name in ("mine.csv", "./mine.csv", "aside/mine.csv"):
        with pytest.raises(UsageError, match="exists; name another output, or add --force"):
            claim({"the output": name}, INPUTS, own=["the page"])
    with pytest.raises(UsageError, match="add --force to replace it, or --resume to go on"):
        claim({"the output": "mine.csv"}, otherwise="or --resume to go on")


@pytest.mark.parametrize(
    ("name", "said", "makes_folders"),
    [
        (".", "is a folder", False),
        ("/", "is a folder", False),
        ("absent/out.csv", "does not exist; create", False),
        ("in.mgf/out.csv", "in.mgf is a file; create", False),
        ("in.mgf/below/out.csv", r"in\.mgf is a file", True),
        ("pipe.csv", "is no ordinary file", False),
        ("null.csv", "is no ordinary file", False),
        ("a" * 300 + ".csv", r"a\.\.\. cannot be written: File name too long", False),
        ("-", "standard output is closed", False),
        ("locked/out.csv", "the folder of the output", False),
        ("mine.csv", "is write-protected", False),
    ],
)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_an_output_that_cannot_be_written_is_refused_beforehand(
    folder, monkeypatch, name, said, makes_folders
):
    os.mkfifo("pipe.csv")
    (folder / "locked").mkdir()
    monkeypatch.setattr(sys, "stdout", None)
    # Root may write anywhere.
    locked = {os.path.realpath("locked"), os.path.realpath("mine.csv")}
    monkeypatch.setattr(files.os, "access", lambda path, _: os.fspath(path) not in locked)

    with pytest.raises(UsageError, match=said):
        claim({"the output": name}, INPUTS, force=True, makes_folders=makes_folders)


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="this system does not tell")
def test_memory_is_that_of_the_machine_or_as_much_as_the_container_allows(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "_CGROUP_MEMORY", tmp_path / "memory.max")

    whole = files.memory_bytes()
    (tmp_path / "memory.max").write_text("max\n")
    assert files.memory_bytes() == whole > 1 << 20
    (tmp_path / "memory.max").write_text("1048576\n")
    assert files.memory_bytes() == 1 << 20
