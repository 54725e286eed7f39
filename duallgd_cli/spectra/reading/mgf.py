"""MGF as MZmine, MS-DIAL, GNPS, SIRIUS, MetaboScape, Progenesis and MassSpecGym write it.

A pass of our own instead of matchms' or pyteomics' reader: of 22 cases of dialect and damage tried,
matchms 0.33 stops at 11 (``CHARGE=N/A``, a PEPMASS that is no number, a text as third column,
comma-separated peaks, a missing END IONS, Latin-1, ...), which loses every later spectrum of the
file, and misses the record in two (lower case, a byte-order mark).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from duallgd_cli.spectra.reading.record import Block, Record, peak_record, unreadable_record

_BEGIN: Final = re.compile(r"\s*BEGIN\s+IONS\s*", re.IGNORECASE)
_END: Final = re.compile(r"\s*END\s+IONS\s*", re.IGNORECASE)
_COMMENT: Final = ("#", ";", "!", "/")
_STRAY_END: Final = "END IONS stands without BEGIN IONS"
_MASSSPECGYM: Final = frozenset({"fold", "identifier"})  # its energies are in eV by definition


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Records of MGF text in order, one for every BEGIN IONS or stray END IONS."""
    shared: dict[str, str] = {}  # of lines outside records, which hold for all that follow
    block, is_open = Block(), False
    for line in lines:
        if line[:1].isdigit():
            block.add_peak(line)
        elif _BEGIN.fullmatch(line):
            if is_open:
                yield _record(block, shared, "it has no END IONS")
            else:
                shared |= block.metadata
            block, is_open = Block(), True
        elif _END.fullmatch(line):
            # Parameters before a stray END IONS belonged to its record, so they are not shared.
            yield _record(block, shared) if is_open else unreadable_record({}, _STRAY_END)
            block, is_open = Block(), False
        else:
            _add(block, line)
    if is_open:
        yield _record(block, shared, "the file ends within it")


def _add(block: Block, line: str) -> None:
    """Take a line that is no plain peak."""
    key, equals, value = line.partition("=")
    if equals:
        block.add_field(key.strip().lower(), value.strip())
    elif key.strip() and not key.lstrip().startswith(_COMMENT):
        block.add_peak(line)


def _record(block: Block, shared: Mapping[str, str], torn: str = "") -> Record:
    """The record, its own parameters over the shared ones; a warning where it is torn."""
    block.metadata = {**shared, **block.metadata}
    warnings = (f"the record may be incomplete: {torn}",) if torn else ()
    return peak_record(block, block.peaks, warnings, block.metadata.keys() >= _MASSSPECGYM)
