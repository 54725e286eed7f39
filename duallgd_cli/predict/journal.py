"""The append-only record of a run, and what resuming, shards and writers read from it.

One JSON object a line. The first is the header (identity of the run), then one line for every
hypothesis of every feature as it is finished, then an end line. Each line ends in a checksum of
itself and of all lines before it: one that was torn by a crash, changed, moved or taken out is
noticed, and nothing counts from there on. Every line reaches the operating system at once, and the
disk at least every half second.

A finished run is read in the order of the input. Memory holds some ten numbers a spectrum: where it
and its hypotheses lie. L hypotheses of all features, S spectra.
"""

import copy
import json
import logging
import os
import re
import time
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial as with_arguments
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import parse
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.predict.settings import CERTAIN, WHOLE, Header, Shard
from duallgd_cli.results import HypothesisResult, plain_values, results_of
from duallgd_cli.runtime import in_order
from duallgd_cli.spectra.features import CleaningSettings

if TYPE_CHECKING:
    from io import BufferedRandom

logger = logging.getLogger(__name__)

FORMAT: Final = 3
ENDING: Final = ".journal.jsonl"
_MARK: Final = b'{"duallgd_journal":'
_FORMAT: Final = re.compile(re.escape(_MARK) + rb"(\d{1,9})[,}]")
_SEAL: Final = b',"crc32":"%08x"}\n'
_SEAL_BYTES: Final = len(_SEAL % 0)
_OF_THE_LINE: Final = frozenset({"duallgd_journal", "crc32"})
_SYNC_EVERY_S: Final = 0.5
_Numbers = NDArray[np.int64]
_BLOCK: Final = 1 << 16  # spectra of which numbers of Python are made at a time
_SIDES: Final[tuple[Literal["left", "right"], ...]] = ("left", "right")


@dataclass(slots=True, eq=False)
class Journal:
    """A journal file up to its first torn or damaged line; a context manager once it is opened.

    What it holds is what it held when it was read: results that are appended are not among it.

    Attributes:
        path: Of the file.
        header: Identity of the run, None if the file is empty.
        end: Totals, None while the run is unfinished.
        good_bytes: Where the last finished feature ends; a run goes on from there.
        checksum: Of the file up to there.
        is_damaged: Whether something unreadable stands before the last line.
        hypotheses: Feature, position, number of hypotheses of the feature and byte of each, (L, 4).
        spectra: Number of the input, index in it, feature and index in that of each, (S, 4).
    """

    path: Path
    header: Header | None
    end: dict[str, int] | None
    good_bytes: int
    checksum: int
    is_damaged: bool
    hypotheses: _Numbers
    spectra: _Numbers
    _file: "BufferedRandom | None" = None
    _synced: float = 0.0

    @property
    def finished(self) -> set[int]:
        """Features of which every hypothesis is here: the last is written last."""
        rows = self.hypotheses[self.hypotheses[:, 1] == self.hypotheses[:, 2] - 1]
        return set(rows[:, 0].tolist())

    @property
    def is_written(self) -> bool:
        """Whether an output holds all of it: of a finished run, but of no shard by itself."""
        whole = self.header is not None and self.header.shard == WHOLE
        return whole and self.end is not None

    @classmethod
    def create(cls, path: Path, header: Header) -> "Journal":
        """Start a journal; one whose work is in no output yet is kept as ``<name>.old``.

        Nothing that was kept so before is replaced: then it is ``<name>.old.2``.

        Raises:
            UsageError: The path cannot be written, is in use, or is some other file.
        """
        with _opened(path) as journal:
            if journal.is_damaged or (len(journal.hypotheses) and not journal.is_written):
                names = chain((f"{path.name}.old",), (f"{path.name}.old.{n}" for n in count(2)))
                old = next(kept for kept in map(path.with_name, names) if not kept.exists())
                try:
                    old.write_bytes(path.read_bytes())
                except OSError as error:
                    raise _full(old, error) from None
                logger.warning(
                    "the journal %s was kept as %s: it holds work that is in no output yet",
                    path, old,
                )  # fmt: skip
            return journal._started(header)

    @classmethod
    def resume(cls, path: Path, header: Header) -> "Journal":
        """Continue a journal, or start one where there is none.

        Raises:
            UsageError: The journal belongs to a run of other settings, weights or inputs; or it
                cannot be written, is in use, or is some other file.
        """
        with _opened(path) as journal:
            if journal.is_damaged:
                raise UsageError(
                    f"journal {path} is damaged after byte {journal.good_bytes}; "
                    "start again without --resume"
                )
            if journal.header is None:
                return journal._started(header)
            if changed := journal.header.differences(header):
                raise UsageError(
                    f"cannot resume {path}, because of other settings or inputs: {changed}; "
                    "use those it was started with, or start again without --resume"
                )
            with journal._disk() as file:
                file.truncate(journal.good_bytes)
                file.seek(0, os.SEEK_END)
            return journal

    def _started(self, header: Header) -> "Journal":
        """The file from its beginning, whatever it held."""
        with self._disk() as file:
            file.truncate(0)
            file.seek(0)
        journal = replace(scan(self.path), _file=self._file)
        journal._write({"duallgd_journal": FORMAT, **asdict(header)})
        journal.sync()
        return journal

    def append(self, result: HypothesisResult) -> None:
        """Add a result."""
        self._write(plain_values(result))

    def finish(self, totals: Mapping[str, int]) -> None:
        """Add the end line; `totals` holds ``cases``, counted over all shards."""
        self._write({"end": dict(totals)})
        self.sync()

    def sync(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            UsageError: The disk takes no more.
        """
        with self._disk() as file:
            os.fsync(file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close; may be called twice."""
        if self._file is not None and not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, values: Mapping[str, Any]) -> None:
        # ASCII and no blanks: equal values give equal bytes, as long as numbers are finite.
        text = json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")
        body = text.removesuffix(b"}")
        self.checksum = zlib.crc32(body, self.checksum)
        with self._disk() as file:
            file.write(body + _SEAL % self.checksum)
            file.flush()
        if time.monotonic() - self._synced > _SYNC_EVERY_S:
            self.sync()

    @contextmanager
    def _disk(self) -> "Iterator[BufferedRandom]":
        """A disk that takes no more ends the run in one sentence; what it has taken is kept."""
        assert self._file is not None  # it was opened to be written
        try:
            yield self._file
        except OSError as error:
            self._file.raw.close()  # closing the buffer would try again what did not fit
            raise _full(self.path, error) from None


