"""mzML and mzXML, a spectrum at a time, with polarity, collision energy and isolation window.

Arrays are decoded record by record, so that one broken array costs one record; broken XML ends the
file, and that is said.
"""

import base64
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final, NamedTuple, TypeAlias

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.reading.quantities import finite
from duallgd_cli.spectra.reading.record import Record, instrument_class
from duallgd_cli.spectra.types import HALF_WINDOW, UNIT_RESOLUTION

# What malformed XML and malformed arrays in it raise.
BROKEN: Final = (etree.LxmlError, ValueError, LookupError, TypeError, zlib.error)
_MOST_BYTES: Final = 1 << 25  # of an array: four million points as 64-bit numbers
_LARGEST: Final = 1 << 26  # bytes of XML of one spectrum, or before the first
_ELEMENT_COST: Final = 300  # bytes that an element in memory takes the place of
_RECORD_ENDS: Final = (b"</spectrum>", b"</scan>", b"</chromatogram>", b"</offset>")
_SCAN_ID: Final = re.compile(r"(?:controllerType=\d+ controllerNumber=\d+ )?(scan=(\d+))")
# Of one step of ion mobility, as Bruker's files have them where a converter leaves steps apart.
_MOBILITY_STEP: Final = re.compile(r"frame=\d+ scan=\d+")
# Units of time by accession, which counts before a name that a program may translate.
_UNITS: Final = {
    "UO:0000010": "second", "UO:0000028": "millisecond", "UO:0000031": "minute",
    "UO:0000032": "hour",
}  # fmt: skip
# Terms for a collision energy, and the unit that its number then is in.
_ENERGIES: Final = {
    "collision energy": "",
    "normalized collision energy": " NCE",
    "percent collision energy": " %",
    "activation energy": " eV",
}
_TYPES: Final = {
    **{"32-bit float": "<f4", "64-bit float": "<f8"},
    **{"32-bit integer": "<i4", "64-bit integer": "<i8"},
}
_NOTHING: Final = np.zeros(0)
_Array: TypeAlias = NDArray[np.float64]
_Element: TypeAlias = etree._Element
# Parts of the isolation window, the last of mzXML alone.
_WINDOW: Final = ("target m/z", "lower offset", "upper offset", "width")
_Window: TypeAlias = Sequence[float | None]  # their values
_WIDEST: Final = 4.0  # m/z, of a window that is meant for one ion and its isotopes
_SAME: Final = 1e-3  # m/z, of one number that was written twice


