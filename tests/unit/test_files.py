"""Files are written whole or not at all, whatever happens on the way."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import sys
import time

import pytest

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

PACKERS = (gzip.compress, lzma.compress, bz2.compress)


def test_a_digest_is_that_of_what_is_left_to_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")

    with (tmp_path / "a").open("rb") as stream:
        assert sha256(tmp_path / "a") == sha256(stream) == hashlib.sha256(b"content").hexdigest()


def test_a_file_is_replaced_only_when_its_block_ends_well(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    with pytest.raises(UnicodeError), replaced(path) as temporary:
        temporary.write_text("half of the \udcff", encoding="ascii")

    assert path.read_text() == "old"
    with replaced(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)

    write_atomically(link, ["new"])

    assert link.is_symlink()
    assert path.read_text() == "new"


def test_what_a_killed_process_left_goes_but_not_what_another_is_writing(tmp_path):
    left, growing = tmp_path / ".a.1.part", tmp_path / ".a.2.part"
    left.write_text("")
    growing.write_text("")
    os.utime(left, (0, time.time() - 7200))

    write_atomically(tmp_path / "a", ["text"])

    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.2.part", "a"]


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_text_is_read_as_it_was_written(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"

    with replaced_text(path) as stream:
        stream.write("é\udce9\r\n")  # which UTF-8 cannot hold
    write_atomically(tmp_path / "b", ["é\udce9", "\r\n"])
    write_atomically(tmp_path / "b.gz", ["plain"])
    assert (tmp_path / "b.gz").read_bytes() == b"plain"  # what is packed has a time in it

    with open_text(path) as stream, open_text(tmp_path / "b") as other:
        assert stream.read() == other.read() == "é\\udce9\r\n"
    for write in (
        lambda path: replaced_text(path).__enter__(),
        lambda p: write_atomically(p, [""]),
    ):
        with pytest.raises(UsageError, match="cannot write"):
            write(tmp_path / "none" / "a")


@pytest.mark.parametrize("pack", PACKERS)
def test_archives_in_a_row_are_one_text_that_may_be_read_again(pack):
    content = unpacked(io.BytesIO(pack(b"one\n" * 9999) + pack(b"") + pack(b"two")))

    first = content.read()
    content.seek(0)

    assert content.read() == first == b"one\n" * 9999 + b"two"


INPUTS = [("an input, the spectra", "in.mgf"), ("an input", "prepared"), ("the record", "r.json")]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with inputs under several names, and what must not be touched."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prepared").mkdir()
    for name in ("in.mgf", "prepared/manifest.json", "r.json", "mine.csv"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link.csv").symlink_to("in.mgf")
    (tmp_path / "hard.csv").hardlink_to("in.mgf")
    (tmp_path / "aside").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("in.mgf", "./in.mgf", "prepared/../in.mgf", "link.csv", "hard.csv", "aside/in.mgf"),
        *("r.json", "aside/r.json", "prepared/manifest.json", "aside/prepared/manifest.json"),
    ],
)
def test_an_input_is_no_output_whatever_it_is_called(files, name):
    with pytest.raises(UsageError, match=r"the output \S+ would overwrite (an input|the record)"):
        claim({"the output": name}, INPUTS, force=True)
    with pytest.raises(UsageError, match="would overwrite"):
        claim({"the output": files / name}, INPUTS, force=True)


def test_two_outputs_are_never_one_file(files):
    for other in ("out.csv", "./out.csv", "aside/out.csv", "OUT.csv"):
        with pytest.raises(UsageError, match=r"the page \S+ would overwrite the output; name an"):
            claim({"the output": "out.csv", "the page": other}, INPUTS)
    for other in ("mine.csv", "again.csv"):
        claim({"the output": "out.csv", "the page": other}, INPUTS, force=True)


def test_what_exists_is_replaced_only_when_asked(files):
    claim({"the output": "new.csv", "the record": "r.json"}, INPUTS, own=["the record"])
    claim({"the output": "prepared/new.csv", "the page": "-"}, INPUTS)
    claim({"the output": "mine.csv"}, INPUTS, force=True)
    (files / "dead.csv").symlink_to("nowhere.csv")
    claim({"the output": "dead.csv"}, INPUTS)

    for name in ("mine.csv", "./mine.csv", "aside/mine.csv"):
        with pytest.raises(UsageError, match="exists; name another output, or add --force"):
            claim({"the output": name}, INPUTS, own=["the page"])
    with pytest.raises(UsageError, match="add --force to replace it, or --resume to go on"):
        claim({"the output": "mine.csv"}, otherwise="or --resume to go on")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_an_output_that_cannot_be_written_is_refused_beforehand(files, monkeypatch):
    os.mkfifo("pipe.csv")
    (files / "null.csv").symlink_to("/dev/null")
    monkeypatch.setattr(sys, "stdout", None)

    for name, said in (
        (".", "is a folder"),
        ("/", "is a folder"),
        ("absent/out.csv", "does not exist; create"),
        ("in.mgf/out.csv", "in.mgf is a file; create"),
        ("pipe.csv", "is no ordinary file"),
        ("null.csv", "is no ordinary file"),
        ("a" * 300 + ".csv", r"a\.\.\. cannot be written: File name too long"),
        ("a" * 250 + ".csv", "cannot be written: File name too long"),  # while it is written
        ("-", "standard output is closed"),
    ):
        with pytest.raises(UsageError, match=said):
            claim({"the output": name}, INPUTS, force=True)
    claim({"the output": "absent/below/out.csv"}, INPUTS, makes_folders=True)
    with pytest.raises(UsageError, match=r"in\.mgf is a file"):
        claim({"the output": "in.mgf/below/out.csv"}, INPUTS, makes_folders=True)


@pytest.mark.parametrize(
    ("protected", "said"), [("", "the folder of the output"), ("mine.csv", "is write-protected")]
)
def test_what_is_write_protected_is_refused_beforehand(files, monkeypatch, protected, said):
    place = files / protected
    monkeypatch.setattr(os, "access", lambda path, _: os.fspath(path) != str(place))

    with pytest.raises(UsageError, match=said):
        claim({"the output": "mine.csv"}, force=True)
