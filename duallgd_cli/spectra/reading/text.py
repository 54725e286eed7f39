"""Text formats: MGF, MSP, SIRIUS ``.ms``, MassBank and tables of spectra, as records.

Not by matchms' or pyteomics' readers: of 22 cases of dialect and damage tried, matchms 0.33 stops
at 11 (``CHARGE=N/A``, a missing END IONS, ...), which loses every later spectrum of the file.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, UnreadableError, clip, counted
from duallgd_cli.spectra.reading.record import (
    ADDUCT,
    LONGEST_LINE,
    MOST_PEAKS,
    PRECURSOR,
    TOO_LARGE,
    Record,
    canonical_key,
)
from duallgd_cli.tables import Line, lines_of, refuse_repeated

COST: Final = 300  # characters that a spectrum or an attribute takes the place of
_COUNT: Final = re.compile(r"[0-9]{1,9}")
# The beginning of a line of peaks: two numbers, in brackets or not.
_NUMBER: Final = r"[+-]?(?:\d+(?:[.,]\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
PEAK: Final = re.compile(
    rf"\s*[\[({{]?\s*{_NUMBER}(?:\s*[\s,;:|]\s*){_NUMBER}(?=[\s,;:|)\]}}\"']|$)", re.ASCII
)
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_MARKED: Final = re.compile(r"[\"':;,()\[\]{}|]")
_COMMA: Final = re.compile(r"\s*,\s+|\s+,")
_COLON_PAIR: Final = re.compile(r"([^\s:;]+)\s*:\s*([^\s:;]+)")
_BRACKETS: Final = str.maketrans("([{)]}|", "   ;;; ")


def peaks_of(
    lines: Iterable[str], expected: int | None = None, one_a_line: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """m/z and intensity (P,) from lines of peaks, and how many peaks could not be read.

    Peaks are written ``41 3; 42 10;``, ``41:3 42:10``, ``(41 3)(42 10)``, ``41, 3``, ``41 3 "b2"``
    and, where their number is `expected`, ``41 3 42 10``; or, as the format says, `one_a_line`.
    Further columns are left aside.
    """
    plain = [*(lines if one_a_line else chain.from_iterable(map(_peaks_of_line, lines)))]
    if expected not in (None, len(plain)):
        tokens = " ".join(plain).split(None, 2 * MOST_PEAKS)
        if len(tokens) == 2 * expected:
            plain = [" ".join(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    text = " ".join(plain)
    tokens = text.split(None, 2 * len(plain))
    # NumPy reads numbers as Python does, see `finite`.
    if len(tokens) == 2 * len(plain) and text.isascii() and "_" not in text:
        with contextlib.suppress(ValueError):
            values = np.array(tokens, dtype=np.float64)
            return values[0::2], values[1::2], 0
    pairs = [pair for line in plain if (pair := _pair(line)) is not None]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1], len(plain) - len(pairs)


def _peaks_of_line(line: str) -> list[str]:
    """The peaks of a line, each with blanks between its numbers."""
    if not _MARKED.search(line):
        return [line]
    text = _QUOTED.sub(" ", line).translate(_BRACKETS)
    text = _COLON_PAIR.sub(r"\1 \2;" if text.count(":") > 1 else r"\1 \2", text)
    text = _COMMA.sub(" ", text)
    if ";" not in text:
        return [text]
    parts = [part.strip(" \t,") for part in text.split(";", MOST_PEAKS)]
    if any(map(PEAK.match, parts)):  # what does not begin with a digit is an annotation
        return [part for part in parts if part[:1].isdigit() or PEAK.match(part)]
    return [" ".join(parts)]  # the two numbers of one peak


def _pair(line: str) -> tuple[float, float] | None:
    """The first two numbers of a line, decimal commas understood."""
    columns = line.replace(";", " ").replace(":", " ").split(None, 2)
    if len(columns) == 1:
        columns = line.split(",", 2)
    if not all(column.isascii() and "_" not in column for column in columns[:2]):
        return None
    try:
        return float(columns[0].replace(",", ".")), float(columns[1].replace(",", "."))
    except (ValueError, IndexError):
        return None


def stated(record: Record, key: str) -> int | None:
    """The number that a field is, such as that of peaks; None for none."""
    text = record.metadata.get(key, "")
    return int(text) if _COUNT.fullmatch(text) else None


def finished(
    record: Record, count_key: str = "", called: str = "", one_a_line: bool = True, torn: str = ""
) -> Record:
    """A record whose lines of peaks are read, with what is wrong about them said in it.

    Args:
        record: Its fields and lines.
        count_key: Key of the field that states their number, if there is one.
        called: Its name in the file.
        one_a_line: Whether the format has each peak in a line of its own; else they are told apart
            by signs between them, or by their number.
        torn: Why the end of the record may be missing, or "".
    """
    if torn:
        record.warnings.append(f"the record may be incomplete: {torn}")
    if record.trouble:
        return record
    number, lines = stated(record, count_key), record.peak_lines
    record.mz, record.intensity, bad = peaks_of(lines, None if one_a_line else number, one_a_line)
    n_lines = record.mz.size + bad
    if bad and not record.mz.size:
        record.trouble = f"no m/z and intensity in {counted(bad, 'peak line')}; restore the file"
    elif bad:
        record.warnings.append(f"{bad} of {n_lines} peak lines were not readable and left out")
    if number not in (None, n_lines):
        said = f"{called} says {record.metadata[count_key]}, and there are {n_lines}"
        record.warnings.append(said)
    return record


_BEGIN_IONS: Final = re.compile(r"\s*BEGIN\s+IONS\s*", re.IGNORECASE)
_END_IONS: Final = re.compile(r"\s*END\s+IONS\s*", re.IGNORECASE)
_COMMENT: Final = ("#", ";", "!", "/")
_STRAY_END: Final = "END IONS stands without BEGIN IONS"
_STRAY_PEAKS: Final = "peaks stand without BEGIN IONS; restore that line"
_MASSSPECGYM: Final = frozenset({"fold", "identifier"})  # its energies are in eV by definition


def mgf_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MGF in order, as many as there are BEGIN IONS and stray END IONS.

    As MZmine, MS-DIAL, GNPS, SIRIUS, MetaboScape, Progenesis and MassSpecGym write it.
    """
    shared: dict[str, str] = {}  # of lines outside records, which hold for all that follow
    record, is_open = Record(), False
    for line in lines:
        key, equals, value = line.partition("=")
        if line[:1].isdigit():
            record.add_peak(line)
        elif _BEGIN_IONS.fullmatch(line):
            if is_open:
                yield _mgf_record(record, shared, "it has no END IONS")
            elif any(map(PEAK.match, record.peak_lines)):
                yield Record(trouble=_STRAY_PEAKS)
            else:
                shared |= record.metadata
            record, is_open = Record(), True
        elif _END_IONS.fullmatch(line):
            # Parameters before a stray END IONS belonged to its record, so they are not shared.
            yield _mgf_record(record, shared) if is_open else Record(trouble=_STRAY_END)
            record, is_open = Record(), False
        elif equals:
            record.add_field(key.strip().lower(), value.strip())
        elif line.startswith("Num Peaks:"):  # as MS-DIAL writes it
            record.add_field("num peaks", line.partition(":")[2].strip())
        elif key.strip() and not key.lstrip().startswith(_COMMENT):
            record.add_peak(line)
    if is_open:
        yield _mgf_record(record, shared, "the file ends within it")
    elif any(map(PEAK.match, record.peak_lines)):
        yield Record(trouble=_STRAY_PEAKS)


