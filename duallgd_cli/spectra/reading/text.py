"""Text formats: MGF, MSP, SIRIUS ``.ms`` and tables.

A pass of our own over MGF instead of matchms' or pyteomics' reader: of 22 cases of dialect and
damage tried, matchms 0.33 stops at 11 (``CHARGE=N/A``, a PEPMASS that is no number, a text as third
column, comma-separated peaks, a missing END IONS, Latin-1, ...), which loses every later spectrum
of the file, and misses the record in two (lower case, a byte-order mark).
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, UnreadableError, clip, quote
from duallgd_cli.spectra.reading.record import (
    ADDUCT,
    LONGEST_LINE,
    MOST_PEAKS,
    PRECURSOR,
    TOO_LARGE,
    Block,
    Record,
    canonical_key,
    peak_record,
)
from duallgd_cli.tables import SEPARATOR, delimiter_of

_BEGIN_IONS: Final = re.compile(r"\s*BEGIN\s+IONS\s*", re.IGNORECASE)
_END_IONS: Final = re.compile(r"\s*END\s+IONS\s*", re.IGNORECASE)
_COMMENT: Final = ("#", ";", "!", "/")
_STRAY_END: Final = "END IONS stands without BEGIN IONS"
_STRAY_PEAKS: Final = "peaks stand without BEGIN IONS; restore that line"
# The beginning of a line of peaks: two numbers, in brackets or not.
_NUMBER: Final = r"[+-]?(?:\d+(?:[.,]\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
PEAK: Final = re.compile(
    rf"\s*[\[({{]?\s*{_NUMBER}(?:\s*[\s,;:|]\s*){_NUMBER}(?=[\s,;:|)\]}}\"']|$)", re.ASCII
)
_MASSSPECGYM: Final = frozenset({"fold", "identifier"})  # its energies are in eV by definition


def mgf_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MGF in order, one for every BEGIN IONS or stray END IONS.

    As MZmine, MS-DIAL, GNPS, SIRIUS, MetaboScape, Progenesis and MassSpecGym write it.
    """
    shared: dict[str, str] = {}  # of lines outside records, which hold for all that follow
    block, is_open = Block(), False
    for line in lines:
        if line[:1].isdigit():
            block.add_peak(line)
        elif _BEGIN_IONS.fullmatch(line):
            if is_open:
                yield _torn_or_whole(block, shared, "it has no END IONS")
            elif any(map(PEAK.match, block.peaks)):
                yield Record({}, trouble=_STRAY_PEAKS)
            else:
                shared |= block.metadata
            block, is_open = Block(), True
        elif _END_IONS.fullmatch(line):
            # Parameters before a stray END IONS belonged to its record, so they are not shared.
            yield _torn_or_whole(block, shared) if is_open else Record({}, trouble=_STRAY_END)
            block, is_open = Block(), False
        else:
            _add(block, line)
    if is_open:
        yield _torn_or_whole(block, shared, "the file ends within it")
    elif any(map(PEAK.match, block.peaks)):
        yield Record({}, trouble=_STRAY_PEAKS)


def _add(block: Block, line: str) -> None:
    """Take a line that is no plain peak."""
    key, equals, value = line.partition("=")
    if equals:
        block.add_field(key.strip().lower(), value.strip())
    elif key.strip() and not key.lstrip().startswith(_COMMENT):
        block.add_peak(line)


def _torn_or_whole(block: Block, shared: Mapping[str, str], torn: str = "") -> Record:
    """The record, its own parameters over the shared ones; a warning where it is torn."""
    block.metadata = {**shared, **block.metadata}
    warnings = (f"the record may be incomplete: {torn}",) if torn else ()
    lines = one_peak_a_line(block.peaks)
    return peak_record(block, lines, warnings, block.metadata.keys() >= _MASSSPECGYM)


