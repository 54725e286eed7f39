"""Files: their digests, writing them whole or not at all, and opening compressed ones."""

import bz2
import codecs
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast
from zipfile import BadZipFile

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, clip

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# What reading a damaged archive raises, from its first byte to its last.
DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error)
# The same of arrays that numpy keeps in a zip archive.
DAMAGED_ARRAYS: Final = (*DAMAGED, ValueError, LookupError, RuntimeError, BadZipFile)
# By ending: the first bytes of a file, and what opens it.
_PACKED: Final[dict[str, tuple[bytes, Callable[..., Any]]]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".xz": (b"\xfd7zXZ", lzma.open),
    ".bz2": (b"BZh", bz2.open),
}
PACKED_ENDINGS: Final = frozenset(_PACKED)
# What a laboratory may name by mistake, by its first bytes; and what to do. All else that is no
# text is a binary file.
_FOREIGN: Final = (
    (b"%PDF-", "a PDF document; ask its authors for the peaks, or type them as MGF"),
    (b"\x89HDF\r\n\x1a\n", "HDF5 data (mzMLb, mz5, netCDF 4 and others); convert them to mzML"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook or raw data of a Sciex "
     "instrument; save the sheet as CSV, or convert the data to mzML with msconvert"),
    (b"\x01\xa1F\0i\0n\0n\0i\0g\0a\0n\0", "raw data of a Thermo instrument; convert it to mzML "
     "with ThermoRawFileParser or ProteoWizard's msconvert"),
    *((bytes([0x80, version]), "a Python pickle, which is never opened; write the spectra as MGF")
      for version in range(2, 6)),
    (b"PK\x03\x04", "zip-compressed; unpack it, or use gzip"),
    (b"7z\xbc", "7-Zip-compressed; unpack it, or use gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it, or use gzip"),
    (b"Rar!", "RAR-compressed; unpack it, or use gzip"),
    (b"PAR1", "a Parquet table; write it as TSV or CSV"),
)  # fmt: skip
_OFFICE: Final = (b"[Content_Types].xml", b"mimetypeapplication/vnd.oasis", b"xl/workbook")
# Spectra take a tenth of their size when packed; only what is no spectra takes much less.
_LARGEST_RATIO: Final = 200
_SURELY_FINE_BYTES: Final = 1 << 28
_CGROUP_MEMORY: Final = Path("/sys/fs/cgroup/memory.max")
_ABANDONED_S: Final = 3600.0
_SAMPLE_BYTES: Final = 4096  # of a file, that show what it is
LATIN1: Final = "duallgd.latin1"  # names what is done about bytes that are no UTF-8
STANDARD_STREAM: Final = "-"  # in place of a path
_REPLACE: Final = "or add --force to replace it"


def sha256(source: Path | BinaryIO) -> str:
    """Hex digest of a file, or of what is left to read of an open one."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return sha256(stream)
    return hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]


def unpacked_name(path: Path) -> str:
    """The name of a file, without the ending that says how it is packed."""
    return path.stem if path.suffix.lower() in PACKED_ENDINGS else path.name


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


def require_file(path: str) -> None:
    """Refuse a path that is not that of a file: it is read more than once.

    Raises:
        MissingInputError: There is nothing.
        UnreadableError: A folder, a pipe or a device.
    """
    require_input(path)
    if not Path(path).is_file():
        what = "a folder; name a file" if Path(path).is_dir() else "a pipe; write it to a file"
        raise UnreadableError(f"{path} is {what}")


def foreign_format(head: bytes) -> str:
    """What a file is that is no text and no archive of one, and what to do; "" for others."""
    if head.startswith(b"PK\x03\x04") and any(sign in head[:4096] for sign in _OFFICE):
        return "an Excel workbook or another office document; save its sheet as CSV"
    return next((said for sign, said in _FOREIGN if head.startswith(sign)), "")


def claim(
    outputs: Mapping[str, str | Path],
    inputs: Iterable[str | Path] = (),
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
        inputs: What is read, and files of runs.
        force: Whether the user has asked to replace what exists.
        own: Names of outputs that may exist all the same: this command goes on with them.
        makes_folders: Whether folders are made for the outputs.
        otherwise: What else the user can do about an output that exists.

    Raises:
        UsageError: A file would be lost, two outputs are one file, or an output could not be
            written: there is no such folder, it is a device, its name is too long.
    """
    taken: dict[object, str | Path] = {}
    for path in inputs:
        for key in () if str(path) == STANDARD_STREAM else _identity(path):
            taken.setdefault(key, path)
    claimed: dict[object, str] = {}
    for kind, path in outputs.items():
        if str(path) == STANDARD_STREAM:
            if sys.stdout is None:
                raise UsageError("standard output is closed; name a file with -o")
            continue
        _require_writable(kind, path, makes_folders)
        place, keys = Path(os.path.realpath(path)), _identity(path)
        for other in (taken[key] for key in keys if key in taken):
            named = "an input" if str(other) == str(path) else f"an input ({other})"
            raise UsageError(f"{kind} {path} would overwrite {named}; name another file")
        keys.add(str(place).casefold())  # some file systems do not tell upper from lower case
        for key in keys & claimed.keys():
            raise UsageError(f"{kind} {path} would overwrite {claimed[key]}; name another file")
        claimed.update(dict.fromkeys(keys, kind))
        if place.exists() and not force and kind not in own:
            ways = f"add --force to replace it, {otherwise}" if otherwise else _REPLACE
            raise UsageError(f"{kind} {path} exists; name another output, {ways}")


