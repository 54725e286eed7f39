"""CSV and TSV: a row for every candidate, and at least one for every spectrum.

A spectrum without candidates has one row without rank, whose status and message say why. Spectra of
one feature that were read together have the same candidates; the column ``indices`` names them. The
message of a spectrum's first row ends with the probability that the first ten candidates hold the
right structure.

No cell breaks a row or acts in the program that shows it: control characters and line separators
become spaces, and text that a spreadsheet would run as a formula gets an apostrophe in front.
Numbers and structures are written as they are.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from duallgd_cli.errors import printable
from duallgd_cli.predict.prediction import Candidate, Prediction, sentences

COLUMNS: Final = (
    "spectrum_id",
    "file",
    "index",
    "feature_id",
    "scans",
    "precursor_mz",
    "adduct",
    "formula",
    "rank",
    "smiles",
    "inchi",
    "inchikey",
    "inchikey14",
    "score",
    "confidence",
    "samples",
    "log_likelihood",
    "status",
    "message",
    "confidence_top10",
    "indices",
    "name",
    "rt_seconds",
    "collision_energy",
    "warnings",
)
NUMBERS: Final = (
    "index",
    "precursor_mz",
    "rank",
    "score",
    "confidence",
    "samples",
    "log_likelihood",
    "confidence_top10",
    "rt_seconds",
)
_FORMULA_STARTS: Final = ("=", "+", "-", "@")


def pieces(predictions: Iterable[Prediction], delimiter: str) -> Iterator[str]:
    """The header and one line per row, line breaks included.

    Args:
        predictions: In order.
        delimiter: Comma or tab; cells are quoted where needed.
    """
    yield _line(COLUMNS, delimiter)
    for prediction in predictions:
        for row in rows(prediction):
            yield _line(row, delimiter)


def rows(prediction: Prediction) -> Iterator[list[str]]:
    """Cells of the rows of one spectrum, in the order of `COLUMNS`."""
    end = _end(prediction)
    if not prediction.candidates:
        start = _start(prediction, prediction.adduct, prediction.formula)
        yield [*start, *[""] * 9, prediction.status, _inert(prediction.message), *end]
    for candidate in prediction.candidates:
        message = prediction.message
        if candidate.rank == 1:
            message = sentences(message, f"P(first 10) = {prediction.confidence_top10:.3g}")
        start = _start(prediction, candidate.adduct, candidate.formula)
        yield [*start, *_result(candidate), prediction.status, _inert(message), *end]


def _start(prediction: Prediction, adduct: str, formula: str) -> list[str]:
    precursor = prediction.precursor_mz
    return [
        _inert(prediction.spectrum_id),
        _inert(prediction.source.file),
        str(prediction.source.index),
        _inert(prediction.feature_id),
        _inert(prediction.scans),
        "" if precursor is None else repr(float(precursor)),
        _inert(adduct),
        _inert(formula),
    ]


def _end(prediction: Prediction) -> list[str]:
    time = prediction.rt_seconds
    return [
        f"{prediction.confidence_top10:.4g}" if prediction.candidates else "",
        " ".join(map(str, prediction.indices)),
        _inert(prediction.name),
        "" if time is None else f"{time:.6g}",
        _inert(prediction.collision_energy),
        _inert(prediction.warnings),
    ]


def _result(candidate: Candidate) -> list[str]:
    return [
        str(candidate.rank),
        candidate.smiles,
        candidate.inchi,
        candidate.inchikey,
        candidate.inchikey14,
        f"{candidate.score:.6g}",
        f"{candidate.confidence:.4g}",
        str(candidate.samples),
        f"{candidate.log_likelihood:.6g}",
    ]


def _line(cells: Iterable[str], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(map(printable, cells))
    return text.getvalue()


def _inert(cell: str) -> str:
    """Text that came from a file, so that no spreadsheet runs it."""
    text = printable(cell).lstrip()
    if len(text) < 2 or not text.startswith(_FORMULA_STARTS) or _is_number(text):
        return cell
    return f"'{text}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
