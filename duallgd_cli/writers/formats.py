"""Output formats: each turns predictions into pieces of text; `write_pieces` puts them in place.

A table is the names of its columns, and rows that are values by column. No text breaks a row or
acts in the program that shows it: control characters and line separators become spaces, and text
that a spreadsheet would run as a formula gets an apostrophe in front.

CSV and TSV have a row for every candidate, and at least one for every feature: without candidates
it has no rank, and its status and message say why. Nothing that differs between two runs of one
request (times, versions) is written, so that a resumed run gives the bytes of an uninterrupted one.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from duallgd_cli.chem.identity import family_name
from duallgd_cli.errors import UsageError, inert, printable, quote
from duallgd_cli.files import STANDARD_STREAM, replaced_text, write_atomically
from duallgd_cli.results import Header, Prediction, sentences
from duallgd_cli.writers import mztab
from duallgd_cli.writers.names import NAME_COLUMNS, Names

FORMATS: Final = ("csv", "tsv", "jsonl", "sdf", "mztab")
_ENDINGS: Final = {f".{name}": name for name in FORMATS} | {".txt": "tsv"}
# Which spectrum or feature a row is about, and the ion that was assumed.
SPECTRUM_COLUMNS: Final = (
    "spectrum_id", "file", "index", "feature_id", "scans", "precursor_mz", "adduct",
)  # fmt: skip
COLUMNS: Final = (
    *SPECTRUM_COLUMNS, "formula", "rank", "smiles", "inchi", "inchikey", "inchikey14", "score",
    "confidence", "samples", "log_likelihood", "status", "message", "confidence_top10", "indices",
    "name", "rt_seconds", "collision_energy", "warnings", "formula_source", "formula_rank",
    "formula_probability", "adduct_source", "assumptions", "sources", "family", "family_confidence",
    "scaffold", "scaffold_confidence", "level", "schymanski", "compound_id", "usi",
)  # fmt: skip
PART_COLUMNS: Final = (
    "spectrum_id", "file", "index", "feature_id", "formula", "part", "kind", "probability", "prior",
    "share", "smarts",
)  # fmt: skip
# Columns of numbers, with how these are written; "" is as exact as they are.
NUMBERS: Final = {
    "index": "", "precursor_mz": "", "rank": "", "score": ".6g", "confidence": ".4g",
    "samples": "", "log_likelihood": ".6g", "confidence_top10": ".4g", "rt_seconds": ".6g",
    "formula_rank": "", "formula_probability": ".4g", "family_confidence": ".4g",
    "scaffold_confidence": ".4g",
}  # fmt: skip
# JSON lets these stand as they are, but terminals and readers of lines would act on them.
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
# Fields of a prediction, of a hypothesis and of a candidate that an output has as they are.
_OF_A_LINE: Final = (
    *SPECTRUM_COLUMNS, "formula", "status", "message", "confidence_top10", "name", "rt_seconds",
    "collision_energy", "warnings", "assumptions", "level", "schymanski", "compound_id", "usi",
)  # fmt: skip
_OF_A_HYPOTHESIS: Final = (
    "formula", "adduct", "log_prior", "formula_source", "formula_probability", "adduct_source",
    "status", "message", "n_peaks", "n_explained", "explained_intensity",
)  # fmt: skip
_TALLIES: Final = ("sampled", "assembled", "repaired", "rejected", "distinct")
_OF_A_CANDIDATE: Final = (
    "adduct", "formula", "rank", "smiles", "inchi", "inchikey", "inchikey14", "score", "confidence",
    "samples", "log_likelihood",
)  # fmt: skip
_OF_A_FAMILY: Final = ("family_confidence", "scaffold", "scaffold_confidence")
_NOT_IN_SDF: Final = {"status", "message", "warnings"}


def resolve_format(output: str, name: str = "") -> str:
    """The format of an output: by `name` if given, else by its ending; CSV for standard output.

    Raises:
        UsageError: The name or the ending is not known.
    """
    if name.lower() in FORMATS:
        return name.lower()
    if name:
        raise UsageError(f"format {quote(name)} is not known; choose {', '.join(FORMATS)}")
    ending = ".csv" if output == STANDARD_STREAM else Path(output).suffix.lower()
    if ending not in _ENDINGS:
        raise UsageError(
            f"the format of {output} is not clear from its ending; "
            f"end it in .csv, .tsv, .jsonl, .sdf or .mztab, or give --format"
        )
    return _ENDINGS[ending]


def write_pieces(pieces: Iterable[str], output: str) -> None:
    """Write text to a file, whole or not at all, or to standard output as it comes.

    Raises:
        UsageError: The file cannot be written.
        OSError: Standard output takes no more.
    """
    if output != STANDARD_STREAM:
        write_atomically(Path(output), pieces)
        return
    for piece in pieces:  # characters that are no text are escaped, as in files
        sys.stdout.buffer.write(piece.encode("utf-8", errors="backslashreplace"))
    sys.stdout.buffer.flush()


def pieces(
    predictions: Iterable[Prediction], name: str, header: Header, names: Names | None = None
) -> Iterator[str]:
    """The text of an output, the line of its columns first.

    What spectra that were read together have in common is written once, under the first of them.
    With names of molecules tables have `NAME_COLUMNS`, too.
    """
    predictions = filter(lambda one: one.source == one.group[0], predictions)
    if name == "mztab":
        return mztab.document(predictions, header)
    if name == "sdf":
        return (_record(row) for one in predictions for row in rows(one, names) if row["rank"])
    if name == "jsonl":
        return (json_line(values_of(one, names)) for one in predictions)
    columns = COLUMNS if names is None else (*COLUMNS, *NAME_COLUMNS)
    return table(columns, (row for one in predictions for row in rows(one, names)), name)


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]], name: str) -> Iterator[str]:
    """The text of a table: the names of its columns, then its rows, which are values by column.

    JSON lines hold each row with the names.
    """
    if name == "jsonl":
        return map(json_line, rows)
    return lines_of(chain([columns], map(partial(cells_of, columns=columns), rows)), name)


def cells_of(row: Mapping[str, object], columns: Iterable[str]) -> list[str]:
    """A row as text: what is None or not there is empty, and no spreadsheet runs a cell."""
    values = map(row.get, columns)
    return [
        inert(value) if isinstance(value, str) else "" if value is None else repr(value)
        for value in values
    ]


def lines_of(rows: Iterable[Iterable[str]], name: str) -> Iterator[str]:
    """Rows of cells as text, line breaks included; cells are quoted where needed."""
    text = io.StringIO()
    line = csv.writer(text, delimiter="," if name == "csv" else "\t", lineterminator="\n")
    for cells in map(tuple, rows):
        line.writerow(cells if "".join(cells).isprintable() else map(printable, cells))
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def rows(prediction: Prediction, names: Names | None = None) -> Iterator[dict[str, str]]:
    """The rows of one spectrum, by `COLUMNS` and in their order; numbers are written out."""
    of_formula = {
        (one.formula, one.adduct): {
            "formula_source": one.formula_source,
            "formula_rank": rank,
            "formula_probability": math.exp(one.log_prior),
            "adduct_source": one.adduct_source,
        }
        # of equal ones the first counts
        for rank, one in reversed([*enumerate(prediction.hypotheses, 1)])
        if one.formula
    }
    shared: dict[str, Any] = {name: getattr(prediction, name) for name in _OF_A_LINE}
    shared["indices"] = " ".join(str(source.index) for source in prediction.group)
    shared["adduct_source"] = prediction.adduct_source
    for one in prediction.candidates or [None]:
        tried = prediction if one is None else one
        row = shared | of_formula.get((tried.formula, tried.adduct), {})
        if one is None:
            row["confidence_top10"] = None
        else:
            row |= {name: getattr(one, name) for name in _OF_A_CANDIDATE}
            row["message"] = sentences(prediction.message, likeness(prediction.analogue_of(one)))
            row["sources"] = " ".join(one.sources)
            if one.family:
                row |= {name: getattr(one, name) for name in _OF_A_FAMILY}
                row["family"] = family_name(one.family)
        written = {
            name: "" if (value := row.get(name)) is None else format(value, NUMBERS.get(name, ""))
            for name in COLUMNS
        }
        yield written if names is None or one is None else written | names.of(one.inchikey)


def likeness(analogue: Mapping[str, Any]) -> str:
    """The nearest of the user's molecules, and what was changed; "" without any."""
    if not analogue:
        return ""
    of, change = analogue["name"] or analogue["smiles"], analogue["change"]
    if change == "the same molecule":
        return f"is {of}"
    return f"like {of}: {change}, Tanimoto {analogue['tanimoto']:.2f}"


