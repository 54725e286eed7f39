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
from itertools import chain
from multiprocessing import parent_process
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UnreadableError, counted, quote
from duallgd_cli.tables import Line, plain, table_lines

NAME_COLUMNS: Final = ("candidate_name", "candidate_class")
_KEY: Final = re.compile(r"[A-Z]{14}(-[A-Z]{10}-[A-Z])?")
_HEADS: Final = (
    ("inchikey", "inchikey14", "inchikey2d", "inchikeyblock", "key"),
    ("name", "compoundname", "title"),
    ("class", "compoundclass", "classyfireclass", "npclassifierclass"),
)
_MOST: Final = 3  # names of one molecule that are written out

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Names:
    """Names and classes of a table; each process reads it once, and the first says what is wrong.

    Attributes:
        path: Of the table.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.absolute())

    @classmethod
    def read(cls, path: Path) -> "Names":
        """Read a table; rows that cannot be used are counted in one warning.

        Args:
            path: TSV or CSV, packed or not: InChIKey or its first block, name, class, in this order
                or in that of a first line that says so.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is no such table, or no row of it can be used.
        """
        names = cls(path)
        _read(names.path)
        return names

    def of(self, inchikey: str) -> dict[str, str]:
        """Name and class of a molecule, by `NAME_COLUMNS`; empty of one that is not listed."""
        listed = _read(self.path).get(inchikey[:14], ())
        rows = [row for row in listed if row[0] == inchikey] or listed
        return {
            column: _together([row[place] for row in rows])
            for place, column in enumerate(NAME_COLUMNS, 1)
        }


def _together(values: Sequence[str]) -> str:
    different = list(dict.fromkeys(filter(None, values)))
    more = [f"{len(different) - _MOST} more"] if len(different) > _MOST else []
    return " | ".join(different[:_MOST] + more)


@cache
def _read(path: Path) -> Mapping[str, Sequence[Sequence[str]]]:
    """Rows (key, name, class) by first block."""
    listed: dict[str, list[Sequence[str]]] = {}
    lines = table_lines(path, [name for names in _HEADS for name in names])
    first = next(lines, Line(1, ()))
    heads = [plain(cell) for cell in first.cells]
    places = [next((heads.index(name) for name in names if name in heads), -1) for names in _HEADS]
    if places[0] < 0:  # no line of names
        if not first.cells or not _KEY.fullmatch(_key(first.cells[0])):
            raise UnreadableError(
                f"{path} has no column inchikey; its columns are inchikey, name and class"
            )
        places, lines = [0, 1, 2], chain([first], lines)
    n_rows, faults = 0, list[str]()
    for line in lines:
        n_rows += 1
        cells = [line.cells[place] if 0 <= place < len(line.cells) else "" for place in places]
        key, fault = _key(cells[0]), line.fault
        if not _KEY.fullmatch(key):
            fault = fault or f"{quote(cells[0])} is no InChIKey"
        elif not any(cells[1:]):
            fault = fault or "there is neither a name nor a class"
        if fault:
            faults.append(f"line {line.number}: {fault}")
        else:
            listed.setdefault(key[:14], []).append((key, *cells[1:]))
    if not listed:
        raise UnreadableError(": ".join([f"{path} names no molecule", *faults[:1]]))
    if faults and parent_process() is None:  # processes that help say nothing
        said = f"{len(faults)} of {counted(n_rows, 'row')} left out, the first in {faults[0]}"
        logger.warning("%s: %s", path.name, said)
    return listed


def _key(cell: str) -> str:
    return cell.upper().removeprefix("INCHIKEY=")
