"""Text formats: MGF, MSP, SIRIUS ``.ms`` and tables.

A pass of our own over MGF instead of matchms' or pyteomics' reader: of 22 cases of dialect and
damage tried, matchms 0.33 stops at 11 (``CHARGE=N/A``, a PEPMASS that is no number, a text as third
column, comma-separated peaks, a missing END IONS, Latin-1, ...), which loses every later spectrum
of the file, and misses the record in two (lower case, a byte-order mark).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UnreadableError, quote
from duallgd_cli.spectra.reading.record import (
    LONGEST_LINE,
    MOST_PEAKS,
    TOO_LARGE,
    Block,
    Record,
    peak_record,
)

_BEGIN_IONS: Final = re.compile(r"\s*BEGIN\s+IONS\s*", re.IGNORECASE)
_END_IONS: Final = re.compile(r"\s*END\s+IONS\s*", re.IGNORECASE)
_COMMENT: Final = ("#", ";", "!", "/")
_STRAY_END: Final = "END IONS stands without BEGIN IONS"
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
    return peak_record(block, block.peaks, warnings, block.metadata.keys() >= _MASSSPECGYM)


_MSP_KEY: Final = re.compile(r"\s*([A-Za-z$][^:=]{0,60}?)\s*:")
_PEAK_COUNT: Final = re.compile(r"num ?peaks", re.IGNORECASE)
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# MoNA keeps fields as quoted key=value pairs in its comments.
_COMMENT_PAIR: Final = re.compile(
    r"\"([^\"=]+)=([^\"]*)\"|(?<![^\s\"])([^\s\"=]+)=(?:\"([^\"]*)\"|(\S+))"
)


@dataclass(slots=True)
class _Entry(Block):
    """Lines of one record so far.

    Attributes:
        in_peaks: The field Num Peaks was seen.
        before: Fields that stand before a blank line, which may belong to a record of their own.
    """

    in_peaks: bool = False
    before: dict[str, str] = field(default_factory=dict)

    def ends_with(self, line: str) -> bool:
        """Whether a blank line ends the record: after its peaks, or where it says it has none."""
        if line.strip() or not self.in_peaks:
            return False
        return bool(self.peaks) or _expected(self.metadata) in {None, 0}

    def ends_before(self, key: str) -> bool:
        """Whether a field is the next record's: after peaks, or a second name."""
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

    def pause(self) -> None:
        """Take a blank line between fields."""
        if not self.in_peaks:
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
        if key == "mstype":
            own = {"mstype", *filter(_PEAK_COUNT.fullmatch, self.metadata)}
            shared = {k: v for k, v in self.metadata.items() if k not in own}
            return self, _Entry(shared)
        if self.in_peaks or "name" in self.metadata:
            self.join()
            return self, _Entry()
        return _Entry(self.before, trouble=self.trouble), _Entry(self.metadata)