def json_line(values: Mapping[str, Any]) -> str:
    """A line of JSON, its line break included."""
    line = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return line.translate(_ESCAPES) + "\n"


def values_of(prediction: Prediction, names: Names | None = None) -> dict[str, Any]:
    """Plain values of a prediction, with all that was tried and without its wall time."""
    # The peaks of a library are for the page.
    match = {n: v for n, v in prediction.library_match.items() if n not in {"mz", "intensity"}}
    hypotheses = [
        {
            **{name: getattr(one, name, None) for name in _OF_A_HYPOTHESIS},
            "formula_probability": math.exp(one.log_prior),  # in the place of its name
            "explained_peaks": [peak._asdict() for peak in one.peaks],
            **{name: getattr(one, name) for name in _TALLIES},
        }
        for one in prediction.hypotheses
    ]
    candidates = [
        {
            **asdict(one),
            "inchikey14": one.inchikey14,
            "family_name": family_name(one.family),
            **({"analogue": nearest} if (nearest := prediction.analogue_of(one)) else {}),
            **({} if names is None else names.of(one.inchikey)),
        }
        for one in prediction.candidates
    ]
    return {
        **{name: getattr(prediction, name) for name in _OF_A_LINE},
        "group": [asdict(one) for one in prediction.group],
        "hypotheses": hypotheses,
        "candidates": candidates,
        **({"library_match": match} if match else {}),
        **({} if prediction.parts is None else {"parts": [*map(asdict, prediction.parts)]}),
    }


