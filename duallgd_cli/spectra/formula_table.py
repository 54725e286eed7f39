"""Tables of formulas: exports of SIRIUS, msbuddy, FIDDLE, MS-FINDER and the like, and plain ones.

A table has a formula in each row (``molecularFormula``, ``Formula``), or several in numbered
columns (``formula_rank_1``, ``Refined Formula (0)``), with an adduct, a score or a rank where the
program gives them. Several of its columns may name the spectrum: SIRIUS writes ``id``, ``name``,
``featureId`` or ``mappingFeatureId``, and which of them holds what stands in the spectrum file
depends on its version and on that file. So all are kept, to be looked up one after the other.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UnreadableError, UsageError, clip, quote
from duallgd_cli.spectra.reading.quantities import finite
from duallgd_cli.spectra.reading.record import is_missing
from duallgd_cli.tables import Line, plain, table_lines

# Names of columns in lower case without anything but letters and digits, the likelier first.
_IDENTIFIERS: Final = (
    *("mappingfeatureid", "featureid", "feature", "identifier", "spectrumid", "title", "name"),
    *("scans", "scan", "id", "rowid"),
)
_MORE_IDENTIFIERS: Final = re.compile(r"id|title|name|scan|spectr|query")
_NO_IDENTIFIERS: Final = re.compile(r"formula|inchi|smiles|pubchem|database|class|adduct|score")
_FORMULAS: Final = ("molecularformula", "formula", "neutralformula", "predictedformula")
_NUMBERED: Final = re.compile(r"\D*formula\D*(\d{1,3})\D*|\D*(\d{1,3})\D*formula")
_NO_FORMULAS: Final = re.compile(r"score|fdr|prob|mass|error|precursor|count")
_ADDUCTS: Final = ("adduct", "ion", "precursortype", "iontype")
# Probabilities first; SIRIUS' own score is the logarithm of one up to a constant.
_SCORES: Final = ("prior", "probability", "zodiacscore", "siriusscore", "score", "formulascore")
_RANKS: Final = ("formularank", "rank")
_FDR: Final = "estimatedfdr"
_SIRIUS_ID: Final = re.compile(r"\d+_.+_.+")  # <number>_<file>_<feature>, "_" in each
_MOST_PARTS: Final = 8
_DECIMAL_COMMA: Final = re.compile(r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A formula for a feature and perhaps its adduct, as written.

    `log_weight` is known up to a constant that is common to the feature.
    """

    formula: str
    adduct: str
    log_weight: float


Rows = dict[str, list[TableRow]]


def read_table(path: str) -> dict[str, Rows]:
    """Rows by identifier, in the file's order, for each column that may hold identifiers.

    The weight is the score where all scores of the table lie between 0 and 1; other scores are
    taken as logarithms. Without a score it is 1 / rank, without either the same for all rows.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is empty or no text.
        UsageError: It has no identifier or no formula column, or two columns of one name.
    """
    lines = table_lines(Path(path), {*_IDENTIFIERS, *_FORMULAS})
    written = next(lines, Line(1, ())).cells
    if not any(written):
        raise UnreadableError(f"{path} is empty; expected a table of formulas")
    header = [plain(name) for name in written]
    likely = [name for name in _IDENTIFIERS if name in header]
    others = [n for n in header if _MORE_IDENTIFIERS.search(n) and not _NO_IDENTIFIERS.search(n)]
    identifiers = {name: header.index(name) for name in (*likely, *others)}
    formula = next((name for name in _FORMULAS if name in header), None)
    numbered = [] if formula else sorted(filter(_number_of, header), key=_number_of)
    if not identifiers or not (formula or numbered):
        missing, known = ("formula", _FORMULAS) if identifiers else ("identifier", _IDENTIFIERS)
        raise UsageError(
            f"{path} has no {missing} column among {clip(', '.join(written))}; expected one of "
            f"{', '.join(known)}"
        )
    kept = [*identifiers, formula, *numbered, *_ADDUCTS, *_SCORES, *_RANKS, _FDR]
    twice = next((name for name in kept if name and header.count(name) > 1), None)
    if twice is not None:
        name = quote(written[header.index(twice)])
        raise UsageError(f"{path} has two columns {name}; rename or remove one")
    columns = [(name, at) for at, name in enumerate(header) if name in kept]
    table = []
    for line in lines:
        if line.fault:
            raise UnreadableError(f"{path}, line {line.number}: {line.fault}")
        table.append({name: line.cells[at] for name, at in columns})
    score = _score_column(header, table)
    by_column: dict[str, Rows] = {written[at]: {} for at in identifiers.values()}
    for cells in table:
        texts = (cells.get(name, "").strip() for name in _ADDUCTS)
        adduct = next((text for text in texts if text == "Na" or not is_missing(text)), "")
        weights = _single(cells, formula, *score) if formula else _several(cells, numbered)
        rows = [TableRow(text, adduct, log_weight) for text, log_weight in weights]
        for column, by_name in zip(identifiers, by_column.values(), strict=True):
            for name in cell_names(cells.get(column, "")):
                by_name.setdefault(name, []).extend(rows)
    return by_column


