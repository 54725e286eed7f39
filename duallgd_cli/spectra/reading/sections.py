"""Text formats whose records have parts: SIRIUS ``.ms``, MassBank, mzSpecLib, and tables."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from duallgd_cli.errors import UnreadableError, clip, counted, quote
from duallgd_cli.spectra.reading.record import LONGEST_LINE, MOST_PEAKS, TOO_LARGE, Record
from duallgd_cli.spectra.reading.text import PEAK, TORN, Block
from duallgd_cli.tables import Line, lines_of

_SIRIUS_FIELD: Final = re.compile(r"[>#]\s*([A-Za-z][\w/-]*)[:=]?")
# Characters that a spectrum in memory takes the place of, or an attribute.
_COST: Final = 300
_SIRIUS_BLOCK: Final = re.compile(r"ms([1-9])(?:merged)?(?:peaks)?|collision|msms|peaks")


def sirius_records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of SIRIUS ``.ms``: compounds, each with any number of MS1 and MS2 blocks, in order.

    Blocks of one compound share its ``>feature_id``, or its name where it has none, so that
    collision energies are read together.
    """
    compound, spectra, header = Block(), list[Block](), "compound"
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
            compound, spectra = Block(), []
        block = _SIRIUS_BLOCK.fullmatch(key)
        if block is None:
            compound.add_field(key, value)
            header = key if mark == ">" else header
        elif mark == ">":
            _begin(spectra, compound, block[1] or "2", value if key == "collision" else "")
            header = ""


def _begin(spectra: list[Block], compound: Block, level: str, energy: str) -> None:
    """Begin a spectrum: ">ms2" and ">collision 35" in a row, in either order, are one."""
    last = spectra[-1] if spectra else compound
    fields = {"ms_level": level} | ({"collision_energy": energy} if energy else {})
    if level != "1" and spectra and last.metadata["ms_level"] == level and not last.peaks:
        last.metadata |= fields
    elif not last.trouble:  # what is too long for a record is too long for a compound
        block = Block(fields, size=last.size)
        block.count(_COST + len(energy))
        spectra.append(block)


def _spectra_of(compound: Block, spectra: Sequence[Block]) -> Iterator[Record]:
    """The spectra of a compound; without a block it gives one without peaks."""
    fields = compound.metadata
    if not fields and not spectra:
        return
    # In this format the "parent mass" is the m/z of the ion.
    fields["precursor_mz"] = fields.get("parentmass", "")
    for name in ("title", "feature_id"):
        fields.setdefault(name, fields.get("compound", ""))
    for block in spectra or [Block({"ms_level": "2"})]:
        block.warnings = compound.warnings if block.metadata["ms_level"] != "1" else []
        block.metadata, block.repeated = fields | block.metadata, compound.repeated
        block.trouble = block.trouble or compound.trouble
        yield replace(block.record(one_a_line=False), time_in_s=True)


_TAG: Final = re.compile(r"([A-Z]{2}\$[A-Z_]+|[A-Z_]+):\s*(.*)")
_END: Final = re.compile(r"//\s*")
_WITH_SUBTAGS: Final = re.compile(
    r"(?:CH|SP)\$LINK|AC\$(?:MASS_SPECTROMETRY|CHROMATOGRAPHY|GENERAL|ION_MOBILITY)|"
    r"MS\$(?:FOCUSED_ION|DATA_PROCESSING)"
)
_MASSBANK_NAMES: Final = {"iupac": "inchi", "num_peak": "num_peaks"}  # as other formats have them


def massbank_records(lines: Iterable[str]) -> Iterator[Record]:
    """MassBank records: lines ``TAG: value`` or ``TAG: SUBTAG value``, then peaks, and ``//``."""
    block, tag = Block(), ""
    for line in chain(lines, [None]):
        match = None if line is None else _TAG.match(line)
        # Peaks end a record, also where neither // nor ACCESSION stands, as msPurity writes.
        is_next = match is not None and (
            match[1] == "ACCESSION" or (block.peaks and not match[1].startswith("PK$"))
        )
        is_end = line is not None and _END.fullmatch(line) is not None
        if is_next or is_end or line is None:
            if block.metadata:
                block.warnings += [] if is_end else [f"{TORN}: // does not end it"]
                yield block.record("num_peaks", "PK$NUM_PEAK")
            block = Block()
        if match is not None:
            tag = match[1]
            key, value = tag.partition("$")[2] or tag, match[2].strip()
            if _WITH_SUBTAGS.fullmatch(tag):
                key, _, value = value.partition(" ")
            key = key.lower()
            block.add_field(_MASSBANK_NAMES.get(key, key), value.strip())
        elif line and not is_end and tag != "PK$ANNOTATION" and line.strip():
            block.add_peak(line)
        tag = "" if is_end else tag