def msp_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MSP in order, whatever the order of their fields.

    As NIST, MassBank of North America (MoNA), RIKEN and MS-DIAL write it.

    A record ends at a blank line after its peaks, at a field after its peaks, or at a second NAME.
    An MSTYPE after peaks (MS-FINDER) begins another spectrum of the same compound.
    """
    entry = _Entry()
    for line in lines:
        match = None if line[:1].isdigit() else _MSP_KEY.match(line)
        key = match[1].lower() if match else ""
        if entry.ends_before(key) if match is not None else entry.ends_with(line):
            done, entry = entry.split(key)
            yield _finish(done)
        if match is not None:
            entry.take(key, line[match.end() :].strip())
        elif not line.strip():
            entry.pause()
        elif entry.in_peaks:
            entry.add_peak(line)
    entry.join()
    if entry.metadata:
        yield _finish(entry)


def _expected(metadata: Mapping[str, str]) -> int | None:
    """The number of peaks that a record states; None where it states none."""
    stated = next((metadata[key] for key in metadata if _PEAK_COUNT.fullmatch(key)), "")
    return int(stated) if _COUNT.fullmatch(stated) else None


def _finish(entry: _Entry) -> Record:
    expected = _expected(entry.metadata)
    record = peak_record(entry, _one_peak_a_line(entry.peaks, expected))
    if not any(map(_PEAK_COUNT.fullmatch, entry.metadata)):
        warning = "the record has no Num Peaks"
    elif expected is not None and expected != record.mz.size:
        warning = f"Num Peaks says {expected}, and there are {record.mz.size}"
    else:
        return record
    return replace(record, warnings=(*record.warnings, warning))


def _one_peak_a_line(lines: list[str], expected: int | None) -> list[str]:
    """Split lines such as ``41 3; 42 10;`` or ``41 3 42 10``; annotations in quotes are dropped."""
    plain = [_QUOTED.sub("", line) if '"' in line or "'" in line else line for line in lines]
    plain = [line.replace(":", " ") for line in plain]  # 41:3 42:10, as GOLM writes
    if any(";" in line for line in plain):
        return [part for line in plain for part in line.split(";", MOST_PEAKS) if part.strip()]
    if expected is None or expected == len(plain):
        return plain
    tokens = [token for line in plain for token in line.split(None, 2 * MOST_PEAKS)]
    if len(tokens) == 2 * expected:
        return [" ".join(tokens[i : i + 2]) for i in range(0, len(tokens), 2)]
    return plain


_SIRIUS_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?")
_MS1: Final = frozenset({"ms1", "ms1merged", "ms1peaks", "ms1mergedpeaks"})
_MS2: Final = frozenset({"ms2", "ms2peaks", "ms2merged", "collision", "ms2mergedpeaks"})


@dataclass(slots=True)
class _Compound(Block):
    """Fields and peak lines of one compound.

    Attributes:
        spectra: Level, collision energy and index of the first peak line of each spectrum.
    """

    spectra: list[tuple[str, str, int]] = field(default_factory=list)

    def begin(self, level: str, energy: str) -> None:
        """Begin a spectrum: ">ms2" and ">collision 35" in a row, in either order, are one."""
        if level == "2" and self.spectra and self.spectra[-1][::2] == ("2", len(self.peaks)):
            _, earlier, _ = self.spectra.pop()
            energy = energy or earlier
        self.count(len(energy))
        self.spectra += [] if self.trouble else [(level, energy, len(self.peaks))]

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
            yield replace(peak_record(block, self.peaks[start:end]), time_in_s=True)


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
            if line.strip() and mark not in {">", "#"} and compound.spectra:
                compound.add_peak(line)
            continue
        key, value = match[1].lower(), line[match.end() :].strip()
        if key == "compound" and mark == ">":
            yield from compound.records()
            compound = _Compound()
        if key not in _MS1 | _MS2:
            compound.add_field(key, value)
        elif mark == ">":
            compound.begin("1" if key in _MS1 else "2", value if key == "collision" else "")
    yield from compound.records()


def table_records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows of a table in the MassSpecGym layout in order: one spectrum a row, peaks in two columns.

    Energies without unit are in eV unless the text as recorded is given too.

    Raises:
        UnreadableError: Two columns have one name.
    """
    rows = (line for line in lines if line.strip())
    header = [cell.lower() for cell in _cells(next(rows, ""), 1000)]
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise UnreadableError(f"the table has two columns {quote(twice)}; rename or remove one")
    for line in rows:
        cells = dict(zip(header, _cells(line, len(header)), strict=False))
        n = line.count("\t") + 1
        if len(line) > LONGEST_LINE:
            yield Record(cells, trouble=TOO_LARGE)
        elif n != len(header):
            trouble = f"the row has {n} columns and the header {len(header)}"
            yield Record(cells, trouble=trouble)
        else:
            yield _row(cells)


def _cells(line: str, most: int) -> list[str]:
    return [cell.strip().strip('"').strip() for cell in line.split("\t", most)]


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
