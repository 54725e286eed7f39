"""Spectral libraries: mzSpecLib 1.0 as text and as JSON, and JSON of matchms and GNPS.

Sections of the text begin with ``<Spectrum=1>``, ``<Analyte=1>`` and ``<Peaks>``; attributes are
lines such as ``MS:1000744|selected ion m/z=195.0877``, those of one group with ``[1]`` before them.
JSON is cut into its spectra before any is parsed, so that a broken one costs no other and a library
larger than memory can be read.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.spectra.reading.record import (
    LONGEST_LINE,
    MOST_PEAKS,
    TOO_LARGE,
    Block,
    Record,
    peak_record,
)

_SECTION: Final = re.compile(r"\s*<\s*(\w+)(?:\s+(\w+))?(?:\s*=\s*([^>]*))?>\s*")
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
    for name, value, group in attributes:
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
            if in_peaks and line.strip():  # m/z, intensity, and annotations that are not used
                entry.add_peak("\t".join(line.split(None, 2)[:2]))
            elif takes is not None:
                takes.add(line)
            continue
        name, of, value = (text.strip().lower() for text in section.groups(""))
        if name == "spectrum":
            if in_spectrum:
                yield entry.record(shared)
            entry, in_spectrum = _Attributes(), True
        in_peaks = in_spectrum and name == "peaks"
        of_all = name == "attributeset" and (of, value) == ("spectrum", "all")
        own = entry if in_spectrum and name in {"spectrum", "analyte"} else None
        takes = shared if of_all else own
    if in_spectrum:
        yield entry.record(shared)


@dataclass(slots=True)
class _Attributes(Block):
    """Attributes, as names, values and groups, and peak lines of one spectrum."""

    listed: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Take a line of an attribute."""
        found = _ATTRIBUTE.fullmatch(line)
        if found is not None:
            self.count(len(line) + _ATTRIBUTE_COST)
            if not self.trouble:
                self.listed.append((found[2], found[3], found[1] or ""))

    def record(self, shared: "_Attributes") -> Record:
        """The record, its own attributes before those of all spectra."""
        self.metadata = fields_of(shared.listed) | fields_of(self.listed)
        return peak_record(self, self.peaks)


_TOKEN: Final = re.compile(r'["\\{}\[\]]')
_OF_SPECTRA: Final = re.compile(r'"spectra"[^"]*\Z')
_PEAKS: Final = ("peaks_json", "peaks")
_OF_ATTRIBUTE: Final = ("name", "value", "cv_param_group")
_TORN: Final = "the file ends within it"
_LONGEST_VALUE: Final = 10_000  # characters of a field; longer ones are comments
_LONGEST_KEY: Final = 1000  # with the blanks around it
_DEEPEST: Final = 1000


def json_records(blocks: Iterable[str]) -> Iterator[Record]:
    """Spectra of JSON text in order: those of a list, or of the list ``spectra`` of an object.

    Args:
        blocks: Of the text, of any length.
    """
    for text, trouble in _objects(blocks):
        yield Record({}, trouble=trouble) if trouble else _record(text)


class _Cutter:
    """Where the objects of the list of spectra begin and end."""

    def __init__(self) -> None:
        self.open: list[str] = []  # brackets
        self._in_string = self._of_spectra = False  # whether the outermost object's list is theirs
        self._before = ""  # the end of the blocks before
        self._escaped = -1  # place of a character that means itself

    def ends(self, block: str) -> Iterator[tuple[int, bool]]:
        """Place of each bracket that begins (True) or that ends an object of the list."""
        for match in _TOKEN.finditer(block):
            at, token = match.start(), match[0]
            if not self._in_string and token in "{}[]":
                yield from self._bracket(block, at, token)
            elif token == '"' and at != self._escaped:
                self._in_string = not self._in_string
            elif token == "\\" and at != self._escaped and self._in_string:
                self._escaped = at + 1
        self._escaped = 0 if self._escaped == len(block) else -1
        self._before = (self._before + block)[-_LONGEST_KEY:]

    def _bracket(self, block: str, at: int, token: str) -> Iterator[tuple[int, bool]]:
        if token in "{[":
            if token == "{" and self._in_list():
                yield at, True
            if self.open == ["{"]:
                before = (self._before + block[:at])[-_LONGEST_KEY:]
                self._of_spectra = _OF_SPECTRA.search(before) is not None
            self.open.append(token)
        elif self.open:
            self.open.pop()
            if token == "}" and self._in_list():
                yield at + 1, False

    def _in_list(self) -> bool:
        return self.open == ["["] or (self.open == ["{", "["] and self._of_spectra)


def _objects(blocks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Text of each spectrum, or why there is none."""
    cutter = _Cutter()
    parts: list[str] | None = None
    size = 0
    for block in blocks:
        start = 0
        for at, begins in cutter.ends(block):
            if begins:
                parts, start, size = [], at, 0
            elif parts is not None:
                text = "".join([*parts, block[start:at]])
                yield (text, "") if size + at - start <= LONGEST_LINE else ("", TOO_LARGE)
                parts = None
        if len(cutter.open) > _DEEPEST:
            yield "", "its lists are nested too deeply; restore the file"
            return
        if parts is not None:
            size += len(block) - start
            parts = [*parts, block[start:]] if size <= LONGEST_LINE else []
    if parts is not None:
        yield "", TOO_LARGE if size > LONGEST_LINE else _TORN


def _record(text: str) -> Record:
    try:
        values = json.loads(text)
        (mz, intensity), fields = _peaks(values), _fields(values)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        said = " ".join(str(error).split())[:100]
        return Record({}, trouble=f"it is no spectrum in JSON ({said})")
    return Record(fields, mz, intensity, TOO_LARGE if mz.size > MOST_PEAKS else "")


def _peaks(values: Mapping[str, Any]) -> Sequence[NDArray[np.float64]]:
    """m/z and intensity."""
    if "mzs" in values:
        columns = values["mzs"], values["intensities"]
        return [np.array(column, np.float64).reshape(-1) for column in columns]
    name = next((key for key in _PEAKS if key in values), "")
    if not name:
        raise KeyError("no peaks_json, peaks or mzs")
    rows = values[name]
    rows = json.loads(rows) if isinstance(rows, str) else rows
    table = np.array([row[:2] for row in rows], np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _fields(values: Mapping[str, Any]) -> dict[str, str]:
    if "attributes" in values:
        analytes = values.get("analytes") or {}
        others = analytes.values() if isinstance(analytes, Mapping) else analytes
        listed = chain(values["attributes"], *(one.get("attributes", ()) for one in others))
        return fields_of([str(one.get(name, "")) for name in _OF_ATTRIBUTE] for one in listed)
    return {
        key.lower(): str(value)
        for key, value in values.items()
        if key not in _PEAKS
        and isinstance(value, str | float | int)
        and len(str(value)) <= _LONGEST_VALUE
    }
