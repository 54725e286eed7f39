"""Ids in the tables of a run that none of its features has: a typo, or a table of another file."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from duallgd_cli.errors import counted, quote
from duallgd_cli.sources.known import Knowledge, names_in_guides
from duallgd_cli.spectra.formula_table import read_table
from duallgd_cli.spectra.formulas import names_in_tables
from duallgd_cli.spectra.types import Feature

logger = logging.getLogger(__name__)

_SHOWN: Final = 3


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

    def warn(self) -> None:
        """Say which ids no feature had, now that all features were seen."""
        rows = (row for row in self.rows if self.missing.issuperset(row))
        ids = list(dict.fromkeys(row[0] for row in rows))
        if ids:
            logger.warning(
                "%s of %s %s no feature of the input: %s%s; check the ids",
                counted(len(ids), "id"),
                self.option,
                "match" if len(ids) > 1 else "matches",
                ", ".join(map(quote, ids[:_SHOWN])),
                " and others" if len(ids) > _SHOWN else "",
            )


def telling_unmatched(
    features: Iterable[Feature], formulas: Path | None, knowledge: Knowledge | None
) -> Iterator[Feature]:
    """The features; at their end it is said which ids of tables none of them had.

    Args:
        features: All of the input.
        formulas: Table of formulas, or None.
        knowledge: Of guides and analogues, or None.
    """
    tables: list[_Ids] = []
    if formulas is not None:
        tables.append(_Ids("--formulas", names_in_tables, _names_of_rows(formulas)))
    if knowledge is not None:
        named = (name for one in knowledge.analogues for name in one.features if name)
        rows = [(name,) for name in dict.fromkeys(chain(knowledge.guides, named))]
        tables.append(_Ids("--guide or --analogues", names_in_guides, rows))
    for feature in features:
        for table in tables:
            table.missing.difference_update(table.names_of(feature))
        yield feature
    for table in tables:
        table.warn()


def _names_of_rows(path: Path) -> list[tuple[str, ...]]:
    names: defaultdict[int, list[str]] = defaultdict(list)
    tables: Mapping[str, Mapping[str, Iterable[object]]] = read_table(str(path))
    for by_name in tables.values():
        for name, rows in by_name.items():
            for row in rows:
                names[id(row)].append(name)
    return [tuple(dict.fromkeys(row)) for row in names.values()]
