"""mzML and mzXML through pyteomics, with polarity, collision energy and isolation window kept.

(matchms drops those from mzML.) Arrays are decoded record by record, so that one broken array costs
one record; broken XML ends the file, and that is said.
"""

import io
import math
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Final, TypeAlias, cast

import numpy as np
from lxml import etree
from numpy.typing import NDArray
from pyteomics import mzml, mzxml
from pyteomics import xml as pyteomics_xml
from pyteomics.auxiliary import PyteomicsError, unitfloat

from duallgd_cli.errors import Failure
from duallgd_cli.spectra.reading.quantities import finite
from duallgd_cli.spectra.reading.record import Record, instrument_class
from duallgd_cli.spectra.types import UNIT_RESOLUTION

# Without psims, which brings a database, pyteomics refuses mzML; the vocabulary is not used here.
pyteomics_xml._has_psims = True

# What malformed XML and malformed numbers in it raise inside lxml and pyteomics.
BROKEN: Final = (
    *(etree.LxmlError, PyteomicsError, ValueError, KeyError, TypeError, AttributeError),
    *(IndexError, RecursionError, zlib.error, EOFError, OSError),
)
_MOST_BYTES: Final = 1 << 25  # of an array: four million points as 64-bit numbers
_LARGEST: Final = 1 << 26  # bytes of XML of one spectrum, or before the first
_ELEMENT_COST: Final = 300  # bytes that an element in memory takes the place of
_RECORD_ENDS: Final = (b"</spectrum>", b"</scan>", b"</chromatogram>", b"</offset>")
_OPTIONS: Final = {"use_index": False, "decode_binary": False, "huge_tree": True}
_SCAN_ID: Final = re.compile(r"(?:controllerType=\d+ controllerNumber=\d+ )?(scan=(\d+))")
# Of one step of ion mobility, as Bruker's files have them where a converter leaves steps apart.
_MOBILITY_STEP: Final = re.compile(r"frame=\d+ scan=\d+")
# Seconds in units of time, by name and by accession.
_UNITS_S: Final = {
    **{"minute": 60.0, "second": 1.0, "millisecond": 1e-3},
    **{"UO:0000031": 60.0, "UO:0000010": 1.0, "UO:0000028": 1e-3},
}
# Terms for a collision energy, and the unit that its number then is in.
_ENERGIES: Final = {
    "collision energy": "",
    "normalized collision energy": " NCE",
    "percent collision energy": " %",
    "activation energy": " eV",
}
_NOTHING: Final = np.zeros(0)
_Array: TypeAlias = NDArray[np.float64]
_FOURIER: Final = re.compile(r"\s*FTMS")  # the beginning of a Thermo filter string
_WIDEST: Final = 4.0  # m/z, of a window that is meant for one ion and its isotopes
_SAME: Final = 1e-3  # m/z, of one number that was written twice


class _Bounded:
    """The bytes of an XML file, of which no spectrum may take more memory than a large one."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
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

    def __getattr__(self, name: str) -> object:
        """Anything else that pyteomics asks a file for."""
        return getattr(self._stream, name)


def _inflated(packed: bytes) -> bytes:
    inflate = zlib.decompressobj()
    content = inflate.decompress(packed, _MOST_BYTES)
    if inflate.unconsumed_tail:
        raise ValueError(f"an array of more than {_MOST_BYTES >> 20} MiB")
    if not inflate.eof:
        raise ValueError("compressed data are cut off")
    return content


_UNPACK: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "no compression": lambda content: content,
    "zlib compression": _inflated,
}


def mzml_records(stream: BinaryIO) -> Iterator[Record]:
    """Spectra of an mzML file in order.

    Raises:
        One of `BROKEN`: The XML is malformed; what came before has been given.
    """
    stream = cast("BinaryIO", _Bounded(stream))
    with warnings.catch_warnings(action="ignore"):
        instrument, analysers = _instruments(stream)
        # A controlled vocabulary is loaded, from the network if need be, unless one is given; it
        # only types values, which the functions below do by themselves.
        reader = mzml.MzML(stream, **_OPTIONS, cv=object())
        reader.cv = None
        reader.compression_type_map = _UNPACK
        reader._param_value = partial(_value, reader._param_value)
    for info in _one_by_one(reader.iterfind("spectrum")):
        yield _mzml_record(info, instrument, analysers)


def mzxml_records(stream: BinaryIO) -> Iterator[Record]:
    """Scans of an mzXML file in the order in which they end (an MS1 after the MS2 nested in it).

    Raises:
        One of `BROKEN`: The XML is malformed; what came before has been given.
    """
    stream = cast("BinaryIO", _Bounded(stream))
    with warnings.catch_warnings(action="ignore"):
        instrument, _ = _instruments(stream)
        reader = mzxml.MzXML(stream, **_OPTIONS)
        # Peaks stay as they are until `_mzxml_peaks`: an empty list would stop the reader.
        reader._decode_peaks = lambda info: None
        reader.compression_type_map = _UNPACK
        # Not the reader's own order: it sorts by scan number and fails where two are equal.
        scans = pyteomics_xml.XML.iterfind(reader, "scan")
    for info in _one_by_one(scans):
        yield _mzxml_record(info, instrument, reader)


def _value(read_value: Callable[[Any], Any], attributes: Any) -> Any:  # noqa: ANN401
    """A parameter; an infinite one as text, since the reader makes integers of some of them.

    The reader knows units by name alone, which files may leave out beside the accession.
    """
    value = read_value(attributes)
    if isinstance(value, float) and not getattr(value, "unit_info", None):
        value = unitfloat(value, attributes.get("unitAccession"))
    return str(value) if value in (math.inf, -math.inf) else value


def _one_by_one(iterator: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The items without the warnings of pyteomics; ours go into the records."""
    while True:
        with warnings.catch_warnings(action="ignore"):
            info = next(iterator, None)
        if info is None:
            return
        yield info


