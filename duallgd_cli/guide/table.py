"""A table that says of single features what is known of their molecules."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from duallgd_cli.chem.guide import Guide
from duallgd_cli.data.structures import StructureRow
from duallgd_cli.errors import UnreadableError, UsageError, quote
from duallgd_cli.files import require_input
from duallgd_cli.guide.analogues import Analogues

_FEATURE: Final = "feature_id"
_COLUMNS: Final = ("core", "require", "forbid", "analogue")
_BETWEEN: Final = "|"  # no SMILES and no SMARTS has it
_MOST_ROWS: Final = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class GuideTable:
    """What is known of features by name.

    Attributes:
        guides: What each molecule must be like.
        analogues: Molecules that are like them; None without any.
    """

    guides: Mapping[str, Guide]
    analogues: Analogues | None

    @classmethod
    def read(cls, path: Path) -> "GuideTable":
        """Read a table; several values in a cell have ``|`` between them, and rows add up.

        Args:
            path: CSV or TSV with ``feature_id`` and any of core, require, forbid and analogue.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It has other columns, or is no text.
            UsageError: It says nothing, is too long, or a cell cannot be read.
        """
        require_input(str(path))
        guides: defaultdict[str, Guide] = defaultdict(Guide)
        alike: list[StructureRow] = []
        for line, row in _rows(path):
            name = row[_FEATURE]
            core, require, forbid, analogues = (
                tuple(filter(None, map(str.strip, row[column].split(_BETWEEN))))
                for column in _COLUMNS
            )
            added = Guide(".".join(core) or None, require, forbid)
            try:
                added.check()
            except UsageError as error:
                raise UsageError(f"{path}, line {line}: {error}") from None
            if not name:
                raise UsageError(f"{path}, line {line}: no {_FEATURE}; say which feature it is of")
            if added != Guide():
                guides[name] = guides[name].and_also(added)
            alike += (StructureRow(smiles, "", line, "", name) for smiles in analogues)
        made = Analogues.of(alike)
        if len(made) < len(alike):
            wrong = next(one for one in alike if one.smiles not in made.smiles)
            raise UsageError(
                f"{path}, line {wrong.line}: analogue {quote(wrong.smiles)} is no molecule that "
                "samples can start from; write a SMILES such as CCO"
            )
        if not guides and not alike:
            raise UsageError(f"{path} says nothing of any feature; fill {', '.join(_COLUMNS)}")
        return cls(guides, made if alike else None)

    def of_feature(self, names: Sequence[str], guide: Guide | None) -> Guide | None:
        """What the molecule of the feature with one of these names must be like.

        Args:
            names: Of the feature.
            guide: What all molecules must be like, or None.
        """
        for name in dict.fromkeys(names):
            if name in self.guides:
                guide = (guide or Guide()).and_also(self.guides[name])
        return guide


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line numbers and cells by column, absent ones empty.

    Raises:
        UnreadableError: The table has other columns, or is no text.
        UsageError: It is too long.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            head = stream.readline()
            stream.seek(0)
            rows = csv.DictReader(stream, delimiter="\t" if "\t" in head else ",", restval="")
            columns = {str(name).strip().lower(): name for name in rows.fieldnames or ()}
            if _FEATURE not in columns or not set(columns) & set(_COLUMNS):
                raise UnreadableError(
                    f"{path} has no columns {_FEATURE} and {', '.join(_COLUMNS[:-1])} or "
                    f"{_COLUMNS[-1]}; its first line must name them"
                )
            for number, row in enumerate(islice(rows, _MOST_ROWS + 1)):
                if number == _MOST_ROWS:
                    raise UsageError(f"{path} has more than {_MOST_ROWS:,} rows; keep those needed")
                wanted = (_FEATURE, *_COLUMNS)
                cells = (row[columns[name]] if name in columns else "" for name in wanted)
                yield rows.line_num, dict(zip(wanted, map(str.strip, cells), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableError(f"{path} is no table of text: {error}") from None
