"""Tables of the truth and of predictions: anybody's, as long as the few columns are there.

One benchmark is downloaded: MassSpecGym (Bushuiev et al., NeurIPS 2024).
"""

import hashlib
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import (
    FormulaError,
    MissingInputError,
    MoleculeError,
    UnreadableError,
    UsageError,
    clip,
    counted,
    quote,
)
from duallgd_cli.files import replaced, sha256, write_atomically
from duallgd_cli.runtime import cache_folder
from duallgd_cli.tables import table_rows

Row = Mapping[str, str]
logger = logging.getLogger(__name__)

ID_COLUMNS: Final = ("identifier", "spectrum_id", "feature_id", "id", "name", "spec")
_FEATURE: Final = "feature_id"
_PEAKS: Final = frozenset({"mzs", "intensities"})
# What a lab has of an unknown. Whatever is not listed here does not reach the prediction.
_MEASURED: Final = (
    "mzs", "intensities", "precursor_mz", "adduct", "ion_mode", "instrument_type", "instrument",
    "resolution", "collision_energy", "collision_energy_text",
)  # fmt: skip
_WRONG_SHOWN: Final = 3  # of rows that are refused
_PANELS: Final = "AB"  # of a fold: to develop by, and to look at once
# The metric's fingerprint, as MassSpecGym defines it; the networks use a longer one.
METRIC_BITS: Final = 2048
# Names of the file as it was published, by its SHA-256. Spectra and folds are the same in both.
_PUBLISHED: Final = {
    "50cfdd1d22f79543c59555f9ce43c6893bd788a19a42b21fb4e2e3a54673c06a": "MassSpecGym 1.5",
    "0c9cc50450def3f0d4fe2dc09dea1105fc15e635db8c6656bc3e3be37a3bcd95": "MassSpecGym 1.0",
}
_FILE: Final = "MassSpecGym1.5.tsv"
_ADDRESS: Final = (
    "https://huggingface.co/datasets/roman-bushuiev/MassSpecGym/resolve/"
    f"d2e86d0c3bd905a6d578c0dd6053ed2bd41f9c2a/data/{_FILE}"
)
# Longer than a slow server takes, shorter than anybody waits for a sentence.
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What one spectrum truly is."""

    spectrum_id: str  # unique in its table
    smiles: str  # as written; of a salt its parent molecule
    molecule: str  # first block of the InChIKey (the SMILES where there is no InChI)
    # the columns of its row, by lower-case name; peaks left out
    fields: Row = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Ranked structures that a table holds for one spectrum."""

    smiles: tuple[str, ...]  # best first
    confidence: tuple[float, ...]  # of each, NaN where the table has none
    status: str = "ok"  # the table's word for the spectrum, ``ok`` where it has none


@dataclass(frozen=True, slots=True, eq=False)
class MoleculeFigures:
    """One valid molecule without stereochemistry."""

    smiles: str  # canonical SMILES
    block: str  # first block of the InChIKey, "" if there is no InChI
    # set bits of the Morgan fingerprint (radius 2, 2,048 bits), ascending, uint16 (n_on,)
    bits: NDArray[np.uint16]
    formula: str  # molecular formula in Hill order, "" with an element outside the vocabulary
    n_heavy: int  # heavy atoms


@dataclass(slots=True, eq=False, kw_only=True)
class EvaluationInputs:
    """What is scored, and what is found out about it on the way to the report."""

    source: Path  # table of the truth; of the spectra too, where these are predicted first
    fold: str = ""  # the fold that is scored, "" for all
    truths: Sequence[Truth]  # the spectra to score
    predictions: Path  # CSV or TSV with a spectrum's identifier, ``smiles`` and possibly ``rank``
    remarks: list[str] = field(default_factory=list)  # sentences for the report
    left_out: Sequence[str] = ()  # molecules that were trained on, by InChIKey first block
    track: str = "not stated"  # ``formula known``, ``formula predicted`` or ``not stated``
    # settings, weights and samples of the predictions, as far as known
    record: dict[str, Any] = field(default_factory=dict)
    # numbers by spectrum, as `report.strata` takes them
    notes: dict[str, dict[str, float]] = field(default_factory=dict)
    # predicted formulas by spectrum, best first; None where the true ones are given
    formulas: Mapping[str, Sequence[str]] | None = None

    def remark(self, *sentences: str) -> None:
        """Add sentences for the report, each once."""
        self.remarks = list(dict.fromkeys((*self.remarks, *sentences)))


@lru_cache(maxsize=100_000)
def molecule(smiles: str) -> MoleculeFigures | None:
    """Describe a SMILES; None if it is not a possible molecule."""
    try:
        mol = identity.parse_smiles(smiles)
    except MoleculeError:
        return None
    block = formula = ""
    with suppress(MoleculeError):
        block = identity.inchikey_block(mol)
    with suppress(FormulaError):
        formula = str(formula_of(mol))
    bits, name = identity.fingerprint(mol, METRIC_BITS), identity.canonical_smiles(mol)
    return MoleculeFigures(name, block, bits, formula, mol.GetNumHeavyAtoms())


