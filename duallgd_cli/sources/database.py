"""Databases of structures: read once into arrays on disk, and looked up there by formula.

A database is a folder of plain ``.npy`` arrays, which are mapped into memory, and ``about.json``.
Its structures are sorted by their atoms; those of a formula follow each other in the order of the
file. Those under names are in `store`; those of files that are given by their path lie in the
cache, by the SHA-256 of the file.

G structures, U different formulas.
"""

import json
import logging
import os
import time
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli import __version__
from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.structures import StructureRow, read_rows, reason_of, warn_of_feature_ids
from duallgd_cli.errors import FormulaError, MoleculeError, UnreadableError, UsageError
from duallgd_cli.files import DAMAGED_ARRAYS, require_file, sha256
from duallgd_cli.runtime import cache_folder, databases_folder, in_order
from duallgd_cli.sources.kept import left_out, line_of
from duallgd_cli.sources.structures import Analogues, atoms_and_bits
from duallgd_cli.spectra.annotation import index_ranges

logger = logging.getLogger(__name__)

_FORMAT: Final = 1
_ABOUT: Final = "about.json"
_MOST_ROWS: Final = 20_000_000
_AT_HAND: Final = 2_000  # rows that are read before other processes would be at work
_TOLD: Final = 100_000  # rows after which a log says how far the reading is
_AT_ONCE: Final = 20_000  # structures that are put in order together
_ABANDONED_S: Final = 3600.0
_MOST_ATOMS: Final = 255  # of an element, as the index counts them
# What is kept of each structure, one after the other, with the type of its items.
_COLUMNS: Final[dict[str, np.dtype[Any]]] = {
    "smiles": np.dtype(np.uint8),
    "names": np.dtype(np.uint8),
    "bits": np.dtype("u2"),
}
# The index: different formulas (U, N_ELEMENTS) in order, first row of each and the end (U + 1,),
# and a checksum of what is kept of their structures (U,).
_INDEX: Final = {"formulas": np.dtype("u1"), "rows": np.dtype("i8"), "checksums": np.dtype("u4")}


@dataclass(frozen=True, slots=True)
class About:
    """What a database holds.

    Attributes:
        file: Name of the file that it was read from.
        sha256: Of that file.
        structures: That it holds.
        formulas: Different ones that these have.
        left_out: Rows of the file that are none, by reason.
        bytes: Of its arrays.
        index: Checksum of what structures are looked up with.
        duallgd: Version that read the file.
        format: Number of the layout.
    """

    file: str
    sha256: str
    structures: int
    formulas: int
    left_out: Mapping[str, int]
    bytes: int
    index: int
    duallgd: str = __version__
    format: int = _FORMAT

    @classmethod
    def read(cls, folder: Path) -> "About":
        """Of the database in a folder.

        Raises:
            UnreadableError: It is of another format, or damaged.
        """
        try:
            values = json.loads((folder / _ABOUT).read_text("utf-8"))
            if values["format"] != _FORMAT:
                raise _unusable(folder, "is of another version of duallgd")
            about = cls(**values)
            texts = (about.file, about.sha256, about.duallgd, *about.left_out.keys())
            numbers = (about.structures, about.formulas, about.bytes, about.index)
            kinds = [*map(type, texts), *map(type, (*numbers, *about.left_out.values()))]
        except (OSError, ValueError, TypeError, LookupError, RecursionError, AttributeError):
            raise _unusable(folder, "is damaged") from None
        if kinds != [str] * len(texts) + [int] * (len(kinds) - len(texts)):
            raise _unusable(folder, "is damaged")
        return about

    @property
    def said_of_left_out(self) -> str:
        """The rows that are no structures, by reason, in words; "" where there are none."""
        return left_out(self.left_out, "molecule")


