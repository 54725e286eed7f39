"""MassBank records: lines ``TAG: value`` or ``TAG: SUBTAG value``, then peaks, and ``//``.

Tags that have subtags are those of links, of the acquisition and of the focused ion. A file holds
one record or several.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from duallgd_cli.spectra.reading.record import Block, Record, peak_record

_TAG: Final = re.compile(r"([A-Z]{2}\$[A-Z_]+|[A-Z_]+):\s*(.*)")
_END: Final = re.compile(r"//\s*")
_WITH_SUBTAGS: Final = re.compile(
    r"(?:CH|SP)\$LINK|AC\$(?:MASS_SPECTROMETRY|CHROMATOGRAPHY|GENERAL|ION_MOBILITY)|"
    r"MS\$(?:FOCUSED_ION|DATA_PROCESSING)"
)
_NAMES: Final = {"iupac": "inchi", "num_peak": "num_peaks"}  # where other formats have another name
_NO_END: Final = "the record may be incomplete: // does not end it"


def massbank_records(lines: Iterable[str]) -> Iterator[Record]:
    """Records in order; one that is not ended says so."""
    block, tag = Block(), ""
    for line in lines:
        match = _TAG.match(line)
        # Peaks end a record, also where neither // nor ACCESSION stands, as msPurity writes.
        is_next = match is not None and (
            match[1] == "ACCESSION" or (block.peaks and not match[1].startswith("PK$"))
        )
        if is_next and block.metadata:
            yield _finished(block, _NO_END)
            block = Block()
        if match is not None:
            tag = match[1]
            _take(block, tag, match[2].strip())
        elif _END.fullmatch(line):
            if block.metadata:
                yield _finished(block)
            block, tag = Block(), ""
        elif tag != "PK$ANNOTATION" and line.strip():
            block.add_peak(line)
    if block.metadata:
        yield _finished(block, _NO_END)


def _take(block: Block, tag: str, value: str) -> None:
    key = tag.partition("$")[2] or tag
    if _WITH_SUBTAGS.fullmatch(tag):
        key, _, value = value.partition(" ")
    key = key.lower()
    block.add_field(_NAMES.get(key, key), value.strip())


def _finished(block: Block, fault: str = "") -> Record:
    stated = block.metadata.get("num_peaks", "")
    warnings: tuple[str, ...] = (fault,) if fault else ()
    if stated.isdecimal() and int(stated) != len(block.peaks):
        warnings += (f"PK$NUM_PEAK says {stated}, and there are {len(block.peaks)}",)
    return peak_record(block, block.peaks, warnings)
