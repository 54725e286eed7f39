"""Inputs as files: missing, empty, of other formats, packed, torn, huge, from pipes and folders."""

import base64
import bz2
import gzip
import io
import json
import logging
import lzma
import os
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.files import open_text, replaced_text
from duallgd_cli.spectra import reading
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.reading import read, spectrum_files
from duallgd_cli.tables import table_rows
from tests.made_spectra import ASPIRIN, block, mgf, parsed
from tests.memory import bounded_memory

gzipped = partial(gzip.compress, mtime=0)  # names of tests hold no time
PACKERS = (gzipped, lzma.compress, partial(bz2.compress, compresslevel=1))
RECORD = "BEGIN IONS\nTITLE={0}\nPEPMASS=181.0495\n121.0284 {0}\n163.0390 250.5\nEND IONS\n"


def mgf_of(n):
    return "".join(RECORD.format(i) for i in range(1, n + 1)).encode()


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([60, 100, 130, 400], [60, 100, 130, 400]),  # in seconds, as two of them must be
        ([400, 60], [400, 60]),
        (["0.5", "", "12"], [30, None, 720]),  # in minutes, as far as anybody can tell
        ([5, *[7] * 1000, 200], [300, *[420] * 1000, 200]),  # no more are held back than that
        (["100 s", 60], [100, 3600]),  # what has a unit says nothing of the others
    ],
)
def test_times_without_a_unit_are_of_one_unit_in_a_file(times, seconds, tmp_path):
    records = [{"precursor_mz": 181, "rt": str(time), "peaks": [[121, 10]]} for time in times]

    spectra = parsed(tmp_path, json.dumps(records))

    assert [(s.source.index, s.retention_time_s) for s in spectra] == [*enumerate(seconds)]
    if seconds == times:
        assert all("read as seconds" in one.assumptions[0] for one in spectra)


XML = b'<?xml version="1.0" encoding="utf-8"?>\n'
CUT = "nothing readable: the compressed data are cut off"
# Name, content, and parts of the sentence.
REFUSED = (
    *(("a.mgf", text, "is empty") for text in (b"\n  \n", b"\xef\xbb\xbf", gzipped(b""))),
    ("a.mgf", bytes(range(256)) * 40, "is a binary file"),
    ("a.mgf", gzipped(bytes(range(256))), "is a binary file"),
    ("a.mgf", b"dear diary, today nothing happened\n", "is not recognised"),
    *(("a.mgf", text, CUT) for text in (b"BZh91AY", b"\xfd7zXZ\0", gzipped(mgf_of(1))[:10])),
    ("a.mgf", b"# preamble\n" * 7000, "holds no spectrum, though it looks like mgf"),
    ("a.imzML", XML + b'<mzML><cvList><cv id="IMS"/></cvList></mzML>', "imzML|.ibd"),
    ("a.mzid", XML + b"<MzIdentML id='a'></MzIdentML>", "is XML|mzML"),
    ("a.cef", b'<CEF version="1.0.0.0"><CompoundList/></CEF>', "is XML|mzML"),
    ("a.html", b"<!DOCTYPE html>\n<html><body>log in</body></html>", "web page|download"),
    ("a.sdf", b"a\n  x\n\n  0  0  0  0  0  0            999 V2000\nM  END\n$$$$\n",
        "SDF|--database"),
    ("a.csv", b"feature_id,mz,rt\n1,195.0877,5.2\n", "not recognised|mzs and intensities"),
    ("a.txt", b"138.0662 1000\n110.0713 600\n", "not recognised|BEGIN IONS"),
    ("a.tsv", b"mzs\tintensities\tformula\tFormula\n1\t1\tC\tN\n", "two columns 'formula'"),
    ("a.raw", b"\x01\xa1F\0i\0n\0n\0i\0g\0a\0n\0" + bytes(90), "raw data|ThermoRawFileParser"),
)  # fmt: skip
BINARY = (
    ("a.cdf", b"CDF\x01", "is a binary file"),
    ("a.cdf", b"\x89HDF\r\n\x1a\n", "HDF5|mzML"),
    ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)), "PDF|peaks"),
    ("a.xlsx", b"PK\x03\x04" + b"\x14\0\x06\0[Content_Types].xml xl/workbook.xml", "Excel|CSV"),
    ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Excel|CSV"),
    ("a.parquet", b"PAR1\x15\x04", "a Parquet table; write it as TSV or CSV"),
    ("a.pickle", b"\x80\x04\x95\x10\0\0\0\0\0\0\0", "pickle|MGF"),
    ("a.npz", b"\x93NUMPY\x01\0", "is a binary file"),
    ("a.mgf.zip", b"PK\x03\x04" + b"\x14\0\0\0\x08\0a.mgf", "zip|unpack"),
    ("a.mgf.zst", b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it"),
    ("a.mgf.7z", b"7z\xbc\xaf\x27\x1c", "7-Zip-compressed; unpack it"),
    ("a.mgf.rar", b"Rar!\x1a\x07\0", "RAR-compressed; unpack it"),
    ("a.blib", b"SQLite format 3\0", "is a binary file"),
)


