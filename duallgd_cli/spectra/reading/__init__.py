"""Reading spectra: any supported format, lazily, in order, one outcome for every record.

Text is UTF-8, or UTF-16 with a byte-order mark; bytes that are no UTF-8 are read as Latin-1, so
that an accent in a title never costs a spectrum.
"""

import codecs
import contextlib
import glob
import io
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import BinaryIO, Final, cast

from duallgd_cli.errors import MissingInputError, UnreadableError, counted, quote
from duallgd_cli.files import DAMAGED, PACKED_ENDINGS, describe_damage, require_input, unpacked
from duallgd_cli.spectra.reading import libraries
from duallgd_cli.spectra.reading.record import LONGEST_LINE, Record, build, unreadable
from duallgd_cli.spectra.reading.text import (
    mgf_records,
    msp_records,
    sirius_records,
    table_records,
)
from duallgd_cli.spectra.types import Source, Spectrum

logger = logging.getLogger(__name__)

FORMATS: Final = "MGF, mzML, mzXML, MSP, SIRIUS .ms, mzSpecLib, JSON or a MassSpecGym TSV"
_HEAD_BYTES: Final = 1 << 16
_SPOOL_BYTES: Final = 1 << 26
_ARCHIVES: Final = {b"PK\x03\x04": "zip", b"7z\xbc": "7-Zip", b"\x28\xb5\x2f\xfd": "zstd"}
# Tried in this order on the first 64 KiB; the first that is found names the format.
_SIGNS: Final = (
    ("mzml", re.compile(r"<(?:indexed)?mzML\b")),
    ("mzxml", re.compile(r"<(?:mzXML|msRun)\b")),
    ("mzspeclib", re.compile(r"^[ \t]*<[ \t]*mzSpecLib\b", re.IGNORECASE | re.MULTILINE)),
    ("mgf", re.compile(r"^[ \t]*BEGIN[ \t]+IONS[ \t]*$", re.IGNORECASE | re.MULTILINE)),
    ("ms", re.compile(r"^>[ \t]*(?:compound|parentmass|ms[12]|collision)\b", re.I | re.M)),
    ("tsv", re.compile(r"\A\s*(?=[^\n]*\bmzs\b)(?=[^\n]*\bintensities\b)[^\n]*\t", re.I)),
    ("msp", re.compile(r"^[ \t]*num ?peaks[ \t]*:", re.IGNORECASE | re.MULTILINE)),
    ("msp", re.compile(r"^[ \t]*name[ \t]*:", re.IGNORECASE | re.MULTILINE)),
    ("usi", re.compile(r"\A\s*(?:usi\s+)?mzspec:", re.IGNORECASE)),
    ("json", re.compile(r"\A\s*[\[{]")),
)
# Raw data of instruments, and what turns them into mzML.
_CONVERTERS: Final = {
    ".raw": "raw data of a Thermo or Waters instrument; convert it to mzML with "
    "ThermoRawFileParser or ProteoWizard's msconvert",
    ".d": "raw data of a Bruker or Agilent instrument; convert it to mzML with ProteoWizard's "
    "msconvert, or TIMSCONVERT for a timsTOF",
    ".wiff": "raw data of a Sciex instrument; convert it to mzML with ProteoWizard's msconvert",
    ".wiff2": "raw data of a Sciex instrument; convert it to mzML with ProteoWizard's msconvert",
}
_SUFFIXES: Final = {".mgf": "mgf", ".msp": "msp", ".ms": "ms", ".mzml": "mzml", ".mzxml": "mzxml"}
_TEXT = {
    "mgf": mgf_records,
    "msp": msp_records,
    "ms": sirius_records,
    "tsv": table_records,
    "mzspeclib": libraries.text_records,
}


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("duallgd.latin1", _as_latin1)