@dataclass(frozen=True, eq=False)
class Database:
    """Structures on disk, which are found by their formula.

    Attributes:
        folder: Where they lie.
        about: What they are.
        arrays: Of the index and of the columns, with ``smiles_start`` and so on (G + 1,): where
            that of each structure begins, in items.
    """

    folder: Path
    about: About
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def open(cls, folder: Path) -> "Database":
        """The database in a folder; nothing of its structures is read yet.

        Raises:
            UnreadableError: It is of another format, or damaged.
        """
        about = About.read(folder)
        starts = {f"{name}_start": np.dtype("i8") for name in _COLUMNS}
        shapes: dict[str, tuple[int, ...]] = {
            "formulas": (about.formulas, N_ELEMENTS),
            "rows": (about.formulas + 1,),
            "checksums": (about.formulas,),
            **dict.fromkeys(starts, (about.structures + 1,)),
        }
        arrays: dict[str, NDArray[Any]] = {}
        for name, kind in {**_INDEX, **starts, **_COLUMNS}.items():
            try:
                mapped = np.load(folder / f"{name}.npy", mmap_mode="r")
            except DAMAGED_ARRAYS:
                raise _unusable(folder, "is damaged") from None
            is_whole = isinstance(mapped, np.ndarray) and mapped.dtype == kind
            if not is_whole or mapped.shape != shapes.get(name, mapped.shape):
                raise _unusable(folder, "is damaged")
            arrays[name] = mapped.view(np.ndarray)
        if _checksum(arrays[name] for name in _INDEX) != about.index:
            raise _unusable(folder, "is damaged")
        return cls(folder, about, arrays)

    @classmethod
    def of_file(cls, path: Path) -> "Database":
        """The structures of a file, from the cache where it holds them.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is of no format that is read.
            UsageError: It holds no structure, or too many rows.
        """
        require_file(str(path))
        place = cache_folder() / "databases" / sha256(path)
        if place.is_dir():
            try:
                return cls.open(place)
            except UnreadableError:
                logger.warning("%s cannot be used, and is made again", place)
        try:
            make(path, place, force=True)
            return cls.open(place)
        except OSError as error:
            logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
        # Mapped files can be read on after they were deleted.
        with TemporaryDirectory(prefix="duallgd-", ignore_cleanup_errors=True) as folder:
            make(path, place := Path(folder) / place.name, force=True)
            return cls.open(place)

    def __len__(self) -> int:
        return self.about.structures

    def of_formulas(self, formulas: Iterable[Formula]) -> Analogues:
        """Structures that have the atoms of one of these formulas, whatever their charge.

        Only what is kept of these is read from the disk.

        Raises:
            UnreadableError: It is damaged.
        """
        index, rows = self.arrays["formulas"], range(self.about.formulas)
        keys = {bytes(one.counts) for one in formulas if max(one.counts) <= _MOST_ATOMS}
        smiles, names, counts = list[str](), list[str](), bytearray()
        n_bits, bits = [np.zeros(0, np.int64)], [np.zeros(0, np.uint16)]
        for key in sorted(keys):
            place = bisect_left(rows, key, key=lambda row: index[row].tobytes())
            if place == len(rows) or index[place].tobytes() != key:
                continue
            first, last = map(int, self.arrays["rows"][place : place + 2])
            kept = _of_rows(self.arrays, first, last)
            if _checksum(kept) != self.arrays["checksums"][place]:
                raise _unusable(self.folder, "is damaged")
            smiles += bytes(kept[0]).decode().split("\n")[:-1]
            names += bytes(kept[2]).decode().split("\n")[:-1]
            counts += key * (last - first)
            bits.append(kept[4])
            n_bits.append(kept[5])
        return Analogues(
            smiles,
            names,
            [""] * len(smiles),
            np.frombuffer(counts, np.uint8).reshape(-1, N_ELEMENTS),
            np.concatenate(n_bits),
            np.concatenate(bits),
        )