def scan(path: Path) -> Journal:
    """Read a journal up to its first torn or damaged line.

    Raises:
        UsageError: The file is something else.
        UnreadableError: It is the journal of another version.
    """
    header, end, n_bytes, good_bytes, is_damaged = None, None, 0, 0, False
    checksum, good_checksum = 0, 0
    hypotheses, spectra = array("q"), array("q")
    inputs: dict[str, int] = {}
    with path.open("rb") as file:
        start = file.read(len(_MARK))
        if not _MARK.startswith(start):
            raise UsageError(f"{path} is not a duallgd journal; name another file")
        file.seek(0)
        for line in file:
            body = line[:-_SEAL_BYTES]
            checksum = zlib.crc32(body, checksum)
            if line[len(body) :] != _SEAL % checksum:
                _require_format(line, path)
                is_damaged = bool(file.read(1))
                break
            values = decode(line)
            try:
                if header is None:
                    header = _header(values)
                    inputs = {entry["name"]: number for number, entry in enumerate(header.inputs)}
                elif "end" in values:
                    totals = values["end"]
                    end = {name: int(totals[name]) for name in ("cases", *totals)}
                else:
                    feature = values["case"]
                    hypotheses.extend((feature, values["hypothesis"], values["of"], n_bytes))
                    for position, spectrum in enumerate(values["members"]):
                        name, index = spectrum["source"]
                        spectra.extend((inputs[name], index, feature, position))
            except _UNKNOWN:
                raise _of_another_version(path) from None
            n_bytes += len(line)
            if values.get("hypothesis", 0) == values.get("of", 1) - 1:
                good_bytes, good_checksum = n_bytes, checksum
    lines, named = (np.frombuffer(numbers, np.int64) for numbers in (hypotheses, spectra))
    rows = (lines.reshape(-1, 4), named.reshape(-1, 4))
    return Journal(path, header, end, good_bytes, good_checksum, is_damaged, *rows)


# What values of an unknown shape raise where they are taken for known ones.
_UNKNOWN: Final = (AttributeError, KeyError, OverflowError, TypeError, UsageError, ValueError)


def _require_format(line: bytes, path: Path) -> None:
    """Refuse a line that begins a journal of another format.

    Raises:
        UnreadableError: It does.
    """
    begun = _FORMAT.match(line)
    if begun is not None and int(begun[1]) != FORMAT:
        raise UnreadableError(
            f"{path} is a journal of format {int(begun[1])}, and this version of duallgd reads "
            f"{FORMAT}; use the version that wrote it, or predict again"
        )


def _header(values: dict[str, Any]) -> Header:
    fields = {name: value for name, value in values.items() if name not in _OF_THE_LINE}
    header = Header(**{**fields, "inputs": tuple(map(dict, fields["inputs"]))})
    kinds = ((header.version, str), (header.settings, dict), (header.model["ranking"], dict))
    named = [(entry["name"], str) for entry in header.inputs]
    if not named or not all(isinstance(value, kind) for value, kind in (*kinds, *named)):
        raise TypeError(header)
    Shard.parse(header.shard)
    int(header.settings["top_k"])
    float(header.settings.get("certain", CERTAIN))
    parse(CleaningSettings, header.settings["cleaning"])
    return header


