"""Ids in the tables of a run that none of its features has: a typo, or a table of another file."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from duallgd_cli.errors import counted, quote
from duallgd_cli.guide import Knowledge, names_in_guides
from duallgd_cli.spectra.formula_table import read_table
from duallgd_cli.spectra.formulas import names_in_tables
from duallgd_cli.spectra.types import Feature

logger = logging.getLogger(__name__)

_SHOWN: Final = 3


class TableIds:
    """Ids that tables name, and which of them features had so far.

    Args:
        formulas: Table of formulas, or None.
        knowledge: Of guides and analogues, or None.
    """

    def __init__(self, formulas: Path | None, knowledge: Knowledge | None) -> None:
        self._tables: list[_Ids] = []
        if formulas is not None:
            self._tables.append(_Ids("--formulas", names_in_tables, _names_of_rows(formulas)))
        if knowledge is not None:
            features = (name for one in knowledge.analogues for name in one.features if name)
            rows = [(name,) for name in dict.fromkeys(chain(knowledge.guides, features))]
            self._tables.append(_Ids("--guide or --analogues", names_in_guides, rows))

    def see(self, feature: Feature) -> None:
        """Take note of a feature."""
        for table in self._tables:
            table.missing.difference_update(table.names_of(feature))

    def warn(self) -> None:
        """Say which ids no feature had, now that all features were seen."""
        for table in self._tables:
            rows = (row for row in table.rows if table.missing.issuperset(row))
            ids = list(dict.fromkeys(row[0] for row in rows))
            if ids:
                shown = ", ".join(map(quote, ids[:_SHOWN]))
                logger.warning(
                    "%s of %s %s no feature of the input: %s%s; check the ids",
                    counted(len(ids), "id"),
                    table.option,
                    "match" if len(ids) > 1 else "matches",
                    shown,
                    " and others" if len(ids) > _SHOWN else "",
                )


@dataclass(slots=True)
class _Ids:
    """Ids of one option.

    Attributes:
        option: Of the command.
        names_of: What a table of it may call a feature.
        rows: Names of each row, of which a feature needs one.
        missing: Names that no feature had so far.
    """

    option: str
    names_of: Callable[[Feature], Iterable[str]]
    rows: Sequence[tuple[str, ...]]
    missing: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.missing = {name for row in self.rows for name in row}


def _names_of_rows(path: Path) -> list[tuple[str, ...]]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    tables: Mapping[str, Mapping[str, Iterable[object]]] = read_table(str(path))
    for by_name in tables.values():
        for name, rows in by_name.items():
            for row in rows:
                names[id(row)].append(name)
    return [tuple(dict.fromkeys(row)) for row in names.values()]
