"""Spectral libraries in mzSpecLib 1.0 as text, and its attributes, which its JSON has too.

Sections begin with ``<Spectrum=1>``, ``<Analyte=1>`` and ``<Peaks>``; attributes are lines such as
``MS:1000744|selected ion m/z=195.0877``, those of one group with ``[1]`` before them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from duallgd_cli.errors import counted
from duallgd_cli.spectra.reading.record import Block, Record, peak_record
from duallgd_cli.spectra.reading.text import PEAK

_SECTION: Final = re.compile(r"\s*<\s*(\w+)(?:\s+(\w+))?(?:\s*=\s*([^>]*))?>\s*")
# Attributes without a term of the vocabulary: a name and a value in one group.
_OTHER_NAME, _OTHER_VALUE = "other attribute name", "other attribute value"
_ATTRIBUTE: Final = re.compile(r"\s*(?:\[(\d+)\])?\s*[A-Za-z]+:\w+\|([^=]+)=(.*)")
_ACCESSION: Final = re.compile(r"[A-Za-z]+:\d+\|")
# Terms of the PSI-MS vocabulary by the names that readers of other formats know.
_NAMES: Final = {
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
_ATTRIBUTE_COST: Final = 300  # characters that one in memory takes the place of
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
        key = _NAMES.get(name.strip().lower(), name.strip().lower())
        if key == "unit":
            unit, owner = _UNITS.get(plain), grouped.get(group, "")
            if unit and owner:
                fields[owner] = f"{fields[owner]} {unit}"
        elif plain and key not in fields:
            fields[key] = plain
            if group:
                grouped[group] = key
    return fields


def text_records(lines: Iterable[str]) -> Iterator[Record]:
    """Spectra of the library in order; a set of attributes for all spectra holds for each."""
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
                yield entry.record(shared)
            entry, in_spectrum = _Attributes(), True
        elif name in {"peaks", "analyte"} and not in_spectrum:
            entry, in_spectrum = _Attributes(lines_lost=1), True
        in_peaks = in_spectrum and name == "peaks"
        of_all = name == "attributeset" and (of, value) == ("spectrum", "all")
        own = entry if in_spectrum and name in {"spectrum", "analyte"} else None
        takes = shared if of_all else own
    if in_spectrum:
        yield entry.record(shared)


@dataclass(slots=True)
class _Attributes(Block):
    """Attributes, as names, values and groups, and peak lines of one spectrum.

    Attributes:
        lines_lost: Lines that are neither.
    """

    listed: list[tuple[str, str, str]] = field(default_factory=list)
    lines_lost: int = 0

    def add(self, line: str) -> None:
        """Take a line of an attribute."""
        found = _ATTRIBUTE.fullmatch(line)
        if found is None:
            self.lines_lost += bool(line.strip())
        else:
            self.count(len(line) + _ATTRIBUTE_COST)
            if not self.trouble:
                self.listed.append((found[2], found[3], found[1] or ""))

    def record(self, shared: "_Attributes") -> Record:
        """The record, its own attributes before those of all spectra."""
        self.metadata = fields_of(shared.listed) | fields_of(self.listed)
        lost = self.lines_lost + shared.lines_lost
        said = [f"{counted(lost, 'line')} of its attributes could not be read"] if lost else []
        stated = self.metadata.get("number of peaks", "")
        if stated.isdecimal() and int(stated) != len(self.peaks):
            said.append(f"number of peaks says {stated}, and there are {len(self.peaks)}")
        return peak_record(self, self.peaks, tuple(said))