@contextmanager
def table_beside(
    path: Path, columns: Sequence[str], rows_of: Callable[[Prediction], Iterable[Mapping[str, Any]]]
) -> Iterator[Callable[[Prediction], None]]:
    """A table that takes one prediction after the other, and is put in place at the end.

    Raises:
        UsageError: The file cannot be written.
    """
    kind = path.suffix.removeprefix(".")
    with replaced_text(path, may_pack=False) as file:
        file.writelines(lines_of([columns], kind))

        def add(prediction: Prediction) -> None:
            cells = (cells_of(row, columns) for row in rows_of(prediction))
            file.writelines(lines_of(cells, kind))

        yield add


def part_rows(prediction: Prediction) -> Iterator[Mapping[str, object]]:
    """Rows of the table of parts, `PART_COLUMNS`: what the structure of a feature may contain."""
    of = {name: getattr(prediction, name) for name in PART_COLUMNS[: PART_COLUMNS.index("part")]}
    for part in prediction.parts or ():
        row = of | {"part": part.name, "kind": part.kind, "smarts": part.smarts}
        yield row | {n: f"{getattr(part, n):.4f}" for n in ("probability", "prior", "share")}


def _record(row: Mapping[str, str]) -> str:
    """A record of SDF with 2D coordinates."""
    from rdkit import Chem  # its drawing code loads only here
    from rdkit.Chem import rdDepictor

    mol = Chem.MolFromSmiles(row["smiles"])
    rdDepictor.Compute2DCoords(mol)
    mol.SetProp("_Name", _one_line(f"{row['spectrum_id']}_{row['rank']}"))
    data = "".join(
        f">  <{name.upper()}>\n{_one_line(value)}\n\n"
        for name, value in row.items()
        if value and name not in _NOT_IN_SDF
    )
    return f"{Chem.MolToMolBlock(mol)}{data}$$$$\n"


def _one_line(text: str) -> str:
    """A value that cannot be taken for the end of the record or a further tag."""
    line = " ".join(printable(text).split())
    return f" {line}" if line.startswith((">", "$$$$")) else line
