"""Text formats of records that follow each other, MGF and MSP, and the ways to write peaks.

Not by matchms' or pyteomics' readers: of 22 cases of dialect and damage tried, matchms 0.33 stops
at 11 (``CHARGE=N/A``, a missing END IONS, ...), which loses every later spectrum of the file.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, counted
from duallgd_cli.spectra.reading.record import (
    ADDUCT,
    COMPARED,
    LONGEST_LINE,
    MOST_PEAKS,
    PRECURSOR,
    TOO_LARGE,
    Record,
    canonical_key,
)

TORN: Final = "the record may be incomplete"
_FIELD_COST: Final = 100  # characters that an entry of a dictionary takes the place of
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
    if any(PEAK.match(part) for part in parts):
        # What does not begin with a digit is an annotation.
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


@dataclass(slots=True)
class Block:
    """Fields and peak lines of one record of a text format, as far as they fit."""

    # keys lower case; of a repeated key the first value that is not empty counts
    metadata: dict[str, str] = field(default_factory=dict)
    peaks: list[str] = field(default_factory=list)
    # `TOO_LARGE` once there was more than one spectrum can have; the rest is left out
    trouble: str = ""
    size: int = 0  # characters so far
    # other values of keys that say something of the ion
    repeated: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_field(self, key: str, value: str) -> None:
        """Take a field."""
        self.count(len(key) + len(value) + _FIELD_COST)
        if not self.trouble and not self.metadata.get(key):
            self.metadata[key] = value
        elif not self.trouble and self.metadata[key] != value and canonical_key(key) in COMPARED:
            self.repeated.append((key, value))

    def add_peak(self, line: str) -> None:
        """Take a line of peaks."""
        self.count(len(line))
        if len(self.peaks) >= MOST_PEAKS:
            self.trouble = TOO_LARGE
        if not self.trouble:
            self.peaks.append(line)

    def count(self, characters: int) -> None:
        """Take note of what a line holds."""
        self.size += characters
        if self.size > LONGEST_LINE:
            self.trouble = TOO_LARGE

    def stated(self, key: str) -> int | None:
        """The number that a field is, such as that of peaks; None for none."""
        text = self.metadata.get(key, "")
        return int(text) if _COUNT.fullmatch(text) else None

    @property
    def has_peaks(self) -> bool:
        """Whether any line is one of peaks."""
        return any(map(PEAK.match, self.peaks))

    def record(self, count_key: str = "", called: str = "", one_a_line: bool = True) -> Record:
        """The record, with what is wrong about its peaks said in it.

        Args:
            count_key: Key of the field that states their number, if there is one.
            called: Its name in the file.
            one_a_line: Whether the format has each peak in a line of its own; else they are told
                apart by signs between them, or by their number.
        """
        if self.trouble:
            return Record(self.metadata, trouble=self.trouble)
        number = self.stated(count_key)
        mz, intensity, bad = peaks_of(self.peaks, None if one_a_line else number, one_a_line)
        n_lines, warnings, trouble = mz.size + bad, [*self.warnings], ""
        if bad and not mz.size:
            trouble = f"no m/z and intensity in {counted(bad, 'peak line')}; restore the file"
        elif bad:
            warnings.append(f"{bad} of {n_lines} peak lines were not readable and left out")
        if number not in (None, n_lines):
            warnings.append(f"{called} says {self.metadata[count_key]}, and there are {n_lines}")
        repeated = tuple(self.repeated)
        return Record(self.metadata, mz, intensity, trouble, tuple(warnings), repeated=repeated)


_BEGIN_IONS: Final = re.compile(r"\s*BEGIN\s+IONS\s*", re.IGNORECASE)
_END_IONS: Final = re.compile(r"\s*END\s+IONS\s*", re.IGNORECASE)
_COMMENT: Final = ("#", ";", "!", "/")
_STRAY_END: Final = Record({}, trouble="END IONS stands without BEGIN IONS")
_STRAY_PEAKS: Final = Record({}, trouble="peaks stand without BEGIN IONS; restore that line")
_MASSSPECGYM: Final = frozenset({"fold", "identifier"})  # its energies are in eV by definition


def mgf_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MGF in order, as many as there are BEGIN IONS and stray END IONS.

    As MZmine, MS-DIAL, GNPS, SIRIUS, MetaboScape, Progenesis and MassSpecGym write it.
    """
    shared: dict[str, str] = {}  # of lines outside records, which hold for all that follow
    block, is_open = Block(), False
    for line in lines:
        key, equals, value = line.partition("=")
        if line[:1].isdigit():
            block.add_peak(line)
        elif _BEGIN_IONS.fullmatch(line):
            if is_open:
                yield _mgf_record(block, shared, "it has no END IONS")
            elif block.has_peaks:
                yield _STRAY_PEAKS
            else:
                shared |= block.metadata
            block, is_open = Block(), True
        elif _END_IONS.fullmatch(line):
            # Parameters before a stray END IONS belonged to its record, so they are not shared.
            yield _mgf_record(block, shared) if is_open else _STRAY_END
            block, is_open = Block(), False
        elif equals:
            block.add_field(key.strip().lower(), value.strip())
        elif line.startswith("Num Peaks:"):  # as MS-DIAL writes it
            block.add_field("num peaks", line.partition(":")[2].strip())
        elif key.strip() and not key.lstrip().startswith(_COMMENT):
            block.add_peak(line)
    if is_open:
        yield _mgf_record(block, shared, "the file ends within it")
    elif block.has_peaks:
        yield _STRAY_PEAKS