_MSP_KEY: Final = re.compile(r"\s*([A-Za-z$][^:=]{0,60}?)\s*:")
# Num Peaks, NumPeaks, Num Features, Number of peaks, Peak count, ...
_PEAK_COUNT: Final = re.compile(
    r"(?:num|number|no\.?|n)[ _-]?(?:of[ _-]?)?(?:ms2?[ _-]?)?(?:peaks?|features|ions|signals)|"
    r"peaks?[ _-]?count|(?:peaks|features)",
    re.IGNORECASE,
)
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_MARKED: Final = re.compile(r"[\"':;,()\[\]{}|]")
_COMMA: Final = re.compile(r"\s*,\s+|\s+,")
_COLON_PAIR: Final = re.compile(r"([^\s:;]+)\s*:\s*([^\s:;]+)")
_BRACKETS: Final = str.maketrans("([{)]}|", "   ;;; ")
# MoNA keeps fields as quoted key=value pairs in its comments.
_COMMENT_PAIR: Final = re.compile(
    r"\"([^\"=]+)=([^\"]*)\"|(?<![^\s\"])([^\s\"=]+)=(?:\"([^\"]*)\"|(\S+))"
)
_NOMINAL: Final = Failure(
    "unsupported_measurement",
    "it has nominal masses and no precursor, as spectra of electron ionisation have; give MS/MS "
    "spectra of high resolution, with their precursor m/z",
    "read",
)
_FEWEST_NOMINAL: Final = 4  # peaks that tell


@dataclass(slots=True)
class _Entry(Block):
    """Lines of one record so far.

    Attributes:
        in_peaks: A count of peaks, or a peak, was seen.
        is_over: A blank line ended it; only further peaks may still belong to it.
        before: Fields that stand before a blank line, which may belong to a record of their own.
    """

    in_peaks: bool = False
    is_over: bool = False
    before: dict[str, str] = field(default_factory=dict)

    def ends_before(self, key: str) -> bool:
        """Whether a field is the next record's: after peaks, or a second name."""
        if self.is_over:
            return True
        if self.in_peaks:
            return bool(self.peaks) or key in self.metadata or _expected(self.metadata) == 0
        return key == "name" and (key in self.metadata or key in self.before)

    def take(self, key: str, value: str) -> None:
        """Take a field, or those that stand in a comment."""
        if key in {"comment", "comments"} and "=" in value:
            for match in _COMMENT_PAIR.finditer(value):
                name = (match[1] or match[3]).strip().lower()
                self.add_field(name, (match[2] or match[4] or match[5] or "").strip(" ;"))
        else:
            self.add_field(key, value)
        if not self.in_peaks and _PEAK_COUNT.fullmatch(key):
            self.join()
            self.in_peaks = True
            if PEAK.match(value):  # those of GOLM and others stand in the same line
                self.add_peak(value)

    def take_other(self, line: str) -> None:
        """Take a line that is no field: a peak, a blank one, or the rest of a comment."""
        if not line.strip():
            self._pause()
        elif PEAK.match(line) and (self.in_peaks or self.metadata or self.before):
            # Whatever the line above them is called, these are peaks.
            self.join()
            self.in_peaks = True
            self.add_peak(line)
        elif self.in_peaks and not self.is_over:
            self.add_peak(line)

    def _pause(self) -> None:
        """Take a blank line: after peaks, or where there are none, it ends the record."""
        if self.in_peaks:
            self.is_over |= bool(self.peaks) or _expected(self.metadata) in {None, 0}
        else:
            self.join()
            self.before, self.metadata = self.metadata, {}

    def join(self) -> None:
        """Count fields before and after a blank line as one record's."""
        if self.before:
            self.metadata, self.before = {**self.before, **self.metadata, **self.before}, {}

    def split(self, key: str) -> tuple["_Entry", "_Entry"]:
        """This record and the beginning of the next, whose first field is `key`.

        Some writers put FORMULA, PRECURSORTYPE and others before NAME; where the record before
        lacks Num Peaks, the blank line between them is all that tells them apart.
        """
        if key == "mstype" and not self.is_over:
            own = {"mstype", *filter(_PEAK_COUNT.fullmatch, self.metadata)}
            shared = {k: v for k, v in self.metadata.items() if k not in own}
            return self, _Entry(shared)
        if self.in_peaks or "name" in self.metadata:
            self.join()
            return self, _Entry()
        return _Entry(self.before, trouble=self.trouble), _Entry(self.metadata)


