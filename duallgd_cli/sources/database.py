"""Databases of structures: read once, kept in a file, looked up by formula.

Each is an SQLite file: under a name in `runtime.databases_folder`, where ``duallgd database add``
puts it; that of a file which is given by its path lies in the cache, by the SHA-256 of the file.
What is in the cache may be deleted: it is made again.
"""

import atexit
import errno
import json
import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import salts
from duallgd_cli.data.prepared import Screen
from duallgd_cli.data.structures import read_rows, warn_of_feature_ids
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, clip, quote
from duallgd_cli.files import replaced, require_file, sha256, unpacked_name
from duallgd_cli.runtime import cache_folder, databases_folder, in_order
from duallgd_cli.sources.structures import Analogues, Stored, stored

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ENDING: Final = ".sqlite"
_FORMAT: Final = 2  # to be raised whenever files are read otherwise than before
_MOST_ROWS: Final = 20_000_000
_MOST_ANALOGUES: Final = 1_000_000
_AT_HAND: Final = 2_000  # rows that are read before other processes would be at work
_TOLD: Final = 100_000  # rows after which a log says how far the reading is
_MOST_ATOMS: Final = 255  # of an element, as a byte counts them
_COLUMNS: Final = "atoms, smiles, name, feature, bits"
# Structures of a formula lie beside each other, in the order of the file.
_TABLES: Final = f"""
    CREATE TABLE kept.structures (number INTEGER, {_COLUMNS}, PRIMARY KEY (atoms, number))
    WITHOUT ROWID;
    CREATE TABLE kept.about (text);
    PRAGMA kept.user_version = {_FORMAT};
    PRAGMA kept.journal_mode = OFF;
"""


@dataclass(frozen=True, slots=True)
class About:
    """What a database holds."""

    file: str  # name of the file that it was read from
    sha256: str  # of that file
    structures: int
    formulas: int  # different ones
    features: int  # structures that name a feature which they are analogues of
    remarks: str  # on its rows that are no structures, or are salts; "" without any


@dataclass(frozen=True, slots=True)
class Database:
    """Structures on disk, which are found by their formula."""

    path: Path
    about: About

    @classmethod
    def open(cls, path: Path) -> "Database":
        """The database in a file; nothing of its structures is read yet.

        Raises:
            UnreadableError: It is of another format, or damaged.
        """
        with _reading(path) as connection:
            if connection.execute("PRAGMA user_version").fetchone() != (_FORMAT,):
                raise _unusable(path, "is of another version of duallgd")
            ((text,),) = connection.execute("SELECT text FROM about")
        return cls(path, About(**json.loads(text)))

    @classmethod
    def of_file(cls, path: Path) -> "Database":
        """The structures of a file, from the cache where it holds them.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is of no format that is read.
            UsageError: It holds no structure, or too many rows.
        """
        require_file(str(path))
        place = cache_folder() / "structures" / (sha256(path) + _ENDING)
        if place.exists():
            try:
                return cls.open(place)
            except UnreadableError:
                logger.warning("%s cannot be used, and is made again", place)
        try:
            return _made(path, place)
        except OSError as error:
            logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
        folder = mkdtemp(prefix="duallgd-")
        atexit.register(rmtree, folder, ignore_errors=True)
        return _made(path, Path(folder) / place.name)

    def of_formulas(self, formulas: Iterable[Formula]) -> Analogues:
        """Structures that have the atoms of one of these formulas, whatever their charge.

        Raises:
            UnreadableError: The database is damaged.
        """
        keys = {bytes(one.counts) for one in formulas if max(one.counts) <= _MOST_ATOMS}
        query = f"SELECT {_COLUMNS} FROM structures WHERE atoms = ? ORDER BY number"
        with _reading(self.path) as connection:
            each = (connection.execute(query, (key,)) for key in sorted(keys))
            return Analogues.of_stored(chain.from_iterable(each))


def read_analogues(path: Path) -> Analogues:
    """Structures of a file; it raises as `Database.of_file` does, and where they are too many."""
    database = Database.of_file(path)
    _warn(path, database.about, is_for_all=False)
    if database.about.structures > _MOST_ANALOGUES:
        raise UsageError(
            f"{path} holds more than {_MOST_ANALOGUES} molecules; keep those that may be analogues"
        )
    with _reading(database.path) as connection:
        return Analogues.of_stored(
            connection.execute(f"SELECT {_COLUMNS} FROM structures ORDER BY number")
        )


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        # Nobody writes to it: no locks are needed, which some file systems lack.
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            yield connection
    except sqlite3.Error:
        raise _unusable(path, "is damaged") from None


def _unusable(path: Path, why: str) -> UnreadableError:
    again = f"add it again with duallgd database add FILE --name {path.stem} --force"
    if path.parent != databases_folder():
        again = f"delete {path}, and it is made again"
    return UnreadableError(f"database {path.stem} {why}; {again}")


