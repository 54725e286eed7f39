"""`duallgd score`: structures of the user's own among all other candidates of their spectra."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duallgd_cli.chem.identity import inchikey_block, salts
from duallgd_cli.chem.molecule import Mol, formula_of, usable
from duallgd_cli.data.structures import read_rows, warn_of_feature_ids
from duallgd_cli.errors import Failure, MoleculeError, UsageError, counted
from duallgd_cli.files import claim
from duallgd_cli.predict.explanation import fragments_of
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.run import Progress, RunSummary
from duallgd_cli.predict.settings import CERTAIN, PredictRequest, formula_source
from duallgd_cli.ranking.one_list import Ranking, predictions_of
from duallgd_cli.ranking.ranking import FEATURES
from duallgd_cli.results import OK, FeatureResult, HypothesisResult, Prediction
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.sources.known import Knowledge
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import FormulaSource, from_field, from_text
from duallgd_cli.spectra.types import Feature, Hypothesis
from duallgd_cli.writers.formats import SPECTRUM_COLUMNS, resolve_format, table, write_pieces

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel

logger = logging.getLogger(__name__)

NAME: Final = "mine"
MOST: Final = 1_000  # structures; a row is written for each with every spectrum
COLUMNS: Final = (
    *SPECTRUM_COLUMNS,
    *("structure", "smiles", "inchikey14", "formula", "rank", "candidates", "confidence"),
    *("explained_peaks", "explained_intensity", "peaks", "score", *FEATURES),
    *("sources", "status", "message"),
)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnStructure:
    """A structure of the user's, or why it cannot be read."""

    name: str  # as the file calls it, else ""
    smiles: str  # as it was given
    mol: Mol | None = None  # read, or None
    formula: str = ""  # of it, or ""
    block: str = ""  # first block of its InChIKey, or ""
    fault: str = ""  # why it cannot be read, "" if it can


