"""Tables of formulas: SIRIUS and msbuddy exports, and plain ones with an identifier and a formula.

* SIRIUS 5 and 6, ``formula_identifications*.tsv``: ``mappingFeatureId`` (SIRIUS 5: the last part of
  ``id``), ``molecularFormula``, ``adduct``, ``ZodiacScore``, ``SiriusScore``.
* msbuddy, ``*_result_summary.tsv``: ``identifier``, ``adduct``, ``formula_rank_1`` to
  ``formula_rank_5``, ``estimated_fdr`` (of rank 1).
* Anything else with such columns, names in any case.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.spectra.reading.fields import is_missing

_IDENTIFIERS: Final = (
    *("mappingfeatureid", "feature_id", "featureid", "feature", "identifier", "spectrum_id"),
    *("spectrumid", "title", "name", "scans", "scan", "id", "row_id"),
)
_FORMULAS: Final = ("molecularformula", "molecular_formula", "formula", "neutral_formula")
_ADDUCTS: Final = ("adduct", "ion", "precursor_type", "iontype")
# Probabilities first; SIRIUS' own score is the logarithm of one up to a constant.
_SCORES: Final = (
    *("prior", "probability", "zodiacscore", "zodiac_score", "siriusscore", "sirius_score"),
    "score",
)
_RANKS: Final = ("formularank", "rank")
_BUDDY_RANK: Final = re.compile(r"formula_rank_(\d+)")
_SIRIUS5_ID: Final = re.compile(r"\d+_.+_([^_]+)")  # <number>_<file>_<feature id>


@dataclass(frozen=True, slots=True)
class TableRow:
    """One formula for one feature.

    Attributes:
        formula: As written.
        adduct: As written, "" where missing.
        log_weight: Log of the row's weight, up to a constant common to the feature.
    """

    formula: str
    adduct: str
    log_weight: float


@dataclass(frozen=True, slots=True)
class _Score:
    column: str
    is_probability: bool  # every value between 0 and 1; otherwise they are logarithms


def read_table(path: str) -> dict[str, list[TableRow]]:
    """Rows by identifier, in the file's order.

    The weight is the score where all scores of the table lie between 0 and 1; other scores are
    taken as logarithms. Without a score it is 1 / rank, without either the same for all rows.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is empty or no text.
        UsageError: It has no identifier or no formula column.
    """
    lines = _records(path)
    header = [name.strip().lower() for name in next(lines, [])]
    if not any(header):
        raise UnreadableError(f"{path} is empty; expected a table of formulas")
    identifier = _column(header, _IDENTIFIERS)
    formula = _column(header, _FORMULAS)
    ranked = [name for name in header if _BUDDY_RANK.fullmatch(name)]
    if identifier is None or (formula is None and not ranked):
        missing = "identifier" if identifier is None else "formula"
        raise UsageError(
            f"{path} has no {missing} column among {', '.join(header)}; expected one of "
            f"{', '.join(_IDENTIFIERS if identifier is None else _FORMULAS)}"
        )
    table = [dict(zip(header, row, strict=False)) for row in lines]
    score = _score_column(header, table)
    rows: dict[str, list[TableRow]] = {}
    for cells in table:
        found = _buddy(cells, ranked) if formula is None else _single(cells, formula, score)
        for name in _names(cells.get(identifier, ""), identifier):
            rows.setdefault(name, []).extend(found)
    return rows


def _records(path: str) -> Iterator[list[str]]:
    """Cells of every line; tabs, semicolons or commas, whichever the header has most of."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        raise MissingInputError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise UnreadableError(f"{path} is a binary file; expected a CSV or TSV table")
    header = text.lstrip("\n").partition("\n")[0]
    delimiter = max("\t;,", key=header.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        yield from (row for row in reader if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise UnreadableError(f"{path} is no table: {error}") from None


def _column(header: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in header), None)


def _score_column(header: Sequence[str], table: Sequence[Mapping[str, str]]) -> _Score | None:
    """The first score column that holds a number anywhere."""
    for name in _SCORES:
        values = [_number(row.get(name, "")) for row in table] if name in header else []
        numbers = [value for value in values if value is not None]
        if numbers:
            return _Score(name, min(numbers) >= 0 and max(numbers) <= 1)
    return None


def _names(cell: str, column: str) -> list[str]:
    """What a cell may name: spreadsheets turn 12 into 12.0, SIRIUS 5 joins three parts."""
    name = cell.strip()
    names = [name, name.removesuffix(".0")]
    match = _SIRIUS5_ID.fullmatch(name) if column == "id" else None
    if match is not None:
        names.append(match[1])
    return [n for n in dict.fromkeys(names) if not is_missing(n)]


def _single(cells: Mapping[str, str], formula: str, score: _Score | None) -> list[TableRow]:
    text = cells.get(formula, "").strip()
    if is_missing(text):
        return []
    value = _number(cells.get(score.column, "")) if score is not None else None
    rank = next((r for name in _RANKS if (r := _number(cells.get(name, "")))), None)
    if score is not None and value is not None:
        log_weight = _log(value) if score.is_probability else value
    else:
        log_weight = -math.log(rank) if rank is not None and rank > 0 else 0.0
    return [TableRow(text, _adduct(cells), log_weight)]


def _buddy(cells: Mapping[str, str], ranked: Sequence[str]) -> list[TableRow]:
    """Formulas of an msbuddy summary: rank 1 has probability 1 - FDR, the others share the rest."""
    texts = [cells.get(name, "").strip() for name in ranked]
    texts = [text for text in texts if not is_missing(text)]
    fdr = _number(cells.get("estimated_fdr", ""))
    if fdr is None or not 0 <= fdr <= 1:
        weights = [1 / (i + 1) for i in range(len(texts))]
    else:
        weights = [1 - fdr] + [fdr / max(1, len(texts) - 1)] * (len(texts) - 1)
    adduct = _adduct(cells)
    return [TableRow(t, adduct, _log(w)) for t, w in zip(texts, weights, strict=False)]


def _adduct(cells: Mapping[str, str]) -> str:
    text = next((cells[name].strip() for name in _ADDUCTS if name in cells), "")
    return "" if is_missing(text) else text


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _log(probability: float) -> float:
    """Logarithm with a floor, so that a row of probability 0 stays a (hopeless) hypothesis."""
    return math.log(max(probability, 1e-6))
