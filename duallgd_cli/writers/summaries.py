"""Tables in the columns that other programs import; they lie beside the output.

SIRIUS's ``structure_identifications.tsv``, which workflows that know SIRIUS read; the compound list
of mzmine's local compound database search; and a node table for molecular networks of GNPS in
Cytoscape. A further one is a further entry of `SUMMARIES`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import UsageError, quote
from duallgd_cli.results import Prediction
from duallgd_cli.writers.formats import rows


@dataclass(frozen=True, slots=True)
class Summary:
    """One importer's table."""

    ending: str  # of its file, in place of that of the output
    columns: Mapping[str, str]  # each with the one of ours that fills it, "" for what is not known
    best: bool = True  # one row a feature, its first candidate; else one a candidate
    all_features: bool = False  # features without candidates have a row


# The columns of SIRIUS 6; CSI:FingerID, ZODIAC and fragmentation trees scored nothing here.
_SIRIUS: Final = {
    "structurePerIdRank": "rank", "formulaRank": "formula_rank",
    "ConfidenceScoreExact": "confidence", "ConfidenceScoreApproximate": "",
    "CSI:FingerIDScore": "", "ZodiacScore": "", "SiriusScore": "",
    "molecularFormula": "formula", "adduct": "adduct", "precursorFormula": "",
    "InChIkey2D": "inchikey14", "InChI": "inchi", "name": "inchikey", "smiles": "smiles",
    "xlogp": "", "pubchemids": "", "links": "", "dbflags": "", "ionMass": "precursor_mz",
    "retentionTimeInSeconds": "rt_seconds", "retentionTimeInMinutes": "rt_minutes",
    "formulaId": "", "alignedFeatureId": "feature", "mappingFeatureId": "feature",
    "overallFeatureQuality": "",
}  # fmt: skip
_MZMINE: Final = {
    "id": "feature", "mz": "precursor_mz", "rt": "rt_minutes", "name": "inchikey",
    "adduct": "adduct", "formula": "formula", "neutral_mass": "neutral_mass", "smiles": "smiles",
    "inchi": "inchi", "inchi_key": "inchikey", "score": "confidence", "comment": "remark",
}  # fmt: skip
# Named apart from the columns of the network's own library hits, which an import would replace.
_GNPS: Final = {
    "cluster index": "cluster", "duallgd_smiles": "smiles", "duallgd_inchikey": "inchikey",
    "duallgd_formula": "formula", "duallgd_adduct": "adduct", "duallgd_confidence": "confidence",
    "duallgd_confidence_top10": "confidence_top10", "duallgd_status": "status",
}  # fmt: skip
SUMMARIES: Final = {
    "sirius": Summary("structure_identifications.tsv", _SIRIUS),
    "mzmine": Summary("mzmine.csv", _MZMINE, best=False),
    "gnps": Summary("gnps.tsv", _GNPS, all_features=True),
}


def summary_paths(names: Collection[str], output: Path) -> dict[str, Path]:
    """Where summaries lie: ``out.mzmine.csv`` for ``out.csv``.

    Raises:
        UsageError: A name is not one of `SUMMARIES`.
    """
    for name in names:
        if name not in SUMMARIES:
            raise UsageError(f"summary {quote(name)} is not known; choose {', '.join(SUMMARIES)}")
    return {name: output.with_name(f"{output.stem}.{SUMMARIES[name].ending}") for name in names}


def summary_rows(prediction: Prediction, summary: Summary) -> Iterator[Mapping[str, str | None]]:
    """Rows of the table of one importer for a feature."""
    for row in rows(prediction):
        if not (row["rank"] or summary.all_features):
            continue
        seconds, formula = prediction.rt_seconds, row["formula"] if row["rank"] else ""
        row |= {  # what importers ask for is made from our own columns
            "feature": row["feature_id"] or row["scans"] or row["spectrum_id"],
            "cluster": row["scans"] or row["feature_id"] or row["spectrum_id"],
            "rt_minutes": "" if seconds is None else f"{seconds / 60:.6g}",
            "neutral_mass": f"{Formula.parse(formula).mass:.6f}" if formula else "",
            "remark": f"duallgd: rank {row['rank']}, confidence {row['confidence']}",
        }
        yield {theirs: row.get(ours) for theirs, ours in summary.columns.items()}
        if summary.best:
            break
