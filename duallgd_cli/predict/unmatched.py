"""Ids in the tables of a run that none of its features has: a typo, or a table of another file."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from duallgd_cli.errors import counted, quote
from duallgd_cli.sources.known import Knowledge, names_in_guides
from duallgd_cli.spectra.tables import names_in_tables, read_table
from duallgd_cli.spectra.types import Feature

logger = logging.getLogger(__name__)

_SHOWN: Final = 3


def telling_unmatched(
    features: Iterable[Feature], formulas: Path | None, knowledge: Knowledge | None
) -> Iterator[Feature]:
    """The features of all the input; at their end it is said which ids of tables none had."""
    # Of each option what a feature may be called, and names of each row, one of which must be one.
    tables: list[tuple[str, Callable[[Feature], Iterable[str]], list[tuple[str, ...]]]] = []
    of_rows: list[tuple[str, ...]]
    if formulas is not None:
        names: defaultdict[int, list[str]] = defaultdict(list)
        for by_name in read_table(str(formulas)).values():
            for name, own in by_name.items():
                for each in own:
                    names[id(each)].append(name)
        of_rows = [tuple(dict.fromkeys(own)) for own in names.values()]
        tables.append(("--formulas", names_in_tables, of_rows))
    if knowledge is not None:
        named = (name for one in knowledge.analogues for name in one.features if name)
        of_rows = [(name,) for name in dict.fromkeys(chain(knowledge.guides, named))]
        tables.append(("--guide or --analogues", names_in_guides, of_rows))
    missing = [{name for row in rows for name in row} for _, _, rows in tables]
    for feature in features:
        for (_, names_of, _), absent in zip(tables, missing, strict=True):
            absent.difference_update(names_of(feature))
        yield feature
    for (option, _, rows), absent in zip(tables, missing, strict=True):
        ids = list(dict.fromkeys(row[0] for row in rows if absent.issuperset(row)))
        if ids:
            matches = "match" if len(ids) > 1 else "matches"
            others = " and others" if len(ids) > _SHOWN else ""
            logger.warning(
                "%s of %s %s no feature of the input: %s%s; check the ids",
                *(counted(len(ids), "id"), option, matches),
                *(", ".join(map(quote, ids[:_SHOWN])), others),
            )
