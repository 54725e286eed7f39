"""mzML and mzXML, with polarity, collision energy and isolation window kept.

(matchms drops those from mzML, and pyteomics loads a vocabulary from the network.) Arrays are
decoded record by record, so that one broken array costs one record; broken XML ends the file, and
that is said.
"""

import base64
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final, TypeAlias, cast

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from duallgd_cli.spectra.reading.record import Record, instrument_class, unreadable_record

# What malformed XML, and malformed numbers in it, raise.
BROKEN: Final = (
    etree.LxmlError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
    zlib.error,
    OSError,
)
# Four million points as 64-bit numbers, which take a third more in base64.
_MOST_BYTES: Final = 1 << 25
_LONGEST_TEXT: Final = _MOST_BYTES // 3 * 4 + 4
_TAG: Final = 1 << 10  # characters of the tag before a text
_TOO_LONG: Final = f"an array of more than {_MOST_BYTES >> 20} MiB"
_MOST_ELEMENTS: Final = 100_000  # of one spectrum, or before the first
_RECORD_ENDS: Final = (b"</spectrum>", b"</scan>", b"</chromatogram>", b"</offset>")
_SCAN_ID: Final = re.compile(r"\bscan=(\d+)")
_NOTHING: Final = np.zeros(0)
_COMPRESSIONS: Final = frozenset({"no compression", "zlib compression"})
_DTYPES: Final = {
    "32-bit float": "<f4",
    "64-bit float": "<f8",
    "32-bit integer": "<i4",
    "64-bit integer": "<i8",
}
PROFILE_WARNING: Final = (
    "profile spectrum: peaks were picked as local maxima; centroid the file instead"
)
_Array: TypeAlias = NDArray[np.float64]
_Element: TypeAlias = Any  # of lxml, which is untyped
_FOURIER: Final = re.compile(r"\s*FTMS")  # the beginning of a Thermo filter string