def _mgf_record(record: Record, shared: dict[str, str], torn: str = "") -> Record:
    """The record, its own parameters over the shared ones."""
    record.metadata = shared | record.metadata
    record.energy_in_ev = record.metadata.keys() >= _MASSSPECGYM
    return finished(record, one_a_line=False, torn=torn)


_MSP_KEY: Final = re.compile(r"\s*([A-Za-z$][^:=]{0,60}?)\s*:")
# Num Peaks, NumPeaks, Num Features, Number of peaks, Peak count, ...
_PEAK_COUNT: Final = re.compile(
    r"(?:num|number|no\.?|n)[ _-]?(?:of[ _-]?)?(?:ms2?[ _-]?)?(?:peaks?|features|ions|signals)|"
    r"peaks?[ _-]?count|(?:peaks|features)",
    re.IGNORECASE,
)
# MoNA keeps fields as quoted key=value pairs in its comments.
_COMMENT_PAIR: Final = re.compile(
    r"\"([^\"=]+)=([^\"]*)\"|(?<![^\s\"])([^\s\"=]+)=(?:\"([^\"]*)\"|(\S+))"
)
_NOMINAL: Final = Failure(
    "unsupported_measurement",
    "it has nominal masses and no precursor, as spectra of electron ionisation have; give MS/MS "
    "spectra of high resolution, with their precursor m/z",
)
_FEWEST_NOMINAL: Final = 4  # peaks that tell