def _identity(path: str | Path) -> set[object]:
    """What all paths to a file have in common, be it there or not: its place, and its number."""
    keys: set[object] = {place := os.path.realpath(path)}  # Path.resolve fails at links to itself
    with suppress(OSError, ValueError):
        status = Path(place).stat()
        keys.add((status.st_dev, status.st_ino))
    return keys


def _require_writable(kind: str, output: str | Path, makes_folders: bool) -> None:
    path = Path(os.path.realpath(output))
    named, folder = f"{kind} {clip(str(output))}", path.parent
    try:
        if path.is_dir():
            raise UsageError(f"{named} is a folder; name a file in it")
        if path.exists() and not path.is_file():
            raise UsageError(f"{named} is no ordinary file; name one, or - for standard output")
        with suppress(FileNotFoundError, NotADirectoryError):
            _temporary(path).lstat()  # whose name is longer
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


def unpacked(raw: BinaryIO) -> BinaryIO:
    """The content of a stream of gzip, xz or bzip2, told by its first bytes; others as they are."""
    start = raw.read(8)
    raw.seek(0)
    for sign, unpack in _PACKED.values():
        if start.startswith(sign):
            return cast("BinaryIO", io.BufferedReader(_Unpacked(raw, unpack(raw))))
    return raw


class _Unpacked(io.RawIOBase):
    """What an archive of one file holds, up to where it grows beyond all measure."""

    def __init__(self, packed: BinaryIO, content: BinaryIO) -> None:
        self._packed, self._content = packed, cast("io.BufferedReader", content)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        # One block at most: of a file that is cut off, what came before is not lost.
        content = self._content.read1(len(view))
        size = len(content)
        view[:size] = content
        if self.tell() > max(_SURELY_FINE_BYTES, _LARGEST_RATIO * self._packed.tell()):
            raise OSError(f"they unpack to more than {_LARGEST_RATIO} times their size")
        return size


def describe_damage(error: BaseException) -> str:
    """Why a file ended early, in words."""
    if isinstance(error, EOFError):
        return "the compressed data are cut off"
    reason = error.strerror if isinstance(error, OSError) else ""
    return reason or f"the compressed data are corrupt ({error})"


def damaged(path: Path, error: BaseException) -> str:
    """What to say of a file that ended early."""
    return f"{path} cannot be read: {describe_damage(error)}; fetch or copy it again"


@contextmanager
def replaced_text(path: Path, *, may_pack: bool = True) -> Iterator[TextIO]:
    """Text file to write in UTF-8, which takes the place of `path` only when the block ends well.

    It is packed if its name ends in .gz, .xz or .bz2, and if it may be; line ends are left alone.
    Characters that UTF-8 cannot hold are written as escapes, so that a title of bytes that were no
    text does not cost the file. See `replaced`.

    Raises:
        UsageError: The file cannot be written.
    """
    _, opener = _PACKED.get(path.suffix.lower() if may_pack else "", (b"", open))
    how = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    try:
        with replaced(path) as partial, cast("TextIO", opener(partial, "wt", **how)) as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def write_atomically(path: Path, pieces: Iterable[str]) -> None:
    """Write pieces of text as `replaced_text` does, but never packed: equal pieces, equal bytes."""
    with replaced_text(path, may_pack=False) as stream:
        stream.writelines(pieces)


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(LATIN1, _as_latin1)


def encoding_of(head: bytes) -> str:
    """The encoding of a text: UTF-8, or UTF-16 with a byte-order mark; "" where it is no text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # A few control characters, NUL too, are damage in a text; many are another kind of file.
    controls = sum(byte < 9 or 13 < byte < 32 for byte in head[:_SAMPLE_BYTES])
    return "" if controls > min(40, len(head[:_SAMPLE_BYTES]) // 20) else "utf-8-sig"


def open_text(path: Path) -> TextIO:
    """Open a text file, packed by gzip, xz or bzip2 or not.

    It is UTF-8, or UTF-16 with a byte-order mark; bytes that are no UTF-8 are read as Latin-1, so
    that an accent costs nothing. Line ends are left alone, byte-order marks are skipped.

    Raises:
        MissingInputError: There is no such file to read.
        UnreadableError: A folder or a pipe; or what it holds is no text.
    """
    require_file(str(path))
    try:
        content = unpacked(path.open("rb"))
        head = content.read(_SAMPLE_BYTES)
        content.seek(0)
    except DAMAGED as error:
        raise UnreadableError(damaged(path, error)) from None
    encoding, foreign = encoding_of(head), foreign_format(head)
    if foreign or not encoding:
        content.close()
        raise UnreadableError(f"{path} is {foreign or 'a binary file; expected a text'}")
    return io.TextIOWrapper(content, encoding=encoding, errors=LATIN1, newline="")


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
