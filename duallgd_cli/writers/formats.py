"""Output formats: each turns predictions into pieces of text; `write` puts them where they belong.

CSV and TSV have a row for every candidate, and at least one for every spectrum or feature: one
without candidates has a row without rank, whose status and message say why. No cell breaks a row or
acts in the program that shows it: control characters and line separators become spaces, and text
that a spreadsheet would run as a formula gets an apostrophe in front. Numbers and structures are
written as they are.

Nothing that differs between two runs of the same request (times, versions) is written here, so an
interrupted and resumed run gives the same bytes as an uninterrupted one.
"""

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from duallgd_cli.chem.identity import family_name
from duallgd_cli.errors import UsageError, printable, quote
from duallgd_cli.files import STANDARD_STREAM, write_atomically
from duallgd_cli.predict.settings import Header
from duallgd_cli.results import Candidate, HypothesisResult, Prediction, sentences
from duallgd_cli.writers import mztab

FORMATS: Final = ("csv", "tsv", "jsonl", "sdf", "mztab")
TABLES: Final = ("csv", "tsv")  # a line names their columns
WHOLE: Final = ("mztab",)  # text of some features is no part of the text of all
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
    "scaffold", "scaffold_confidence", "level", "schymanski", "compound_id",
)  # fmt: skip
PART_COLUMNS: Final = (
    "spectrum_id", "file", "index", "feature_id", "formula", "part", "kind", "probability", "prior",
    "share", "smarts",
)  # fmt: skip
NUMBERS: Final = (
    "index", "precursor_mz", "rank", "score", "confidence", "samples", "log_likelihood",
    "confidence_top10", "rt_seconds", "formula_rank", "formula_probability", "family_confidence",
    "scaffold_confidence",
)  # fmt: skip
_FORMULA_STARTS: Final = ("=", "+", "-", "@")
# JSON lets these stand as they are, but terminals and readers of lines would act on them.
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
# Of a prediction, in its line of JSON.
_OF_PREDICTION: Final = (
    *("feature_id", "scans", "precursor_mz", "adduct", "formula", "status", "message"),
    *("confidence_top10", "name", "rt_seconds", "collision_energy", "warnings", "assumptions"),
    *("level", "schymanski", "compound_id"),
)
# Named as the columns of the tables are, without what has no place in a structure file.
_LEFT_OUT: Final = {"status", "message", "warnings"}


def resolve_format(output: str, name: str = "") -> str:
    """The format of an output: by `name` if given, else by its ending; CSV for standard output.

    Raises:
        UsageError: The name or the ending is not known.
    """
    if name:
        if name.lower() not in FORMATS:
            raise UsageError(f"format {quote(name)} is not known; choose {', '.join(FORMATS)}")
        return name.lower()
    if output == STANDARD_STREAM:
        return "csv"
    found = _ENDINGS.get(Path(output).suffix.lower())
    if found is None:
        raise UsageError(
            f"the format of {output} is not clear from its ending; "
            f"end it in .csv, .tsv, .jsonl, .sdf or .mztab, or give --format"
        )
    return found


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


def pieces(predictions: Iterable[Prediction], name: str, header: Header) -> Iterator[str]:
    """The text of an output, the line of its columns first.

    What spectra that were read together have in common is written once, under the first of them.

    Args:
        predictions: In the order in which they are written.
        name: One of `FORMATS`.
        header: Of the run.
    """
    predictions = filter(lambda one: one.source == one.group[0], predictions)
    if name == "mztab":
        return mztab.document(predictions, header)
    if name == "sdf":
        return _structures(predictions)
    if name == "jsonl":
        return map(json_line, map(values_of, predictions))
    lines = (row.values() for prediction in predictions for row in rows(prediction))
    return table(COLUMNS, lines, name)


def table(columns: Iterable[str], lines: Iterable[Iterable[str]], name: str) -> Iterator[str]:
    """The text of a table: its header and then its rows, as `lines_of` gives them."""
    return lines_of(chain([columns], lines), name)