def msp_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MSP in order, whatever the order of their fields.

    As NIST, MassBank of North America (MoNA), RIKEN, MS-DIAL and mzmine write it.

    A record ends at a field after its peaks, or at a second NAME. An MSTYPE after peaks (MS-FINDER)
    begins another spectrum of the same compound. Lines of two numbers are peaks, whatever the line
    before them is called.
    """
    entry = _Entry()
    for line in lines:
        match = None if line[:1].isdigit() else _MSP_KEY.match(line)
        if match is None:
            entry.take_other(line)
            continue
        key = match[1].lower()
        if entry.ends_before(key):
            done, entry = entry.split(key)
            yield _finish(done)
        entry.take(key, line[match.end() :].strip())
    entry.join()
    if entry.metadata:
        yield _finish(entry)


def _expected(metadata: Mapping[str, str]) -> int | None:
    """The number of peaks that a record states; None where it states none."""
    stated = next((metadata[key] for key in metadata if _PEAK_COUNT.fullmatch(key)), "")
    return int(stated) if _COUNT.fullmatch(stated) else None


def _finish(entry: _Entry) -> Record:
    expected = _expected(entry.metadata)
    record = peak_record(entry, one_peak_a_line(entry.peaks, expected))
    names = set(map(canonical_key, entry.metadata))
    if (
        record.mz.size >= _FEWEST_NOMINAL
        and not names & {*PRECURSOR, *ADDUCT}
        and (record.mz == np.rint(record.mz)).all()
    ):
        return replace(record, refusal=_NOMINAL)
    counts = [key for key in entry.metadata if _PEAK_COUNT.fullmatch(key)]
    if not counts:
        warning = "the record has no Num Peaks"
    elif expected is not None and expected != record.mz.size:
        warning = f"{counts[0].title()} says {expected}, and there are {record.mz.size}"
    else:
        return record
    return replace(record, warnings=(*record.warnings, warning))


def one_peak_a_line(lines: Sequence[str], expected: int | None = None) -> list[str]:
    """Lines of m/z and intensity and whatever follows, in blanks, from the ways to write them.

    Such are ``41 3; 42 10;``, ``41:3 42:10``, ``(41 3)(42 10)``, ``41, 3``, ``41 3 "b2"`` and,
    where their number is known, ``41 3 42 10``.

    Args:
        lines: As they stand in a file.
        expected: Number of peaks that the record states, if it does.
    """
    plain: list[str] = []
    for line in lines:
        plain += _peaks_of(line) if _MARKED.search(line) else [line]
    if expected is None or expected == len(plain):
        return plain
    tokens = [token for line in plain for token in line.split(None, 2 * MOST_PEAKS)]
    if len(tokens) == 2 * expected:
        return [" ".join(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    return plain


def _peaks_of(line: str) -> list[str]:
    """Peaks of a line that has more signs in it than numbers need."""
    text = _QUOTED.sub(" ", line).translate(_BRACKETS)
    text = _COLON_PAIR.sub(r"\1 \2;" if text.count(":") > 1 else r"\1 \2", text)
    text = _COMMA.sub(" ", text)
    if ";" not in text:
        return [text]
    parts = [part.strip(" \t,") for part in text.split(";", MOST_PEAKS)]
    if any(PEAK.match(part) for part in parts):
        # What does not begin with a digit is an annotation.
        return [part for part in parts if part[:1].isdigit() or PEAK.match(part)]
    return [" ".join(parts)]  # the two numbers of one peak


_SIRIUS_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?")
_SIRIUS_BLOCK: Final = re.compile(r"ms([1-9])(?:merged)?(?:peaks)?|collision|msms|peaks")


@dataclass(slots=True)
class _Compound(Block):
    """Fields and peak lines of one compound.

    Attributes:
        spectra: Level, collision energy and index of the first peak line of each spectrum.
        header: The line above whose name is no block's, else "".
        warnings: Sentences for all its spectra.
    """

    spectra: list[tuple[str, str, int]] = field(default_factory=list)
    header: str = "compound"
    warnings: tuple[str, ...] = ()

    def begin(self, level: str, energy: str) -> None:
        """Begin a spectrum: ">ms2" and ">collision 35" in a row, in either order, are one."""
        if level != "1" and self.spectra and self.spectra[-1][::2] == (level, len(self.peaks)):
            _, earlier, _ = self.spectra.pop()
            energy = energy or earlier
        self.count(len(energy))
        self.spectra += [] if self.trouble else [(level, energy, len(self.peaks))]
        self.header = ""

    def take_peak(self, line: str) -> None:
        """Take a line below a block's name, or below another name if it is a peak."""
        if self.header and not (self.metadata and PEAK.match(line)):
            return
        if self.header:
            self.warnings += (f"peaks below >{clip(self.header)} are read as MS2",)
            self.begin("2", "")
        self.add_peak(line)

    def records(self) -> Iterator[Record]:
        """Its spectra; a compound without a block gives one without peaks."""
        if not self.metadata and not self.spectra:
            return
        # In this format the "parent mass" is the m/z of the ion.
        self.metadata["precursor_mz"] = self.metadata.get("parentmass", "")
        for name in ("title", "feature_id"):
            self.metadata.setdefault(name, self.metadata.get("compound", ""))
        spectra = self.spectra or [("2", "", 0)]
        ends = [start for _, _, start in spectra[1:]] + [len(self.peaks)]
        for (level, energy, start), end in zip(spectra, ends, strict=True):
            own = {"ms_level": level} | ({"collision_energy": energy} if energy else {})
            block = Block(self.metadata | own, trouble=self.trouble, repeated=self.repeated)
            lines = one_peak_a_line(self.peaks[start:end])
            record = peak_record(block, lines, self.warnings if level != "1" else ())
            yield replace(record, time_in_s=True)