def truths_of(rows: Iterable[Row], fold: str, source: str) -> list[Truth]:
    """The truth in a table of the MassSpecGym layout: a spectrum a row, an identifier and smiles.

    Rows of one fold are kept, of "" all. ``val:A`` and ``val:B`` are the molecules of fold val in
    two halves, A to develop by and B to look at once. Messages call the table `source`.
    """
    bare = [{name: cell for name, cell in row.items() if name not in _PEAKS} for row in rows]
    if not bare:
        raise UnreadableError(f"{source} holds no rows")
    fold, has_panel, panel = fold.partition(":")
    if has_panel and panel not in tuple(_PANELS):
        raise UsageError(f"a fold has the panels A and B, as in {fold}:A, not {quote(panel)}")
    kept = [row for row in bare if not fold or row.get("fold") == fold]
    if not kept:
        folds = sorted({row["fold"] for row in bare if row.get("fold")})
        has = f"its folds are {clip(', '.join(folds))}" if folds else "it has no column fold"
        raise UsageError(f"{source} has no fold {quote(fold)}; {has}")
    name = id_column(kept[0], source)
    structures = [identity.parent(row["smiles"]) for row in kept]
    figures = [None if "." in smiles else molecule(smiles) for smiles in structures]
    wrong = [row for row, described in zip(kept, figures, strict=True) if described is None]
    if wrong:
        shown = "; ".join(
            f"{quote(row['smiles'])} as the structure of {quote(row[name])}"
            for row in wrong[:_WRONG_SHOWN]
        )
        others = " and others" * (len(wrong) > _WRONG_SHOWN)
        raise UnreadableError(
            f"{source} has {counted(len(wrong), 'row')} whose smiles is no single molecule ({shown}"
            f"{others}); correct them or leave them out"
        )
    truths: dict[str, Truth] = {}
    if n_salts := sum(row["smiles"] != one for row, one in zip(kept, structures, strict=True)):
        logger.warning("%s: %s", source, identity.salts(n_salts))
    for row, smiles, described in zip(kept, structures, filter(None, figures), strict=True):
        if row[name] in truths:
            raise UnreadableError(
                f"{source} holds {quote(row[name])} twice in column {name}; make them unique"
            )
        block = described.block or described.smiles
        truths[row[name]] = Truth(row[name], smiles, block, {**row, "smiles": smiles})
    panels = {one: _PANELS[_hash(f"panel {truths[one].molecule}")[0] % 2] for one in truths}
    return [truth for one, truth in truths.items() if panel in ("", panels[one])]


def rows_of(path: Path, required: Sequence[str], sentence: str) -> Iterator[dict[str, str]]:
    """Rows of a table by lower-case column names; a sentence says what is asked of another file."""
    rows = table_rows(path, required)
    try:
        first = next(rows, None)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {sentence}") from None
    return rows if first is None else chain([first], rows)


