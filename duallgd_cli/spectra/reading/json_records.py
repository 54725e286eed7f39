"""JSON of spectra: a list, objects one after the other (JSON lines), or one object.

An object is a spectrum of matchms, GNPS, mzmine, MassBank of North America (MoNA), MassBank or
PROXI, or has a list ``spectra`` of them, as mzSpecLib does. One spectrum is in memory at a time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import quote
from duallgd_cli.spectra.reading.record import MOST_PEAKS, TOO_LARGE, Record, peaks
from duallgd_cli.spectra.reading.sections import fields_of
from duallgd_cli.spectra.reading.text import one_peak_a_line

_DECODER: Final = json.JSONDecoder()
_BETWEEN: Final = frozenset(" \t\r\n,")
_CUT_OFF: Final = re.compile(r"[\w.+-]{0,20}\s*")  # the beginning of a number or of a word
_LONGEST: Final = 1 << 24  # characters of a spectrum, since lists in memory take ten times as much
_LONGEST_VALUE: Final = 10_000  # characters of a field; longer ones are comments
_MOST_LISTED: Final = 50  # values of a field
_TORN: Final = "the file ends within it; restore the file"
_UNENDED: Final = "the file ends within its list of spectra; restore the file"
_REST: Final = "; what follows is not read"
_PEAKS: Final = ("peaks_json", "peaks", "spectrum")
_COLUMNS: Final = (("mzs", "mz", "m/z"), ("intensities", "intensity", "int"))
# What the code below raises of an object that is like none of the spectra.
_UNLIKE: Final = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
_COUNTS: Final = ("num_peaks", "n_peaks")
_NAMES_OF_MONA: Final = {"ionization mode": "ionmode", "retention time": "retention_time"}
_LISTED: Final[Mapping[str, Any]] = {}  # stands for the start of a list of spectra
# Parts of a record of MassBank that say nothing of the measurement.
_LEFT_OUT: Final = frozenset({"peak", "link", "authors", "species", "comments", "date"})


class _Text:
    """JSON text, of which no more is held than the value at hand."""

    def __init__(self, blocks: Iterable[str]) -> None:
        self.is_at_line = False  # whether what `sign` gave last is the first of its line
        self._blocks = iter(blocks)
        self._text, self._at = "", 0

    def _has_more(self) -> bool:
        """Whether the text goes on; then about twice as much is held of it."""
        parts, size = [self._text[self._at :]], 0
        wanted = min(len(parts[0]), _LONGEST - len(parts[0]))
        for block in self._blocks:
            parts.append(block)
            size += len(block)
            if size >= wanted:
                break
        self._text, self._at = "".join(parts), 0
        return size > 0

    def sign(self) -> str:
        """The next character that is no blank and no comma, "" at the end."""
        self.is_at_line = False
        while True:
            begin = self._at
            while self._text[self._at : self._at + 1] in _BETWEEN:
                self._at += 1
            self.is_at_line |= "\n" in self._text[begin : self._at]
            if self._at < len(self._text) or not self._has_more():
                return self._text[self._at : self._at + 1]

    def skip(self) -> str:
        """Go past that character; the one after it, as `sign` gives it."""
        self._at += 1
        return self.sign()

    def skip_line(self) -> None:
        """Go to the next line."""
        while (end := self._text.find("\n", self._at)) < 0:
            self._at = len(self._text)
            if not self._has_more():
                return
        self._at = end

    def value(self) -> Any:  # noqa: ANN401
        """The next value.

        Raises:
            ValueError: It is none, too large, or torn.
        """
        self.sign()
        while True:
            try:
                value, self._at = _DECODER.raw_decode(self._text, self._at)
                return value
            except json.JSONDecodeError as error:
                # A text that is cut off is at fault at its end, a string at its beginning.
                is_torn = "Unterminated" in error.msg or (
                    _CUT_OFF.fullmatch(self._text, error.pos) is not None
                )
                if not is_torn:
                    raise ValueError(f"it is no JSON ({error.msg})") from None
            except RecursionError:
                raise ValueError("its lists are nested too deeply; restore the file") from None
            if len(self._text) - self._at > _LONGEST:
                raise ValueError(
                    f"it is longer than {_LONGEST >> 20} million characters; restore the file, or "
                    "centroid the spectrum"
                )
            if not self._has_more():
                raise ValueError(_TORN)


def json_records(blocks: Iterable[str]) -> Iterator[Record]:
    """Spectra of JSON text in order, from blocks of it of any length.

    Outside of a list a broken spectrum costs its line, inside of a list what follows it.
    """
    text = _Text(blocks)
    in_list = is_whole = False  # whether a list is all that is read
    while sign := text.sign():
        if sign == "[" and not in_list:
            text.skip()
            in_list = True
        elif sign == "]" and in_list:
            text.skip()
            in_list = False
            if is_whole:
                return
        else:
            try:
                value = text.value() if in_list or sign != "{" else _outermost(text)
            except ValueError as error:
                yield Record({}, trouble=f"{error}{_REST if in_list else ''}")
                if in_list:
                    return
                if not (text.is_at_line and text.sign() == "{"):
                    text.skip_line()
                continue
            if value is _LISTED:
                in_list = is_whole = True
            else:
                yield _record(value)
    if in_list:
        yield Record({}, trouble=_UNENDED)


def _outermost(text: _Text) -> Mapping[str, Any]:
    """The object that begins here; or `_LISTED` at the start of its list of spectra.

    Raises:
        ValueError: It is none, too large, or torn.
    """
    values: dict[str, Any] = {}
    sign = text.skip()
    is_on_one_line = not text.is_at_line
    while sign == '"':
        key = text.value()
        if text.sign() != ":":
            raise ValueError("it is no JSON (a colon is expected)")
        sign = text.skip()
        if key == "spectra" and sign == "[":
            text.skip()
            return _LISTED
        if sign == "{" and text.is_at_line and is_on_one_line:
            raise ValueError("its line breaks off; restore the file")
        values[key] = text.value()
        sign = text.sign()
    if sign != "}":
        raise ValueError("it is no JSON (a name is expected)" if sign else _TORN)
    text.skip()
    return values


def _record(value: Any) -> Record:  # noqa: ANN401
    try:
        if not isinstance(value, Mapping):
            raise TypeError(f"{quote(value)} is no object")
        fields = _fields(value)
        mz, intensity = _peaks(value)
    except _UNLIKE as error:
        said = " ".join(str(error).split())[:100]
        return Record({}, trouble=f"it is no spectrum in JSON ({said})")
    warnings = tuple(
        f"{name} says {fields[name]}, and there are {mz.size}"
        for name in _COUNTS
        if name in fields and fields[name] != str(mz.size)
    )
    return Record(fields, mz, intensity, TOO_LARGE if mz.size > MOST_PEAKS else "", warnings)


def _peaks(values: Mapping[str, Any]) -> Sequence[NDArray[np.float64]]:
    """m/z and intensity."""
    if "spectruminfo" in values:
        return _peaks(values["spectruminfo"])
    if isinstance(values.get("peak"), Mapping):
        values = {"peaks": values["peak"]["peak"]}
    of_mz, of_intensity = (
        next((name for name in names if isinstance(values.get(name), list)), "")
        for names in _COLUMNS
    )
    if of_mz and of_intensity:
        columns = values[of_mz], values[of_intensity]
        return [np.array(column, np.float64).reshape(-1) for column in columns]
    name = next((key for key in _PEAKS if values.get(key) is not None), "")
    if not name:
        raise KeyError("no peaks_json, peaks, spectrum or mzs")
    rows = values[name]
    if isinstance(rows, str) and rows.lstrip().startswith("["):
        rows = json.loads(rows)
    if isinstance(rows, str):
        mz, intensity, bad = peaks(one_peak_a_line(rows.splitlines()))
        if bad:
            raise ValueError(f"no m/z and intensity in {bad} of {mz.size + bad} peaks")
        return mz, intensity
    if isinstance(rows, Mapping):  # of MassBank, or columns
        return _peaks({"peaks": rows["values"]} if "values" in rows else rows)
    if rows and isinstance(rows[0], Mapping):
        rows = [
            [next((row[name] for name in names if name in row), None) for names in _COLUMNS]
            for row in rows
        ]
    table = np.array([row[:2] for row in rows], np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _fields(values: Mapping[str, Any]) -> dict[str, str]:
    if "attributes" in values:
        analytes = values.get("analytes") or {}
        others = analytes.values() if isinstance(analytes, Mapping) else analytes
        listed = chain(values["attributes"], *(other.get("attributes", ()) for other in others))
        parts = ("name", "value", "cv_param_group")
        return fields_of([str(field.get(part, "")) for part in parts] for field in listed)
    if "spectruminfo" in values:  # of GNPS
        annotations = values.get("annotations") or [{}]
        return {**_plain(values["spectruminfo"]), **_plain(annotations[0])}
    if "metaData" in values:
        return _of_mona(values)
    if isinstance(values.get("peak"), Mapping):
        return _of_massbank(values)
    return _plain(values)


def _plain(values: Mapping[str, Any]) -> dict[str, str]:
    """Texts, numbers and short lists of these."""
    fields = {}
    for key, value in values.items():
        is_list = isinstance(value, list) and len(value) <= _MOST_LISTED
        listed = value if is_list else [value]
        is_plain = listed and all(isinstance(item, str | float | int) for item in listed)
        is_of_peaks = key in _PEAKS or (is_list and key in chain(*_COLUMNS))
        if is_plain and not is_of_peaks and len(str(value)) <= _LONGEST_VALUE:
            fields[key.lower()] = str(value)
    return fields


def _of_mona(values: Mapping[str, Any]) -> dict[str, str]:
    """Fields of MoNA: of the measurement, then of the compound."""
    compounds = values.get("compound") or [{}]
    compound = compounds[0] if isinstance(compounds, list) else compounds
    fields = _plain({key: values[key] for key in ("id",) if key in values})
    for one in chain(values["metaData"], compound.get("metaData") or ()):
        name, value, unit = (str(one.get(part) or "").strip() for part in ("name", "value", "unit"))
        key = _NAMES_OF_MONA.get(name.lower(), name.lower())
        if value and len(value) <= _LONGEST_VALUE:
            fields.setdefault(key, f"{value} {unit}" if unit and unit not in value else value)
    for one in compound.get("names") or ():
        fields.setdefault("name", str(one.get("name", "")))
    structures = {key: compound[key] for key in ("inchi", "inchiKey") if compound.get(key)}
    return fields | _plain(structures)


def _of_massbank(values: Any) -> dict[str, str]:  # noqa: ANN401
    """Fields of MassBank's own JSON, from all its depths; of repeated ones the first."""
    fields: dict[str, str] = {}
    if isinstance(values, Mapping) and {"subtag", "value"} <= values.keys():
        return {str(values["subtag"]).lower(): str(values["value"])}
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if key == "names" and value:
            fields["name"] = str(value[0])
        elif isinstance(value, Mapping | list) and key not in _LEFT_OUT:
            fields = _of_massbank(value) | fields
        elif isinstance(value, str | float | int):
            fields[key.lower()] = str(value)
    for value in values if isinstance(values, list) else ():
        fields = _of_massbank(value) | fields
    return fields