def _of_another_version(path: Path) -> UnreadableError:
    return UnreadableError(
        f"{path} was written by another version of duallgd, or changed while it was read; use that "
        "version, or predict again"
    )


def _full(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the journal {path}: {error.strerror}; make room, then the same command "
        "with --resume keeps what is finished"
    )


@contextmanager
def _opened(path: Path) -> Iterator[Journal]:
    """A locked journal; an error inside closes it."""
    try:
        # Append mode creates without truncating; the file is then read and written at will.
        path.open("ab").close()
        file = path.open("r+b")
    except OSError as error:
        raise UsageError(f"cannot write the journal {path}: {error.strerror}") from None
    try:
        _lock(file)
        yield replace(scan(path), _file=file, _synced=time.monotonic())
    except BlockingIOError:
        file.close()
        raise UsageError(f"the journal {path} is being written by another run") from None
    except BaseException:
        file.close()
        raise


def _lock(file: "BufferedRandom") -> None:
    try:
        import fcntl
    except ImportError:
        logger.debug("no file locks on this system")
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise  # another run holds it
    except OSError as error:
        logger.debug("no locks on this file system: %s", error)


def decode(line: bytes) -> dict[str, Any]:
    """The object of a line, {} where it is none."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


class FinishedRun:
    """The features of a run, read when asked for.

    Attributes:
        header: What the run is; that of the first of its journals.
        totals: Of the whole input: ``cases``, ``ms1``.
        shards: That of each journal, such as ``2/8``.
    """

    def __init__(self, paths: Sequence[Path], *, partial: bool = False, workers: int = 1) -> None:
        """Open the journals of a run.

        Args:
            paths: Of its journals.
            partial: Take what is finished in unfinished journals.
            workers: Processes that read them.

        Raises:
            UsageError: A journal is missing, damaged or unfinished, or belongs to another run.
        """
        self._paths = tuple(paths)
        find = with_arguments(_usable, partial=partial)
        found = list(in_order(find, self._paths, workers, at_a_time=1))
        self.header = _common_header(self._paths, found)
        self.shards = [one.header.shard for one in found if one.header]
        self.totals = dict(found[0].end or {})
        numbers = np.repeat(np.arange(len(found)), [len(one.hypotheses) for one in found])
        lines = np.concatenate([one.hypotheses for one in found])
        # Feature, journal and byte of every hypothesis, by feature and position: (L, 3).
        self._lines = _of_finished(np.column_stack([lines, numbers]))
        spectra = np.concatenate([one.spectra for one in found])
        spectra = spectra[np.isin(spectra[:, 2], self._lines[:, 0])]
        # Feature of every spectrum, and its index in that, once and in input order: (S, 2).
        self._spectra = np.unique(spectra, axis=0)[:, 2:]

    @property
    def n_features(self) -> int:
        """Features of the run."""
        return int((self._spectra[:, 1] == 0).sum())

    def in_input_order(self) -> Iterator[tuple[tuple[HypothesisResult, ...], int]]:
        """Every spectrum, as read: the results of its feature, and its index in that."""
        latest: tuple[HypothesisResult, ...] = ()
        for start in range(0, len(self._spectra), _BLOCK):
            for number, position in self._spectra[start : start + _BLOCK].tolist():
                if not latest or latest[0].feature != number:
                    latest = self.feature(number)
                yield latest, position

    def features(self) -> Iterator[tuple[HypothesisResult, ...]]:
        """The results of each feature, in the order of their first spectra."""
        return map(self.feature, self._spectra[self._spectra[:, 1] == 0, 0].tolist())

    def slices(self, size: int) -> Iterator[Self]:
        """The run as several of so many spectra, in input order; at least one, if it has none."""
        for start in range(0, max(1, len(self._spectra)), size):
            part = copy.copy(self)
            part._spectra = self._spectra[start : start + size]
            features = np.unique(part._spectra[:, 0])
            first, end = (np.searchsorted(self._lines[:, 0], features, side) for side in _SIDES)
            rows = [np.arange(*ends) for ends in zip(first, end, strict=True)]
            part._lines = self._lines[np.concatenate([*rows, np.arange(0)])]
            yield part

    def feature(self, number: int) -> tuple[HypothesisResult, ...]:
        """Read the results of one feature from the disk.

        Raises:
            UnreadableError: Its fields are those of another version, or the file changed.
        """
        first, end = (int(np.searchsorted(self._lines[:, 0], number, side)) for side in _SIDES)
        rows = self._lines[first:end].tolist()
        path = self._paths[rows[0][1]]
        lines = []
        with path.open("rb") as file:
            for _, _, offset in rows:
                file.seek(offset)
                lines.append(decode(file.readline()))
        try:
            return results_of(lines)
        except _UNKNOWN:
            raise _of_another_version(path) from None


def read(names: Sequence[Path], *, partial: bool = False, workers: int = 1) -> FinishedRun:
    """All that a run computed: header, totals, and every feature with its spectra and results.

    A `HypothesisResult` holds what ranking and outputs are made from: structures with their counts
    and scores, explained peaks, what became of the samples, and messages.

    Args:
        names: Journals, or outputs that have journals beside them; all shards of one run.
        partial: Take what is finished, whatever is missing or still going on.
        workers: Processes that read them.

    Raises:
        UsageError: There is no journal, or it is damaged, unfinished, or one of other shards.
    """
    run = FinishedRun(journals_of(names), partial=partial, workers=workers)
    count = int(run.header.shard.partition("/")[2])
    for shard in (f"{number}/{count}" for number in range(1, count + 1)):
        if not partial and run.shards.count(shard) != 1:
            found = "given twice" if shard in run.shards else "absent"
            raise UsageError(f"these journals are not one whole run: shard {shard} is {found}")
    return run


def journals_of(names: Sequence[Path]) -> list[Path]:
    """The journals meant by names of journals or of outputs; ``out.csv`` means all its shards.

    Raises:
        UsageError: Nothing of that name has a journal.
    """
    found: list[Path] = []
    for name in names:
        if name.name.endswith(ENDING) or is_journal(name):
            found.append(name)
            continue
        shards = sorted(
            path
            for path in name.parent.glob(f"*{ENDING}")
            if path.name.startswith(f"{name.name}.shard-") or path.name == name.name + ENDING
        )
        if not shards:
            raise UsageError(f"{name} has no journal beside it; name the {ENDING} files to join")
        found += shards
    return list(dict.fromkeys(found))


def is_journal(path: Path) -> bool:
    """Whether a file that may be called anything begins as journals do."""
    if not (path.is_file() and os.access(path, os.R_OK)):
        return False
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def inputs_of(path: Path) -> list[str]:
    """Names of the files of spectra that a run read, by the first line of its journal."""
    if not is_journal(path):
        return []
    with path.open("rb") as file:
        header = decode(file.readline()) or {}
    entries = header.get("inputs")
    entries = entries if isinstance(entries, list) else []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str)]


def _usable(path: Path, partial: bool) -> Journal:
    """What a journal holds, once that is known to be usable."""
    if not path.is_file():
        raise UsageError(f"there is no journal {path}; run that shard first")
    journal = scan(path)
    if journal.is_damaged and not (partial and journal.header):
        raise UsageError(
            f"journal {path} is damaged after byte {journal.good_bytes}; run it again without "
            "--resume, or take what stands before with merge --partial"
        )
    if journal.header is None:
        raise UsageError(f"journal {path} is empty; run it again without --resume")
    if journal.end is None and not partial:
        raise UsageError(
            f"the run of {path} (shard {journal.header.shard}) is not finished, "
            f"{len(np.unique(journal.hypotheses[:, 0]))} features so far; run it again with "
            "--resume, or merge with --partial"
        )
    return journal


def _of_finished(lines: _Numbers) -> _Numbers:
    """Feature, journal and byte of the hypotheses of finished features, by feature and position.

    What was written twice counts as it was written last.

    Args:
        lines: Feature, position, hypotheses of the feature, byte and journal of each, (L, 5).
    """
    feature, position, _, byte, journal = lines.T
    lines = lines[np.lexsort((byte, position, journal, feature))]
    last = np.searchsorted(lines[:, 0], lines[:, 0], "right") - 1
    lines = lines[lines[:, 4] == lines[last, 4]]  # each feature from one journal
    is_last = np.ones(len(lines), np.bool_)
    is_last[:-1] = (lines[1:, :2] != lines[:-1, :2]).any(1)
    lines = lines[is_last]
    first, end = (np.searchsorted(lines[:, 0], lines[:, 0], side) for side in _SIDES)
    return np.ascontiguousarray(lines[end - first == lines[:, 2]][:, [0, 4, 3]])


def _common_header(paths: Sequence[Path], journals: Sequence[Journal]) -> Header:
    headers = [journal.header for journal in journals if journal.header is not None]
    if not headers:
        raise UsageError("no journals to join; name the files that sharded runs wrote")
    first, *_ = headers
    for path, header in zip(paths, headers, strict=True):
        if changed := first.differences(replace(header, shard=first.shard)):
            raise UsageError(f"{paths[0]} and {path} are of different runs: {changed}")
    return first