def _number_of(name: str) -> int:
    """Number, from 1, of a formula among those of one row; 0 for any other column."""
    match = None if _NO_FORMULAS.search(name) else _NUMBERED.fullmatch(name)
    return int(match[1] or match[2]) + 1 if match else 0


def _score_column(header: Sequence[str], table: Sequence[Mapping[str, str]]) -> tuple[str, bool]:
    """The first score column that holds a number anywhere, or "", and whether all are shares.

    Values between 0 and 1 are probabilities, others logarithms of some.
    """
    for name in _SCORES:
        values = [cell_number(row.get(name, "")) for row in table] if name in header else []
        numbers = [value for value in values if value is not None]
        if numbers:
            return name, min(numbers) >= 0 and max(numbers) <= 1
    return "", False


def cell_number(cell: str) -> float | None:
    """The number of a cell, whose decimals may follow a comma; None without one."""
    return finite(_DECIMAL_COMMA.sub(r"\1.\2", cell))


def cell_names(cell: str) -> list[str]:
    """What a cell may name: spreadsheets turn 12 into 12.0, SIRIUS joins number, file and name."""
    name = cell.strip()
    names = [name, name.removesuffix(".0")]
    if _SIRIUS_ID.fullmatch(name):
        parts = name.split("_", 1)[1].rsplit("_", _MOST_PARTS)
        names += ["_".join(parts[start:]) for start in range(1, len(parts))]
    return [n for n in dict.fromkeys(names) if not is_missing(n)]


def _single(
    cells: Mapping[str, str], formula: str, score: str, is_probability: bool
) -> list[tuple[str, float]]:
    """The formula of a row, if there is any, and its log weight."""
    text = cells.get(formula, "").strip()
    if is_missing(text):
        return []
    value = cell_number(cells.get(score, ""))
    if value is not None:
        return [(text, _log(value) if is_probability else value)]
    rank = next((r for name in _RANKS if (r := cell_number(cells.get(name, "")))), None)
    return [(text, -math.log(rank) if rank is not None and rank > 0 else 0.0)]


def _several(cells: Mapping[str, str], numbered: Sequence[str]) -> list[tuple[str, float]]:
    """Formulas of a row by their number, with log weights; msbuddy gives the FDR of the first.

    The first then has probability 1 - FDR, and the others share the rest.
    """
    texts = [cells.get(name, "").strip() for name in numbered]
    texts = [text for text in texts if not is_missing(text)]
    fdr = cell_number(cells.get(_FDR, ""))
    if fdr is None or not 0 <= fdr <= 1:
        weights = [1 / (i + 1) for i in range(len(texts))]
    else:
        weights = [1 - fdr] + [fdr / max(1, len(texts) - 1)] * (len(texts) - 1)
    return [(text, _log(weight)) for text, weight in zip(texts, weights, strict=False)]


def _log(probability: float) -> float:
    """Logarithm with a floor, so that a row of probability 0 stays a (hopeless) hypothesis."""
    return math.log(max(probability, 1e-6))