def sirius_records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of SIRIUS ``.ms``: compounds, each with any number of MS1 and MS2 blocks, in order.

    Blocks of one compound share its ``>feature_id``, or its name where it has none, so that
    collision energies are read together.
    """
    compound = _Compound()
    for line in lines:
        mark = line[:1]
        match = _SIRIUS_FIELD.match(line) if mark in {">", "#"} else None
        if match is None:
            if line.strip() and mark not in {">", "#"}:
                compound.take_peak(line)
            continue
        key, value = match[1].lower(), line[match.end() :].strip()
        if key == "compound" and mark == ">":
            yield from compound.records()
            compound = _Compound()
        block = _SIRIUS_BLOCK.fullmatch(key)
        if block is None:
            compound.add_field(key, value)
            compound.header = key if mark == ">" else compound.header
        elif mark == ">":
            compound.begin(block[1] or "2", value if key == "collision" else "")
    yield from compound.records()


def table_records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows of a table in the MassSpecGym layout in order: one spectrum a row, peaks in two columns.

    Tabs, semicolons or commas divide the cells. Energies without unit are in eV unless the text as
    recorded is given too.

    Raises:
        UnreadableError: Two columns have one name.
    """
    rows = (line for line in lines if line.strip())
    header, delimiter = "", ""
    for header in rows:
        if separator := SEPARATOR.fullmatch(header):
            delimiter = separator[1]
        elif not header.lstrip().startswith("#"):
            break
    delimiter = delimiter or delimiter_of(header)
    names = [cell.lower() for cell in _cells(header, delimiter) or ()]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise UnreadableError(f"the table has two columns {quote(twice)}; rename or remove one")
    if not {"mzs", "intensities"} <= set(names):
        raise UnreadableError("the table names no columns mzs and intensities in its first line")
    for line in rows:
        if len(line) > LONGEST_LINE:
            start = line[:LONGEST_LINE].split(delimiter, len(names))[:-1]
            yield Record(dict(zip(names, start, strict=False)), trouble=TOO_LARGE)
            continue
        cells = _cells(line, delimiter)
        if cells is None:
            yield Record({}, trouble="a quotation mark is open or out of place in its row")
        elif len(cells) != len(names):
            trouble = f"the row has {len(cells)} columns and the header {len(names)}"
            yield Record(dict(zip(names, cells, strict=False)), trouble=trouble)
        else:
            yield _row(dict(zip(names, cells, strict=True)))


def _cells(line: str, delimiter: str) -> list[str] | None:
    """Cells of a line; None where quotation marks do not say which."""
    if delimiter == "\t" or '"' not in line:
        return [cell.strip().strip('"').strip() for cell in line.split(delimiter)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except csv.Error:
        return None


def _row(cells: dict[str, str]) -> Record:
    as_recorded = cells.get("collision_energy_text", "")
    if as_recorded:
        cells["collision_energy"] = as_recorded
    texts = [
        cells.pop(name, "").strip("[]() ").replace(",", " ") for name in ("mzs", "intensities")
    ]
    if max(text.count(" ") for text in texts) > 2 * MOST_PEAKS:
        return Record(cells, trouble=TOO_LARGE)
    mz, intensity = map(_floats, texts)
    if mz is None or intensity is None:
        trouble = "its columns mzs and intensities must hold numbers separated by commas"
        return Record(cells, trouble=trouble)
    return Record(cells, mz, intensity, energy_in_ev=not as_recorded)


def _floats(text: str) -> NDArray[np.float64] | None:
    if not text.isascii() or "_" in text:
        return None
    try:
        return np.array(text.split(), dtype=np.float64)
    except ValueError:
        return None
