"""Tables as people and programs write them: CSV, TSV, and sheets that were saved as such.

One place decides for every table which line names its columns and what divides its cells: tabs,
semicolons or commas, as that line shows or as Excel's own first line ``sep=;`` says. Blank lines
and lines that begin with ``#`` may stand before it.
"""

import csv
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

from duallgd_cli.errors import UnreadableError, bare, clip, quote
from duallgd_cli.files import DAMAGED, damaged, open_text, unpacked_name

_LONGEST_CELL: Final = 1 << 25  # characters; the peaks of a spectrum are one cell
_MOST_LINES: Final = 100  # of one row, whose cells may hold line breaks in quotation marks
_NOTHING: Final = "\x1f"
# Excel's first line, which says what divides cells.
SEPARATOR: Final = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
_NAMES: Final = {"\t": "tabs", ",": "commas", ";": "semicolons"}
_QUOTED: Final = re.compile(r"\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table: the number of its first line in the file, from 1, and its cells."""

    number: int  # of the line
    cells: Sequence[str]  # as many as there are columns, without blanks around them
    fault: str = ""  # why the cells cannot be told from each other, else ""
    missing: int = 0  # how many cells at the end are not in the row


def plain(name: str) -> str:
    """The name of a column as it is compared: lower case, letters and digits alone."""
    return re.sub(r"[^a-z0-9#]", "", name.lower())


def delimiter_of(header: str, likely: str = "\t;,") -> str:
    """What divides the cells of a line that names columns; of equally many the first `likely`.

    Of a single column it is a character that no text has, since an InChI has commas.
    """
    outside = _QUOTED.sub("", header)
    most = max(likely, key=outside.count)
    return most if most in outside else _NOTHING


def table_lines(path: Path, known: Collection[str] = ()) -> Iterator[Line]:
    """Lines of a table, first the one that names the columns; blank ones are left out.

    A line that begins with ``#`` is that of the columns if it holds one of the known names, which
    are as `plain` gives them.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is no text, or breaks off.
    """
    likely = ",\t;" if unpacked_name(path).lower().endswith(".csv") else "\t,;"
    with open_text(path) as file:
        try:
            yield from lines_of(file, likely, known)
        except DAMAGED as error:
            raise UnreadableError(damaged(path, error)) from None


def lines_of(file: Iterator[str], likely: str, known: Collection[str] = ()) -> Iterator[Line]:
    """Lines of a table from those of its text; `likely` may divide cells, see `table_lines`."""
    number, comment, delimiter, header = 0, "", "", ""
    for text in file:
        number += 1
        if separator := SEPARATOR.fullmatch(text):
            delimiter = separator[1]
        elif text.lstrip().startswith("#"):
            comment = text.lstrip().lstrip("#")
        elif text.strip():
            header = text
            break
    divider = delimiter or delimiter_of(comment, likely)
    names = [plain(cell) for cell in comment.split(divider)]
    if set(names) & set(known) and (not header or header.count(divider) == len(names) - 1):
        file, header = chain([header], file), comment
        number -= 1
    delimiter = delimiter or delimiter_of(header, likely)
    # A spectrum's peaks are one cell, longer than csv expects of a text.
    csv.field_size_limit(_LONGEST_CELL)
    width = 0
    for line in _rows(chain([header], file), delimiter, max(number, 1)):
        cells = [cell.strip() for cell in line.cells]
        if not any(cells) and not line.fault:
            continue
        width = width or len(cells)
        while len(cells) > width and not cells[-1]:
            cells.pop()
        fault = line.fault
        if len(cells) > width:
            fault = (
                "the row has more cells than the header; put quotation marks around cells that "
                f"hold {_NAMES.get(delimiter, delimiter)}"
            )
        missing = max(width - len(cells), 0)
        yield Line(line.number, cells + [""] * missing, fault, missing)


def _rows(lines: Iterator[str], delimiter: str, number: int) -> Iterator[Line]:
    returned = deque[str]()  # lines that were taken for one row, but are rows of their own

    def fed(taken: list[str]) -> Iterator[str]:
        """Lines of the row at hand, for the reader of the standard library."""
        while len(taken) < _MOST_LINES:
            line = returned.popleft() if returned else next(lines, None)
            if line is None:
                return
            taken.append(line)
            yield line

    while True:
        taken = list[str]()
        reader = csv.reader(
            fed(taken), delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True
        )
        try:
            cells, fault = next(reader, None), ""
            if delimiter == "\t" and any({"\t", "\n"} <= set(cell) for cell in cells or ()):
                raise csv.Error
        except csv.Error:
            # Where tabs divide cells, many programs write quotation marks as they are.
            first, *others = taken
            returned.extendleft(reversed(others))
            taken = [first]
            cells = first.rstrip("\r\n").split(delimiter)
            fault = "" if delimiter == "\t" else "a quotation mark is open or out of place"
        if cells is None:
            return
        yield Line(number, cells, fault)
        number += len(taken)


def table_rows(path: Path, required: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Rows of a table by lower-case column names; see `numbered_rows`."""
    return (row for _, row in numbered_rows(path, required))


def numbered_rows(
    path: Path, required: Sequence[str] = (), also: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a table by lower-case column names, and their lines; read as they are asked for.

    What a short row lacks is "", and what was made `inert` is `bare` again. Columns are found
    whatever their capitals, blanks and underscores. One of another name, in `also`, stands for the
    one that it means, unless there is such a one.

    Raises:
        UnreadableError: It is no table; or a column is missing, or there twice.
    """
    names_of = {plain(name): name for name in (*required, *also.values())}
    others = {plain(name): meant for name, meant in also.items()}
    lines = table_lines(path, names_of.keys() | others.keys())
    header = next(lines, Line(1, ()))
    names = [names_of.get(plain(name), name.lower()) for name in header.cells]
    names = [name if (meant := others.get(plain(name), name)) in names else meant for name in names]
    missing = [name for name in required if name not in names]
    if missing:
        shown = clip(", ".join(names)) or "no columns"
        raise UnreadableError(f"{path} has no column {missing[0]}; it has {shown}")
    refuse_repeated(path, names, names, set(names) - {""})
    for line in lines:
        if line.fault:
            raise UnreadableError(f"{path}, line {line.number}: {line.fault}")
        cells = zip(names, line.cells, strict=True)
        yield line.number, {name: bare(cell) for name, cell in cells if name}


def column(path: Path, written: Sequence[str], likely: Sequence[str]) -> int | None:
    """Place of the first of some likely columns, as `plain` gives their names; None for none.

    Raises:
        UnreadableError: The table has it twice.
    """
    names = [plain(name) for name in written]
    name = next((name for name in likely if name in names), None)
    if name is None:
        return None
    refuse_repeated(path, written, names, {name})
    return names.index(name)


def refuse_repeated(
    path: Path | str, written: Sequence[str], names: Sequence[str], needed: Collection[str]
) -> None:
    """Refuse (UnreadableError) a table that has a column twice which is needed."""
    twice = next((name for name in names if name in needed and names.count(name) > 1), None)
    if twice is not None:
        name = quote(written[names.index(twice)])
        raise UnreadableError(f"{path} has two columns {name}; rename or remove one")