@dataclass(slots=True, eq=False)
class _Entry(Record):
    """Lines of one record of MSP so far."""

    count_key: str = ""  # of the field that states the number of peaks
    in_peaks: bool = False  # a count of peaks, or a peak, was seen
    is_over: bool = False  # a blank line ended it; only further peaks may still belong to it

    @property
    def n_stated(self) -> int | None:
        """The number of its peaks that it states, if it does."""
        return stated(self, self.count_key)

    def ends_before(self, key: str) -> bool:
        """Whether a field is the next record's: after peaks, or a second name."""
        if self.in_peaks and not self.is_over:
            return bool(self.peak_lines) or key in self.metadata or self.n_stated == 0
        return self.is_over or (key == "name" and key in self.metadata)

    def take_field(self, key: str, value: str) -> None:
        """Take a field, or those that stand in a comment."""
        if key in {"comment", "comments"} and "=" in value:
            for match in _COMMENT_PAIR.finditer(value):
                name = (match[1] or match[3]).strip().lower()
                self.add_field(name, (match[2] or match[4] or match[5] or "").strip(" ;"))
            return
        self.add_field(key, value)
        if not self.in_peaks and _PEAK_COUNT.fullmatch(key):
            self.count_key, self.in_peaks = key, True
            if PEAK.match(value):  # those of GOLM and others stand in the same line
                self.add_peak(value)

    def take_other(self, line: str) -> None:
        """Take a line that is no field: a peak, a blank one, or the rest of a comment."""
        if line.strip():
            # Whatever the line above them is called, two numbers are peaks.
            is_peak = PEAK.match(line) is not None and bool(self.metadata)
            self.in_peaks |= is_peak
            if is_peak or (self.in_peaks and not self.is_over):
                self.add_peak(line)
        elif self.in_peaks:  # after peaks, or where there are none, a blank line ends the record
            self.is_over |= bool(self.peak_lines) or self.n_stated in {None, 0}

    def ended(self) -> Record:
        """The record; what has nominal masses and no precursor is of electron ionisation."""
        finished(self, self.count_key, self.count_key.title(), one_a_line=False)
        names = set(map(canonical_key, self.metadata))
        is_nominal = self.mz.size >= _FEWEST_NOMINAL and not names & {*PRECURSOR, *ADDUCT}
        if is_nominal and (self.mz == np.rint(self.mz)).all():
            self.warnings, self.refusal = [], _NOMINAL
        elif not self.count_key:
            self.warnings.append("the record has no Num Peaks")
        return self


def msp_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MSP in order, whatever the order of their fields.

    As NIST, MassBank of North America (MoNA), RIKEN, MS-DIAL and mzmine write it. A record ends at
    a field after its peaks, or at a second NAME. An MSTYPE after peaks (MS-FINDER) begins another
    spectrum of the same compound.
    """
    entry = _Entry()
    for line in lines:
        match = None if line[:1].isdigit() else _MSP_KEY.match(line)
        if match is None:
            entry.take_other(line)
            continue
        key = match[1].lower()
        if entry.ends_before(key):
            yield entry.ended()
            shared = entry.metadata if key == "mstype" and not entry.is_over else {}
            own = {"mstype", entry.count_key}
            entry = _Entry({name: value for name, value in shared.items() if name not in own})
        entry.take_field(key, line[match.end() :].strip())
    if entry.metadata:
        yield entry.ended()


_SIRIUS_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?")
_SIRIUS_BLOCK: Final = re.compile(r"ms([1-9])(?:merged)?(?:peaks)?|collision|msms|peaks")


def sirius_records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of SIRIUS ``.ms``: compounds, each with any number of MS1 and MS2 blocks, in order.

    Blocks of one compound share its ``>feature_id``, or its name where it has none, so that
    collision energies are read together.
    """
    compound, spectra, header = Record(), list[Record](), "compound"
    for line in chain(lines, [">compound"]):  # which ends the last one
        mark, match = line[:1], _SIRIUS_FIELD.match(line)
        if match is None:
            if not line.strip() or mark in {">", "#"}:
                continue
            # Below a name that is no block's two numbers are peaks too.
            if header and compound.metadata and PEAK.match(line):
                compound.warnings.append(f"peaks below >{clip(header)} are read as MS2")
                _begin(spectra, compound, "2", "")
                header = ""
            if not header:
                (spectra or [compound])[-1].add_peak(line)
            continue
        key, value = match[1].lower(), line[match.end() :].strip()
        if key == "compound" and mark == ">":
            yield from _spectra_of(compound, spectra)
            compound, spectra = Record(), []
        block = _SIRIUS_BLOCK.fullmatch(key)
        if block is None:
            compound.add_field(key, value)
            header = key if mark == ">" else header
        elif mark == ">":
            _begin(spectra, compound, block[1] or "2", value if key == "collision" else "")
            header = ""


def _begin(spectra: list[Record], compound: Record, level: str, energy: str) -> None:
    """Begin a spectrum: ">ms2" and ">collision 35" in a row, in either order, are one."""
    last = spectra[-1] if spectra else compound
    fields = {"ms_level": level} | ({"collision_energy": energy} if energy else {})
    if level != "1" and spectra and last.metadata["ms_level"] == level and not last.peak_lines:
        last.metadata |= fields
    elif not last.trouble:  # what is too long for a record is too long for a compound
        spectra.append(Record(fields, size=last.size, time_in_s=True))
        spectra[-1].count(COST + len(energy))


