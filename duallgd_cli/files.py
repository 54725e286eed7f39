"""Files: their digests, writing them whole or not at all, and opening compressed ones."""

import errno
import gzip
import hashlib
import lzma
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal, TextIO, cast

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, clip

# What reading a damaged archive raises, from opening it to its last line.
DAMAGED: Final = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_OPENERS: Final[dict[str, Callable[..., object]]] = {".gz": gzip.open, ".xz": lzma.open}
_BLOCK_BYTES: Final = 1 << 20
_ABANDONED_S: Final = 3600.0


def sha256(source: Path | BinaryIO) -> str:
    """Hex digest of a file, or of what is left to read of an open one."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return sha256(stream)
    digest = hashlib.sha256()
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def require_input(path: str) -> None:
    """Refuse a path at which there is nothing, or something without an end.

    Raises:
        MissingInputError: There is nothing.
        UnreadableError: A device; or nobody can tell: the folder is locked, the name is too long.
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        # A link to itself leads to nothing.
        if getattr(error, "errno", None) in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise MissingInputError(f"{path} does not exist; check the path") from None
        reason = getattr(error, "strerror", error)
        raise UnreadableError(f"{clip(path)} cannot be read: {reason}") from None
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise UnreadableError(f"{path} is a device; name a file")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Path to write to instead of `path`, which is replaced only when the block ends well.

    Readers see the old file or the new one, never a part, and an error leaves nothing behind. A
    link stays a link. Processes that write the same file do not disturb each other: the last wins.
    What a killed process left is removed by the next write an hour later or more.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    for left in path.parent.glob(f".{path.name}.*.part"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, pieces: Iterable[str]) -> None:
    """Write text, whole or not at all.

    Args:
        path: In a folder that exists.
        pieces: Of the text, in order. Characters that UTF-8 cannot hold are written as escapes, so
            that a title of bytes that were no text does not cost the file.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        with replaced(path) as temporary, temporary.open("wb") as stream:
            for piece in pieces:
                stream.write(piece.encode("utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def open_text(path: Path, mode: Literal["r", "w"] = "r", errors: str = "strict") -> TextIO:
    """Open a text file in UTF-8; it is gzip or xz if its name ends in .gz or .xz.

    Line ends are left alone. A byte order mark, which spreadsheets write, is skipped.

    Args:
        path: To open.
        mode: ``r`` to read, ``w`` to write.
        errors: What to do about bytes that are no text, as for `open`.

    Raises:
        MissingInputError: There is no such file to read.
    """
    if mode == "r" and not path.is_file():
        raise MissingInputError(f"{path} does not exist; check the path")
    encoding = "utf-8-sig" if mode == "r" else "utf-8"
    opener = _OPENERS.get(path.suffix, open)
    return cast("TextIO", opener(path, f"{mode}t", encoding=encoding, errors=errors, newline=""))