_SECTION: Final = re.compile(r"\s*<\s*(\w+)(?:\s+(\w+))?(?:\s*=\s*([^>]*))?>\s*")
# Attributes without a term of the vocabulary: a name and a value in one group.
_OTHER_NAME, _OTHER_VALUE = "other attribute name", "other attribute value"
_ATTRIBUTE: Final = re.compile(r"\s*(?:\[(\d+)\])?\s*[A-Za-z]+:\w+\|([^=]+)=(.*)")
_ACCESSION: Final = re.compile(r"[A-Za-z]+:\d+\|")
# Terms of the PSI-MS vocabulary by the names that readers of other formats know.
_TERMS: Final = {
    "library spectrum key": "spectrum_id",
    "library spectrum name": "title",
    "experimental precursor monoisotopic m/z": "precursor_mz",
    "selected ion m/z": "precursor_mz",
    "charge state": "charge",
    "scan polarity": "ionmode",
    "adduct ion": "adduct",
    "adduct ion formula": "adduct",
    "molecular formula": "formula",
    "smiles formula": "smiles",  # dropped where structures are not asked for
    "instrument model": "instrument",
    "retention time": "rt",
    "scan start time": "rt",
    "scan number": "scans",
}
_UNITS: Final = {"minute": "min", "second": "s", "electronvolt": "eV", "volt": "V", "percent": "%"}


def fields_of(attributes: Iterable[Sequence[str]]) -> dict[str, str]:
    """Fields from name, value and group of attributes; a unit joins the value of its group."""
    fields: dict[str, str] = {}
    grouped: dict[str, str] = {}
    listed = list(attributes)
    others = {group: value for name, value, group in listed if name.strip().lower() == _OTHER_NAME}
    for name, value, group in listed:
        if name.strip().lower() == _OTHER_VALUE:
            name = others.get(group, name)
        plain = _ACCESSION.sub("", value).strip()
        key = _TERMS.get(name.strip().lower(), name.strip().lower())
        if key == "unit":
            unit, owner = _UNITS.get(plain), grouped.get(group, "")
            if unit and owner:
                fields[owner] = f"{fields[owner]} {unit}"
        elif plain and key not in fields:
            fields[key] = plain
            if group:
                grouped[group] = key
    return fields


@dataclass(slots=True)
class _Attributes(Block):
    """Attributes, as names, values and groups, and peak lines of one spectrum of mzSpecLib."""

    listed: list[tuple[str, str, str]] = field(default_factory=list)
    lines_lost: int = 0  # lines that are neither

    def add(self, line: str) -> None:
        """Take a line of an attribute."""
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute is None:
            self.lines_lost += bool(line.strip())
        else:
            self.count(len(line) + _COST)
            if not self.trouble:
                self.listed.append((attribute[2], attribute[3], attribute[1] or ""))

    def finished(self, shared: "_Attributes") -> Record:
        """The record, its own attributes before those of all spectra."""
        self.metadata = fields_of(shared.listed) | fields_of(self.listed)
        if lost := self.lines_lost + shared.lines_lost:
            self.warnings.append(f"{counted(lost, 'line')} of its attributes could not be read")
        return self.record("number of peaks", "number of peaks")


def mzspeclib_records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of a library in mzSpecLib 1.0 as text.

    Sections begin with ``<Spectrum=1>``, ``<Analyte=1>`` and ``<Peaks>``; attributes are lines such
    as ``MS:1000744|selected ion m/z=195.0877``, those of a group with ``[1]`` before them. A set of
    attributes for all spectra holds for each.
    """
    shared, entry = _Attributes(), _Attributes()
    takes: _Attributes | None = None  # attributes of the section at hand
    in_spectrum = in_peaks = False
    for line in lines:
        section = _SECTION.fullmatch(line)
        if section is None:
            if (in_peaks and line.strip()) or (in_spectrum and PEAK.match(line)):
                # m/z, intensity, and annotations that are not used
                entry.add_peak("\t".join(line.split(None, 2)[:2]))
            elif takes is not None:
                takes.add(line)
            continue
        name, of, value = (text.strip().lower() for text in section.groups(""))
        if name == "spectrum":
            if in_spectrum:
                yield entry.finished(shared)
            entry, in_spectrum = _Attributes(), True
        elif name in {"peaks", "analyte"} and not in_spectrum:
            entry, in_spectrum = _Attributes(lines_lost=1), True
        in_peaks = in_spectrum and name == "peaks"
        of_all = name == "attributeset" and (of, value) == ("spectrum", "all")
        own = entry if in_spectrum and name in {"spectrum", "analyte"} else None
        takes = shared if of_all else own
    if in_spectrum:
        yield entry.finished(shared)


def table_records(lines: Iterable[str]) -> Iterator[Record]:
    """Rows of a table in the MassSpecGym layout in order: one spectrum a row, peaks in two columns.

    Tabs, semicolons or commas divide the cells. Energies without unit are in eV unless the text as
    recorded is given too.

    Raises:
        UnreadableError: Two columns have one name.
    """
    rows = lines_of(iter(lines), "\t;,", {"mzs", "intensities"})
    names = [cell.lower() for cell in next(rows, Line(1, ())).cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise UnreadableError(f"the table has two columns {quote(twice)}; rename or remove one")
    if not {"mzs", "intensities"} <= set(names):
        raise UnreadableError("the table names no columns mzs and intensities in its first line")
    for row in rows:
        cells, fault = dict(zip(names, row.cells, strict=False)), row.fault
        if row.missing:  # it may be torn
            fault = f"the row has {len(names) - row.missing} columns and the header {len(names)}"
            if sum(map(len, row.cells)) >= LONGEST_LINE // 2:  # its line was cut
                fault = TOO_LARGE
        yield Record(cells, trouble=fault) if fault else _row(cells)


def _row(cells: dict[str, str]) -> Record:
    """The spectrum of a row by the names of its columns."""
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