def _instruments(stream: BinaryIO) -> tuple[str, Mapping[str, str]]:
    """Class of the instrument, and the analyser of each configuration; "" is the run's own.

    Both stand before the first spectrum. The last analyser of a configuration measures; those
    before it select ions.
    """
    classes: list[str] = []
    analysers: dict[str, str] = {}
    configuration, is_analyser = "", False
    for _, element in etree.iterparse(stream, events=("start",), huge_tree=True):
        tag = etree.QName(element).localname
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
        elif tag == "run":
            default = element.get("defaultInstrumentConfigurationRef", "")
            analysers[""] = analysers.get(default, "")
    stream.seek(0)
    classes = [*filter(None, classes)]
    # A hybrid names all its analysers; the filter line of a scan says which of them was used.
    better = next((name for name in classes if name != UNIT_RESOLUTION), "".join(classes[:1]))
    return better, analysers


def _isolated(ion: str, target: str, width: float | None, middle: float | None) -> Record:
    """What is known of the precursor by the m/z of the selected ion and of the window as written.

    Where instruments isolate many m/z at once (SWATH, MSe, SONAR, diaPASEF, all-ion fragmentation),
    files give the middle of the window, and converters write it as the selected ion too. It is
    nobody's precursor: a selected ion counts in a wide window only where it is not that middle.
    """
    selected = finite(ion)
    centres = [centre for centre in (finite(target), middle) if centre is not None]
    if width is not None and width > _WIDEST:
        wide = f"the isolation window is {width:g} m/z wide"
        if selected is None or not centres or min(abs(selected - at) for at in centres) <= _SAME:
            message = (
                f"{wide} and no ion of it is named, so no precursor is known; give spectra that a "
                "program such as MS-DIAL assigned to ions"
            )
            return Record({}, refusal=Failure("no_precursor", message, "read"))
        warning = f"{wide}, so fragments of other ions may be among the peaks"
        return Record({"precursor_mz": ion}, warnings=(warning,))
    if ion or not target:
        return Record({"precursor_mz": ion})
    unknown = "" if width is not None else ", whose width is not given,"
    note = f"the middle of the isolation window{unknown} is taken for the precursor: m/z {target}"
    return Record({"precursor_mz": target}, assumptions=(note,))


def _record(
    fields: Mapping[str, str],
    peaks: Callable[[], tuple[_Array, _Array]],
    is_profile: bool,
    precursor: Record,
    n_precursors: int,
    notes: tuple[str, ...] = (),
) -> Record:
    """What is known of a precursor with further fields, and with the peaks that can be decoded."""
    metadata = {key: value for key, value in {**fields, **precursor.metadata}.items() if value}
    mz = intensity = _NOTHING
    trouble, said = "", []
    try:
        mz, intensity = peaks()
    except BROKEN as error:
        trouble = f"its peak arrays cannot be decoded ({' '.join(str(error).split())})"
    if is_profile and not trouble and mz.size == intensity.size:
        mz, intensity = pick_peaks(mz, intensity)
        said.append(
            "profile spectrum: peaks were picked as local maxima; centroid the file instead"
        )
    if n_precursors > 1:
        said.append(
            f"the first of {n_precursors} precursors is used; fragments of the others may be among "
            "the peaks"
        )
    return Record(
        *(metadata, mz, intensity, trouble, (*said, *precursor.warnings)),
        assumptions=(*notes, *precursor.assumptions),
        refusal=precursor.refusal,
    )