@dataclass(slots=True)
class Opened:
    """An input ready to be read once, from its first byte; close its stream afterwards.

    Attributes:
        file: As the user named it, ``-`` for standard input.
        format: mgf, msp, ms, tsv, mzspeclib, json, usi, mzml or mzxml.
        stream: Decompressed bytes, seekable.
        encoding: Of the text.
        damage: Set while reading: why the bytes ended early, else "".
    """

    file: str
    format: str
    stream: BinaryIO
    encoding: str
    damage: str = ""

    def lines(self) -> Iterator[str]:
        """Lines without their ends; a torn or corrupt stream ends them and sets `damage`.

        Of a line of more than `LONGEST_LINE` characters one more than these is given.
        """
        with self._text() as text:
            read_line = partial(text.readline, LONGEST_LINE + 1)
            for line in iter(read_line, ""):
                yield line.rstrip("\r\n")
                while len(line) > LONGEST_LINE and not line.endswith("\n"):
                    line = read_line()

    def blocks(self) -> Iterator[str]:
        """Text in pieces, for formats without lines; ends and damage as for `lines`."""
        with self._text() as text:
            yield from iter(partial(text.read, _HEAD_BYTES), "")

    @contextlib.contextmanager
    def _text(self) -> Iterator[io.TextIOWrapper]:
        text = io.TextIOWrapper(self.stream, encoding=self.encoding, errors="duallgd.latin1")
        try:
            yield text
        except DAMAGED as error:
            self.damage = describe_damage(error)
        finally:
            if not self.stream.closed:
                text.detach()


def read(
    path: str, *, keep_structures: bool = False, raw: BinaryIO | None = None
) -> Iterator[Spectrum]:
    """Spectra of a file or of standard input (``-``), in the file's order.

    The format follows from the content: MGF, mzML, mzXML, MSP, SIRIUS ``.ms``, mzSpecLib, JSON of
    matchms or GNPS, or a table in the MassSpecGym layout, plain or packed by gzip, xz or bzip2.
    Every record gives exactly one item, MS1 blocks (``ms_level`` 1) included, those of mzXML before
    the MS2 scans that they enclose; a file that breaks off ends with one that has a
    `failure`, which says where.

    Args:
        path: File, or ``-``.
        keep_structures: Keep SMILES, InChI and the like in ``metadata``. Only evaluation wants
            that; without it nothing about the answer can reach a prediction.
        raw: Seekable bytes to read in place of opening `path`, which then is a mere name; closed
            when they were read.

    Raises:
        MissingInputError: There is no such file. Raised by the call.
        UnreadableError: A folder, an empty or binary file or an unknown format, raised by the call;
            a file without a single record, raised on the first step.
    """
    opened = open_input(path, raw)
    spectra = _spectra(opened, keep_structures)
    return parents_first(spectra) if opened.format == "mzxml" else spectra


def _spectra(opened: Opened, keep_structures: bool) -> Iterator[Spectrum]:
    index = 0
    with opened.stream:
        for record in _records(opened):
            yield build(record, Source(opened.file, index), keep_structures)
            index += 1
    if opened.damage:
        source = Source(opened.file, index)
        read_so_far = counted(index, "spectrum", "spectra")
        reason = f"the file ends early after {read_so_far}: {opened.damage}; restore the file"
        yield unreadable(source, reason)
    elif index == 0:
        name = "standard input" if opened.file == "-" else opened.file
        raise UnreadableError(f"{name} holds no spectrum, though it looks like {opened.format}")


def _records(opened: Opened) -> Iterator[Record]:
    if opened.format in _TEXT:
        yield from _TEXT[opened.format](opened.lines())
        return
    if opened.format == "json":
        yield from libraries.json_records(opened.blocks())
        return
    if opened.format == "usi":
        yield from _usi_records(opened.lines(), Path(opened.file).parent)
        return
    from duallgd_cli.spectra.reading import xml  # lxml and pyteomics load only where needed

    reader = xml.mzml_records if opened.format == "mzml" else xml.mzxml_records
    try:
        yield from reader(opened.stream)
    except DAMAGED as error:
        opened.damage = describe_damage(error)
    except xml.BROKEN as error:
        opened.damage = f"its XML is broken ({' '.join(str(error).split())})"


_USI: Final = re.compile(r"mzspec:([^:]+):(.+?):(scan|index|nativeId|accession):([^:]+)(?::.*)?")
_RUN_ENDINGS: Final = (".mzml", ".mzxml", ".mgf", ".msp")
_Key = tuple[str, str]  # what is counted, and its number or name


