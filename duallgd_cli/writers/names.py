"""Names and classes of molecules, from a table of the user's.

A molecule is the first block of its InChIKey, as everywhere here: candidates have no
stereochemistry. Where a table lists several names of one block, the one of the very key counts, or
else all of them are given, divided by bars: which of them it is, no spectrum says.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import parent_process
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UnreadableError, counted, quote
from duallgd_cli.tables import numbered_rows

NAME_COLUMNS: Final = ("candidate_name", "candidate_class")
_KEY: Final = re.compile(r"[A-Z]{14}(-[A-Z]{10}-[A-Z])?")
_ALSO: Final = {
    **dict.fromkeys(("inchikey14", "inchikey2d", "inchikeyblock"), "inchikey"),
    "compoundname": "name",
    **dict.fromkeys(("compoundclass", "classyfireclass", "npclassifierclass"), "class"),
}
_MOST: Final = 3  # names of one molecule that are written out

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Names:
    """Names and classes of a table, TSV or CSV, packed or not; each process reads it once."""

    # of the table; its columns are ``inchikey`` (or its first block), ``name``, ``class``
    path: Path

    @classmethod
    def read(cls, path: Path) -> "Names":
        """Read a table; rows that cannot be used are counted in one warning.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is no such table, or no row of it can be used.
        """
        _read(path)
        return cls(path)

    def of(self, inchikey: str) -> dict[str, str]:
        """Name and class of a molecule, by `NAME_COLUMNS`; empty of one that is not listed."""
        listed = _read(self.path).get(inchikey[:14], ())
        rows = [row for row in listed if row[0] == inchikey] or listed
        called = dict.fromkeys(NAME_COLUMNS, "")
        for place, column in enumerate(NAME_COLUMNS, 1):
            different = list(dict.fromkeys(row[place] for row in rows if row[place]))
            if len(different) > _MOST:
                different[_MOST:] = [f"{len(different) - _MOST} more"]
            called[column] = " | ".join(different)
        return called


@cache
def _read(path: Path) -> Mapping[str, Sequence[Sequence[str]]]:
    """Rows (key, name, class) by first block."""
    listed: dict[str, list[Sequence[str]]] = {}
    n_rows, faults = 0, list[str]()
    for number, row in numbered_rows(path, ("inchikey",), _ALSO):
        n_rows += 1
        key = row["inchikey"].upper().removeprefix("INCHIKEY=")
        called = row.get("name", ""), row.get("class", "")
        if not _KEY.fullmatch(key):
            faults.append(f"line {number}: {quote(row['inchikey'])} is no InChIKey")
        elif not any(called):
            faults.append(f"line {number}: there is neither a name nor a class")
        else:
            listed.setdefault(key[:14], []).append((key, *called))
    if not listed:
        raise UnreadableError(": ".join([f"{path} names no molecule", *faults[:1]]))
    if faults and parent_process() is None:  # processes that help say nothing
        said = f"{len(faults)} of {counted(n_rows, 'row')} left out, the first in {faults[0]}"
        logger.warning("%s: %s", path.name, said)
    return listed