def _spectra_of(compound: Record, spectra: Sequence[Record]) -> Iterator[Record]:
    """The spectra of a compound; without a block it gives one without peaks."""
    fields = compound.metadata
    if not fields and not spectra:
        return
    # In this format the "parent mass" is the m/z of the ion.
    fields["precursor_mz"] = fields.get("parentmass", "")
    for name in ("title", "feature_id"):
        fields.setdefault(name, fields.get("compound", ""))
    for record in spectra or [Record({"ms_level": "2"}, time_in_s=True)]:
        record.warnings = compound.warnings[:] if record.metadata["ms_level"] != "1" else []
        record.metadata, record.repeated = fields | record.metadata, compound.repeated
        record.trouble = record.trouble or compound.trouble
        yield finished(record, one_a_line=False)


_TAG: Final = re.compile(r"([A-Z]{2}\$[A-Z_]+|[A-Z_]+):\s*(.*)")
_END: Final = re.compile(r"//\s*")
_WITH_SUBTAGS: Final = re.compile(
    r"(?:CH|SP)\$LINK|AC\$(?:MASS_SPECTROMETRY|CHROMATOGRAPHY|GENERAL|ION_MOBILITY)|"
    r"MS\$(?:FOCUSED_ION|DATA_PROCESSING)"
)
_MASSBANK_NAMES: Final = {"iupac": "inchi", "num_peak": "num_peaks"}  # as other formats have them


def massbank_records(lines: Iterable[str]) -> Iterator[Record]:
    """MassBank records: lines ``TAG: value`` or ``TAG: SUBTAG value``, then peaks, and ``//``."""
    record, tag = Record(), ""
    for line in chain(lines, [None]):
        match = None if line is None else _TAG.match(line)
        # Peaks end a record, also where neither // nor ACCESSION stands, as msPurity writes.
        is_next = match is not None and (
            match[1] == "ACCESSION" or (record.peak_lines and not match[1].startswith("PK$"))
        )
        is_end = line is not None and _END.fullmatch(line) is not None
        if is_next or is_end or line is None:
            if record.metadata:
                torn = "" if is_end else "// does not end it"
                yield finished(record, "num_peaks", "PK$NUM_PEAK", torn=torn)
            record = Record()
        if match is not None:
            tag = match[1]
            key, value = tag.partition("$")[2] or tag, match[2].strip()
            if _WITH_SUBTAGS.fullmatch(tag):
                key, _, value = value.partition(" ")
            key = key.lower()
            record.add_field(_MASSBANK_NAMES.get(key, key), value.strip())
        elif line and not is_end and tag != "PK$ANNOTATION" and line.strip():
            record.add_peak(line)
        tag = "" if is_end else tag


def table_records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows of a table in the MassSpecGym layout in order: one spectrum a row, peaks in two columns.

    Tabs, semicolons or commas divide the cells. Energies without unit are in eV unless the text as
    recorded is given too.

    Raises:
        UnreadableError: Two columns have one name.
    """
    rows = lines_of(iter(lines), "\t;,", {"mzs", "intensities"})
    names = [cell.lower() for cell in next(rows, Line(1, ())).cells]
    refuse_repeated("the table", names, names, set(names) - {""})
    if not {"mzs", "intensities"} <= set(names):
        raise UnreadableError("the table names no columns mzs and intensities in its first line")
    for row in rows:
        fields, fault = dict(zip(names, row.cells, strict=False)), row.fault
        if row.missing:  # it may be torn
            cells = counted(len(names) - row.missing, "column")
            fault = f"the row has {cells} and the header {len(names)}"
            if sum(map(len, row.cells)) >= LONGEST_LINE // 2:  # its line was cut
                fault = TOO_LARGE
        yield Record(fields, trouble=fault) if fault else _row(fields)


def _row(cells: dict[str, str]) -> Record:
    as_recorded = cells.get("collision_energy_text", "")
    if as_recorded:
        cells["collision_energy"] = as_recorded
    columns = [cells.pop(name).strip("[]() ").replace(",", " ") for name in ("mzs", "intensities")]
    if max(numbers.count(" ") for numbers in columns) > 2 * MOST_PEAKS:
        return Record(cells, trouble=TOO_LARGE)
    try:
        if any("_" in numbers or not numbers.isascii() for numbers in columns):
            raise ValueError
        mz, intensity = (np.array(numbers.split(), dtype=np.float64) for numbers in columns)
    except ValueError:
        trouble = "its columns mzs and intensities must hold numbers separated by commas"
        return Record(cells, trouble=trouble)
    return Record(cells, mz, intensity, energy_in_ev=not as_recorded)