def _hash(text: str) -> bytes:
    """Eight bytes that depend on a text alone."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def id_column(row: Row, source: str) -> str:
    """Name of the column that identifies a spectrum; UnreadableError if there is none."""
    for name in ID_COLUMNS:
        if name in row:
            return name
    needed, has = ", ".join(ID_COLUMNS), clip(", ".join(row)) or "no columns"
    raise UnreadableError(f"{source} has none of the columns {needed}; it has {has}")


def choose(truths: Iterable[Truth], spectra_per_molecule: str, limit: int | None) -> list[Truth]:
    """A choice of spectra by the smallest hashes of their identifiers alone, in their order.

    Of each molecule ``1`` is kept or ``all``; of what is left, so many as the limit says.
    """
    listed = list(truths)
    ordered = sorted(listed, key=lambda truth: _hash(truth.spectrum_id))
    if spectra_per_molecule == "1":
        ordered = list({truth.molecule: truth for truth in reversed(ordered)}.values())
        ordered.sort(key=lambda truth: _hash(truth.spectrum_id))
    kept = {truth.spectrum_id for truth in ordered[:limit]}
    return [truth for truth in listed if truth.spectrum_id in kept]


def read_predictions(path: Path, truth: Row | None = None) -> dict[str, Predicted]:
    """Read ranked structures: an identifier, ``smiles`` ("" says that there is none) and ``rank``.

    Without ranks the rows of the CSV or TSV are in order. Where `truth`, a row of the true
    structures, names features, so do the predictions.
    """
    sentence = "predictions are a table with the columns identifier and smiles"
    listed = list(rows_of(path, ("smiles",), sentence))
    first = listed[0] if listed else {}
    name = id_column(first, str(path))
    is_by_feature = truth is not None and id_column(truth, "the truth") == _FEATURE
    if is_by_feature and any(row.get(_FEATURE) for row in listed):
        name = _FEATURE
    by_spectrum: dict[str, list[dict[str, str]]] = {}
    for row in listed:
        by_spectrum.setdefault(row[name], []).append(row)
    predicted = {}
    for spectrum_id, own in by_spectrum.items():
        rows = _one_block(spectrum_id, own, path)
        best = [row for row in rows if row["smiles"]]
        try:
            ranks = [float(row.get("rank") or "nan") for row in best]
        except ValueError as error:
            wrong = str(error).partition(": ")[2]
            raise UnreadableError(
                f"{path} has the rank {wrong} for {quote(spectrum_id)}; ranks are numbers"
            ) from None
        twice = next((rank for rank, times in Counter(ranks).items() if times > 1), None)
        if twice is not None:
            raise UnreadableError(f"{path} has rank {twice:g} twice for {quote(spectrum_id)}")
        has_rank = [*map(isfinite, ranks)]
        if any(has_rank) and not all(has_rank):
            raise UnreadableError(
                f"{path} has rows of {quote(spectrum_id)} with a rank and others without; give "
                "each of them its rank, or none to any"
            )
        if any(has_rank):
            best = [best[place] for place in np.argsort(ranks)]
        predicted[spectrum_id] = Predicted(
            smiles=tuple(row["smiles"] for row in best),
            confidence=tuple(number(row.get("confidence", "")) for row in best),
            status=rows[0].get("status") or "ok",
        )
    return predicted


def _one_block(spectrum_id: str, rows: list[dict[str, str]], path: Path) -> list[dict[str, str]]:
    """Rows of one prediction; spectra of a feature that were read together repeat the same ones."""
    blocks: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        blocks.setdefault((row.get("file", ""), row.get("index", "")), []).append(row)
    whole = [block for block in blocks.values() if block[0]["smiles"]] or list(blocks.values())
    features = {(row.get("file"), row.get("feature_id")) for row in rows}
    groups = {block[0].get("indices") for block in whole if block[0]["smiles"]}
    of_one_feature = len(features) == 1 and rows[0].get("feature_id") and len(groups) <= 1
    if len(blocks) > 1 and not of_one_feature:
        raise UsageError(
            f"{path} has {len(blocks)} spectra named {quote(spectrum_id)}; "
            "scoring needs a different identifier for each"
        )
    return whole[0]


def number(text: str) -> float:
    """The number that a cell holds; NaN for anything else."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def write_unlabelled(
    rows: Iterable[Row], chosen: Sequence[Truth], path: Path, *, with_formula: bool
) -> None:
    """Write spectra as a lab would have them: no structure, and no formula unless it is given."""
    columns = (*_MEASURED, "formula") if with_formula else _MEASURED
    wanted = {truth.spectrum_id for truth in chosen}
    name = id_column(chosen[0].fields, str(path))
    kept = (row for row in rows if row[name] in wanted)
    cells = ([row[name], *(row.get(column, "") for column in columns)] for row in kept)
    write_table(path, chain([["identifier", *columns]], cells))


def write_truth(chosen: Sequence[Truth], path: Path) -> None:
    """Write the truth of the chosen spectra, so that predictions can be scored again later."""
    columns = list(dict.fromkeys((*chosen[0].fields, "inchikey")))
    rows = ({**truth.fields, "inchikey": truth.molecule} for truth in chosen)
    write_table(path, chain([columns], ([fields[name] for name in columns] for fields in rows)))


def write_table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a tab-separated table, its columns' names first; numbers with six digits, NaN empty."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "" if isnan(value) else f"{value:.6g}"
        return " ".join(str(value).split())

    write_atomically(path, ("\t".join(map(cell, row)) + "\n" for row in rows))


def title_of(table: Path) -> str:
    """What results on a table are called: its name, or that of the benchmark that it is."""
    return _PUBLISHED.get(sha256(table), table.name)


def massspecgym() -> Path:
    """The newest file of MassSpecGym, which is downloaded once and kept in the cache."""
    path = cache_folder() / _FILE
    if not path.is_file():
        import urllib.request  # nothing of the network is loaded but here

        logger.info("downloading %s (about 260 MB), once", _FILE)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                urllib.request.urlopen(_ADDRESS, timeout=_ANSWER_S) as answer,
                replaced(path) as begun,
                begun.open("wb") as stream,
            ):
                shutil.copyfileobj(answer, stream)
        except OSError as error:
            raise MissingInputError(
                f"{_FILE} is not on this machine and could not be downloaded ({error}); fetch "
                f"{_ADDRESS} and give the file with --benchmark, or a table of your own"
            ) from None
    if sha256(path) not in _PUBLISHED:
        raise UnreadableError(
            f"{path} is not MassSpecGym as published (its SHA-256 differs); delete it and try again"
        )
    return path
