"""JSON of spectra and mzSpecLib, as records; one spectrum is in memory at a time.

JSON is a list, objects one after the other (JSON lines), or one object. An object is a spectrum of
matchms, GNPS, mzmine, MassBank of North America (MoNA) or MassBank, or has a list ``spectra`` of
them. mzSpecLib is read as text alone.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import counted, quote
from duallgd_cli.spectra.reading.record import MOST_PEAKS, TOO_LARGE, Record
from duallgd_cli.spectra.reading.text import COST, PEAK, finished, peaks_of

_DECODER: Final = json.JSONDecoder()
_BEGIN_OF_LIST: Final = re.compile(r'\s*(?:\[|\{.*?"spectra"\s*:\s*\[(?=\s*\{))', re.DOTALL)
_BEGIN_OF_OBJECT: Final = re.compile(r"\n(?=\{)")
_BETWEEN: Final = re.compile(r"[ \t\r\n,]*")
_CUT_OFF: Final = re.compile(r"[\w.+-]{0,20}\s*")  # the beginning of a number or of a word
_HEAD: Final = 1 << 16  # characters in which a list of spectra begins
_LONGEST: Final = 1 << 24  # characters of a spectrum, since lists in memory take ten times as much
_LONGEST_VALUE: Final = 10_000  # characters of a field; longer ones are comments
_MOST_LISTED: Final = 50  # values of a field
# Where peaks stand in an object, and where the object stands that has them.
_PEAKS: Final = ("peaks_json", "peaks", "spectrum", "spectruminfo", "peak", "values")
_COLUMNS: Final = (("mzs", "mz", "m/z"), ("intensities", "intensity", "int"))
# What the code below raises of an object that is like none of the spectra.
_UNLIKE: Final = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError),
)
_COUNTS: Final = ("num_peaks", "n_peaks")
# Objects of GNPS, of MoNA and of its compounds, that say what the spectrum is.
_OF_THE_SPECTRUM: Final = frozenset(
    {"spectruminfo", "annotations", "compound", "names", "metaData", "metadata"}
)
# Parts of a record that say nothing of the measurement, though they have names and identifiers.
_LEFT_OUT: Final = frozenset(
    {*_PEAKS[:3], "peak", "link", "authors", "species", "comments", "date", "submitter"}
)


def json_records(blocks: Iterable[str]) -> Iterator[Record]:
    """Spectra of JSON text in order, from blocks of it of any length.

    About one spectrum is held at a time. Outside of a list a broken one costs what stands before
    the next line that begins with a bracket, inside of a list all that follows it.
    """
    blocks = iter(blocks)
    text, is_end = "", False
    while len(text) < _HEAD and (more := next(blocks, "")):
        text += more
    begin = _BEGIN_OF_LIST.match(text)
    is_list, at = begin is not None, begin.end() if begin else 0
    while True:
        if between := _BETWEEN.match(text, at):
            at = between.end()
        if at == len(text) and is_end:
            if is_list:
                yield Record(trouble="the file ends within its list of spectra; restore the file")
            return
        if is_list and text.startswith("]", at):
            return
        try:
            value, end = _decoded(text, at, is_end)
            yield _record(value)
            at = end
        except EOFError:
            size = min(len(text), _LONGEST - len(text))  # to hold about twice as much
            more = "".join(islice(blocks, 1 + max(size, 0) // _HEAD))
            text, at, is_end = text[at:] + more, 0, not more
        except ValueError as error:
            rest = "; what follows is not read" if is_list and not is_end else ""
            yield Record(trouble=f"{error}{rest}")
            if is_list:
                return
            while (begin := _BEGIN_OF_OBJECT.search(text, at)) is None:
                if not (more := next(blocks, "")):
                    return
                text, at = text[-1:] + more, 0
            at = begin.end()


def _decoded(text: str, at: int, is_end: bool) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends.

    Raises:
        EOFError: More of the text must be read.
        ValueError: It is none, or too long, or cut off by the end of the file.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
        if end < len(text) or is_end:  # else the rest of a number may follow
            return value, end
    except json.JSONDecodeError as error:
        # A text that is cut off is at fault at its end, a string at its beginning.
        if "Unterminated" not in error.msg and not _CUT_OFF.fullmatch(text, error.pos):
            raise ValueError(f"it is no JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError("its lists are nested too deeply; restore the file") from None
    if len(text) - at > _LONGEST:
        raise ValueError(
            f"it is longer than {_LONGEST >> 20} million characters; restore the file, or centroid "
            "the spectrum"
        )
    if is_end:
        raise ValueError("the file ends within it; restore the file")
    raise EOFError


def _record(value: Any) -> Record:  # noqa: ANN401
    try:
        if not isinstance(value, Mapping):
            raise TypeError(f"{quote(value)} is no object")
        if "attributes" in value:
            raise TypeError("attributes of mzSpecLib or PROXI; give the library as text, or MGF")
        fields = _fields(value)
        mz, intensity = _peaks(value)
    except _UNLIKE as error:
        said = " ".join(str(error).split())[:100]
        return Record(trouble=f"it is no spectrum in JSON ({said})")
    warnings = [
        f"{name} says {fields[name]}, and there are {mz.size}"
        for name in _COUNTS
        if name in fields and fields[name] != str(mz.size)
    ]
    return Record(fields, mz, intensity, TOO_LARGE if mz.size > MOST_PEAKS else "", warnings)


def _peaks(found: Any) -> Sequence[NDArray[np.float64]]:  # noqa: ANN401
    """m/z and intensity, from an object that holds them at some depth, a list, or a text."""
    if isinstance(found, str) and found.lstrip().startswith("["):
        found = json.loads(found)
    if isinstance(found, str):
        mz, intensity, bad = peaks_of(found.splitlines())
        if bad:
            peaks = counted(mz.size + bad, "peak")
            raise ValueError(f"no m/z and intensity in {bad} of {peaks}")
        return mz, intensity
    if isinstance(found, Mapping):
        columns = [next((found[n] for n in names if n in found), None) for names in _COLUMNS]
        if all(isinstance(column, list) for column in columns):
            return [np.array(column, np.float64).reshape(-1) for column in columns]
        name = next((name for name in _PEAKS if found.get(name) is not None), "")
        if not name:
            raise KeyError("no peaks_json, peaks, spectrum or mzs")
        return _peaks(found[name])
    if found and isinstance(found[0], Mapping):
        found = [
            [next((row[name] for name in names if name in row), None) for names in _COLUMNS]
            for row in found
        ]
    table = np.array([row[:2] for row in found], np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _fields(values: Mapping[str, Any], *, is_massbank: bool = False) -> dict[str, str]:
    """Fields of an object and of those within it; of repeated ones the outermost, then the first.

    Objects count that `_OF_THE_SPECTRUM` names, of lists the first, and of MassBank's own JSON all:
    what others hold, such as library matches, is not of this spectrum. In metadata an object of a
    name, a value and perhaps a unit is a field.
    """
    is_massbank = is_massbank or isinstance(values.get("peak"), Mapping)
    fields: dict[str, str] = {}
    nested: list[Mapping[str, Any]] = []
    for key, value in values.items():
        listed = value if isinstance(value, list) else [value]
        if key in _LEFT_OUT or not listed:
            continue
        if isinstance(listed[0], Mapping):
            if not is_massbank and key not in _OF_THE_SPECTRUM:
                continue
            named = [item for item in listed if isinstance(item, Mapping) and "value" in item]
            pairs = [item for item in named if item.get("name") or item.get("subtag")]
            if key == "annotations":  # of peaks, where they are pairs
                pairs = []
            for item in pairs:
                name, said = str(item.get("name") or item["subtag"]), str(item["value"])
                unit = str(item.get("unit") or "")
                said = said if unit in said else f"{said} {unit}"
                if len(said) <= _LONGEST_VALUE:
                    fields.setdefault(name.lower(), said)
            nested += [] if pairs else [listed[0]]
        elif all(isinstance(item, str | float | int) for item in listed):
            is_short = len(listed) <= _MOST_LISTED and len(str(value)) <= _LONGEST_VALUE
            if key == "names":
                fields["name"] = str(listed[0])
            elif is_short and not (isinstance(value, list) and key in chain(*_COLUMNS)):
                fields[key.lower()] = str(value)
    for inner in nested:
        fields = _fields(inner, is_massbank=is_massbank) | fields
    return fields


_SECTION: Final = re.compile(r"\s*<\s*(\w+)(?:\s+(\w+))?(?:\s*=\s*([^>]*))?>\s*")
# Attributes without a term of the vocabulary: a name and a value in one group.
_OTHER_NAME, _OTHER_VALUE = "other attribute name", "other attribute value"
_ATTRIBUTE: Final = re.compile(r"\s*(?:\[(\d+)\])?\s*[A-Za-z]+:\w+\|([^=]+)=(.*)")
_ACCESSION: Final = re.compile(r"[A-Za-z]+:\d+\|")
# Terms of the PSI-MS vocabulary by the names that readers of other formats know.
_TERMS: Final = {
    "library spectrum key": "spectrum_id",
    "library spectrum name": "title",
    **dict.fromkeys(
        ("experimental precursor monoisotopic m/z", "selected ion m/z"), "precursor_mz"
    ),
    "charge state": "charge",
    "scan polarity": "ionmode",
    **dict.fromkeys(("adduct ion", "adduct ion formula"), "adduct"),
    "molecular formula": "formula",
    "smiles formula": "smiles",  # dropped where structures are not asked for
    "instrument model": "instrument",
    **dict.fromkeys(("retention time", "scan start time"), "rt"),
    "scan number": "scans",
}
_UNITS: Final = {"minute": "min", "second": "s", "electronvolt": "eV", "volt": "V", "percent": "%"}


def _fields_of(attributes: Sequence[Sequence[str]]) -> dict[str, str]:
    """Fields from name, value and group of attributes; a unit joins the value of its group."""
    fields: dict[str, str] = {}
    grouped: dict[str, str] = {}
    others = {group: value for name, value, group in attributes if _plain(name) == _OTHER_NAME}
    for name, value, group in attributes:
        name = others.get(group, name) if _plain(name) == _OTHER_VALUE else name
        said, key = _ACCESSION.sub("", value).strip(), _TERMS.get(_plain(name), _plain(name))
        if key == "unit":
            unit, owner = _UNITS.get(said), grouped.get(group, "")
            if unit and owner:
                fields[owner] = f"{fields[owner]} {unit}"
        elif said and key not in fields:
            fields[key] = said
            if group:
                grouped[group] = key
    return fields


def _plain(name: str) -> str:
    return name.strip().lower()


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
        name, of, value = map(_plain, section.groups(""))
        if name == "spectrum":
            if in_spectrum:
                yield entry.ended(shared)
            entry, in_spectrum = _Attributes(), True
        elif name in {"peaks", "analyte"} and not in_spectrum:
            entry, in_spectrum = _Attributes(lines_lost=1), True
        in_peaks = in_spectrum and name == "peaks"
        of_all = name == "attributeset" and (of, value) == ("spectrum", "all")
        own = entry if in_spectrum and name in {"spectrum", "analyte"} else None
        takes = shared if of_all else own
    if in_spectrum:
        yield entry.ended(shared)


@dataclass(slots=True, eq=False)
class _Attributes(Record):
    """Attributes, as names, values and groups, and peak lines of one spectrum of mzSpecLib."""

    listed: list[tuple[str, str, str]] = field(default_factory=list)
    lines_lost: int = 0  # lines that are neither

    def add(self, line: str) -> None:
        """Take a line of an attribute."""
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute is None:
            self.lines_lost += bool(line.strip())
            return
        self.count(len(line) + COST)
        if not self.trouble:
            self.listed.append((attribute[2], attribute[3], attribute[1] or ""))

    def ended(self, shared: "_Attributes") -> Record:
        """The record, its own attributes before those of all spectra."""
        self.metadata = _fields_of(shared.listed) | _fields_of(self.listed)
        if lost := self.lines_lost + shared.lines_lost:
            self.warnings.append(f"{counted(lost, 'line')} of its attributes could not be read")
        return finished(self, "number of peaks", "number of peaks")
