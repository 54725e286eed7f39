"""Lists of universal spectrum identifiers (USI), looked up in files beside the list.

``mzspec:MSV000084494:run_7:scan:1943`` is scan 1943 of ``run_7.mzML`` (or another format), in the
folder of the list or in its folder ``MSV000084494``. Nothing is fetched.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UnreadableError, quote
from duallgd_cli.files import PACKED_ENDINGS
from duallgd_cli.spectra.reading.record import Record, unreadable_record

_USI: Final = re.compile(r"mzspec:([^:]+):(.+?):(scan|index|nativeId|accession):([^:]+)(?::.*)?")
_ENDINGS: Final = (".mzml", ".mzxml", ".mgf", ".msp")
_MOST: Final = 100_000  # identifiers of one list
_LONGEST: Final = 1000  # characters of one
_Key = tuple[str, str]  # what is counted, and its number or name


def records(
    lines: Iterable[str], folder: Path, held: Callable[[Path], Iterable[Record]]
) -> Iterator[Record]:
    """The spectrum of each line that is not empty, in the list's order.

    Args:
        lines: Of the list.
        folder: Where the files lie.
        held: Records of a file.

    Raises:
        UnreadableError: The list is too long.
    """
    wanted = [line.strip() for line in lines if line.strip().lower() not in {"", "usi"}]
    if len(wanted) > _MOST:
        raise UnreadableError(f"a list of more than {_MOST:,} USIs; cut it into several")
    matches = [_USI.fullmatch(usi[:_LONGEST]) for usi in wanted]
    asked: dict[tuple[str, str], set[_Key]] = {}
    for match in filter(None, matches):
        asked.setdefault((match[1], match[2]), set()).add((match[3], match[4]))
    found = {run: _found(_file(folder, *run), keys, held) for run, keys in asked.items()}
    for usi, each in zip(wanted, matches, strict=True):
        name = {"spectrum_id": usi[:_LONGEST]}
        if each is None:
            yield unreadable_record(name, f"{quote(usi)} is no USI such as mzspec:SET:RUN:scan:7")
            continue
        spectra, reason = found[each[1], each[2]]
        record = spectra.get((each[3], each[4]))
        if record is None:
            reason = reason or f"{quote(each[2])} holds no {each[3]} {quote(each[4])}"
            yield unreadable_record(name, reason)
        else:
            # Numbers of features are those of another file; the list's own come before them.
            own = {"feature_id": usi, **name}
            yield replace(record, metadata={**own, **record.metadata, **own})


def _file(folder: Path, collection: str, run: str) -> Path | None:
    """The file of a run, by its name, in the folder of its collection or in the list's own."""
    if {"/", "\\", "\0"} & {*collection, *run} or collection.startswith("."):
        return None
    for parent in (folder / collection, folder):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            name = path.name.lower()
            name = name.removesuffix(next(filter(name.endswith, PACKED_ENDINGS), ""))
            stem, dot, ending = name.rpartition(".")
            if dot + ending in _ENDINGS and run.lower() in {stem, name, path.name.lower()}:
                return path
    return None


def _found(
    path: Path | None, keys: set[_Key], held: Callable[[Path], Iterable[Record]]
) -> tuple[dict[_Key, Record], str]:
    """Those of the wanted spectra that a file holds, or why it gives none."""
    if path is None:
        return {}, "its run is no mzML, mzXML, MGF or MSP file beside the list; put it there"
    found: dict[_Key, Record] = {}
    try:
        for index, record in enumerate(held(path)):
            fields = record.metadata
            own = {
                ("index", str(index)),
                ("scan", fields.get("scans", fields.get("scan", ""))),
                ("nativeId", fields.get("native_id", "")),
                ("accession", fields.get("spectrum_id", fields.get("spectrumid", ""))),
            }
            for key in own & keys:
                found.setdefault(key, record)
    except UnreadableError as error:
        return {}, str(error)
    return found, ""
