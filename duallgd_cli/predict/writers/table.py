"""CSV and TSV: a row for every candidate, and at least one for every spectrum.

A spectrum without candidates has one row without rank, whose status and message say why. Spectra of
one feature that were read together each have the same candidates. The message of a spectrum's first
row ends with the probability that the first ten candidates hold the right structure.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

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
)
_BREAKS: Final = str.maketrans("\t\r\n\0\x0b\x0c", "      ")


def pieces(predictions: Iterable[Prediction], delimiter: str) -> Iterator[str]:
    """The header and one line per row, line breaks included.

    Args:
        predictions: In order.
        delimiter: Comma, with cells quoted where needed, or tab, with tabs in cells made spaces.
    """
    yield _line(COLUMNS, delimiter)
    for prediction in predictions:
        for row in rows(prediction):
            yield _line(row, delimiter)


def rows(prediction: Prediction) -> Iterator[list[str]]:
    """Cells of the rows of one spectrum, in the order of `COLUMNS`."""
    if not prediction.candidates:
        start = _start(prediction, prediction.adduct, prediction.formula)
        yield [*start, *[""] * 9, prediction.status, prediction.message]
    for candidate in prediction.candidates:
        message = prediction.message
        if candidate.rank == 1:
            message = sentences(message, f"P(first 10) = {prediction.confidence_top10:.3g}")
        start = _start(prediction, candidate.adduct, candidate.formula)
        yield [*start, *_result(candidate), prediction.status, message]


def _start(prediction: Prediction, adduct: str, formula: str) -> list[str]:
    precursor = prediction.precursor_mz
    return [
        prediction.spectrum_id,
        prediction.source.file,
        str(prediction.source.index),
        prediction.feature_id,
        prediction.scans,
        "" if precursor is None else repr(float(precursor)),
        adduct,
        formula,
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
    cleaned = [cell.translate(_BREAKS) for cell in cells]
    if delimiter == "\t":
        return "\t".join(cleaned) + "\n"
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(cleaned)
    return text.getvalue()
