"""Reading spectra: any supported format, lazily, in order, one outcome for every record.

A format follows from signs in the first characters, not from the name of the file; the name decides
only where a long preamble hides the first spectrum. Text is UTF-8, or UTF-16 with a byte-order
mark; bytes that are no UTF-8 are read as Latin-1, so that an accent never costs a spectrum.
"""

import glob
import io
import logging
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import BinaryIO, Final, cast

from duallgd_cli.errors import MissingInputError, UnreadableError, counted
from duallgd_cli.files import (
    DAMAGED,
    LATIN1,
    PACKED_ENDINGS,
    describe_damage,
    encoding_of,
    foreign_format,
    require_input,
    unpacked,
)
from duallgd_cli.spectra.reading import json_records, text
from duallgd_cli.spectra.reading.quantities import GUESSED_TIME
from duallgd_cli.spectra.reading.record import LONGEST_LINE, build, unreadable
from duallgd_cli.spectra.types import Source, Spectrum

logger = logging.getLogger(__name__)

_SPOOL_BYTES: Final = 1 << 26  # of a pipe, held in memory
_PATIENCE_S: Final = 1.0
_FORMATS: Final = (
    "MGF, mzML, mzXML, MSP, MassBank records, SIRIUS .ms, mzSpecLib, JSON or a MassSpecGym TSV"
)
_HEAD_CHARACTERS: Final = 1 << 16  # that signs are looked for in
_MOST_WAITING: Final = 10_000  # MS2 scans of an MS1 scan that comes after them, or never
# Formats by their signs, tried in this order, with what is said of those that are not read.
_SIGNS: Final = (
    (r"<mzML\b(?=[\s\S]*(?:\bIMS:10\d+|id=\"IMS\"))", "", "is an imzML image, whose peaks lie in a "
     "file .ibd beside it; export the MS/MS spectra of interest as mzML or MGF"),
    (r"<(?:indexed)?mzML\b", "mzml", ""),
    (r"<(?:mzXML|msRun)\b", "mzxml", ""),
    (r"^[ \t]*<[ \t]*mzSpecLib\b", "mzspeclib", ""),
    (r"\A\s*<(?:!DOCTYPE\s+html|html)\b", "", "is a web page, perhaps an error or a login; "
     "download the file again"),
    (r"\A\s*(?:<[?!][^>]*>\s*)*<[\w:]+", "", "is XML, but neither mzML nor mzXML; export the MS/MS "
     "spectra as mzML or MGF"),
    (r"^M  END\s*$", "", "holds structures (SDF or MOL), which --database or --analogues takes; "
     "spectra come as MGF, MSP or mzML"),
    (r"^[ \t]*BEGIN[ \t]+IONS[ \t]*$", "mgf", ""),
    (r"^>[ \t]*(?:compound|parentmass|ms[12]|collision)\b", "ms", ""),
    (r"\A\s*[\[{]", "json", ""),
    (r"\A(?:\s|#[^\n]*\n|\"?sep=[^\n]*\n)*"
     r"(?=[^\n]*\bmzs\b)(?=[^\n]*\bintensities\b)[^\n]*[\t;,]", "table", ""),
    (r"^(?:(?:AC|CH|MS|PK)\$[A-Z_/]+:|RECORD_TITLE:)", "massbank", ""),
    (r"^[ \t]*(?:num|number of) ?(?:peaks|features)[ \t]*:", "msp", ""),
    (r"^[ \t]*(?:name|precursor_?mz)[ \t]*:", "msp", ""),
    (r"\A\s*\d+(?:\.\d+)?[ \t,;]+\d+(?:\.\d+)?\s*$", "", "is not recognised: peaks alone are no "
     "spectrum; put them between BEGIN IONS and END IONS, with a line PEPMASS= that gives the "
     "precursor m/z"),
    (r"\A\s*\Z", "", f"is empty; expected {_FORMATS}"),
)  # fmt: skip
_MOST_HELD: Final = 1_000  # spectra
_TABLE: Final = r"\A\s*[^\n]*[A-Za-z][^\n]*[\t;,]"
_PLAIN_ENDINGS: Final = frozenset({"mgf", "msp", "ms"})
_SUFFIXES: Final = {".mgf": "mgf", ".msp": "msp", ".ms": "ms", ".mzml": "mzml", ".mzxml": "mzxml"}
_RAW: Final = frozenset({".raw", ".d", ".wiff", ".wiff2"})
_CONVERT: Final = (
    "raw data of an instrument; convert it to mzML with ProteoWizard's msconvert, "
    "ThermoRawFileParser (Thermo) or TIMSCONVERT (timsTOF)"
)
_TEXT: Final = {
    "mgf": text.mgf_records,
    "msp": text.msp_records,
    "massbank": text.massbank_records,
    "ms": text.sirius_records,
    "table": text.table_records,
    "mzspeclib": json_records.mzspeclib_records,
}


