"""Output formats: each turns predictions into pieces of text; `write` puts them where they belong.

Nothing that differs between two runs of the same request (times, versions) is written here, so an
interrupted and resumed run gives the same bytes as an uninterrupted one.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from duallgd_cli.errors import UsageError
from duallgd_cli.files import write_atomically
from duallgd_cli.predict.prediction import Prediction
from duallgd_cli.predict.writers import jsonl, table

Rows = Literal["feature", "spectrum"]
FORMATS: Final = ("csv", "tsv", "jsonl", "sdf")
_STANDARD_STREAM: Final = "-"
_ENDINGS: Final = {".csv": "csv", ".tsv": "tsv", ".txt": "tsv", ".jsonl": "jsonl", ".sdf": "sdf"}


def resolve_format(output: str, name: str = "") -> str:
    """The format of an output: by `name` if given, else by its ending; CSV for standard output.

    Raises:
        UsageError: The name or the ending is not known.
    """
    if name:
        if name.lower() not in FORMATS:
            raise UsageError(f"format {name!r} is not known; choose {', '.join(FORMATS)}")
        return name.lower()
    if output == _STANDARD_STREAM:
        return "csv"
    found = _ENDINGS.get(Path(output).suffix.lower())
    if found is None:
        raise UsageError(
            f"the format of {output} is not clear from its ending; "
            f"end it in .csv, .tsv, .jsonl or .sdf, or give --format"
        )
    return found


def check_writable(output: str) -> None:
    """Refuse an output that could not be written, before hours are spent on it.

    Raises:
        UsageError: Its folder does not exist or cannot be written, it is a folder, a device or a
            pipe itself, or standard output is closed.
    """
    if output == _STANDARD_STREAM:
        if sys.stdout is None:
            raise UsageError("standard output is closed; name a file with -o")
        return
    try:
        _check_place(output, Path(os.path.realpath(output)))
    except OSError as error:  # a locked folder, a name too long
        raise UsageError(f"output {output} cannot be written: {error.strerror}") from None


def _check_place(output: str, path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"output {output} is a folder; name a file in it")
    if Path(output).exists() and not Path(output).is_file():
        raise UsageError(f"output {output} is no ordinary file; name one, or - for standard output")
    if not path.parent.is_dir():
        raise UsageError(f"the folder of output {output} does not exist; create {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"the folder of output {output} cannot be written")


def write(
    predictions: Iterable[Prediction], output: str, name: str, rows: Rows = "spectrum"
) -> None:
    """Write predictions to a file, whole or not at all, or to standard output.

    Args:
        predictions: In the order in which they are written.
        output: File, or ``-``.
        name: One of `FORMATS`.
        rows: ``feature`` writes what spectra read together have in common once, under the first of
            them; ``spectrum`` writes it for each.

    Raises:
        UsageError: The file cannot be written.
    """
    if rows == "feature":
        predictions = (one for one in predictions if one.source == one.group[0])
    pieces = _pieces(predictions, name)
    if output == _STANDARD_STREAM:
        _write_to_standard_output(pieces)
    else:
        write_atomically(Path(output), pieces)


def _write_to_standard_output(pieces: Iterable[str]) -> None:
    try:
        for piece in pieces:
            sys.stdout.buffer.write(_bytes(piece))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has seen enough: no error
    except OSError as error:
        # What is left in the buffer would fail once more when Python ends, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"cannot write to standard output: {error.strerror}") from None


def _pieces(predictions: Iterable[Prediction], name: str) -> Iterator[str]:
    if name == "sdf":
        from duallgd_cli.predict.writers import sdf  # rdkit's drawing code loads only here

        return sdf.pieces(predictions)
    if name == "jsonl":
        return jsonl.pieces(predictions)
    return table.pieces(predictions, "," if name == "csv" else "\t")


def _bytes(piece: str) -> bytes:
    # A title of bytes that were no text must not cost the whole file.
    return piece.encode("utf-8", errors="backslashreplace")
