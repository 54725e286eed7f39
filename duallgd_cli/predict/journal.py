"""The append-only record of a run, and what resuming, shards and writers read from it.

One JSON object a line: first the header (identity of the run), then a line for every feature, in
their order, then an end line. Each line ends in a checksum of itself and of all lines before it:
one that was torn by a crash, changed, moved or taken out is noticed, and nothing counts from there
on. Every line reaches the operating system at once, and the disk at least every half second.
"""

import json
import logging
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError, counted
from duallgd_cli.predict.settings import ENDING, Shard
from duallgd_cli.results import (
    ExplainedPeak,
    FeatureResult,
    Header,
    HypothesisResult,
    MeasuredPeaks,
    SpectrumReference,
    Structure,
)
from duallgd_cli.spectra.types import IsotopePattern, Source

if TYPE_CHECKING:
    from io import BufferedRandom

logger = logging.getLogger(__name__)

FORMAT: Final = 6
_MARK: Final = b'{"duallgd_journal":'
_FORMAT: Final = re.compile(re.escape(_MARK) + rb"(\d{1,9})[,}]")
_SEAL: Final = b',"crc32":"%08x"}\n'
_SEAL_BYTES: Final = len(_SEAL % 0)
_N_VALUES: Final = len(Structure._fields) - 1  # before its scores
_SOURCES: Final = Structure._fields.index("sources")
_SYNC_EVERY_S: Final = 0.5
_MOST_FEATURES: Final = 1 << 40
# What values of an unknown shape raise where they are taken for known ones.
_UNKNOWN: Final = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(slots=True, eq=False)
class Journal:
    """A journal file up to its first torn or damaged line; a context manager once it is opened.

    What it holds is what it held when it was read: results that are appended are not among it.
    """

    path: Path  # of the file
    header: Header | None = None  # identity of the run, None if the file is empty
    end: dict[str, int] | None = None  # totals, None while the run is unfinished
    good_bytes: int = 0  # where the last whole line ends; a run goes on from there
    checksum: int = 0  # of the file up to there
    is_damaged: bool = False  # whether something unreadable stands before the last line
    finished: set[int] = field(default_factory=set)  # numbers of the features that are here
    _file: "BufferedRandom | None" = None
    _synced: float = 0.0

    @staticmethod
    def opened(path: Path, header: Header, *, resume: bool = False) -> "Journal":
        """Start a journal, in place of the one that may be there; or continue that one.

        Raises:
            UsageError: The path cannot be written, is in use, or is some other file; or the journal
                to be continued is damaged, or of another run.
        """
        try:
            # Append mode creates without truncating; the file is then read and written at will.
            path.open("ab").close()
            file = path.open("r+b")
        except OSError as error:
            raise UsageError(f"cannot write the journal {path}: {error.strerror}") from None
        with ExitStack() as undo:
            undo.callback(file.close)
            _lock(file, path)
            journal = scan(path, None if resume else 0)
            if journal.is_damaged:
                raise UsageError(
                    f"journal {path} is damaged after byte {journal.good_bytes}; "
                    "start again with --force instead of --resume"
                )
            if journal.header is not None and (changed := journal.header.differences(header)):
                raise UsageError(
                    f"cannot resume {path}, because of other settings or inputs: {changed}; "
                    "use those it was started with, or start again with --force"
                )
            file.truncate(journal.good_bytes)
            file.seek(0, os.SEEK_END)
            journal._file = file
            if journal.header is None:
                journal._write({"duallgd_journal": FORMAT, **asdict(header)}, waits=True)
            undo.pop_all()
        return journal

    def features(self) -> Iterator[FeatureResult]:
        """What became of each feature that was here when the journal was read.

        Raises:
            UnreadableError: A line is of another version.
        """
        with self.path.open("rb") as file:
            start = len(file.readline())  # of the header
        for _ in self.finished:
            with self.path.open("rb") as file:  # closed between features: shards may be thousands
                file.seek(start)
                line = file.readline()
            start += len(line)
            try:
                result = _result_of(json.loads(line))
            except _UNKNOWN:
                raise _of_another_version(self.path) from None
            yield result

    def append(self, result: FeatureResult) -> None:
        """Add what became of a feature."""
        self._write(_plain_values(result))

    def finish(self, totals: Mapping[str, int]) -> None:
        """Add the end line; `totals` holds ``cases``, counted over all shards."""
        self._write({"end": dict(totals)}, waits=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None and not self._file.closed:
            self._write(None, waits=True)
            self._file.close()

    def _write(self, values: Mapping[str, Any] | None, *, waits: bool = False) -> None:
        """Write a line, if any, and wait for the disk at times or where it is said.

        A disk that takes no more ends the run in one sentence; what it has taken is kept.
        """
        assert self._file is not None  # it was opened to be written
        text = b""
        if values is not None:
            # ASCII and no blanks: equal values give equal bytes, as long as numbers are finite.
            line = json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")
            body = line.removesuffix(b"}")
            self.checksum = zlib.crc32(body, self.checksum)
            text = body + _SEAL % self.checksum
        try:
            self._file.write(text)
            self._file.flush()
            if waits or time.monotonic() - self._synced > _SYNC_EVERY_S:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            self._file.raw.close()  # closing the buffer would try again what did not fit
            raise UsageError(
                f"cannot write the journal {self.path}: {error.strerror}; make room, then the same "
                "command with --resume keeps what is finished"
            ) from None


def scan(path: Path, most: int | None = None) -> Journal:
    """Read a journal up to its first torn or damaged line, or at most so many lines of it.

    Raises:
        UsageError: The file is something else.
        UnreadableError: It is the journal of another version.
    """
    journal, inputs, last = Journal(path), list[str](), -1
    with path.open("rb") as file:
        if not _MARK.startswith(file.read(len(_MARK))):  # as far as it goes
            raise UsageError(f"{path} is not a duallgd journal; name another file")
        file.seek(0)
        for line in islice(file, most):
            body = line[:-_SEAL_BYTES]
            checksum = zlib.crc32(body, journal.checksum)
            begun = _FORMAT.match(line)
            if begun is not None and int(begun[1]) != FORMAT:
                raise UnreadableError(
                    f"{path} is a journal of format {int(begun[1])}, and this version of duallgd "
                    f"reads {FORMAT}; use the version that wrote it, or predict again with --force"
                )
            if line[len(body) :] != _SEAL % checksum:
                journal.is_damaged = bool(file.read(1))
                break
            try:
                values = json.loads(line)
                if journal.header is None:
                    given = {n: values[n] for n in values if n not in {"duallgd_journal", "crc32"}}
                    given["inputs"] = tuple(map(dict, given["inputs"]))
                    journal.header = Header(**given)
                    inputs = [entry["name"] for entry in given["inputs"]]
                elif (end := values.get("end")) is not None:
                    journal.end = {name: int(end[name]) for name in ("cases", *end)}
                else:
                    first, *_ = values["spectra"]
                    inputs.index(first["source"][0])  # one that the header has
                    if not last < values["number"] < _MOST_FEATURES:
                        raise ValueError("features are in their order")
                    last = values["number"]
                    journal.finished.add(last)
            except _UNKNOWN:
                raise _of_another_version(path) from None
            journal.good_bytes += len(line)
            journal.checksum = checksum
    return journal


def _of_another_version(path: Path) -> UnreadableError:
    return UnreadableError(
        f"{path} was written by another version of duallgd, or changed while it was read; use that "
        "version, or predict again with --force"
    )


def _lock(file: "BufferedRandom", path: Path) -> None:
    """Keep other runs from a journal, where the system can."""
    with suppress(ImportError):  # Windows
        import fcntl

        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"the journal {path} is being written by another run") from None
        except OSError as error:
            logger.debug("no file locks: %s", error)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The features of a run, read when asked for."""

    header: Header  # what the run is
    totals: Mapping[str, int]  # of the whole input: ``cases``, ``ms1``
    journals: Sequence[Journal]  # of its shards

    @property
    def n_features(self) -> int:
        """Features of the run."""
        return len(set().union(*(journal.finished for journal in self.journals)))

    def features(self) -> Iterator[FeatureResult]:
        """What became of each feature, read from the disk in the order of their first spectra."""
        number = attrgetter("number")
        in_order = merge(*(journal.features() for journal in self.journals), key=number)
        for _, same in groupby(in_order, key=number):
            *_, last = same  # what is there twice counts as it was written last
            yield last


def read(names: Sequence[Path], *, partial: bool = False, alone: bool = False) -> FinishedRun:
    """All that a run computed, or with `partial` what is finished; for names see `journals_of`.

    With `alone` a shard is whole without the others.

    Raises:
        UsageError: A journal is missing, damaged or unfinished, or belongs to another run or to
            other shards.
    """
    paths = journals_of(names)
    journals = [_usable(path, partial) for path in paths]
    headers = [journal.header for journal in journals if journal.header is not None]
    first, shards = headers[0], [header.shard for header in headers]
    for path, header in zip(paths, headers, strict=True):
        if changed := first.differences(replace(header, shard=first.shard)):
            raise UsageError(f"{paths[0]} and {path} are of different runs: {changed}")
    count = 0 if partial or alone else Shard.parse(first.shard).count
    for shard in (f"{number}/{count}" for number in range(1, count + 1)):
        if shards.count(shard) != 1:
            problem = "given twice" if shard in shards else "absent"
            raise UsageError(f"these journals are not one whole run: shard {shard} is {problem}")
    return FinishedRun(first, journals[0].end or {}, journals)


def journals_of(names: Sequence[Path]) -> list[Path]:
    """The journals meant by names of journals or of outputs; ``out.csv`` means all its shards.

    Raises:
        MissingInputError: There is nothing of that name.
        UsageError: It has no journal.
    """
    journals: list[Path] = []
    for name in names:
        shards = [name]
        if not (name.name.endswith(ENDING) or is_journal(name)):
            whole, part = f"{name.name}{ENDING}", f"{name.name}.shard-"
            beside = sorted(name.parent.glob(f"*{ENDING}"))
            shards = [one for one in beside if one.name == whole or one.name.startswith(part)]
        if not shards:
            named = f"name the output of a run or its {ENDING} files"
            if not name.exists():
                raise MissingInputError(f"{name} does not exist, nor a journal of it; {named}")
            raise UsageError(f"{name} has no journal beside it; {named}")
        journals += shards
    return list(dict.fromkeys(journals))


def is_journal(path: Path) -> bool:
    """Whether a file that may be called anything begins as journals do."""
    if not (path.is_file() and os.access(path, os.R_OK)):
        return False
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def _usable(path: Path, partial: bool) -> Journal:
    if not path.is_file():
        raise UsageError(f"there is no journal {path}; run that shard first")
    journal = scan(path)
    if journal.is_damaged and not (partial and journal.header):
        raise UsageError(
            f"journal {path} is damaged after byte {journal.good_bytes}; predict again with "
            "--force, or take what stands before with merge --partial"
        )
    if journal.header is None:
        raise UsageError(f"journal {path} is empty; predict again with --force")
    if journal.end is None and not partial:
        raise UsageError(
            f"the run of {path} (shard {journal.header.shard}) is not finished, "
            f"{counted(len(journal.finished), 'feature')} so far; run it again with --resume, or "
            "merge with --partial"
        )
    return journal


def _plain_values(feature: FeatureResult) -> dict[str, Any]:
    """A feature for a line of JSON; long lists go without names, which would be most."""
    hypotheses, names = [], [own.name for own in fields(HypothesisResult)]
    for result in feature.hypotheses:
        values = {name: getattr(result, name) for name in names}
        values["scores"] = [*result.structures[0].scores] if result.structures else []
        rows = [(*one[:_N_VALUES], *one.scores.values()) for one in result.structures]
        hypotheses.append(values | {"structures": rows})
    spectra = [
        {**asdict(one), "source": [one.source.file, one.source.index]} for one in feature.spectra
    ]
    isotopes = None if feature.isotopes is None else asdict(feature.isotopes)
    changed = {"spectra": spectra, "isotopes": isotopes, "hypotheses": hypotheses}
    return feature._asdict() | changed


def _result_of(values: Mapping[str, Any]) -> FeatureResult:
    """A feature, from what `_plain_values` gave; see `_UNKNOWN` for what else that may raise."""
    spectra = tuple(
        SpectrumReference(**{**one, "source": Source(*one["source"])}) for one in values["spectra"]
    )
    peaks = tuple(MeasuredPeaks(name, *map(tuple, both)) for name, *both in values["peaks"])
    if (isotopes := values["isotopes"]) is not None:
        isotopes = IsotopePattern(tuple(isotopes["intensity"]), isotopes["faintest"])
    results = list[HypothesisResult]()
    for own in values["hypotheses"]:
        names, structures = own.pop("scores"), []
        for row in own["structures"]:
            row[_SOURCES] = tuple(row[_SOURCES])
            scores = dict(zip(names, row[_N_VALUES:], strict=True))
            structures.append(Structure._make([*row[:_N_VALUES], scores]))
        own["structures"] = tuple(structures)
        own["peaks"] = tuple(ExplainedPeak._make(row) for row in own["peaks"])
        own["notes"] = tuple(own["notes"])
        results.append(HypothesisResult(**own))
    number, intensity = values["number"], values["intensity"]
    return FeatureResult(number, spectra, peaks, intensity, isotopes, tuple(results))