def read(
    path: str, *, keep_structures: bool = False, raw: BinaryIO | None = None
) -> Iterator[Spectrum]:
    """Spectra of a file or of standard input (``-``), in the file's order.

    The format follows from the content; plain or packed by gzip, xz or bzip2.
    Every record gives exactly one item, MS1 blocks (``ms_level`` 1) included, those of mzXML before
    the MS2 scans that they enclose; in place of one in which a file breaks off is one that has a
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
    name = "standard input" if path == "-" else path
    raw = raw or open_bytes(path)
    try:
        stream, file_format, encoding = _opened(raw, name)
    except UnreadableError:
        raw.close()
        raise
    opened: BinaryIO | io.TextIOWrapper = stream
    broken: tuple[type[Exception], ...] = ()  # what broken records raise beside `DAMAGED`
    if file_format in {"mzml", "mzxml"}:
        from duallgd_cli.spectra.reading import xml  # lxml loads only where needed

        records = xml.records(stream, file_format)
        broken = xml.BROKEN
    else:
        opened = characters = io.TextIOWrapper(stream, encoding=encoding, errors=LATIN1)
        if file_format == "json":
            blocks = iter(partial(characters.read, _HEAD_CHARACTERS), "")
            records = json_records.json_records(blocks)
        else:
            records = _TEXT[file_format](_lines(characters))

    def spectra() -> Iterator[Spectrum]:
        index, damage = 0, ""
        with opened:
            while not damage:
                try:
                    record = next(records, None)
                except DAMAGED as error:
                    damage = describe_damage(error)
                except broken as error:
                    damage = f"its XML is broken ({' '.join(str(error).split())})"
                else:
                    if record is None:
                        break
                    yield build(record, Source(path, index), keep_structures)
                    index += 1
        if damage:
            so_far = counted(index, "spectrum", "spectra")
            reason = f"the file ends early after {so_far}: {damage}; restore the file"
            yield unreadable(Source(path, index), reason)
        elif index == 0:
            raise UnreadableError(f"{name} holds no spectrum, though it looks like {file_format}")

    return parents_first(spectra()) if file_format == "mzxml" else _one_unit_of_time(spectra())


def _lines(characters: io.TextIOWrapper) -> Iterator[str]:
    """Lines without their ends; of one that is too long one character more than `LONGEST_LINE`."""
    read_line = partial(characters.readline, LONGEST_LINE + 1)
    for line in iter(read_line, ""):
        yield line.rstrip("\r\n")
        while len(line) > LONGEST_LINE and not line.endswith("\n"):
            line = read_line()


def parents_first(items: Iterable[Spectrum]) -> Iterator[Spectrum]:
    """The items of a file, each MS1 scan before the MS2 scans that name it as theirs.

    In mzXML an MS1 scan may enclose its MS2 scans and is read after them. Other items keep their
    order. Where the MS1 scans were filtered out of the file, some thousand wait at a time.
    """
    waiting: list[Spectrum] = []
    latest = ""
    for item in items:
        if item.ms_level == 1:
            latest = item.scans
            yield item
        elif waiting or item.metadata.get("precursor_scan", latest) != latest:
            waiting.append(item)
        else:
            yield item
        if item.ms_level == 1 or len(waiting) == _MOST_WAITING:
            yield from waiting
            waiting = []
    yield from waiting


def _one_unit_of_time(spectra: Iterator[Spectrum]) -> Iterator[Spectrum]:
    """Spectra of a file; of retention times without a unit all are seconds where one must be.

    Alone, a number up to 120 is taken for minutes; beside larger ones it is seconds. To see that,
    up to 1,000 spectra are held back.
    """
    held: list[Spectrum] = []
    in_seconds = False
    for spectrum in spectra:
        guesses = [match[1] for text in spectrum.assumptions if (match := GUESSED_TIME.match(text))]
        if not held and not guesses:
            yield spectrum
            continue
        held.append(spectrum)
        in_seconds = "seconds" in guesses
        if in_seconds or len(held) == _MOST_HELD:
            break
    for spectrum in chain(held, spectra):
        # What was taken for minutes is in seconds, as others of the file are.
        said = [text for text in spectrum.assumptions if GUESSED_TIME.match(text)]
        time_s, (guess, *_) = spectrum.retention_time_s, (*said, "")
        if in_seconds and time_s is not None and guess.endswith("minutes"):
            better = guess.replace("as minutes", "as seconds, as others of the file are")
            said = [better if text == guess else text for text in spectrum.assumptions]
            spectrum = replace(spectrum, retention_time_s=time_s / 60, assumptions=tuple(said))
        yield spectrum


def _opened(raw: BinaryIO, name: str) -> tuple[BinaryIO, str, str]:
    """Unpacked bytes, their format and encoding, recognised by the first 64 KiB."""
    stream = unpacked(raw)
    head, damage = bytearray(), ""
    read1 = getattr(stream, "read1", stream.read)  # a torn archive still gives what came before
    try:
        while len(head) < _HEAD_CHARACTERS and (chunk := read1(_HEAD_CHARACTERS)):
            head += chunk
    except DAMAGED as error:
        damage = describe_damage(error)  # reported again when the records are read
    stream.seek(0)
    encoding, foreign = encoding_of(bytes(head)), foreign_format(bytes(head))
    if foreign or not encoding:
        foreign = _CONVERT if PurePath(name).suffix.lower() in _RAW else foreign
        raise UnreadableError(f"{name} is {foreign or f'a binary file; expected {_FORMATS}'}")
    file_format, fault = _format_of(head.decode(encoding, errors="replace"), name)
    if not file_format:
        fault = f"holds nothing readable: {damage}" if damage else fault
        raise UnreadableError(f"{name} {fault}")
    return stream, file_format, encoding


def _format_of(text: str, name: str) -> tuple[str, str]:
    """The format of the first characters of a file, or "" and what is wrong with it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for sign, file_format, fault in _SIGNS:
        if re.search(sign, text, re.IGNORECASE | re.MULTILINE):
            return file_format, fault
    file_format = _SUFFIXES.get(_ending_of(PurePath(name)), "")
    # By its ending alone only text whose first spectrum may come late; XML always shows its root.
    if file_format in _PLAIN_ENDINGS and len(text) >= _HEAD_CHARACTERS // 2:
        return file_format, ""
    fault = f"expected {_FORMATS}"
    if re.search(_TABLE, text):
        fault = f"a table of spectra has columns mzs and intensities; otherwise {fault}"
    return "", f"is not recognised: {fault}"