def _of_rows(arrays: Mapping[str, NDArray[Any]], first: int, last: int) -> list[NDArray[Any]]:
    """Of each column what is kept of some rows, and its lengths, one after the other."""
    kept = []
    for name in _COLUMNS:
        starts = arrays[f"{name}_start"][first : last + 1]
        kept += [arrays[name][max(0, starts[0]) : max(0, starts[-1])], np.diff(starts)]
    return kept


def _checksum(arrays: Iterable[NDArray[Any]]) -> int:
    checksum = 0
    for each in arrays:
        checksum = zlib.crc32(each.tobytes(), checksum)
    return checksum


def _unusable(folder: Path, why: str) -> UnreadableError:
    again = f"add it again with duallgd database add FILE --name {folder.name} --force"
    if folder.parent != databases_folder():
        again = f"delete {folder}, and it is made again"
    return UnreadableError(f"database {folder.name} {why}; {again}")


def is_database(place: Path) -> bool:
    """Whether a folder is a database."""
    with suppress(OSError):  # a locked folder
        return (place / _ABOUT).is_file()
    return False


def delete(place: Path) -> None:
    """Delete a database, and what is no part of one never."""
    (place / _ABOUT).unlink(missing_ok=True)  # from here on it is none
    for path in place.glob("*.npy"):
        path.unlink()
    with suppress(OSError):
        place.rmdir()


@contextmanager
def _whole(place: Path, force: bool) -> Iterator[Path]:
    """A folder that takes a place when the block ends well; with `force` that of another database.

    What a killed process left is removed an hour later or more.
    """
    for left in place.parent.glob(".*.part"):
        with suppress(OSError):
            written = max(path.stat().st_mtime for path in (left, *left.iterdir()))
            if time.time() - written > _ABANDONED_S:
                delete(left)
    mark = os.urandom(4).hex()  # in containers, processes have the numbers of those before them
    part, before = (place.with_name(f".{place.name}.{mark}.{n}.part") for n in ("new", "old"))
    part.mkdir()
    try:
        yield part
        if force and place.exists():
            place.rename(before)
        part.rename(place)
    finally:
        if before.exists() and not place.exists():
            before.rename(place)
        for rest in (before, part):
            if rest.exists():
                delete(rest)


def _entry(row: StructureRow) -> tuple[bytes, tuple[bytes, ...]] | str:
    """Atoms of a structure and a piece of each column, or why the row is none."""
    try:
        formula, bits = atoms_and_bits(row)
    except (MoleculeError, FormulaError) as error:
        return reason_of(error)
    return bytes(formula.counts), (line_of(row.smiles), line_of(row.name), bits.tobytes())


def _entries(
    rows: Iterator[StructureRow], workers: int
) -> Iterator[tuple[bytes, tuple[bytes, ...]] | str]:
    yield from map(_entry, islice(rows, _AT_HAND))
    yield from in_order(_entry, rows, workers)


def make(
    source: Path,
    place: Path,
    workers: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
    *,
    force: bool,
) -> About:
    """Make a database of a file, whole or not at all; in memory are some 60 bytes a structure.

    Args:
        source: ``.smi``, ``.csv``, ``.tsv`` or ``.sdf``, packed or not; see `data.structures`.
        place: Folder of the database.
        workers: Processes that read structures.
        advance: Told of each row that was read.
        force: Whether another database there is replaced.

    Raises:
        OSError: Something cannot be written.
        UnreadableError: The file is of no format that is read.
        UsageError: It holds no structure, or too many rows.
    """
    digest, refused = sha256(source), Counter[str]()
    atoms = bytearray()
    lengths = {name: array("I") for name in _COLUMNS}
    place.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        # In the order of the file. Files without a name: nothing is left of them by any end.
        unsorted = {name: stack.enter_context(TemporaryFile(dir=place.parent)) for name in _COLUMNS}
        rows = islice(read_rows(source), _MOST_ROWS + 1)
        if (first := next(rows, None)) is not None:
            warn_of_feature_ids(source, first)
        every = chain(filter(None, [first]), rows)
        for number, entry in enumerate(_entries(every, workers), 1):
            if number > _MOST_ROWS:
                raise UsageError(
                    f"{source} holds more than {_MOST_ROWS} rows; keep those that may be in samples"
                )
            advance(1)
            if number % _TOLD == 0:
                logger.info("%s rows of %s read", f"{number:,}", source)
            if isinstance(entry, str):
                refused[entry] += 1
                continue
            atoms += entry[0]
            for name, piece in zip(_COLUMNS, entry[1], strict=True):
                lengths[name].append(len(piece))
                unsorted[name].write(piece)
        about = About(source.name, digest, 0, 0, dict(refused.most_common()), 0, 0)
        if not atoms:
            raise UsageError(
                f"{source} holds no molecule that can be used: "
                f"{about.said_of_left_out or 'it is empty'}"
            )
        folder = stack.enter_context(_whole(place, force))
        order = _write_index(folder, atoms)
        for name, kind in _COLUMNS.items():
            sizes = np.frombuffer(lengths[name], np.uint32)
            _write_column(folder / f"{name}.npy", unsorted[name], sizes, order, kind)
        return _described(folder, about)