def _usi_records(lines: Iterable[str], folder: Path) -> Iterator[Record]:
    """The spectrum of each line of a list of universal spectrum identifiers (USI), in its order.

    ``mzspec:MSV000084494:run_7:scan:1943`` is scan 1943 of ``run_7.mzML`` (or another format), in
    the folder of the list or in its folder ``MSV000084494``. Nothing is fetched.
    """
    wanted = [line.strip() for line in lines if line.strip().lower() not in {"", "usi"}]
    matches = [_USI.fullmatch(usi) for usi in wanted]
    asked: dict[tuple[str, str], set[_Key]] = {}
    for match in filter(None, matches):
        asked.setdefault((match[1], match[2]), set()).add((match[3], match[4]))
    found = {run: _found_in(_file_of_run(folder, *run), keys) for run, keys in asked.items()}
    for usi, each in zip(wanted, matches, strict=True):
        name = {"spectrum_id": usi}
        if each is None:
            yield Record(name, trouble=f"{quote(usi)} is no USI such as mzspec:SET:RUN:scan:7")
            continue
        spectra, reason = found[each[1], each[2]]
        record = spectra.get((each[3], each[4]))
        if record is None:
            reason = reason or f"{quote(each[2])} holds no {each[3]} {quote(each[4])}"
            yield Record(name, trouble=reason)
        else:
            # Numbers of features are those of another file; the list's own come before them.
            own = {"feature_id": usi, **name}
            yield replace(record, metadata={**own, **record.metadata, **own})


def _file_of_run(folder: Path, collection: str, run: str) -> Path | None:
    """The file of a run, by its name, in the folder of its collection or in the list's own."""
    if {"/", "\\", "\0"} & {*collection, *run} or collection.startswith("."):
        return None
    for parent in (folder / collection, folder):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            name = path.name.lower()
            name = name.removesuffix(next(filter(name.endswith, PACKED_ENDINGS), ""))
            stem, dot, ending = name.rpartition(".")
            if dot + ending in _RUN_ENDINGS and run.lower() in {stem, name, path.name.lower()}:
                return path
    return None


def _found_in(path: Path | None, keys: set[_Key]) -> tuple[dict[_Key, Record], str]:
    """Those of the wanted spectra that a file holds, or why it gives none."""
    if path is None:
        return {}, "its run is no mzML, mzXML, MGF or MSP file beside the list; put it there"
    found: dict[_Key, Record] = {}
    try:
        opened = open_input(str(path))
        with opened.stream:
            if opened.format == "usi":
                return {}, f"{path.name} is itself a list of identifiers"
            for index, record in enumerate(_records(opened)):
                fields = record.metadata
                own = {
                    ("index", str(index)),
                    ("scan", fields.get("scans", fields.get("scan", ""))),
                    ("nativeId", fields.get("native_id", "")),
                    ("accession", fields.get("spectrum_id", fields.get("spectrumid", ""))),
                }
                for key in own & keys:
                    found.setdefault(key, record)
    except UnreadableError as error:
        return {}, str(error)
    return found, ""


def parents_first(items: Iterable[Spectrum]) -> Iterator[Spectrum]:
    """The items of one file, each MS1 scan before the MS2 scans that name it as theirs.

    In mzXML an MS1 scan may enclose its MS2 scans and is read after them. Other items keep their
    order. Where the MS1 scans were filtered out of the file, all wait for its end.
    """
    waiting: list[Spectrum] = []
    latest = ""
    for item in items:
        if item.ms_level == 1:
            latest = item.scans
            yield from (item, *waiting)
            waiting = []
        elif waiting or item.metadata.get("precursor_scan", latest) != latest:
            waiting.append(item)
        else:
            yield item
    yield from waiting


def open_input(path: str, raw: BinaryIO | None = None) -> Opened:
    """Open a file or standard input (``-``), or take `raw` for it, and recognise what it is.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: A folder, an empty or binary file, an unsupported compression or format.
    """
    name = "standard input" if path == "-" else path
    raw = raw or open_bytes(path)
    try:
        stream = _decompress(raw, name)
        head, damage = _head(stream)
        encoding = _encoding(head, name)
        file_format = _format(head.decode(encoding, errors="replace"), name, damage)
    except UnreadableError:
        raw.close()
        raise
    return Opened(path, file_format, stream, encoding)


def open_bytes(path: str) -> BinaryIO:
    """The bytes of a file, or a copy of what standard input (``-``) or a pipe gives.

    Raises:
        MissingInputError: There is no such file, or standard input is closed.
        UnreadableError: A folder, a device, or a file that may not be read.
    """
    if path == "-" and sys.stdin is None:
        raise MissingInputError("standard input is closed; pipe spectra into it, or name a file")
    if path == "-":
        return _copied(sys.stdin.buffer)
    require_input(path)
    if Path(path).is_dir():
        raise UnreadableError(f"{path} is a folder; name the {FORMATS} files in it")
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  closed by whoever reads
        if stream.seekable():
            return stream
        with stream:
            return _copied(stream)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None