def _mgf_record(block: Block, shared: Mapping[str, str], torn: str = "") -> Record:
    """The record, its own parameters over the shared ones."""
    block.metadata = {**shared, **block.metadata}
    block.warnings += [f"{TORN}: {torn}"] if torn else []
    return replace(
        block.record(one_a_line=False), energy_in_ev=block.metadata.keys() >= _MASSSPECGYM
    )


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
    "read",
)
_FEWEST_NOMINAL: Final = 4  # peaks that tell


@dataclass(slots=True)
class _Entry(Block):
    """Lines of one record of MSP so far."""

    in_peaks: bool = False  # A count of peaks, or a peak, was seen
    is_over: bool = False  # A blank line ended it; only further peaks may still belong to it

    @property
    def count_key(self) -> str:
        """Key of the field that states the number of peaks, else ""."""
        return next(filter(_PEAK_COUNT.fullmatch, self.metadata), "")

    @property
    def expected(self) -> int | None:
        """The number of peaks that the record states; None where it states none."""
        return self.stated(self.count_key)

    def ends_before(self, key: str) -> bool:
        """Whether a field is the next record's: after peaks, or a second name."""
        if self.is_over:
            return True
        if self.in_peaks:
            return bool(self.peaks) or key in self.metadata or self.expected == 0
        return key == "name" and key in self.metadata

    def take_field(self, key: str, value: str) -> None:
        """Take a field, or those that stand in a comment."""
        if key in {"comment", "comments"} and "=" in value:
            for match in _COMMENT_PAIR.finditer(value):
                name = (match[1] or match[3]).strip().lower()
                self.add_field(name, (match[2] or match[4] or match[5] or "").strip(" ;"))
        else:
            self.add_field(key, value)
        if not self.in_peaks and _PEAK_COUNT.fullmatch(key):
            self.in_peaks = True
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
            self.is_over |= bool(self.peaks) or self.expected in {None, 0}

    def next(self, key: str) -> "_Entry":
        """The beginning of the next record, whose first field is `key`."""
        if key != "mstype" or self.is_over:
            return _Entry()
        own = {"mstype", *filter(_PEAK_COUNT.fullmatch, self.metadata)}
        return _Entry({k: v for k, v in self.metadata.items() if k not in own})

    def finished(self) -> Record:
        """The record; what has nominal masses and no precursor is of electron ionisation."""
        count_key = self.count_key
        record = self.record(count_key, count_key.title(), one_a_line=False)
        names = set(map(canonical_key, self.metadata))
        is_nominal = record.mz.size >= _FEWEST_NOMINAL and not names & {*PRECURSOR, *ADDUCT}
        if is_nominal and (record.mz == np.rint(record.mz)).all():
            return replace(record, warnings=(), refusal=_NOMINAL)
        if not count_key:
            return replace(record, warnings=(*record.warnings, "the record has no Num Peaks"))
        return record


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
            yield entry.finished()
            entry = entry.next(key)
        entry.take_field(key, line[match.end() :].strip())
    if entry.metadata:
        yield entry.finished()