@pytest.mark.parametrize(
    ("name", "content", "words"), [*REFUSED, *BINARY], ids=lambda one: str(one)[:20]
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path, name, content, words):
    is_binary = (name, content, words) in BINARY

    with pytest.raises(UnreadableError) as caught:
        parsed(tmp_path, content + bytes(90) * is_binary, name)

    assert all(word in str(caught.value) for word in words.split("|"))
    assert "\n" not in str(caught.value)
    if is_binary:
        with pytest.raises(UnreadableError, match=rf"{name} is "):
            list(table_rows(tmp_path / name))


def test_a_folder_a_pipe_or_a_device_is_refused_where_a_file_is_meant(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path, "/dev/zero", "/dev/null"):
        with pytest.raises(UnreadableError, match=r"is a (folder; name|device; name a file)"):
            read(str(path))
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UnreadableError, match=r"is a (folder|pipe|device)"):
            open_text(path)


def test_the_ending_below_that_of_an_archive_names_a_format_of_which_no_sign_comes(tmp_path):
    for path in (tmp_path / f"a.mgf{ending}" for ending in ("", ".gz", ".xz", ".bz2")):
        with replaced_text(path) as stream:
            stream.write("# preamble\n" * 7000 + mgf_of(1).decode())

        assert len(list(read(str(path)))) == 1


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("n_missing", [0, 9, 5000])
def test_a_damaged_archive_gives_what_was_readable_and_says_where_it_ends(
    tmp_path, pack, n_missing
):
    packed = bytearray(pack(mgf_of(6_000)))
    if n_missing:
        del packed[-n_missing:]
    else:
        packed[-len(packed) // 4] ^= 0xFF

    *spectra, last = parsed(tmp_path, bytes(packed))

    said = "cut off" if n_missing else "corrupt"
    reason = f"ends early after {len(spectra)} spectra: the compressed data are {said}"
    assert reason in last.failure.message
    assert last.source.index == len(spectra)
    if n_missing:  # bytes that changed are found out after the fact
        assert len(spectra) > 1_000
        assert all(s.mz.size == 2 for s in spectra[:-1])


@pytest.mark.parametrize("pack", [bytes, gzipped])
def test_standard_input_is_recognised_by_its_content(monkeypatch, pack):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(mgf_of(2)))))

    assert [(s.source.file, s.source.index) for s in read("-")] == [("-", 0), ("-", 1)]

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(UnreadableError, match="standard input is empty"):
        read("-")


@pytest.mark.parametrize(("is_watched", "is_late"), [(True, True), (True, False), (False, True)])
def test_who_watches_is_told_what_is_waited_for(monkeypatch, caplog, is_watched, is_late):
    monkeypatch.setattr(reading, "_PATIENCE_S", 0.01 if is_late else 3600)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_watched)
    source, sink = os.pipe()
    caplog.set_level(logging.INFO)

    with ThreadPoolExecutor(1) as threads, os.fdopen(source) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        found = threads.submit(lambda: list(read("-")))
        while is_watched and is_late and "from standard input" not in caplog.text:
            time.sleep(0.01)
        with os.fdopen(sink, "wb") as file:
            file.write(mgf_of(2))
        assert len(found.result()) == 2

    assert ("reading spectra from standard input" in caplog.text) == (is_watched and is_late)


def test_folders_and_patterns_give_their_files_of_spectra(tmp_path, caplog):
    for name in ("b.mgf", "a.MGF", "c.msp.gz", "notes.txt", "out.csv"):
        mgf(tmp_path / name, block(ASPIRIN))
    for folder in ("deeper.mgf", "run.d"):
        (tmp_path / folder).mkdir()

    found = spectrum_files([str(tmp_path)])

    assert [name.rpartition("/")[2] for name in found] == ["a.MGF", "b.mgf", "c.msp.gz"]
    assert "run.d is left out: raw data of an instrument" in caplog.text
    assert spectrum_files([f"{tmp_path}/?.mgf"]) == (f"{tmp_path}/b.mgf",)
    assert spectrum_files(["-", f"{tmp_path}/notes.txt"]) == ("-", f"{tmp_path}/notes.txt")
    absent = spectrum_files([f"{tmp_path}/*.mzML"])
    with pytest.raises(MissingInputError, match="does not exist"), Inputs(absent):
        pass


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run.d/", "run.d is raw data of an instrument; .*msconvert"),
        ("none/", r"holds no file of spectra \(\.mgf"),
        ("some/run.raw/", "run.raw is raw data of an instrument"),
    ],
)
def test_a_folder_without_spectra_says_what_to_do(tmp_path, name, said):
    (tmp_path / name).mkdir(parents=True)

    with pytest.raises(UnreadableError, match=said):
        spectrum_files([str(tmp_path / name.partition("/")[0])])