def _copied(pipe: BinaryIO) -> BinaryIO:
    """A copy of what a pipe gives, since a pipe cannot be read twice and XML is."""
    copy = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
    shutil.copyfileobj(pipe, copy)
    copy.seek(0)
    return cast("BinaryIO", copy)


def _decompress(raw: BinaryIO, name: str) -> BinaryIO:
    start = raw.read(8)
    raw.seek(0)
    for magic, compression in _ARCHIVES.items():
        if start.startswith(magic):
            raise UnreadableError(f"{name} is {compression}-compressed; unpack it, or use gzip")
    return unpacked(raw)


def _head(stream: BinaryIO) -> tuple[bytes, str]:
    """The first 64 KiB or what there is of them, and why they end early if a stream is damaged.

    The stream stands at its start again.
    """
    head, damage = bytearray(), ""
    read1 = getattr(stream, "read1", stream.read)  # a torn archive still gives what came before
    try:
        while len(head) < _HEAD_BYTES and (chunk := read1(_HEAD_BYTES)):
            head += chunk
    except DAMAGED as error:
        damage = describe_damage(error)  # reported again when the records are read
    stream.seek(0)
    return bytes(head), damage


def _encoding(head: bytes, name: str) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # A few control characters, NUL too, are damage in a text; many are another kind of file.
    controls = sum(byte < 9 or 13 < byte < 32 for byte in head[:4096])
    if controls > min(40, len(head[:4096]) // 20):
        fault = raw_data(name) or f"a binary file; expected {FORMATS}"
        raise UnreadableError(f"{name} is {fault}")
    return "utf-8-sig"


def _format(text: str, name: str, damage: str) -> str:
    text = text.replace("\r", "\n")
    for file_format, sign in _SIGNS:
        if sign.search(text):
            return file_format
    file_format = _SUFFIXES.get(_ending(PurePath(name)), "")
    # By its ending alone only text whose first spectrum may come late; XML always shows its root.
    if file_format in {"mgf", "msp", "ms"} and len(text) >= _HEAD_BYTES // 2:
        return file_format
    if damage:
        raise UnreadableError(f"{name} holds nothing readable: {damage}")
    fault = "is not recognised" if text.strip() else "is empty"
    raise UnreadableError(f"{name} {fault}; expected {FORMATS}")


def raw_data(path: str) -> str:
    """Whose raw data a file or a folder is by its ending, and what converts them; "" if none."""
    return _CONVERTERS.get(PurePath(path).suffix.lower(), "")


def spectrum_files(names: Iterable[str]) -> tuple[str, ...]:
    """Inputs as a user names them, folders and patterns replaced by the files that they hold.

    A folder gives its own files of a known ending, sorted by name; what is raw data among them is
    warned of. A pattern such as ``runs/*.mgf`` is one that the shell has left as it is.

    Raises:
        UnreadableError: Raw data, or a folder without a file of spectra.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == "-" or path.is_file():
            found.append(name)
        elif path.is_dir():
            found += _files_in(path)
        else:
            found += sorted(glob.glob(name)) or [name]  # noqa: PTH207  a pattern is no path
    return tuple(found)


def _files_in(folder: Path) -> list[str]:
    if said := raw_data(str(folder)):
        raise UnreadableError(f"{folder} is {said}")
    held = sorted(folder.iterdir())
    found = [str(path) for path in held if path.is_file() and _ending(path) in _SUFFIXES]
    raw = [path for path in held if raw_data(str(path))]
    if not found and raw:
        raise UnreadableError(f"{raw[0]} is {raw_data(str(raw[0]))}")
    if not found:
        endings = ", ".join(_SUFFIXES)
        raise UnreadableError(f"{folder} holds no file of spectra ({endings}); name another folder")
    for path in raw:
        logger.warning("%s is left out: %s", path, raw_data(str(path)))
    return found


def _ending(path: PurePath) -> str:
    """The last ending but for that of a packed file, in lower case; "" for none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    plain = [suffix for suffix in suffixes if suffix not in PACKED_ENDINGS]
    return plain[-1] if plain else ""
