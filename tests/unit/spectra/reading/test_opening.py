"""Inputs as files: missing, empty, binary, compressed, torn, unknown, from standard input."""

import bz2
import gzip
import io
import logging
import lzma
import os
import sys
from functools import partial

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.files import open_text, replaced_text
from duallgd_cli.spectra import reading
from duallgd_cli.spectra.reading import read

PACKERS = (gzip.compress, lzma.compress, partial(bz2.compress, compresslevel=1))

RECORD = "BEGIN IONS\nTITLE={0}\nPEPMASS=181.0495\n121.0284 {0}\n163.0390 250.5\nEND IONS\n"


def mgf_of(n):
    return "".join(RECORD.format(i) for i in range(1, n + 1)).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((text, "is empty") for text in (b"", b"\n\n  \n", b"\xef\xbb\xbf", gzip.compress(b""))),
        (bytes(range(256)) * 40, "is a binary file"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "is a binary file"),
        (gzip.compress(bytes(range(256))), "is a binary file"),
        (b"dear diary, today nothing happened\n", "is not recognised"),
        (b"<html><body>login</body></html>", "is a web page"),
        (b"BZh91AY", "nothing readable: the compressed data are cut off"),
        (b"\xfd7zXZ\0", "nothing readable: the compressed data are cut off"),
        *(
            (gzip.compress(mgf_of(1))[:n], "nothing readable: the compressed data are cut off")
            for n in (3, 10, 12)
        ),
        (b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it"),
        (b"PK\x03\x04", "zip-compressed; unpack it"),
        (b"# preamble\n" * 7000, "holds no spectrum, though it looks like mgf"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "a.mgf"
    path.write_bytes(content)

    with pytest.raises(UnreadableError, match=message) as caught:
        list(read(str(path)))

    assert "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="is a folder"):
        read(str(tmp_path))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".bz2"])
def test_the_ending_below_that_of_an_archive_names_a_format_of_which_no_sign_comes(
    tmp_path, ending
):
    path = tmp_path / f"a.mgf{ending}"
    with replaced_text(path) as stream:
        stream.write("# preamble\n" * 7000 + mgf_of(1).decode())

    assert len(list(read(str(path)))) == 1


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("n_missing", [4, 9, 500, 5000])
def test_a_truncated_archive_gives_what_was_readable_and_says_where_it_ends(
    tmp_path, pack, n_missing
):
    path = tmp_path / "a.mgf"
    path.write_bytes(pack(mgf_of(6_000))[:-n_missing])

    *spectra, last = list(read(str(path)))

    assert last.failure is not None
    assert f"ends early after {len(spectra)} spectra: the compressed data are cut off" in (
        last.failure.message
    )
    assert last.source.index == len(spectra)
    assert 1_000 < len(spectra) <= 6_000
    assert all(s.mz.size == 2 for s in spectra[:-1])


@pytest.mark.parametrize("pack", PACKERS)
def test_a_corrupt_archive_ends_with_a_row(tmp_path, pack):
    packed = bytearray(pack(mgf_of(6_000)))
    packed[-len(packed) // 4] ^= 0xFF
    path = tmp_path / "a.mgf"
    path.write_bytes(bytes(packed))

    *_, last = list(read(str(path)))

    assert "the compressed data are corrupt" in last.failure.message


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_recognised_by_its_content(monkeypatch, packed):
    content = gzip.compress(mgf_of(2)) if packed else mgf_of(2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    spectra = list(read("-"))

    assert [s.source.index for s in spectra] == [0, 1]
    assert spectra[0].source.file == "-"


def test_empty_standard_input_is_named(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))

    with pytest.raises(UnreadableError, match="standard input is empty"):
        read("-")


def test_reading_is_lazy(tmp_path):
    path = tmp_path / "a.mgf"
    path.write_bytes(mgf_of(1) + b"BEGIN IONS\nnothing readable\nEND IONS\n")

    spectra = read(str(path))

    assert next(spectra).spectrum_id == "1"
    spectra.close()


@pytest.mark.parametrize("opens", [False, True], ids=["no writer", "a writer that is silent"])
def test_waiting_for_a_pipe_is_said(tmp_path, monkeypatch, opens):
    monkeypatch.setattr(reading, "_PATIENCE_S", 0.05)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    # A pipe that is open for both ends neither blocks nor ends.
    held = os.open(path, os.O_RDWR) if opens else None
    said = []

    class Writer(logging.Handler):
        """Writes as soon as somebody complains."""

        def emit(self, record):
            said.append(record.getMessage())
            path.write_bytes(mgf_of(1))
            if held is not None:
                os.close(held)

    logger = logging.getLogger(reading.__name__)
    handler = Writer()
    logger.addHandler(handler)
    try:
        (found,) = read(str(path))
    finally:
        logger.removeHandler(handler)

    assert found.spectrum_id == "1"
    assert said == [f"nothing has come from {path} yet; still waiting, Ctrl-C stops"]


def test_a_pipe_that_is_read_more_than_once_is_refused(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(UnreadableError, match="is a pipe; write it to a file"):
        open_text(path)
