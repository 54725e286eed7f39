"""The inputs of a run: what they are, and their spectra in order."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from duallgd_cli.errors import (
    DuallgdError,
    Failure,
    MissingInputError,
    UnreadableError,
)
from duallgd_cli.files import STANDARD_STREAM, require_input, sha256
from duallgd_cli.spectra.features import GroupBy, group
from duallgd_cli.spectra.reading import Unreadable, read
from duallgd_cli.spectra.reading.opening import spool
from duallgd_cli.spectra.reading.record import name_of
from duallgd_cli.spectra.types import Feature, Source, Spectrum


@dataclass(slots=True)
class Inputs:
    """Spectrum files of a run; a context manager, since pipes are copied and released.

    Attributes:
        names: As the user named them; ``-`` is standard input.
        n_ms1: MS1 spectra that `features` has read so far.
        n_features: What it has given so far.
    """

    names: tuple[str, ...]
    n_ms1: int = 0
    n_features: int = 0
    _piped: dict[str, BinaryIO] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        """Find the files and copy standard input and pipes, which can be read only once.

        Raises:
            MissingInputError: A file does not exist, or standard input is closed.
            UnreadableError: A file may not be looked at.
        """
        for name in self.names:
            if name != STANDARD_STREAM:
                require_input(name)
        self._piped |= {name: _copy(name) for name in self.names if _flows(name)}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for copied in self._piped.values():
            copied.close()

    def identity(self) -> tuple[Mapping[str, Any], ...]:
        """Name, size and SHA-256 of each input."""
        return tuple(self._identity(name) for name in self.names)

    def features(
        self, group_by: GroupBy, adduct: str | None = None
    ) -> Iterator[Feature | Unreadable]:
        """Features and unreadable records in the order of the inputs; MS1 spectra are counted.

        A file of which nothing can be read is one unreadable record, so that it does not cost the
        others their results; if it is the only one it is an error. See `group` for the arguments.

        Raises:
            UnreadableError: The only input cannot be read.
        """
        for item in group(self._items(), group_by, adduct):
            self.n_features += 1
            yield item

    def _items(self) -> Iterator[Spectrum | Unreadable]:
        for name in self.names:
            try:
                for item in read(name, raw=self._piped.get(name)):
                    self.n_ms1 += isinstance(item, Spectrum) and item.ms_level == 1
                    yield item
            except UnreadableError as error:
                if len(self.names) == 1:
                    raise
                source = Source(name, 0)
                yield Unreadable(source, name_of(source), Failure("unreadable", str(error), "read"))

    def _identity(self, name: str) -> Mapping[str, Any]:
        if name in self._piped:
            copied = self._piped[name]
            copied.seek(0)
            size, digest = _hash(copied)
            copied.seek(0)
        elif Path(name).is_dir():
            raise UnreadableError(f"{name} is a folder; name the files in it")
        else:
            try:
                with Path(name).open("rb") as file:
                    size, digest = _hash(file)
            except OSError as error:
                raise UnreadableError(f"{name} cannot be read: {error.strerror}") from None
        return {"name": name, "bytes": size, "sha256": digest}


def count_spectra(names: tuple[str, ...]) -> int | None:
    """How many outcomes a run over these inputs will have; None where one can be read only once.

    Reads the files, which takes seconds where predicting takes hours. What cannot be read is left
    for the run itself to complain about.
    """
    inputs = Inputs(names)
    try:
        if any(map(_flows, names)):
            return None
        return sum(1 for _ in inputs.features("none"))
    except (DuallgdError, OSError):
        return None


def _flows(name: str) -> bool:
    """Whether an input is standard input, or a pipe such as a shell's ``<(...)``."""
    return name == STANDARD_STREAM or Path(name).is_fifo()


def _copy(name: str) -> BinaryIO:
    if name == STANDARD_STREAM and sys.stdin is None:
        raise MissingInputError("standard input is closed; pipe spectra into it, or name a file")
    if name == STANDARD_STREAM:
        return spool(sys.stdin.buffer)
    with Path(name).open("rb") as pipe:
        return spool(pipe)


def _hash(file: BinaryIO) -> tuple[int, str]:
    digest = sha256(file)
    return file.tell(), digest
