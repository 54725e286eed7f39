"""Files: their digests, writing them whole or not at all, and opening compressed ones."""

import bz2
import csv
import errno
import glob
import gzip
import hashlib
import io
import lzma
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast
from zipfile import BadZipFile

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, clip

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# What reading a damaged archive raises, from its first byte to its last.
DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error)
# The same of arrays that numpy keeps in a zip archive.
DAMAGED_ARRAYS: Final = (*DAMAGED, ValueError, LookupError, RuntimeError, BadZipFile)
PACKED_ENDINGS: Final = frozenset({".gz", ".xz", ".bz2"})
_WRITERS: Final[dict[str, Callable[..., object]]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_MOST_DICTIONARY_BYTES: Final = 1 << 27  # xz -9 takes half of it
_GZIP: Final = zlib.MAX_WBITS + 16
# By the first bytes of a file.
_UNPACKERS: Final[dict[bytes, Callable[[], Any]]] = {
    b"\x1f\x8b": partial(zlib.decompressobj, _GZIP),
    b"\xfd7zXZ": partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _MOST_DICTIONARY_BYTES),
    b"BZh": bz2.BZ2Decompressor,
}
# Spectra take a tenth of their size when packed; only what is no spectra takes much less.
_LARGEST_RATIO: Final = 200
_SURELY_FINE_BYTES: Final = 1 << 28
_BLOCK_BYTES: Final = 1 << 20
_CGROUP_MEMORY: Final = Path("/sys/fs/cgroup/memory.max")
_PACKED_BLOCK_BYTES: Final = 1 << 14
_ABANDONED_S: Final = 3600.0
_LONGEST_CELL: Final = 2**31 - 1
STANDARD_STREAM: Final = "-"  # in place of a path
_REPLACE: Final = "or add --force to replace it"


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


def claim(
    outputs: Mapping[str, str | Path],
    inputs: Iterable[tuple[str, str | Path]] = (),
    *,
    force: bool = False,
    own: Collection[str] = (),
    makes_folders: bool = False,
    otherwise: str = "",
) -> None:
    """Refuse outputs that would cost the user a file, or could not be written, before any work.

    The one place where this is decided, for all commands. No input, and no file that a run needs,
    is ever an output of the same command: another spelling, a link and a hard link are the same
    file. What exists is replaced only if the user says so.

    Args:
        outputs: All that is written, by what it is, such as ``the run record``; ``-`` is no file.
        inputs: What is read, with what it is; a folder stands for the files in it. One that goes by
            the name of an output may be replaced by that alone: the record of a run by its record.
        force: Whether the user has asked to replace what exists.
        own: Names of outputs that may exist all the same: this command goes on with them.
        makes_folders: Whether folders are made for the outputs.
        otherwise: What else the user can do about an output that exists.

    Raises:
        UsageError: A file would be lost, two outputs are one file, or an output could not be
            written: there is no such folder, it is a device, its name is too long.
    """
    taken: dict[object, tuple[str, str | Path]] = {}
    for kind, path in inputs:
        for key in () if str(path) == STANDARD_STREAM else _identity(path):
            taken.setdefault(key, (kind, path))
    claimed: dict[object, str] = {}
    for kind, path in outputs.items():
        if str(path) == STANDARD_STREAM:
            if sys.stdout is None:
                raise UsageError("standard output is closed; name a file with -o")
            continue
        _require_writable(kind, path, makes_folders)
        place, keys = Path(os.path.realpath(path)), _identity(path)
        inside = _identity(place.parent) if place.exists() else set()
        for key in (*keys, *inside):
            input_kind, other = taken.get(key, (kind, path))
            if input_kind != kind:
                named = "" if str(other) == str(path) else f" ({other})"
                raise UsageError(
                    f"{kind} {path} would overwrite {input_kind}{named}; name another file"
                )
        keys.add(str(place).casefold())  # some file systems do not tell upper from lower case
        for key in keys & claimed.keys():
            raise UsageError(f"{kind} {path} would overwrite {claimed[key]}; name another file")
        claimed.update(dict.fromkeys(keys, kind))
        if place.exists() and not force and kind not in own:
            ways = f"add --force to replace it, {otherwise}" if otherwise else _REPLACE
            raise UsageError(f"{kind} {path} exists; name another output, {ways}")


