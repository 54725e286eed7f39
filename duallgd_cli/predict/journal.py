"""The append-only record of a run: what resuming, shards and writers read.

One JSON object a line. The first is the header (identity of the run), then one line for every
hypothesis of every case as it is finished, then an end line. A line counts only with its line
break, so a line torn by a crash is dropped on reopening. Every line reaches the operating system at
once, and the disk at least every half second.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from duallgd_cli.config import flatten
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.prediction import Case, plain_values

if TYPE_CHECKING:
    from io import BufferedRandom

logger = logging.getLogger(__name__)

FORMAT: Final = 1
ENDING: Final = ".journal.jsonl"
_MARK: Final = b'{"duallgd_journal":'
_SYNC_EVERY_S: Final = 0.5
_WHOLE: Final = "1/1"


@dataclass(frozen=True, slots=True)
class Header:
    """What a run is, as plain values; two runs are the same run if their headers are equal.

    Attributes:
        version: Of duallgd.
        settings: All settings, and the content of the formula table.
        model: SHA-256 and name of the weights, and the ranking model.
        inputs: Name, size in bytes and SHA-256 of each input, in order.
        shard: Such as ``2/8``.
    """

    version: str
    settings: Mapping[str, Any]
    model: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...]
    shard: str = _WHOLE

    def differences(self, other: "Header") -> list[str]:
        """What changed from this header to the other, each as ``name before -> after``."""
        before, after = self._flat(), other._flat()
        return [
            f"{name} {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
            for name in dict.fromkeys((*before, *after))
            if before.get(name) != after.get(name)
        ]

    def _flat(self) -> dict[str, Any]:
        plain = {
            "version": self.version,
            "settings": self.settings,
            "weights": {**self.model, "name": ""},  # the content counts, not where it lies
            "input": {entry["name"]: dict(entry) for entry in self.inputs},
            "inputs": [entry["name"] for entry in self.inputs],
            "shard": self.shard,
        }
        return flatten(json.loads(json.dumps(plain)))


@dataclass(slots=True)
class Contents:
    """What a journal file holds.

    Attributes:
        header: Identity of the run, None if the file is empty.
        lines: Byte offset of each hypothesis of each case.
        hypotheses: How many hypotheses each case has.
        end: Totals, None while the run is unfinished.
        good_bytes: Where the last whole line ends.
        is_damaged: Whether something unreadable stands before the last line.
    """

    header: Header | None = None
    lines: dict[int, dict[int, int]] = field(default_factory=dict)
    hypotheses: dict[int, int] = field(default_factory=dict)
    end: dict[str, int] | None = None
    good_bytes: int = 0
    is_damaged: bool = False

    @property
    def n_finished(self) -> int:
        """Cases of which every hypothesis is here."""
        return sum(map(self.is_finished, self.lines))

    def is_finished(self, case: int) -> bool:
        """Whether every hypothesis of the case is here."""
        return case in self.lines and len(self.lines[case]) == self.hypotheses[case]

    def holds(self, case: int, hypothesis: int) -> bool:
        """Whether this hypothesis of the case is here."""
        return hypothesis in self.lines.get(case, {})

    @property
    def is_written_out(self) -> bool:
        """Whether an output holds all of this: shards are in none before they are joined."""
        return self.end is not None and self.header is not None and self.header.shard == _WHOLE


class Journal:
    """An open journal that a run appends to. Use as a context manager.

    Attributes:
        path: Of the file.
        contents: What it holds so far.
    """

    def __init__(self, path: Path, file: "BufferedRandom", contents: Contents) -> None:
        self.path = path
        self._file = file
        self.contents = contents
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, header: Header) -> "Journal":
        """Start a journal; one whose work is in no output yet is kept as ``<name>.old``.

        Raises:
            UsageError: The path cannot be written, is in use, or is some other file.
        """
        with _opened(path) as (file, contents):
            if contents.lines and not contents.is_written_out:
                old = path.with_name(path.name + ".old")
                try:
                    old.write_bytes(path.read_bytes())
                except OSError as error:
                    raise _full(old, error) from None
                logger.warning(
                    "the journal %s was kept as %s: it holds work that is in no output yet",
                    path, old,
                )  # fmt: skip
            return cls._start(path, file, header)

    @classmethod
    def resume(cls, path: Path, header: Header) -> "Journal":
        """Continue a journal, or start one where there is none.

        Raises:
            UsageError: The journal belongs to a run of other settings, weights or inputs; or it
                cannot be written, is in use, or is some other file.
        """
        with _opened(path) as (file, contents):
            if contents.header is None:
                return cls._start(path, file, header)
            _check(path, contents, header)
            file.truncate(contents.good_bytes)
            file.seek(0, os.SEEK_END)
            return cls(path, file, contents)

    @classmethod
    def _start(cls, path: Path, file: "BufferedRandom", header: Header) -> "Journal":
        file.truncate(0)
        file.seek(0)
        journal = cls(path, file, Contents(header=header))
        journal._write({"duallgd_journal": FORMAT, **asdict(header)})
        journal.sync()
        return journal

    def append(self, case: Case) -> None:
        """Add the one outcome of a case."""
        (outcome,) = case.outcomes
        offset = self._write(plain_values(case))
        self.contents.lines.setdefault(case.number, {})[outcome.position] = offset
        self.contents.hypotheses[case.number] = outcome.of

    def finish(self, totals: Mapping[str, int]) -> None:
        """Add the end line; `totals` holds ``cases``, counted over all shards."""
        self._write({"end": dict(totals)})
        self.contents.end = dict(totals)
        self.sync()

    def sync(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            UsageError: The disk takes no more.
        """
        with self._disk():
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close; may be called twice."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, values: Mapping[str, Any]) -> int:
        # ASCII and no blanks: equal values give equal bytes, as long as numbers are finite.
        line = json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        with self._disk():
            offset = self._file.tell()
            self._file.write(line)
            self._file.flush()
        if time.monotonic() - self._synced > _SYNC_EVERY_S:
            self.sync()
        return offset

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A disk that takes no more ends the run in one sentence; what it has taken is kept."""
        try:
            yield
        except OSError as error:
            self._file.raw.close()  # closing the buffer would try again what did not fit
            raise _full(self.path, error) from None


def scan(path: Path) -> Contents:
    """Read a journal up to its first torn or damaged line.

    Raises:
        UsageError: The file is something else.
    """
    contents = Contents()
    for values in hypotheses(path, contents):
        case = values["case"]
        contents.lines.setdefault(case, {})[values["hypothesis"]] = contents.good_bytes
        contents.hypotheses[case] = values["of"]
    return contents


def hypotheses(path: Path, contents: Contents) -> Iterator[dict[str, Any]]:
    """Lines of a journal up to the first that is torn or damaged, but for header and end.

    Args:
        path: Of the journal.
        contents: Told of the rest; its `good_bytes` is where the line that is given begins.

    Raises:
        UsageError: The file is something else.
    """
    with path.open("rb") as file:
        start = file.read(len(_MARK))
        if not _MARK.startswith(start):
            raise UsageError(f"{path} is not a duallgd journal; name another file")
        file.seek(0)
        for line in file:
            values = decode(line)
            if values is None:
                contents.is_damaged = bool(file.read(1))
                break
            if contents.header is None:
                contents.header = _header(values, path)
            elif "end" in values:
                contents.end = values["end"]
            else:
                yield values
            contents.good_bytes += len(line)


def few(changed: list[str]) -> str:
    """The first three changes, and how many more there are, as part of a sentence."""
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{', '.join(changed[:3])}{more}"


def _header(values: dict[str, Any], path: Path) -> Header:
    found = values.pop("duallgd_journal")
    if found != FORMAT:
        raise UsageError(f"{path} is a journal of format {found}, this version reads {FORMAT}")
    return Header(**{**values, "inputs": tuple(values["inputs"])})


def _check(path: Path, contents: Contents, header: Header) -> None:
    if contents.is_damaged:
        raise UsageError(
            f"journal {path} is damaged after byte {contents.good_bytes}; "
            "start again without --resume"
        )
    changed = contents.header.differences(header) if contents.header else []
    if changed:
        raise UsageError(
            f"cannot resume {path}, because of other settings or inputs: {few(changed)}; "
            "use those it was started with, or start again without --resume"
        )


def _full(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the journal {path}: {error.strerror}; make room, then the same command "
        "with --resume keeps what is finished"
    )


@contextmanager
def _opened(path: Path) -> "Iterator[tuple[BufferedRandom, Contents]]":
    """A locked journal and what it holds; an error inside closes it."""
    try:
        # Append mode creates without truncating; the file is then read and written at will.
        path.open("ab").close()
        file = path.open("r+b")
    except OSError as error:
        raise UsageError(f"cannot write the journal {path}: {error.strerror}") from None
    try:
        _lock(file)
        yield file, scan(path)
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


def decode(line: bytes) -> dict[str, Any] | None:
    """The object of a line, or None where the line is torn or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None