def lines_of(rows: Iterable[Iterable[str]], name: str) -> Iterator[str]:
    """Rows of a table as text.

    Yields:
        Each row, its line break included; cells are quoted where needed.
    """
    text = io.StringIO()
    line = csv.writer(text, delimiter="," if name == "csv" else "\t", lineterminator="\n")
    for cells in map(tuple, rows):
        line.writerow(cells if "".join(cells).isprintable() else map(printable, cells))
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def rows(prediction: Prediction) -> Iterator[dict[str, str]]:
    """Cells of the rows of one spectrum, by the names of `COLUMNS` and in their order."""
    precursor, time = prediction.precursor_mz, prediction.rt_seconds
    shared = dict.fromkeys(COLUMNS, "") | {
        "spectrum_id": inert(prediction.spectrum_id),
        "file": inert(prediction.source.file),
        "index": str(prediction.source.index),
        "feature_id": inert(prediction.feature_id),
        "scans": inert(prediction.scans),
        "precursor_mz": "" if precursor is None else repr(float(precursor)),
        "adduct": inert(prediction.adduct),
        "formula": inert(prediction.formula),
        "status": prediction.status,
        "message": inert(prediction.message),
        "confidence_top10": f"{prediction.confidence_top10:.4g}" if prediction.candidates else "",
        "indices": " ".join(str(source.index) for source in prediction.group),
        "name": inert(prediction.name),
        "rt_seconds": "" if time is None else f"{time:.6g}",
        "collision_energy": inert(prediction.collision_energy),
        "warnings": inert(prediction.warnings),
        "adduct_source": prediction.adduct_source,
        "assumptions": inert(prediction.assumptions),
        "level": prediction.level,
        "schymanski": prediction.schymanski,
        "compound_id": inert(prediction.compound_id),
    }
    tried = {(one.formula, one.adduct): one for one in reversed(prediction.hypotheses)}
    first = tried.get((prediction.formula, prediction.adduct))
    if not prediction.candidates:
        yield shared | _formula_cells(first)
    plain = inert(sentences(prediction.message))
    of_formula = {name: _formula_cells(one) for name, one in tried.items()}
    for candidate in prediction.candidates:
        message, like = plain, likeness(prediction.analogue_of(candidate))
        if like:
            message = inert(sentences(prediction.message, like))
        yield (
            shared
            | of_formula.get((candidate.formula, candidate.adduct), {})
            | {
                "adduct": inert(candidate.adduct),
                "formula": inert(candidate.formula),
                "rank": str(candidate.rank),
                "smiles": candidate.smiles,
                "inchi": candidate.inchi,
                "inchikey": candidate.inchikey,
                "inchikey14": candidate.inchikey14,
                "score": f"{candidate.score:.6g}",
                "confidence": f"{candidate.confidence:.4g}",
                "samples": str(candidate.samples),
                "log_likelihood": "" if (ll := candidate.log_likelihood) is None else f"{ll:.6g}",
                "message": message,
                "sources": " ".join(candidate.sources),
            }
            | _ladder_cells(candidate)
        )


def _ladder_cells(candidate: Candidate) -> dict[str, str]:
    """Coarser answers that the candidate belongs to, and how probable they are."""
    if not candidate.family:
        return {}
    return {
        "family": family_name(candidate.family),
        "family_confidence": f"{candidate.family_confidence:.4g}",
        "scaffold": candidate.scaffold,
        "scaffold_confidence": f"{candidate.scaffold_confidence:.4g}",
    }


def likeness(analogue: Mapping[str, Any]) -> str:
    """The nearest of the user's molecules, and what was changed; "" without any."""
    if not analogue:
        return ""
    # Journals of before have the words for no change in a field of their own.
    change = analogue["change"] or analogue.get("change_name", "")
    of = analogue["name"] or analogue["smiles"]
    if change == "the same molecule":
        return f"is {of}"
    return f"like {of}: {change}, Tanimoto {analogue['tanimoto']:.2f}"