class _Bounded:
    """The bytes of an XML file, so cut that no element takes more memory than a large spectrum.

    Of a text or an attribute longer than `_LONGEST_TEXT` the rest is left out, which costs a record
    its array and breaks an attribute.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._text = self._elements = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, b"" at the end alone.

        Raises:
            ValueError: One spectrum has more than `_MOST_ELEMENTS` elements.
        """
        while content := self._stream.read(min(size, io.DEFAULT_BUFFER_SIZE) if size > 0 else size):
            ends = [content.rfind(end) for end in _RECORD_ENDS]
            self._elements = 0 if max(ends) >= 0 else self._elements
            self._elements += content.count(b"<", max(*ends, 0))
            if self._elements > _MOST_ELEMENTS:
                raise ValueError(f"a spectrum of more than {_MOST_ELEMENTS:,} elements")
            first = content.find(b"<")
            room = max(0, _TAG + _LONGEST_TEXT - self._text)
            if first < 0:
                self._text += len(content)
                content = content[:room]
            else:
                content = content[: min(first, room)] + content[first:]
                self._text = len(content) - content.rfind(b"<")
            if content:
                return content
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte of the file."""
        self._text = self._elements = 0
        return self._stream.seek(offset, whence)

    def __getattr__(self, name: str) -> object:
        """Anything else that lxml asks a file for, such as its name."""
        return getattr(self._stream, name)


def mzml_records(stream: BinaryIO) -> Iterator[Record]:
    """Spectra of an mzML file in order.

    Raises:
        One of `BROKEN`: The XML is malformed; what came before has been given.
    """
    stream = cast("BinaryIO", _Bounded(stream))
    instrument = _instrument(stream)
    for element in _elements(stream, "spectrum"):
        yield _mzml_record(element, instrument)


def mzxml_records(stream: BinaryIO) -> Iterator[Record]:
    """Scans of an mzXML file in the order in which they end (an MS1 after the MS2 nested in it).

    Raises:
        One of `BROKEN`: The XML is malformed; what came before has been given.
    """
    stream = cast("BinaryIO", _Bounded(stream))
    instrument = _instrument(stream)
    for element in _elements(stream, "scan"):
        yield _mzxml_record(element, instrument)


def _elements(stream: BinaryIO, wanted: str) -> Iterator[_Element]:
    """Elements of a name as they end; nothing of them, nor of long lists, stays in memory."""
    tags = [f"{{*}}{name}" for name in (wanted, "chromatogram", "offset")]
    for _, element in etree.iterparse(stream, events=("end",), tag=tags, huge_tree=True):
        if etree.QName(element).localname == wanted:
            yield element
        element.clear()
        parent = element.getparent()
        if parent is not None and etree.QName(parent).localname != wanted:
            while element.getprevious() is not None:
                del parent[0]


def _instrument(stream: BinaryIO) -> str:
    """Class of the instrument from the parameters that stand before the first spectrum."""
    names = []
    for _, element in etree.iterparse(stream, events=("start",), huge_tree=True):
        tag = etree.QName(element).localname
        if tag in {"spectrumList", "chromatogramList", "scan"}:
            break
        if tag in {"cvParam", "userParam", "msModel", "msMassAnalyzer"}:
            names.append(f"{element.get('name', '')} {element.get('value', '')}")
    stream.seek(0)
    return next((name for name in map(instrument_class, names) if name), "")


def _params(element: _Element | None) -> dict[str, str]:
    """Parameters of an element by name, numbers as Python writes them."""
    if element is None:
        return {}
    found = element.iterchildren("{*}cvParam", "{*}userParam")
    return {one.get("name", ""): _plain(one.get("value", "")) for one in found}


def _plain(text: str) -> str:
    try:
        return str(float(text))
    except ValueError:
        return text


def _mzml_record(spectrum: _Element, instrument: str) -> Record:
    params, native = _params(spectrum), spectrum.get("id", "")
    scan = _SCAN_ID.search(native)
    polarity = "positive" if "positive scan" in params else "negative"
    metadata = {
        "identifier": scan[0] if scan else native,
        "native_id": native,
        "scans": scan[1] if scan else "",
        "ms_level": params.get("ms level", "").removesuffix(".0"),
        "spectrum title": params.get("spectrum title", ""),
        "ionmode": polarity if f"{polarity} scan" in params else "",
        "instrument": instrument,
    } | _mzml_scan(spectrum.find("{*}scanList/{*}scan"))
    if _FOURIER.match(metadata.get("filter string", "")):
        metadata["instrument"] = "FTMS"
    precursors = spectrum.findall("{*}precursorList/{*}precursor")
    metadata |= _mzml_precursor(precursors[0]) if precursors else {}
    notes = (f"the first of {len(precursors)} precursors is used",) if len(precursors) > 1 else ()
    return _with_arrays(
        metadata, partial(_mzml_peaks, spectrum), notes, "profile spectrum" in params
    )


def _mzml_scan(scan: _Element | None) -> dict[str, str]:
    """Retention time in seconds and the vendor's filter string of the first scan."""
    found = {name: text for name, text in _params(scan).items() if name == "filter string"}
    for time in () if scan is None else scan.iterchildren("{*}cvParam"):
        if time.get("name") == "scan start time":
            seconds = float(_plain(time.get("value", "")).partition(" ")[0] or "nan")
            minutes = time.get("unitName", "minute").startswith("minute")
            found["rtinseconds"] = f"{seconds * 60 if minutes else seconds:.3f}"
    return found


def _mzml_precursor(precursor: _Element) -> dict[str, str]:
    """Selected ion, isolation window and activation as fields.

    The collision energy is kept as a bare number although mzML calls it eV: converters write the
    normalised energy of Orbitraps there, which is how a bare number of theirs is understood.
    """
    ion = _params(precursor.find("{*}selectedIonList/{*}selectedIon"))
    window = _params(precursor.find("{*}isolationWindow"))
    target = window.get("isolation window target m/z", "")
    return {
        "precursor_mz": ion.get("selected ion m/z", "") or target,
        "charge": ion.get("charge state", "").removesuffix(".0"),
        "collision_energy": _params(precursor.find("{*}activation")).get("collision energy", ""),
        "isolation_window_target_mz": target,
        "isolation_window_lower_offset": window.get("isolation window lower offset", ""),
        "isolation_window_upper_offset": window.get("isolation window upper offset", ""),
    }