def same_place(one: str | Path, other: str | Path) -> bool:
    """Whether two paths are one file, there or not; a spelling or a link makes no difference."""
    return bool(_identity(one) & _identity(other))


def _identity(path: str | Path) -> set[object]:
    """What all paths to a file have in common, be it there or not: its place, and its number."""
    place = os.path.realpath(path)  # Path.resolve gives up on a link to itself
    with suppress(OSError, ValueError):
        status = Path(place).stat()
        return {place, (status.st_dev, status.st_ino)}
    return {place}


def _require_writable(kind: str, output: str | Path, makes_folders: bool) -> None:
    path = Path(os.path.realpath(output))
    named, folder = f"{kind} {clip(str(output))}", path.parent
    try:
        if path.is_dir():
            raise UsageError(f"{named} is a folder; name a file in it")
        if path.exists() and not path.is_file():
            raise UsageError(f"{named} is no ordinary file; name one, or - for standard output")
        with suppress(FileNotFoundError, NotADirectoryError):
            _temporary(path).lstat()
        while makes_folders and not folder.exists():
            folder = folder.parent
    except (OSError, ValueError) as error:  # a locked folder, a name too long
        reason = getattr(error, "strerror", error)
        raise UsageError(f"{named} cannot be written: {reason}; name another file") from None
    if not folder.is_dir():
        why = f"cannot be made: {folder} is a file" if folder.exists() else "does not exist"
        raise UsageError(f"the folder of {named} {why}; create {path.parent}, or name another file")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder of {named} cannot be written; name another folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{named} is write-protected; name another file")