def _mzml_record(info: Mapping[str, Any], instrument: str, analysers: Mapping[str, str]) -> Record:
    native = str(info.get("id", ""))
    scan = _SCAN_ID.fullmatch(native)
    polarity = "positive" if "positive scan" in info else "negative"
    precursors = _list(info, "precursorList", "precursor")
    level, notes = _mzml_level(info, bool(precursors))
    metadata = {
        "identifier": scan[1] if scan else native,
        "native_id": native,
        "scans": scan[2] if scan else "",
        "ms_level": level,
        "spectrum title": str(info.get("spectrum title", "")),
        "ionmode": polarity if f"{polarity} scan" in info else "",
        "instrument": instrument,
    }
    for first in _list(info, "scanList", "scan")[:1]:
        configuration = str(first.get("instrumentConfigurationRef", ""))
        # OpenMS writes the filter line as a parameter of the spectrum.
        metadata["filter string"] = str(first.get("filter string", info.get("filter string", "")))
        metadata["analyzer"] = analysers.get(configuration, analysers.get("", ""))
        time = first.get("scan start time")
        metadata["rtinseconds"] = _seconds(time, "minute")
        if metadata["rtinseconds"] and not getattr(time, "unit_info", ""):
            notes += ("the file gives no unit of retention times; they are taken for minutes",)
    if _FOURIER.match(metadata.get("filter string", "")):
        metadata["instrument"] = "FTMS"
    if level == "1":
        precursors = []
    # An MS3 names the precursor of its precursor, too.
    own = [one for one in precursors if _level_of(one) in {None, (finite(level) or 2) - 1}]
    precursors = own or precursors
    precursor = Record({})
    if precursors:
        fields, precursor = _mzml_precursor(precursors[0])
        metadata |= fields
    peaks, is_profile = partial(_mzml_peaks, info), "profile spectrum" in info
    if precursors and _MOBILITY_STEP.fullmatch(native):
        step = "one scan of ion mobility has few of the peaks; let the converter combine its scans"
        precursor = replace(precursor, warnings=(step, *precursor.warnings))
    return _record(metadata, peaks, is_profile, precursor, len(precursors), notes)


def _seconds(time: object, default_unit: str) -> str:
    """A retention time as text; "" for what is no number."""
    if not isinstance(time, float):
        return ""
    unit = str(getattr(time, "unit_info", "") or default_unit)
    return f"{time * _UNITS_S.get(unit, 1.0):.3f}"


def _mzml_level(info: Mapping[str, Any], has_precursor: bool) -> tuple[str, tuple[str, ...]]:
    """MS level, by the term for it or by others, and what was assumed; "" where nothing tells."""
    level = str(info.get("ms level", ""))
    if level.strip("0."):
        return level, ()
    if "MS1 spectrum" in info:
        return "1", ()
    if "MSn spectrum" in info or has_precursor:
        return "2", ("the file gives no MS level; a spectrum with a precursor is read as MS2",)
    # Images say 0; what has wavelengths is no mass spectrum.
    return "1" if level or "wavelength array" in info else "", ()


