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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from duallgd_cli.config import flatten
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.prediction import Case
from duallgd_cli.predict.records import decode, encode, member_values, outcome_values

if TYPE_CHECKING:
    from io import BufferedRandom

logger = logging.getLogger(__name__)

FORMAT: Final = 1
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
        sources: File, index, case and place among the case's members, for every spectrum.
        end: Totals, None while the run is unfinished.
        good_bytes: Where the last whole line ends.
        is_damaged: Whether something unreadable stands before the last line.
    """

    header: Header | None = None
    lines: dict[int, dict[int, int]] = field(default_factory=dict)
    hypotheses: dict[int, int] = field(default_factory=dict)
    sources: list[tuple[str, int, int, int]] = field(default_factory=list)
    end: dict[str, int] | None = None
    good_bytes: int = 0
    is_damaged: bool = False

    @property
    def is_written_out(self) -> bool:
        """Whether an output holds all of this: shards are in none before they are joined."""
        return self.end is not None and self.header is not None and self.header.shard == _WHOLE


class Journal:
    """An open journal that a run appends to. Use as a context manager."""

    def __init__(self, path: Path, file: "BufferedRandom", contents: Contents) -> None:
        self.path = path
        self._file = file
        self._contents = contents
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, header: Header) -> "Journal":
        """Start a journal; one whose work is in no output yet is kept as ``<name>.old``.

        Raises:
            UsageError: The path cannot be written, is in use, or is some other file.
        """
        with ExitStack() as opened:
            file = opened.enter_context(_open(path))
            contents = scan(path)
            if contents.lines and not contents.is_written_out:
                old = path.with_name(path.name + ".old")
                _copy(path, old)
                logger.warning(
                    "the journal %s was kept as %s: it holds work that is in no output yet",
                    path, old,
                )  # fmt: skip
            journal = cls._start(path, file, header)
            opened.pop_all()
        return journal

    @classmethod
    def resume(cls, path: Path, header: Header) -> "Journal":
        """Continue a journal, or start one where there is none.

        Raises:
            UsageError: The journal belongs to a run of other settings, weights or inputs; or it
                cannot be written, is in use, or is some other file.
        """
        with ExitStack() as opened:
            file = opened.enter_context(_open(path))
            contents = scan(path)
            if contents.header is None:
                journal = cls._start(path, file, header)
            else:
                _check(path, contents, header)
                file.truncate(contents.good_bytes)
                file.seek(0, os.SEEK_END)
                journal = cls(path, file, contents)
            opened.pop_all()
        return journal

    @classmethod
    def _start(cls, path: Path, file: "BufferedRandom", header: Header) -> "Journal":
        file.truncate(0)
        file.seek(0)
        journal = cls(path, file, Contents(header=header))
        journal._write({"duallgd_journal": FORMAT, **asdict(header)})
        journal.sync()
        return journal

    @property
    def is_complete(self) -> bool:
        """Whether the run ended."""
        return self._contents.end is not None

    @property
    def n_finished(self) -> int:
        """Cases of which every hypothesis is here."""
        return sum(map(self.is_finished, self._contents.lines))

    def is_finished(self, case: int) -> bool:
        """Whether every hypothesis of the case is here."""
        lines = self._contents.lines.get(case)
        return lines is not None and len(lines) == self._contents.hypotheses[case]

    def holds(self, case: int, hypothesis: int) -> bool:
        """Whether this hypothesis of the case is here."""
        return hypothesis in self._contents.lines.get(case, {})

    def append(self, case: Case, hypothesis: int, of: int) -> None:
        """Add the one outcome of `case`, that of hypothesis number `hypothesis` of `of`, from 0."""
        (outcome,) = case.outcomes
        # The spectra are named once, by the first line of their case.
        members = case.members if hypothesis == 0 else ()
        values = {
            "case": case.number,
            "hypothesis": hypothesis,
            "of": of,
            "members": [member_values(member) for member in members],
            "outcome": outcome_values(outcome),
        }
        self._contents.lines.setdefault(case.number, {})[hypothesis] = self._write(values)
        self._contents.hypotheses[case.number] = of

    def finish(self, totals: Mapping[str, int]) -> None:
        """Add the end line; `totals` holds ``cases``, counted over all shards."""
        self._write({"end": dict(totals)})
        self._contents.end = dict(totals)
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
        line = encode(values)
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
            _take(contents, values, path)
            contents.good_bytes += len(line)
    return contents


def few(changed: list[str]) -> str:
    """The first three changes, and how many more there are, as part of a sentence."""
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"{', '.join(changed[:3])}{more}"


def _take(contents: Contents, values: dict[str, Any], path: Path) -> None:
    if contents.header is None:
        found = values.pop("duallgd_journal")
        if found != FORMAT:
            raise UsageError(f"{path} is a journal of format {found}, this version reads {FORMAT}")
        contents.header = Header(**{**values, "inputs": tuple(values["inputs"])})
    elif "end" in values:
        contents.end = values["end"]
    else:
        case, hypothesis = values["case"], values["hypothesis"]
        contents.lines.setdefault(case, {})[hypothesis] = contents.good_bytes
        contents.hypotheses[case] = values["of"]
        for place, member in enumerate(values["members"]):
            contents.sources.append((*member["source"], case, place))


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


def _copy(path: Path, copy: Path) -> None:
    try:
        copy.write_bytes(path.read_bytes())
    except OSError as error:
        raise _full(copy, error) from None


def _full(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write the journal {path}: {error.strerror}; make room, then the same command "
        "with --resume keeps what is finished"
    )


def _open(path: Path) -> "BufferedRandom":
    try:
        # Append mode creates without truncating; the file is then read and written at will.
        path.open("ab").close()
        file = path.open("r+b")
    except OSError as error:
        raise UsageError(f"cannot write the journal {path}: {error.strerror}") from None
    try:
        _lock(file)
    except BlockingIOError:
        file.close()
        raise UsageError(f"the journal {path} is being written by another run") from None
    return file


def _lock(file: "BufferedRandom") -> None:
    try:
        import fcntl
    except ImportError:
        logger.debug("no file locks on this system")
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        logger.debug("no locks on this file system: %s", error)