def _temporary(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Path to write to instead of `path`, which is replaced only when the block ends well.

    Readers see the old file or the new one, never a part, and an error leaves nothing behind. A
    link stays a link. Processes that write the same file do not disturb each other: the last wins.
    What a killed process left is removed by the next write an hour later or more.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                left.unlink()
    temporary = _temporary(path)
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


def unpacked(raw: BinaryIO) -> BinaryIO:
    """The content of a stream of gzip, xz or bzip2, told by its first bytes; others as they are.

    Args:
        raw: Seekable, at its start.
    """
    start = raw.read(8)
    raw.seek(0)
    make = next((make for sign, make in _UNPACKERS.items() if start.startswith(sign)), None)
    return raw if make is None else cast("BinaryIO", io.BufferedReader(_Unpacked(raw, make)))


class _Unpacked(io.RawIOBase):
    """What an archive of one file holds, up to where it grows beyond all measure."""

    def __init__(self, packed: BinaryIO, make: Callable[[], Any]) -> None:
        self._packed, self._make = packed, make
        self.seek(0)

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes, to the start."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to the start.

        Raises:
            UnsupportedOperation: Another byte is asked for.
        """
        if offset or whence:
            raise io.UnsupportedOperation("an archive is read from its start")
        self._packed.seek(0)
        self._unpacker, self._left, self._size = self._make(), b"", 0
        return 0

    def tell(self) -> int:
        """Byte of the content."""
        return self._size

    def close(self) -> None:
        """Release the file below."""
        self._packed.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill a buffer as far as may be.

        Raises:
            EOFError: The archive is cut off.
            OSError: What was read is too many times larger than its file.
        """
        view = memoryview(buffer).cast("B")
        content = b""
        while not content:
            if self._unpacker.eof and not self._next_part():
                return 0
            content = self._unpacker.decompress(self._left, len(view))
            self._left = self._unpacker.unused_data or getattr(
                self._unpacker, "unconsumed_tail", b""
            )
            if not (content or self._left or self._unpacker.eof) and not self._read():
                raise EOFError
        view[: len(content)] = content
        self._size += len(content)
        if self._size > max(_SURELY_FINE_BYTES, _LARGEST_RATIO * self._packed.tell()):
            raise OSError(f"they unpack to more than {_LARGEST_RATIO} times their size")
        return len(content)

    def _next_part(self) -> bool:
        """Whether another archive follows the one that ended; zeros between them are nothing."""
        self._left = self._left.lstrip(b"\0")
        while not self._left and self._read():
            self._left = self._left.lstrip(b"\0")
        if self._left:
            self._unpacker = self._make()
        return bool(self._left)

    def _read(self) -> bool:
        self._left = self._packed.read(_PACKED_BLOCK_BYTES)
        return bool(self._left)


def describe_damage(error: BaseException) -> str:
    """Why a file ended early, in words."""
    if isinstance(error, EOFError):
        return "the compressed data are cut off"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"the compressed data are corrupt ({error})"


@contextmanager
def replaced_text(path: Path) -> Iterator[TextIO]:
    """Text file to write in UTF-8, which takes the place of `path` only when the block ends well.

    It is packed if its name ends in .gz, .xz or .bz2; line ends are left alone. See `replaced`.
    """
    opener = _WRITERS.get(path.suffix, open)
    with (
        replaced(path) as partial,
        cast("TextIO", opener(partial, "wt", encoding="utf-8", newline="")) as stream,
    ):
        yield stream


def open_text(path: Path, errors: str = "strict") -> TextIO:
    """Open a text file in UTF-8, packed by gzip, xz or bzip2 or not.

    Line ends are left alone. A byte order mark, which spreadsheets write, is skipped.

    Args:
        path: To read.
        errors: What to do about bytes that are no text, as for `open`.

    Raises:
        MissingInputError: There is no such file to read.
    """
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; check the path")
    content = unpacked(path.open("rb"))
    return io.TextIOWrapper(content, encoding="utf-8-sig", errors=errors, newline="")


def table_rows(
    path: Path,
    required: Sequence[str] = (),
    errors: str = "strict",
    also: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[dict[str, str]]:
    """Rows of a table with lower-case column names, read as they are asked for.

    What a short row lacks is "".

    Args:
        path: TSV or CSV, as its first line shows, or else its name; packed or not.
        required: Columns that must be there.
        also: Other names of columns, and which they then are.
        errors: What to do about bytes that are no text, as for `open`.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is no table, or a column is missing.
    """
    # A spectrum's peaks are one cell, longer than csv expects of a text.
    csv.field_size_limit(_LONGEST_CELL)
    name = path.stem if path.suffix in PACKED_ENDINGS else path.name
    likely = ",\t" if name.lower().endswith(".csv") else "\t,"
    with open_text(path, errors) as file:
        try:
            head = file.readline()
            delimiter = max(likely, key=head.count)
            reader = csv.DictReader(chain([head], file), delimiter=delimiter, restval="")
            names = [name.strip().lower() for name in reader.fieldnames or []]
            names = [name if also.get(name, name) in names else also[name] for name in names]
            reader.fieldnames = names
            missing = [name for name in required if name not in names]
            if missing:
                shown = clip(", ".join(names)) or "no columns"
                raise UnreadableError(f"{path} has no column {missing[0]}; it has {shown}")
            for row in reader:
                yield {name: (cell or "").strip() for name, cell in row.items() if name}
        except (UnicodeDecodeError, csv.Error, *DAMAGED) as error:
            raise UnreadableError(f"{path} is no readable table: {error}") from error


def memory_bytes() -> int:
    """Of the whole machine, or as the container allows; 0 where nothing says."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 0
    try:
        return min(whole, int(_CGROUP_MEMORY.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return whole