MOST_MIB = 512
BLOCK = 1 << 24
HEAD = b"BEGIN IONS\nTITLE=bomb\nPEPMASS=181.05\n"
TAIL = b"41 3\nEND IONS\nBEGIN IONS\nTITLE=sound\nPEPMASS=181.05\n121.03 5\nEND IONS\n"


def mzml(part):
    """A spectrum with a part in it, and a sound one."""
    spectra = b'<spectrum id="scan=0" %b<spectrum id="scan=9"></spectrum>' % part
    start = b'<?xml version="1.0"?><mzML xmlns="http://psi.hupo.org/ms/mzml"><run><spectrumList>'
    return start + spectra + b"</spectrumList></run></mzML>"


def array(content, compression):
    return mzml(
        b'><binaryDataArrayList><binaryDataArray><cvParam name="64-bit float"/>'
        b'<cvParam name="m/z array"/><cvParam name="%b compression"/><binary>%b</binary>'
        b"</binaryDataArray></binaryDataArrayList></spectrum>" % (compression, content)
    )


def zeros():
    pack = zlib.compressobj(9)
    packed = b"".join(pack.compress(bytes(BLOCK)) for _ in range(16)) + pack.flush()
    return array(base64.b64encode(packed), b"zlib")


def fields():
    return HEAD + b"".join(b"K%d=v\n" % n for n in range(400_000)) + TAIL


LONG = "longer than 32 million characters or has more than 1,000,000 peaks"
LONG_JSON = "longer than 16 million characters"
LARGE, END = "a spectrum of more than 64 MiB", b"</spectrum>"
PACKED = "unpack to more than 200 times their size"
# What is said of each, and whether a sound spectrum follows.
BOMBS = {
    "line.mgf": (LONG, True, lambda: HEAD + b"1" * (4 * BLOCK) + b"\n" + TAIL),
    "fields.mgf": (LONG, True, fields),
    "peaks.mgf": (LONG, True, lambda: HEAD + b"100.5 1\n" * 1_000_001 + TAIL),
    "packed.mgf.gz": (PACKED, False, lambda: gzipped(HEAD) + gzipped(b"1" * BLOCK) * 32),
    "peaks.msp": (LONG, False, lambda: b"Name: a\nNum Peaks: 9\n" + b"41 3; " * BLOCK + b"\n"),
    "blocks.ms": (LONG, False,
        lambda: b">compound a\n>ms2\n" + b"41 3\n" * 1_000_001 + b">ms2\n41 3\n"),
    "row.tsv": (LONG, True, lambda: b"mzs\tintensities\n" + b"1," * BLOCK + b"\t1\n9\t9\n"),
    "rows.massbank.txt": (LONG, False,
        lambda: b"ACCESSION: a\nPK$PEAK: m/z int. rel.int.\n" + b"  100.5 1 9\n" * 1_000_001),
    "peaks.json": (LONG_JSON, False, lambda: b'[{"peaks": [' + b"[50.5, 1.5]," * (5 * BLOCK // 12)),
    "text.json": (LONG_JSON, True,
        lambda: b'{"a": "' + b"a" * (5 * BLOCK) + b'"}\n{"peaks": [[41, 3]]}\n'),
    "deep.json": ("nested too deeply", False, lambda: b'[{"a": ' + b"[" * BLOCK),
    "zeros.mzML": ("an array of more than 32 MiB", True, zeros),
    "text.mzML": (LARGE, False, lambda: array(b"A" * (4 * BLOCK), b"no")),
    "many.mzML": (LARGE, False, lambda: mzml(b">" + b'<cvParam name="a"/>' * 900_000 + END)),
    "attribute.mzML": ("its XML is broken", False,
        lambda: mzml(b'x="' + b"1" * (6 * BLOCK) + b'">' + END)),
    "deep.mzML": ("Excessive depth", False,
        lambda: mzml(b">" + b"<a>" * 50_000 + b"</a>" * 50_000 + END)),
}  # fmt: skip
# Whose reading would take hours if its time were not in proportion to the text.
SOUND = {
    "blank.mgf": b"\n" * 65_000 + HEAD + b"41 3\nEND IONS\n",
    "comment.msp": b"Name: a\nComments: =" + b"a" * (1 << 21) + b"\nNum Peaks: 1\n41 3\n",
    "spaces.ms": b">compound a" + b" " * (1 << 21) + b"x\n>ms2\n41 3\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BOMBS, *SOUND])
def test_a_file_that_would_fill_the_memory_says_so_and_none_takes_more_than_time_in_proportion(
    tmp_path, name
):
    said, has_sound, make = BOMBS.get(name, ("ok", True, lambda: SOUND[name]))
    content = make()

    with bounded_memory(MOST_MIB):
        items = parsed(tmp_path, content, name)
    found = [item.failure.message if item.failure else "ok" for item in items]

    assert any(said in item for item in found)
    n_failed = int(name in BOMBS)
    assert not has_sound or [item == "ok" for item in found] == [False] * n_failed + [True]
