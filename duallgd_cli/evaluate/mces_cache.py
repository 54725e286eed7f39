"""Solved MCES pairs on disk, so that a second run or a sweep does not solve them again."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.mces import Interval

# Part of the table's name: distances of another definition would be other numbers.
_TABLE: Final = "pair_v1"
_WAIT_S: Final = 60.0

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MCESCache:
    """Intervals of exact distances by the two canonical SMILES, in one SQLite file.

    Several processes may use one file at once.

    Attributes:
        path: Of the file; made when first written.
    """

    path: Path

    def load(self, pairs: Iterable[Pair]) -> dict[Pair, Interval]:
        """Look up pairs whose SMILES are in alphabetical order.

        Raises:
            UsageError: The file is no such cache.
        """
        if not self.path.exists():
            return {}
        question = f"SELECT lower, upper, limit_s FROM {_TABLE} WHERE first = ? AND second = ?"
        found: dict[Pair, Interval] = {}
        try:
            with closing(self._connect()) as connection:
                for pair in pairs:
                    row = connection.execute(question, pair).fetchone()
                    if row is not None:
                        found[pair] = Interval(*row)
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from error
        return found

    def save(self, solved: Mapping[Pair, Interval]) -> None:
        """Add pairs; a pair already there is replaced.

        Raises:
            UsageError: The file is no such cache, or cannot be written.
        """
        rows = [(*pair, found.lower, found.upper, found.limit_s) for pair, found in solved.items()]
        if not rows:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.executemany(f"REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?)", rows)
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._refusal(error) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_WAIT_S)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_TABLE} (first TEXT, second TEXT, lower REAL, "
            "upper REAL, limit_s REAL, PRIMARY KEY (first, second)) WITHOUT ROWID"
        )
        return connection

    def _refusal(self, error: Exception) -> UsageError:
        return UsageError(
            f"{self.path} cannot be used as MCES cache ({error}); "
            "delete it or name another file with --mces-cache"
        )