@dataclass(frozen=True, slots=True)
class Mine:
    """The source that proposes the structures of the formula, in the order of the file."""

    structures: Sequence[OwnStructure]
    name: str = NAME

    @property
    def most(self) -> int:
        """How many it may be asked for."""
        return len(self.structures)

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Every structure of the formula once."""
        del n, seed
        formula = str(query.formula)
        unique = {one.block: one.mol for one in self.structures if one.formula == formula}
        return (Proposal(self.name, mol) for mol in unique.values())


def read_structures(path: Path) -> list[OwnStructure]:
    """The structures of a file, readable or not.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It is of no known format.
        UsageError: It holds none, or too many, or none of them can be read.
    """
    structures, n_salts = list[OwnStructure](), 0
    for row in read_rows(path):
        if len(structures) == MOST:
            raise UsageError(
                f"{path} holds more than {MOST:,} structures; name it with --database instead, "
                "which keeps the likeliest"
            )
        if row.feature_id and not structures:
            warn_of_feature_ids(path)
        structure, row = OwnStructure(row.name, row.smiles, fault=row.fault), row.without_salt()
        if not row.fault:
            try:
                mol = usable(row.smiles)
                identity = {"formula": str(formula_of(mol)), "block": inchikey_block(mol)}
                structure = replace(structure, mol=mol, **identity)
                n_salts += bool(row.salt)
            except MoleculeError as error:
                structure = replace(structure, fault=str(error))
        structures.append(structure)
    if not structures:
        raise UsageError(f"{path} holds no structure: it is empty")
    faults = [one.fault for one in structures if one.fault]
    if len(faults) == len(structures):
        raise UsageError(f"{path} holds no structure that can be read; of the first: {faults[0]}")
    if faults:
        number = counted(len(structures), "structure")
        logger.warning("%s: %d of %s cannot be read; their rows say why", path, len(faults), number)
    if n_salts:
        logger.warning("%s: %s", path, salts(n_salts))
    return structures


def check(request: PredictRequest, path: Path) -> tuple[list[OwnStructure], Knowledge | None]:
    """Read structures and databases, and look at all that may be wrong before weights are loaded.

    Raises:
        UsageError: The output is impossible or would lose a file, or the structures are none.
        MissingInputError: An input does not exist.
        UnreadableError: One cannot be read.
    """
    output_format = resolve_format(request.output, request.format)
    if output_format in {"sdf", "mztab"}:
        raise UsageError(f"scores are written as csv, tsv or jsonl, not {output_format}")
    claim({"the output": request.output}, [*request.files_read(), path], force=request.force)
    structures = read_structures(path)
    if request.guide is None:
        return structures, None
    return structures, Knowledge.read(request.settings.guide, request.guide)


def score_structures(
    request: PredictRequest,
    structures: Sequence[OwnStructure],
    model: "LoadedModel",
    tell: Progress | None = None,
    knowledge: Knowledge | None = None,
) -> RunSummary:
    """Rank structures among all candidates of every feature; a row for each with each feature.

    Structures and knowledge are those that `check` gave; `tell` is told of each feature.
    """
    summary, started = RunSummary(request.output, n_own=len(structures)), time.perf_counter()
    output_format = resolve_format(request.output, request.format)
    settings, ranking = request.settings, model.ranking_for(request.settings, request.guide)
    source = _formulas(request, structures, model.max_heavy_atoms)
    model, ranked = model.added([Mine(structures)]), set[int]()

    def rows_of(features: Iterable[tuple[int, Feature]]) -> Iterator[Row]:
        given = (features, model, settings, request.workers)
        for feature in results(*given, source=source, knowledge=knowledge):
            prediction, rows = scored(feature, structures, ranking)
            ranked.update(number for number, row in enumerate(rows) if row["rank"])
            summary.n_own_ranked = len(ranked)
            summary.count(prediction)
            if tell is not None:
                tell("scoring", len(feature.spectra), feature.hypotheses[0])
            yield from rows

    with Inputs(request.inputs) as inputs:
        rows = rows_of(enumerate(inputs.features(*settings.grouping)))
        write_pieces(table(COLUMNS, rows, output_format), request.output)
    return replace(summary, n_ms1=inputs.n_ms1, seconds=time.perf_counter() - started)


def _formulas(
    request: PredictRequest, structures: Sequence[OwnStructure], max_heavy_atoms: int
) -> FormulaSource:
    """Where formulas come from: as for `predict`, and of the structures where nothing says."""
    settings = request.settings
    if request.formulas is not None or settings.formula is not None:
        return formula_source(settings, request.formulas, max_heavy_atoms)
    formulas = list(dict.fromkeys(one.formula for one in structures if one.formula))
    limits = settings.limits_of(max_heavy_atoms)

    def fitting(feature: Feature) -> list[Hypothesis] | Failure:
        """The formulas of the structures that fit the precursor, alike likely."""
        tried = [from_text(feature, text, limits) for text in formulas]
        found = [one for each in tried if not isinstance(each, Failure) for one in each]
        if found:
            prior = -math.log(len(found))
            note = "the formula is that of a structure to be scored"
            return [replace(one, log_prior=prior, notes=(*one.notes, note)) for one in found]
        if len(tried) == 1 and isinstance(tried[0], Failure):
            return tried[0]
        message = (
            f"none of the {counted(len(formulas), 'formula')} of the structures fits this "
            "precursor; check adduct and structures"
        )
        return Failure("formula_mismatch", message)

    return partial(from_field, column=settings.formula_column, limits=limits, otherwise=fitting)


def scored(
    feature: FeatureResult, structures: Sequence[OwnStructure], ranking: Ranking
) -> tuple[Prediction, list[Row]]:
    """The prediction of a feature, and a row for each structure."""
    candidates, top10 = ranking.rank(feature.hypotheses)
    prediction = predictions_of(feature, candidates, top10, len(candidates), CERTAIN)[0]
    by_block = {one.inchikey14: one for one in candidates}
    tried: defaultdict[str, list[HypothesisResult]] = defaultdict(list)
    for result in feature.hypotheses:
        tried[result.formula].append(result)
    named = dict.fromkeys(COLUMNS) | {name: getattr(prediction, name) for name in SPECTRUM_COLUMNS}
    rows = list[Row]()
    for one in structures:
        about = {"formula": one.formula or None, "inchikey14": one.block or None}
        row = named | about | {"structure": one.name, "smiles": one.smiles}
        candidate = by_block.get(one.block)
        if candidate is None:
            row["status"], row["message"] = _why_not(one, prediction, tried)
        else:
            adduct = candidate.adduct
            result = next(each for each in tried[candidate.formula] if each.adduct == adduct)
            explains = fragments_of(one.mol, adduct, result.peaks)
            places = sorted({place for place, _ in explains})
            peaks = {peak.mz: peak for peak in (result.peaks[place] for place in places)}
            shown = sum(peak.intensity for peak in peaks.values())
            whole = sum({peak.mz: peak.intensity for peak in result.peaks}.values())
            row |= {
                "adduct": adduct,
                "rank": candidate.rank,
                "candidates": len(candidates),
                "confidence": float(f"{candidate.confidence:.4g}"),
                "explained_peaks": len(peaks),
                "explained_intensity": round(shown / whole, 4) if whole else None,
                "peaks": "; ".join(f"{peak.mz:.4f} {peak.formula}" for peak in peaks.values()),
                "score": float(f"{candidate.score:.6g}"),
                **{name: float(f"{candidate.extra_scores[name]:.6g}") for name in FEATURES},
                "sources": " ".join(name for name in candidate.sources if name != NAME) or NAME,
                "status": OK,
                "message": prediction.remarks,
            }
        rows.append(row)
    return prediction, rows


def _why_not(
    structure: OwnStructure, prediction: Prediction, tried: Mapping[str, Sequence[HypothesisResult]]
) -> tuple[str, str]:
    """Status and message of a structure that is no candidate."""
    if structure.fault:
        return "unreadable_structure", structure.fault
    if structure.formula in tried:
        result = tried[structure.formula][0]
        if result.status != OK:
            return result.status, result.message
        return "no_candidate", (
            "left out: it breaks what candidates must be like, or is an internal salt or another "
            "placement of charges of a likelier candidate"
        )
    given = [name for name in tried if name]
    if not given:
        return prediction.status, prediction.remarks
    which = "one of " * (len(given) > 1) + ", ".join(given)
    return "formula_mismatch", f"its formula is {structure.formula}, that of the spectrum {which}"