def _made(
    source: Path,
    place: Path,
    workers: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> Database:
    """Make a database at a place, whole or not at all; see `add`. What is there is replaced.

    Raises:
        OSError: Something cannot be written.
    """
    digest, screen, n_salts = sha256(source), Screen(), 0
    rows = islice(read_rows(source), _MOST_ROWS + 1)
    each = chain(map(stored, islice(rows, _AT_HAND)), in_order(stored, rows, workers))

    def rows_kept() -> Iterator[tuple[int, *Stored]]:
        nonlocal n_salts
        for number, (row, kept) in enumerate(each, 1):
            if number > _MOST_ROWS:
                raise UsageError(
                    f"{source} holds more than {_MOST_ROWS} rows; keep those that may be in samples"
                )
            advance(1)
            if number % _TOLD == 0:
                logger.info("%s rows of %s read", f"{number:,}", source)
            if isinstance(kept, str):
                screen.refuse(kept, row.line)
            else:
                n_salts += bool(row.salt)
                yield (number, *kept)

    try:
        # In the order of the file first, where nothing is left of them by any end.
        with closing(sqlite3.connect("")) as connection:
            connection.execute(f"CREATE TABLE unsorted (number, {_COLUMNS})")
            connection.executemany("INSERT INTO unsorted VALUES (?, ?, ?, ?, ?, ?)", rows_kept())
            connection.commit()
            ((structures, formulas, features),) = connection.execute(
                "SELECT count(*), count(DISTINCT atoms), count(nullif(feature, '')) FROM unsorted"
            )
            remarks = "; ".join(filter(None, [screen.left_out("molecule"), salts(n_salts)]))
            about = About(source.name, digest, structures, formulas, features, remarks)
            if not about.structures:
                why = remarks or "it is empty"
                raise UsageError(f"{source} holds no molecule that can be used: {why}")
            place.parent.mkdir(parents=True, exist_ok=True)
            with replaced(place) as partial:
                connection.execute("ATTACH ? AS kept", (str(partial),))
                connection.executescript(_TABLES)
                connection.execute(
                    "INSERT INTO kept.structures SELECT * FROM unsorted ORDER BY atoms, number"
                )
                connection.execute(
                    "INSERT INTO kept.about VALUES (?)", (json.dumps(asdict(about)),)
                )
                connection.commit()
                connection.execute("DETACH kept")
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error)) from None
    return Database(place, about)


def located(text: str) -> Path:
    """The file of this path, or else the database of this name.

    Raises:
        MissingInputError: There is neither.
        UnreadableError: There is something else at the path.
    """
    place = _place(text) if _NAME.fullmatch(text) else None
    try:
        require_file(text)
    except (MissingInputError, UnreadableError) as error:
        if place is not None and place.is_file():
            return place
        if isinstance(error, UnreadableError) or place is None:
            raise
        raise MissingInputError(
            f"{text} does not exist; check the path, or name a database; {_there_are()}"
        ) from None
    return Path(text)


def _place(name: str) -> Path:
    return databases_folder() / (name + _ENDING)


def _there_are() -> str:
    """Which databases can be named, for the end of a sentence."""
    names = ", ".join(name for name, _ in entries())
    return f"there are: {names}" if names else "duallgd database add FILE adds the first"


def opened(text: str) -> Database:
    """The database of a file or of a name; it raises as `located` and `Database.of_file` do."""
    place = located(text)
    is_named = place.parent == databases_folder()
    database = Database.open(place) if is_named else Database.of_file(place)
    _warn(text, database.about, is_for_all=True)
    return database


def _warn(text: str | Path, about: About, *, is_for_all: bool) -> None:
    if about.remarks:
        logger.warning("%s: %s", text, about.remarks)
    if about.features and is_for_all:
        warn_of_feature_ids(text)


def entries() -> list[tuple[str, Database | str]]:
    """All databases by name, in alphabetical order, or why nobody can tell what one holds."""
    listed: list[tuple[str, Database | str]] = []
    for place in sorted(databases_folder().glob(f"[!.]*{_ENDING}")):
        try:
            listed.append((place.stem, Database.open(place)))
        except UnreadableError as error:
            listed.append((place.stem, str(error)))
    return listed


def add(
    source: Path,
    name: str = "",
    *,
    force: bool = False,
    workers: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[str, About]:
    """Read the structures of a file into a database under a name, whole or not at all.

    Args:
        source: ``.smi``, ``.csv``, ``.tsv`` or ``.sdf``, packed or not.
        name: Of the database; "" for that of the file without its endings.
        force: Whether one of this name is replaced.
        workers: Processes.
        advance: Told of each row.

    Returns:
        Its name, and what it holds.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is of no format that is read.
        UsageError: It holds no structure, or too many rows; the name is none, or is taken; or the
            database cannot be written.
        WorkerDiedError: A process was ended from outside.
    """
    if not name:
        name = Path(unpacked_name(source)).stem
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{quote(name)} cannot be the name of a database; give one of letters, digits, . _ and "
            "- with --name"
        )
    require_file(str(source))
    if not force and (held := dict(entries()).get(name)) is not None:
        of_file = f" (of {held.about.file})" if isinstance(held, Database) else ""
        raise UsageError(
            f"a database {name} exists{of_file}; take another --name, or add --force to replace it"
        )
    try:
        about = _made(source, _place(name), workers, advance).about
    except OSError as error:
        raise UsageError(f"database {_place(name)} cannot be written: {error.strerror}") from None
    _warn(source, about, is_for_all=True)
    return name, about


def remove(name: str) -> None:
    """Delete a database.

    Raises:
        MissingInputError: There is none of this name.
        UsageError: It cannot be deleted.
    """
    if not _NAME.fullmatch(name) or not _place(name).is_file():
        raise MissingInputError(f"there is no database {clip(name)}; {_there_are()}")
    try:
        _place(name).unlink()
    except OSError as error:
        raise UsageError(f"database {_place(name)} cannot be deleted: {error.strerror}") from None