def _mzml_precursor(precursor: Mapping[str, Any]) -> tuple[dict[str, str], Record]:
    """Selected ion, isolation window and activation as fields, and what they give.

    The collision energy is kept as a bare number although mzML calls it eV: converters write the
    normalised energy of Orbitraps there, which is how a bare number of theirs is understood.
    """
    window = _fields(precursor.get("isolationWindow"))
    ion = _fields(next(iter(_list(precursor, "selectedIonList", "selectedIon")), None))
    activation = _fields(precursor.get("activation"))
    target, *offsets = (
        str(window.get(f"isolation window {part}", ""))
        for part in ("target m/z", "lower offset", "upper offset")
    )
    sizes = [size for offset in offsets if (size := finite(offset)) is not None]
    at = finite(target)
    middle = at + (sizes[1] - sizes[0]) / 2 if at is not None and len(sizes) == 2 else None
    width = sum(sizes) if sizes else None
    isolated = _isolated(str(ion.get("selected ion m/z", "")), target, width, middle)
    ramp = [str(activation.get(f"collision energy ramp {end}", "")) for end in ("start", "end")]
    energies = [
        f"{activation[name]}{unit}" for name, unit in _ENERGIES.items() if name in activation
    ]
    energies += [f"{ramp[0]}-{ramp[1]} eV"] if all(ramp) else []
    return {
        "precursor_intensity": str(ion.get("peak intensity", "")),
        "charge": str(ion.get("charge state", "")).removesuffix(".0"),
        "collision_energy": "".join(energies[:1]),
        "fragmentation_mode": "; ".join(name for name, value in activation.items() if value == ""),
        "isolation_window_target_mz": target,
        "isolation_window_lower_offset": offsets[0],
        "isolation_window_upper_offset": offsets[1],
    }, isolated


def _level_of(precursor: Mapping[str, Any]) -> float | None:
    """MS level of the spectrum in which a precursor was isolated, where ProteoWizard says it."""
    return finite(str(_fields(precursor.get("isolationWindow")).get("ms level", "")))


def _fields(element: object) -> Mapping[str, Any]:
    """What an element holds; pyteomics shortens one with nothing but a name to a text."""
    return element if isinstance(element, Mapping) else {}


def _list(info: Mapping[str, Any], outer: str, inner: str) -> list[Any]:
    items = _fields(info.get(outer)).get(inner) or []
    return [item for item in items if isinstance(item, Mapping)]


def _mzxml_record(info: Mapping[str, Any], instrument: str, reader: Any) -> Record:  # noqa: ANN401
    level = str(info.get("msLevel", ""))
    precursors = (info.get("precursorMz") or []) if level != "1" else []
    precursor = _fields(precursors[0]) if precursors else {}
    ion = str(precursor.get("precursorMz", "" if precursor or not precursors else precursors[0]))
    width = str(precursor.get("windowWideness", ""))
    number = str(info.get("num", ""))
    # The middle of the window is not given; it is what the ion of a wide one is taken for.
    isolated = _isolated(ion, "", finite(width), None)
    metadata = {
        "identifier": f"scan={number}" if number else "",
        "scans": number,
        "ms_level": level,
        "ionmode": str(info.get("polarity", "")),
        "rtinseconds": _seconds(info.get("retentionTime"), "second"),  # minutes of PT5M12.5S
        "precursor_intensity": str(precursor.get("precursorIntensity", "")),
        "charge": str(precursor.get("precursorCharge", "")),
        "precursor_scan": str(precursor.get("precursorScanNum", "")),
        "collision_energy": str(info.get("collisionEnergy", "")),
        "fragmentation_mode": str(precursor.get("activationMethod", "")),
        "isolation_window_width": width,
        "filter string": str(info.get("filterLine", "")),
        "instrument": instrument,
    }
    is_profile = str(info.get("centroided", "1")).lower() in {"0", "false"}
    peaks = partial(_mzxml_peaks, info.get("peaks"), reader)
    return _record(metadata, peaks, is_profile, isolated, len(precursors))


def _mzxml_peaks(peaks: Any, reader: Any) -> tuple[_Array, _Array]:  # noqa: ANN401
    first = peaks[0] if isinstance(peaks, list) and peaks else peaks
    if not isinstance(first, Mapping) or not first.get("peaks"):
        return _NOTHING, _NOTHING
    compression, dtype = reader._determine_compression(first), reader._determine_dtype(first)
    pairs = reader.decode_data_array(first["peaks"], compression, dtype)
    return pairs["m/z array"].astype(np.float64), pairs["intensity array"].astype(np.float64)


def _mzml_peaks(info: Mapping[str, Any]) -> tuple[_Array, _Array]:
    # What pyteomics understood it has taken out; it would read the rest as plain numbers.
    names = [*info, *(info["name"] if isinstance(info.get("name"), list) else ())]
    unknown = [name for name in names if "compression" in name and name not in _UNPACK]
    if unknown:
        raise ValueError(f"{unknown[0]} is not supported, convert the file with zlib")
    if "wavelength array" in info:
        return _NOTHING, _NOTHING
    mz, intensity = (
        np.asarray(array.decode(), dtype=np.float64)
        if array is not None and array.data
        else _NOTHING
        for array in (info.get("m/z array"), info.get("intensity array"))
    )
    return mz, intensity


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