def _ending_of(path: PurePath) -> str:
    """The last ending but for that of a packed file, in lower case; "" for none."""
    plain = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in PACKED_ENDINGS]
    return plain[-1] if plain else ""


def open_bytes(path: str) -> BinaryIO:
    """The bytes of a file, or a copy of what standard input (``-``) or a pipe gives.

    Raises:
        MissingInputError: There is no such file, or standard input is closed.
        UnreadableError: A folder, a device, or a file that may not be read.
    """
    if path == "-" and sys.stdin is None:
        raise MissingInputError("standard input is closed; pipe spectra into it, or name a file")
    if path == "-":
        return _copied(sys.stdin.buffer, "standard input")
    require_input(path)
    if Path(path).is_dir():
        raise UnreadableError(f"{path} is a folder; name the {_FORMATS} files in it")
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  closed by whoever reads
        if stream.seekable():
            return stream
        with stream:
            return _copied(stream, path)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None


def _copied(pipe: BinaryIO, name: str) -> BinaryIO:
    """A copy of what a pipe gives, since a pipe cannot be read twice and XML is.

    Who watches is told what is waited for, where nothing comes for a second.
    """
    copy = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
    said = "reading spectra from %s, which has sent nothing yet; Ctrl-C stops"
    patience = threading.Timer(_PATIENCE_S, logger.info, (said, name))
    patience.daemon = True
    try:
        if sys.stderr is not None and sys.stderr.isatty():
            patience.start()
        begin = pipe.read(1)
    finally:
        patience.cancel()
    copy.write(begin)
    if begin:
        shutil.copyfileobj(pipe, copy)
    copy.seek(0)
    return cast("BinaryIO", copy)


def spectrum_files(names: Iterable[str]) -> tuple[str, ...]:
    """Inputs as a user names them, folders and patterns replaced by the files that they hold.

    A folder gives its own files of a known ending, sorted by name; what is raw data among them is
    warned of. A pattern such as ``runs/*.mgf`` is one that the shell has left as it is.

    Raises:
        UnreadableError: Raw data, or a folder without a file of spectra.
    """
    files: list[str] = []
    for name in names:
        if name == "-" or Path(name).is_file():
            files.append(name)
        elif Path(name).is_dir():
            files += _files_in(Path(name))
        else:
            files += sorted(glob.glob(name)) or [name]  # noqa: PTH207  a pattern is no path
    return tuple(files)


def _files_in(folder: Path) -> list[str]:
    held = sorted(folder.iterdir())
    files = [str(path) for path in held if path.is_file() and _ending_of(path) in _SUFFIXES]
    raw = [path for path in (folder, *held) if path.suffix.lower() in _RAW]
    if raw and (raw[0] is folder or not files):
        raise UnreadableError(f"{raw[0]} is {_CONVERT}")
    if not files:
        raise UnreadableError(
            f"{folder} holds no file of spectra ({', '.join(_SUFFIXES)}); name another folder"
        )
    for path in raw:
        logger.warning("%s is left out: %s", path, _CONVERT)
    return files