def _formula_cells(outcome: HypothesisResult | None) -> dict[str, str]:
    """Where formula and adduct of a hypothesis come from, and how likely the formula was."""
    if outcome is None or not outcome.formula:
        return {}
    return {
        "formula_source": outcome.formula_source,
        "formula_rank": str(outcome.position + 1),
        "formula_probability": f"{math.exp(outcome.log_prior):.4g}",
        "adduct_source": outcome.adduct_source,
    }


def inert(cell: str) -> str:
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


def json_line(values: Mapping[str, Any]) -> str:
    """A line of JSON, its line break included."""
    line = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return line.translate(_ESCAPES) + "\n"


def values_of(prediction: Prediction) -> dict[str, Any]:
    """Plain values of a prediction, with all that was tried and without its wall time."""
    return {
        "spectrum_id": prediction.spectrum_id,
        "file": prediction.source.file,
        "index": prediction.source.index,
        **{name: getattr(prediction, name) for name in _OF_PREDICTION},
        "group": [asdict(one) for one in prediction.group],
        "hypotheses": [_hypothesis(result) for result in prediction.hypotheses],
        "candidates": [_candidate(one, prediction) for one in prediction.candidates],
        **({"library_match": match} if (match := prediction.library_match) else {}),
        **({} if prediction.parts is None else {"parts": [*map(asdict, prediction.parts)]}),
    }


def _candidate(candidate: Candidate, prediction: Prediction) -> dict[str, Any]:
    analogue = prediction.analogue_of(candidate)
    return {
        **asdict(candidate),
        "inchikey14": candidate.inchikey14,
        "family_name": family_name(candidate.family),
        **({"analogue": analogue} if analogue else {}),
    }


def _hypothesis(outcome: HypothesisResult) -> dict[str, Any]:
    return {
        "formula": outcome.formula,
        "adduct": outcome.adduct,
        "log_prior": outcome.log_prior,
        "formula_source": outcome.formula_source,
        "formula_probability": math.exp(outcome.log_prior),
        "adduct_source": outcome.adduct_source,
        "status": outcome.status,
        "message": outcome.message,
        "n_peaks": outcome.n_peaks,
        "n_explained": outcome.n_explained,
        "explained_intensity": outcome.explained_intensity,
        "explained_peaks": [peak._asdict() for peak in outcome.peaks],
        **outcome.tallies,
    }


def part_rows(prediction: Prediction) -> Iterator[list[str]]:
    """Cells of the table of parts: what the true structure of a feature may contain."""
    source = prediction.source
    names = (prediction.spectrum_id, source.file, prediction.feature_id, prediction.formula)
    spectrum_id, file, feature_id, formula = map(inert, names)
    for part in prediction.parts or ():
        numbers = (f"{value:.4f}" for value in (part.probability, part.prior, part.share))
        start = [spectrum_id, file, str(source.index), feature_id, formula]
        yield [*start, part.name, part.kind, *numbers, part.smarts]


def _structures(predictions: Iterable[Prediction]) -> Iterator[str]:
    """SDF: a record with 2D coordinates for every candidate; others have none."""
    for prediction in predictions:
        for candidate, row in zip(prediction.candidates, rows(prediction), strict=False):
            yield _record(prediction.spectrum_id, candidate, row)


def _record(spectrum_id: str, candidate: Candidate, row: Mapping[str, str]) -> str:
    from rdkit import Chem  # its drawing code loads only here
    from rdkit.Chem import rdDepictor

    mol = Chem.MolFromSmiles(candidate.smiles)
    rdDepictor.Compute2DCoords(mol)
    mol.SetProp("_Name", _one_line(f"{spectrum_id}_{candidate.rank}"))
    data = "".join(
        f">  <{name.upper()}>\n{_one_line(value)}\n\n"
        for name, value in row.items()
        if value and name not in _LEFT_OUT
    )
    return f"{Chem.MolToMolBlock(mol)}{data}$$$$\n"


def _one_line(text: str) -> str:
    """A value that cannot be taken for the end of the record or a further tag."""
    line = " ".join(printable(text).split())
    return f" {line}" if line.startswith((">", "$$$$")) else line