class _Bounded:
    """The bytes of an XML file, of which no spectrum may take more memory than a large one."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.name = getattr(stream, "name", "")  # which the parser tells with a fault
        self._size = 0  # since the last record

    def read(self, size: int = -1) -> bytes:
        """The next bytes.

        Raises:
            ValueError: One spectrum is too large.
        """
        # Small steps: a torn archive gives nothing of the one that it breaks off in.
        content = self._stream.read(min(size, io.DEFAULT_BUFFER_SIZE) if size > 0 else size)
        end = max(map(content.rfind, _RECORD_ENDS))
        own = content[max(end, 0) :]
        self._size = (0 if end >= 0 else self._size) + len(own) + _ELEMENT_COST * own.count(b"<")
        if self._size > _LARGEST:
            raise ValueError(f"a spectrum of more than {_LARGEST >> 20} MiB")
        return content


def _elements(stream: BinaryIO, *tags: str, event: str = "end") -> Iterator[_Element]:
    """Elements of an XML file, those of some tags or all, as they end or begin."""
    named = [f"{{*}}{tag}" for tag in tags] or None
    options = {"huge_tree": True, "remove_comments": True, "resolve_entities": False}
    for _, element in etree.iterparse(_Bounded(stream), (event,), tag=named, **options):
        yield element


def _tag(element: _Element) -> str:
    return str(element.tag).rpartition("}")[2]


class _Header(NamedTuple):
    """What stands before the first spectrum."""

    instrument: str  # class of the instrument, or ""
    analysers: Mapping[str, str]  # of each configuration; "" is the run's own
    groups: Mapping[str, _Element]  # of terms, which spectra refer to

    def terms(self, element: _Element | None) -> dict[str, str]:
        """Values of the terms of an element by their names, its own before those of its groups."""
        values: dict[str, str] = {}
        of_groups: dict[str, str] = {}
        for child in () if element is None else element:
            tag = _tag(child)
            if tag in {"cvParam", "userParam"}:
                values.setdefault(child.get("name", ""), child.get("value", "").strip())
            elif tag == "referenceableParamGroupRef":  # a group has no groups
                group = self.groups.get(child.get("ref", ""))
                of_groups |= self._replace(groups={}).terms(group)
        return of_groups | values


def _header(stream: BinaryIO) -> _Header:
    """The last analyser of a configuration measures; those before it select ions."""
    classes: list[str] = []
    analysers: dict[str, str] = {}
    groups: dict[str, _Element] = {}
    configuration, is_analyser = "", False
    for element in _elements(stream, event="start"):
        tag = _tag(element)
        if tag in {"spectrumList", "chromatogramList", "scan"}:
            break
        if tag in {"cvParam", "userParam", "msModel", "msMassAnalyzer"}:
            name = element.get("name", "")
            classes.append(instrument_class(f"{name} {element.get('value', '')}"))
            if is_analyser and configuration:
                analysers[configuration] = name
        elif tag == "instrumentConfiguration":
            configuration, is_analyser = element.get("id", ""), False
        elif tag in {"source", "analyzer", "detector"}:
            is_analyser = tag == "analyzer"
        elif tag == "referenceableParamGroup":
            groups[element.get("id", "")] = element
        elif tag == "run":
            default = element.get("defaultInstrumentConfigurationRef", "")
            analysers[""] = analysers.get(default, "")
    stream.seek(0)
    classes = [*filter(None, classes)]
    # A hybrid names all its analysers; the filter line of a scan says which of them was used.
    better = next((name for name in classes if name != UNIT_RESOLUTION), "".join(classes[:1]))
    return _Header(better, analysers, groups)


def records(stream: BinaryIO, file_format: str) -> Iterator[Record]:
    """Spectra of an mzML or mzXML file in the order in which they end.

    In mzXML an MS1 scan ends after the MS2 scans that are nested in it.

    Raises:
        One of `BROKEN`: The XML is malformed; what came before has been given.
    """
    header = _header(stream)
    record_of, tags = _RECORDS[file_format]
    for element in _elements(stream, *tags):
        if _tag(element) == tags[0]:
            yield record_of(element, header)
        element.clear()
        # An empty element takes memory, too; what else stands before is of the scan around it.
        before = element.getprevious()
        if before is not None and _tag(before) in tags:
            element.getparent().remove(before)


def _finished(
    record: Record,
    peaks: Callable[[], tuple[_Array, _Array]],
    is_profile: bool,
    n_precursors: int,
    window: _Window,
) -> Record:
    """A record of all fields with its peaks, if they can be decoded; empty fields are left out."""
    try:
        record.mz, record.intensity = peaks()
    except BROKEN as error:
        record.trouble = f"its peak arrays cannot be decoded ({' '.join(str(error).split())})"
    if is_profile and not record.trouble and record.mz.size == record.intensity.size:
        record.mz, record.intensity = pick_peaks(record.mz, record.intensity)
        record.warnings.append(
            "profile spectrum: peaks were picked as local maxima; centroid the file instead"
        )
    if n_precursors > 1:
        record.warnings.append(
            f"the first of {n_precursors} precursors is used; fragments of the others may be among "
            "the peaks"
        )
    if n_precursors and _MOBILITY_STEP.fullmatch(record.metadata.get("native_id", "")):
        record.warnings.append(
            "one scan of ion mobility has few of the peaks; let the converter combine its scans"
        )
    _look_at_window(record, window)
    record.metadata = {key: value for key, value in record.metadata.items() if value}
    return record


def _look_at_window(record: Record, window: _Window) -> None:
    """Take for the precursor what the selected ion and the isolation window tell of it.

    Where instruments isolate many m/z at once (SWATH, MSe, SONAR, diaPASEF, all-ion fragmentation),
    files give the middle of the window, and converters write it as the selected ion too. It is
    nobody's precursor: a selected ion counts in a wide window only where it is not that middle.
    """
    centre, lower, upper, whole = window
    selected = finite(ion := record.metadata.get("precursor_mz", ""))
    sizes = [size for size in (lower, upper, whole) if size is not None]
    width = sum(sizes) if sizes else None
    middle = selected if centre is None else centre
    if middle is not None and (sizes or centre is not None):
        half = whole / 2 if whole else HALF_WINDOW
        low, high = (half if size is None else size for size in (lower, upper))
        record.isolation_window = middle - low, middle + high
    # The middle of the window is not given in mzXML; it is what the ion of a wide one is taken for.
    centres = [] if centre is None else [centre]
    if centres and len(sizes) == 2:
        centres.append(centres[0] + (sizes[1] - sizes[0]) / 2)
    if width is not None and width > _WIDEST:
        wide = f"the isolation window is {width:g} m/z wide"
        if selected is None or not centres or min(abs(selected - at) for at in centres) <= _SAME:
            message = (
                f"{wide} and no ion of it is named, so no precursor is known; give spectra that a "
                "program such as MS-DIAL assigned to ions"
            )
            record.refusal = Failure("no_precursor", message)
            record.metadata["precursor_mz"] = ""
        else:
            record.warnings.append(f"{wide}, so fragments of other ions may be among the peaks")
    elif centre is not None and not ion:
        unknown = "" if width is not None else ", whose width is not given,"
        record.assumptions.append(
            f"the middle of the isolation window{unknown} is taken for the precursor: m/z {centre}"
        )
        record.metadata["precursor_mz"] = str(centre)


def _mzml_record(element: _Element, header: _Header) -> Record:
    values = header.terms(element)
    native = element.get("id", "")
    scan = _SCAN_ID.fullmatch(native)
    polarity = "positive" if "positive scan" in values else "negative"
    arrays = [
        (header.terms(array), array.findtext("{*}binary"))
        for array in element.iterfind("{*}binaryDataArrayList/{*}binaryDataArray")
    ]
    is_light = any("wavelength array" in terms for terms, _ in arrays)
    precursors = [*element.iterfind("{*}precursorList/{*}precursor")]
    level, assumptions = values.get("ms level", ""), list[str]()
    if not level.strip("0.") and "MS1 spectrum" in values:
        level = "1"
    elif not level.strip("0.") and ("MSn spectrum" in values or precursors):
        level = "2"
        assumptions.append("the file gives no MS level; a spectrum with a precursor is read as MS2")
    elif not level.strip("0."):  # images say 0; what has wavelengths is no mass spectrum
        level = "1" if level or is_light else ""
    metadata = {
        "identifier": scan[1] if scan else native,
        "native_id": native,
        "scans": scan[2] if scan else "",
        "ms_level": level,
        "spectrum title": values.get("spectrum title", ""),
        "ionmode": polarity if f"{polarity} scan" in values else "",
        "instrument": header.instrument,
    }
    first = element.find("{*}scanList/{*}scan")
    if first is not None:
        configuration = first.get("instrumentConfigurationRef", "")
        # OpenMS writes the filter line as a parameter of the spectrum.
        metadata["filter string"] = (values | header.terms(first)).get("filter string", "")
        analysers = header.analysers
        metadata["analyzer"] = analysers.get(configuration, analysers.get("", ""))
        time, unit = _time_of(first)
        metadata["retention_time"] = f"{time} {unit or 'minute'}" if time else ""
        if time and not unit:
            assumptions.append(
                "the file gives no unit of retention times; they are taken for minutes"
            )
    if level == "1":
        precursors = []
    # An MS3 names the precursor of its precursor, too, whose level ProteoWizard says.
    above = (finite(level) or 2) - 1
    levels = [
        finite(header.terms(one.find("{*}isolationWindow")).get("ms level", ""))
        for one in precursors
    ]
    own = [one for one, at in zip(precursors, levels, strict=True) if at in {None, above}]
    precursors = own or precursors
    isolated: dict[str, str] = {}
    if precursors:
        metadata |= _mzml_precursor(precursors[0], header)
        isolated = header.terms(precursors[0].find("{*}isolationWindow"))
    window = [finite(isolated.get(f"isolation window {part}", "")) for part in _WINDOW]
    record = Record(metadata, assumptions=assumptions)
    peaks = partial(_mzml_peaks, [] if is_light else arrays)
    return _finished(record, peaks, "profile spectrum" in values, len(precursors), window)


def _number(text: str) -> str:
    """A number as Python writes it, so that ``181.0500`` has the decimals that tell; else text."""
    value = finite(text)
    return text if value is None else str(value)


def _time_of(scan: _Element) -> tuple[str, str]:
    """The time of a scan, "" for none, and the unit that stands beside it."""
    for term in scan.iterfind("{*}cvParam"):
        if term.get("name") == "scan start time":
            time, accession = term.get("value", ""), term.get("unitAccession", "")
            unit = _UNITS.get(accession) or term.get("unitName") or accession
            return "" if finite(time) is None else time, unit
    return "", ""


def _mzml_precursor(precursor: _Element, header: _Header) -> dict[str, str]:
    """Selected ion and activation as fields.

    The collision energy is kept as a bare number although mzML calls it eV: converters write the
    normalised energy of Orbitraps there, which is how a bare number of theirs is understood.
    """
    ion = header.terms(precursor.find("{*}selectedIonList/{*}selectedIon"))
    activation = header.terms(precursor.find("{*}activation"))
    ramp = [_number(activation.get(f"collision energy ramp {end}", "")) for end in ("start", "end")]
    energies = [
        f"{_number(activation[name])}{unit}"
        for name, unit in _ENERGIES.items()
        if name in activation
    ]
    energies += [f"{ramp[0]}-{ramp[1]} eV"] if all(ramp) else []
    return {
        "precursor_intensity": _number(ion.get("peak intensity", "")),
        "charge": ion.get("charge state", "").removesuffix(".0"),
        "collision_energy": "".join(energies[:1]),
        "fragmentation_mode": "; ".join(name for name, value in activation.items() if value == ""),
        "precursor_mz": _number(ion.get("selected ion m/z", "")),
    }


def _mzml_peaks(arrays: Sequence[tuple[Mapping[str, str], str | None]]) -> tuple[_Array, _Array]:
    """m/z and intensity, of arrays by their terms and as they are written."""
    found = {"m/z array": _NOTHING, "intensity array": _NOTHING}
    for terms, text in arrays:
        if not (wanted := found.keys() & terms.keys()):
            continue
        content = _unpacked(text, [name for name in terms if "compression" in name])
        kind = next((kind for name, kind in _TYPES.items() if name in terms), "<f8")
        found |= dict.fromkeys(wanted, np.frombuffer(content, kind).astype(np.float64))
    return found["m/z array"], found["intensity array"]


def _unpacked(text: str | None, packings: Sequence[str]) -> bytes:
    content = base64.b64decode(text or "")
    for packing in packings if content else ():
        if packing not in ("zlib compression", "no compression"):
            raise ValueError(f"{packing} is not supported, convert the file with zlib")
    if not content or "zlib compression" not in packings:
        return content
    inflate = zlib.decompressobj()
    content = inflate.decompress(content, _MOST_BYTES)
    if inflate.unconsumed_tail:
        raise ValueError(f"an array of more than {_MOST_BYTES >> 20} MiB")
    if not inflate.eof:
        raise ValueError("compressed data are cut off")
    return content


def _mzxml_record(scan: _Element, header: _Header) -> Record:
    level, number = scan.get("msLevel", ""), scan.get("num", "")
    precursors = scan.findall("{*}precursorMz") if level != "1" else []
    precursor = precursors[0] if precursors else {}
    metadata = {
        "identifier": f"scan={number}" if number else "",
        "scans": number,
        "ms_level": level,
        "ionmode": scan.get("polarity", ""),
        "rtinseconds": scan.get("retentionTime", ""),
        "precursor_intensity": _number(precursor.get("precursorIntensity", "")),
        "charge": precursor.get("precursorCharge", ""),
        "precursor_scan": precursor.get("precursorScanNum", ""),
        "collision_energy": _number(scan.get("collisionEnergy", "")),
        "fragmentation_mode": precursor.get("activationMethod", ""),
        "filter string": scan.get("filterLine", ""),
        "instrument": header.instrument,
        "precursor_mz": _number((precursors[0].text or "").strip()) if precursors else "",
    }
    is_profile = scan.get("centroided", "1").lower() in {"0", "false"}
    peaks = partial(_mzxml_peaks, scan.find("{*}peaks"))
    window = (None, None, None, finite(precursor.get("windowWideness", "")))
    return _finished(Record(metadata), peaks, is_profile, len(precursors), window)


def _mzxml_peaks(peaks: _Element | None) -> tuple[_Array, _Array]:
    if peaks is None:
        return _NOTHING, _NOTHING
    is_packed = peaks.get("compressionType") == "zlib"
    content = _unpacked(peaks.text, ["zlib compression"] if is_packed else [])
    order = ">" if peaks.get("byteOrder", "network") in {"network", "big"} else "<"
    if not content:
        return _NOTHING, _NOTHING
    size = {"32": 4, "64": 8}[peaks.get("precision", "")]  # without it peaks mean nothing
    pairs = np.frombuffer(content, f"{order}f{size}").astype(np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


# What reads a record, the tag of its element, and further tags that take memory.
_RECORDS: Final = {
    "mzml": (_mzml_record, ("spectrum", "chromatogram", "offset")),
    "mzxml": (_mzxml_record, ("scan",)),
}


def pick_peaks(mz: _Array, intensity: _Array) -> tuple[_Array, _Array]:
    """Local maxima of a profile spectrum, (P,) ascending.

    A maximum is a point above its left and not below its right neighbour. Its m/z is that of the
    parabola through the three points, kept between the neighbours; its intensity is the point's.
    No smoothing, no noise threshold, no deconvolution: good enough to go on, not a substitute for
    the vendor's centroiding.
    """
    padded = np.concatenate([[0.0], intensity, [0.0]])
    x = np.concatenate([mz[:1], mz, mz[-1:]])
    left, middle, right = padded[:-2], padded[1:-1], padded[2:]
    at = np.flatnonzero((middle > left) & (middle >= right) & (middle > 0)) + 1
    x0, x1, x2 = x[at - 1], x[at], x[at + 1]
    y0, y1, y2 = padded[at - 1], padded[at], padded[at + 1]
    rise, fall = (y1 - y0) * (x2 - x1), (y1 - y2) * (x1 - x0)
    shift = 0.5 * (rise * (x2 - x1) - fall * (x1 - x0))
    apex = x1 + np.divide(shift, rise + fall, out=np.zeros_like(x1), where=rise + fall > 0)
    return np.clip(apex, x0, x2), y1
