"""Databases under names, in `runtime.databases_folder`."""

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, clip, quote
from duallgd_cli.files import PACKED_ENDINGS, require_file
from duallgd_cli.runtime import databases_folder
from duallgd_cli.sources.database import About, Database, delete, is_database, make

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def located(text: str) -> Path:
    """The file of this path, or else the folder of the database of this name.

    Raises:
        MissingInputError: There is neither.
        UnreadableError: There is something else at the path.
    """
    place = databases_folder() / text if _NAME.fullmatch(text) else None
    try:
        require_file(text)
    except (MissingInputError, UnreadableError) as error:
        if place is not None and is_database(place):
            return place
        if isinstance(error, UnreadableError) or place is None:
            raise
        raise MissingInputError(
            f"{text} does not exist; check the path, or name a database; {_there_are()}"
        ) from None
    return Path(text)


def _there_are() -> str:
    """Which databases can be named, for the end of a sentence."""
    names = ", ".join(name for name, _ in entries())
    return f"there are: {names}" if names else "duallgd database add FILE adds the first"


def opened(text: str) -> Database:
    """The database of a file or of a name; it raises as `located` and `Database.of_file` do."""
    place = located(text)
    database = Database.of_file(place) if place.is_file() else Database.open(place)
    if database.about.said_of_left_out:
        logger.warning("%s: %s", text, database.about.said_of_left_out)
    return database


def entries() -> list[tuple[str, About | str]]:
    """All databases by name, in alphabetical order, with what they hold, or why nobody can tell."""
    listed: list[tuple[str, About | str]] = []
    try:
        places = sorted(databases_folder().iterdir())
    except OSError:  # there is no such folder, or nobody may look into it
        places = []
    for place in places:
        if _NAME.fullmatch(place.name) and is_database(place):
            try:
                listed.append((place.name, Database.open(place).about))
            except UnreadableError as error:
                listed.append((place.name, str(error)))
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
        source: See `database.make`, as `workers` and `advance`.
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
        is_packed = source.suffix.lower() in PACKED_ENDINGS
        name = Path(source.stem).stem if is_packed else source.stem
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{quote(name)} cannot be the name of a database; give one of letters, digits, . _ and "
            "- with --name"
        )
    require_file(str(source))
    place = databases_folder() / name
    if os.path.lexists(place):
        if not is_database(place):
            raise UsageError(f"{place} exists and is no database; take another --name")
        if not force:
            held = dict(entries())[name]
            of_file = f" (of {held.file})" if isinstance(held, About) else ""
            raise UsageError(
                f"a database {name} exists{of_file}; take another --name, or add --force to "
                "replace it"
            )
    try:
        about = make(source, place, workers, advance, force=force)
    except OSError as error:
        raise UsageError(f"database {place} cannot be written: {error.strerror}") from None
    if about.said_of_left_out:
        logger.warning("%s: %s", source, about.said_of_left_out)
    return name, about


def remove(name: str) -> None:
    """Delete a database.

    Raises:
        MissingInputError: There is none of this name.
        UsageError: It cannot be deleted.
    """
    place = databases_folder() / name
    if not _NAME.fullmatch(name) or not is_database(place):
        raise MissingInputError(f"there is no database {clip(name)}; {_there_are()}")
    try:
        delete(place)
    except OSError as error:
        raise UsageError(f"database {place} cannot be deleted: {error.strerror}") from None