def _mzml_peaks(spectrum: _Element) -> tuple[_Array, _Array]:
    arrays = {"m/z array": _NOTHING, "intensity array": _NOTHING}
    for array in spectrum.iterfind("{*}binaryDataArrayList/{*}binaryDataArray"):
        params = _params(array)
        for name in arrays.keys() & params.keys():
            unknown = [one for one in params if "compression" in one and one not in _COMPRESSIONS]
            if unknown:
                raise ValueError(f"{unknown[0]} is not supported, convert the file with zlib")
            dtype = next((code for one, code in _DTYPES.items() if one in params), "<f8")
            text = array.findtext("{*}binary") or ""
            arrays[name] = _decoded(text, "zlib compression" in params, dtype)
    return arrays["m/z array"], arrays["intensity array"]


def _mzxml_record(scan: _Element, instrument: str) -> Record:
    ion, number = scan.find("{*}precursorMz"), scan.get("num", "")
    metadata = {
        "identifier": f"scan={number}" if number else "",
        "scans": number,
        "ms_level": scan.get("msLevel", ""),
        "ionmode": scan.get("polarity", ""),
        "collision_energy": _plain(scan.get("collisionEnergy", "")),
        "filter string": scan.get("filterLine", ""),
        "instrument": instrument,
    }
    if ion is not None:
        metadata["precursor_mz"] = _plain((ion.text or "").strip())
        metadata["charge"] = ion.get("precursorCharge", "")
        metadata["precursor_scan"] = ion.get("precursorScanNum", "")
    is_profile = scan.get("centroided", "1").lower() in {"0", "false"}
    return _with_arrays(metadata, partial(_mzxml_peaks, scan.find("{*}peaks")), (), is_profile)


def _mzxml_peaks(peaks: _Element | None) -> tuple[_Array, _Array]:
    if peaks is None or not (peaks.text or "").strip():
        return _NOTHING, _NOTHING
    dtype = {"32": ">f4", "64": ">f8"}[peaks.get("precision", "32")]
    pairs = _decoded(peaks.text, peaks.get("compressionType") == "zlib", dtype)
    return pairs[0::2], pairs[1::2]


def _decoded(text: str, is_packed: bool, dtype: str) -> _Array:
    """Numbers of an array in base64.

    Raises:
        ValueError: They are too many, or broken.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError(_TOO_LONG)
    content = base64.b64decode(text)
    return np.frombuffer(_inflated(content) if is_packed else content, dtype).astype(np.float64)


def _inflated(packed: bytes) -> bytes:
    inflate = zlib.decompressobj()
    content = inflate.decompress(packed, _MOST_BYTES)
    if inflate.unconsumed_tail:
        raise ValueError(_TOO_LONG)
    if not inflate.eof:
        raise ValueError("compressed data are cut off")
    return content


def _with_arrays(
    metadata: Mapping[str, str],
    peaks: Callable[[], tuple[_Array, _Array]],
    notes: tuple[str, ...],
    is_profile: bool,
) -> Record:
    fields = {key: value for key, value in metadata.items() if value}
    try:
        mz, intensity = peaks()
    except BROKEN as error:
        trouble = f"its peak arrays cannot be decoded ({' '.join(str(error).split())})"
        return unreadable_record(fields, trouble)
    if mz.size != intensity.size:
        trouble = f"it has {mz.size} m/z values and {intensity.size} intensities"
        return unreadable_record(fields, trouble)
    if is_profile:
        mz, intensity = pick_peaks(mz, intensity)
        notes = (*notes, PROFILE_WARNING)
    return Record(fields, mz, intensity, "", notes)


def pick_peaks(
    mz: NDArray[np.float64], intensity: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Local maxima of a profile spectrum.

    A maximum is a point above its left and not below its right neighbour. Its m/z is that of the
    parabola through the three points, kept between the neighbours; its intensity is the point's.
    No smoothing, no noise threshold, no deconvolution: good enough to go on, not a substitute for
    the vendor's centroiding.

    Args:
        mz: float64 (P,), ascending.
        intensity: float64 (P,).
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
