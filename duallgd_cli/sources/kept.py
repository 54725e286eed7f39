"""What is read of a large file is kept for the next run; texts that take little memory.

Arrays lie under the SHA-256 of their file in ``guide/`` of the folder that `runtime.cache_folder`
names. Deleting them costs the time of reading again and nothing else.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UsageError, clip, counted
from duallgd_cli.files import DAMAGED_ARRAYS, replaced, require_file, sha256
from duallgd_cli.runtime import cache_folder

logger = logging.getLogger(__name__)

_LINE_END: Final = 10
_MOST_REASONS: Final = 4


def kept(
    path: Path, kind: str, sought: str, make: Callable[[Path], Mapping[str, NDArray[Any]]]
) -> dict[str, Any]:
    """Arrays and lists of texts made of a file, from the cache where it holds them.

    Args:
        path: Of the file.
        kind: What is made of it, with the version of its arrays.
        sought: What the file must hold at least one of, in words.
        make: Makes them: ``smiles``, ``left_out`` for a warning, and any others; texts as `text_of`
            gives them.

    Raises:
        MissingInputError: There is no such file.
        UsageError: It holds nothing that was sought.
    """
    require_file(str(path))
    place = cache_folder() / "guide" / f"{sha256(path)}.{kind}.npz"
    arrays: dict[str, Any] = {}
    try:
        with np.load(place) as stored:
            arrays = dict(stored)
    except FileNotFoundError:
        pass
    except DAMAGED_ARRAYS:
        logger.warning("%s cannot be read, and is made again", place)
    if not arrays:
        arrays = dict(make(path))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with replaced(place) as partial, partial.open("wb") as stream:
                np.savez(stream, **arrays)
        except OSError as error:
            logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
    columns = with_lines(arrays)
    reasons = "; ".join(columns.pop("left_out"))
    if not len(columns["smiles"]):
        raise UsageError(f"{path} holds no {sought}: {reasons or 'it is empty'}")
    if reasons:
        logger.warning("%s: %s", path, reasons)
    return columns


def left_out(reasons: Mapping[str, int], noun: str, plural: str = "") -> str:
    """What of a file cannot be used, in words: the most frequent reasons, and how many others."""
    first = sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:_MOST_REASONS]
    clauses = [f"{counted(reasons[why], noun, plural)} left out ({clip(why)})" for why in first]
    if others := sum(reasons.values()) - sum(reasons[why] for why in first):
        clauses.append(f"{others} for other reasons")
    return "; ".join(clauses)


def line_of(text: str) -> bytes:
    """A text as one line; line breaks in it become blanks."""
    return f"{' '.join(text.split())}\n".encode("utf-8", "replace")


def text_of(lines: Iterable[str]) -> NDArray[np.uint8]:
    """Texts as an array, a line each."""
    return np.frombuffer(b"".join(map(line_of, lines)), np.uint8)


class Lines(Sequence[str]):
    """The texts of an array of `text_of`: as strings a million would take three times as much."""

    def __init__(self, text: NDArray[np.uint8]) -> None:
        """Find where lines end."""
        self._text = text
        self._ends = np.append(0, np.flatnonzero(text == _LINE_END) + 1)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a number alone, not a slice
        row = range(len(self))[place]
        return bytes(self._text[self._ends[row] : self._ends[row + 1] - 1]).decode()


def with_lines(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Arrays with `Lines` in place of texts, which alone are flat bytes."""
    return {
        name: Lines(array) if array.dtype == np.uint8 and array.ndim == 1 else array
        for name, array in arrays.items()
    }