def _write_index(folder: Path, atoms: bytearray) -> NDArray[np.int64]:
    """Write the different formulas and the first rows of each; the order of the structures (G,)."""
    keys = np.frombuffer(atoms, f"S{N_ELEMENTS}")
    order = np.argsort(keys, kind="stable")
    changes = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
    firsts = np.concatenate([[0], changes])
    counts = np.frombuffer(atoms, np.uint8).reshape(-1, N_ELEMENTS)
    _save(folder / "formulas.npy", counts[order[firsts]])
    _save(folder / "rows.npy", np.append(firsts, len(order)).astype(np.int64))
    return order


def _write_column(
    path: Path,
    unsorted: IO[bytes],
    lengths: NDArray[np.uint32],
    order: NDArray[np.int64],
    kind: np.dtype[Any],
) -> None:
    """Write a column and where that of each structure starts, in the order of the structures (G,).

    Its bytes, and the lengths in bytes of the structures' parts (G,), are in the order of the file.
    """
    unsorted.flush()
    source = np.memmap(unsorted, np.uint8, "r")
    ends = np.cumsum(lengths, dtype=np.int64)
    shape = {"shape": (source.size // kind.itemsize,), "fortran_order": False, "descr": kind.str}
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, shape)
        for start in range(0, len(order), _AT_ONCE):
            rows = order[start : start + _AT_ONCE]
            index = index_ranges(ends[rows] - lengths[rows], ends[rows])[1]
            stream.write(source[index].tobytes())
        stream.flush()
        os.fsync(stream.fileno())
    starts = np.concatenate([[0], np.cumsum(lengths[order], dtype=np.int64)]) // kind.itemsize
    _save(path.with_name(f"{path.stem}_start.npy"), starts)


def _described(folder: Path, about: About) -> About:
    """Write checksums, and what a database holds, once its arrays are there."""
    names = ["formulas", "rows", *_COLUMNS, *(f"{name}_start" for name in _COLUMNS)]
    arrays: dict[str, NDArray[Any]] = {
        name: np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in names
    }
    rows = arrays["rows"].tolist()
    checksums = [_checksum(_of_rows(arrays, first, last)) for first, last in pairwise(rows)]
    arrays["checksums"] = np.array(checksums, np.uint32)
    _save(folder / "checksums.npy", arrays["checksums"])
    about = replace(
        about,
        structures=rows[-1],
        formulas=len(checksums),
        bytes=sum(path.stat().st_size for path in folder.iterdir()),
        index=_checksum(arrays[name] for name in _INDEX),
    )
    (folder / _ABOUT).write_text(json.dumps(asdict(about), indent=1) + "\n", "utf-8")
    return about


def _save(path: Path, values: Sequence[Any] | NDArray[Any]) -> None:
    with path.open("wb") as stream:
        np.save(stream, values)
        stream.flush()
        os.fsync(stream.fileno())
