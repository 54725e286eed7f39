"""The report of an evaluation: results.json, and tables of the same numbers as TSV."""

import hashlib
import json
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UsageError, quote
from duallgd_cli.evaluate.intervals import reliability
from duallgd_cli.evaluate.metrics import MCES_LIMIT_S, Scores, formula_accuracy, score
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import (
    EvaluationInputs,
    Predicted,
    Truth,
    molecule,
    number,
    read_predictions,
    title_of,
    write_table,
)
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.plots import PLOTS, write_plots
from duallgd_cli.runtime import version_of, versions

RESULTS: Final = "results.json"
_TABLES: Final = ("per_spectrum.tsv", "groups.tsv", "calibration.tsv")
_INTERVAL: Final = (
    "95 %; shares of right answers: Wilson with the effective sample size of spectra clustered by "
    "molecule; other means: bootstrap, 2000 draws of molecules"
)
# Numbers by spectrum that the table of spectra holds beside the scores.
_NOTES: Final = ("confidence_top10", "explained_peaks", "nearest_training", "seconds")
_ENDS: Final = ("mean", "low", "high")
MISSING: Final = "missing"
# Upper ends of the bins, inclusive; the last bin is open. Those of atoms are the paper's
# (appendix "Stratified Analysis by Structural Descriptors").
_BINS: Final[Mapping[str, Sequence[float]]] = {
    "heavy_atoms": (15, 20, 25, 30, 35, 40, 45), "collision_energy": (10.0, 20.0, 30.0, 45.0, 60.0),
    "explained_peaks": (0, 2, 5, 10, 20, 40), "nearest_training": (0.3, 0.4, 0.5, 0.6, 0.7, 0.85),
}  # fmt: skip

Columns = Mapping[str, NDArray[np.float64]]
# Index and name of a group, so that groups sort.
GroupLabel = tuple[float, str]
_UNKNOWN: Final[GroupLabel] = (math.inf, MISSING)


def report(settings: EvaluateSettings, inputs: EvaluationInputs) -> dict[str, Any]:
    """Score predictions and write the report; returns what results.json holds.

    Raises:
        UsageError: The tables do not belong together, or the report cannot be written.
    """
    folder, truths, seed = settings.folder, inputs.truths, settings.prediction.seed
    folder.mkdir(parents=True, exist_ok=True)
    predicted = read_predictions(inputs.predictions, truths[0].fields)
    ranked = ranked_of(truths, predicted)
    scores = score(truths, ranked, settings)
    if inputs.formulas is not None:
        right = formula_accuracy(truths, inputs.formulas)
        scores = replace(scores, columns={**scores.columns, **right})
    columns = {"confidence": [one.confidence[0] if one.confidence else math.nan for one in ranked]}
    for name in _NOTES:
        noted = inputs.notes.get(name, {})
        columns[name] = [noted.get(truth.spectrum_id, math.nan) for truth in truths]
    known = {name: np.array(values) for name, values in columns.items()}
    statuses = [one.status for one in ranked]
    results = {
        **_provenance(settings, inputs),
        "spectra": len(truths),
        "molecules": len(set(scores.molecule)),
        "statuses": dict(Counter(statuses).most_common()),
        "predicted_but_not_in_truth": len(predicted.keys() - {t.spectrum_id for t in truths}),
        "mces_work": dict(scores.mces_work),
        "metrics": scores.summary(seed),
        "groups": strata(scores, inputs.notes, seed),
        "calibration": _calibration(scores, known),
    }
    tables = (_spectra(scores, statuses, known), _groups(results), _bins(results["calibration"]))
    for name, rows in zip(_TABLES, tables, strict=True):
        write_table(folder / name, rows)
    # JSON has no NaN: a number that does not exist becomes null.
    plain = json.loads(json.dumps(results), parse_constant=lambda _: None)
    write_atomically(folder / RESULTS, [json.dumps(plain, indent=2, ensure_ascii=False) + "\n"])
    write_plots(folder, plain)
    return results


def report_files(folder: Path) -> dict[str, Path]:
    """All that `report` writes, by what it is."""
    return {f"the report's {name}": folder / name for name in (RESULTS, *_TABLES, *PLOTS)}


def ranked_of(truths: Sequence[Truth], predicted: Mapping[str, Predicted]) -> list[Predicted]:
    """The predictions of each spectrum of the truth; one without any counts as wrong."""
    names = {truth.spectrum_id for truth in truths}
    if not names & set(predicted):
        raise UsageError(
            f"none of the {len(names)} spectra of the truth is among the {len(predicted)} "
            f"predicted ones; identifiers look like {quote(next(iter(names), ''))} there and "
            f"{quote(next(iter(predicted), ''))} here"
        )
    nothing = Predicted((), (), "not_predicted")
    return [predicted.get(truth.spectrum_id, nothing) for truth in truths]


def strata(
    scores: Scores, notes: Mapping[str, Mapping[str, float]], seed: int = 0
) -> list[dict[str, Any]]:
    """Scores of every group of spectra, by the molecule and by the measurement.

    Notes are further numbers by spectrum, which may be missing, of `_BINS`. Of each group it is
    said what it differs in (``by``), its ``label``, how many ``spectra`` of how many ``molecules``
    it holds, and the ``estimates`` of their scores.
    """
    labelled = [_labels(truth, notes) for truth in scores.truths]
    groups = []
    for by in labelled[0]:
        labels = [each[by] for each in labelled]
        for label in sorted(set(labels)) if set(labels) != {_UNKNOWN} else ():
            part = scores.subset(np.array([other == label for other in labels]))
            sizes = {"spectra": len(part.truths), "molecules": len(set(part.molecule))}
            groups.append({"by": by, "label": label[1], **sizes, "estimates": part.summary(seed)})
    return groups


def _labels(truth: Truth, notes: Mapping[str, Mapping[str, float]]) -> dict[str, GroupLabel]:
    """The group of a spectrum in every kind."""
    cells, figures = defaultdict(str, truth.fields), molecule(truth.smiles)
    numbers = {by: notes.get(by, {}).get(truth.spectrum_id, math.nan) for by in _BINS}
    numbers |= {
        "heavy_atoms": figures.n_heavy if figures else math.nan,
        "collision_energy": number(cells["collision_energy"]),
    }
    texts = {"adduct": cells["adduct"], "instrument": cells["instrument_type"]}
    return {
        **{by: _binned(by, value) for by, value in numbers.items()},
        **{by: (0.0, text) if text else _UNKNOWN for by, text in texts.items()},
    }


def _binned(by: str, value: float) -> GroupLabel:
    """Bin of a number; whole numbers are named by what the bin can hold."""
    if math.isnan(value):
        return _UNKNOWN
    ends, unit = _BINS[by], " eV" if by == "collision_energy" else ""
    whole = all(isinstance(end, int) for end in ends)
    index = bisect_left(ends, value)
    if index == 0:
        label = "0" if whole and ends[0] == 0 else f"<= {ends[0]:g}"
    elif index == len(ends):
        label = f">= {ends[-1] + 1}" if whole else f"> {ends[-1]:g}"
    else:
        label = f"{ends[index - 1] + whole:g}-{ends[index]:g}"
    return float(index), label + unit


def _calibration(scores: Scores, known: Columns) -> dict[str, dict[str, Any]]:
    """Of the first candidate and of the first ten, each only where probabilities are stated."""
    tables = {}
    for name, k in (("confidence", 1), ("confidence_top10", 10)):
        rows = np.flatnonzero(np.isfinite(known[name]))
        if rows.size and f"accuracy@{k}" in scores.columns:
            right = scores.columns[f"accuracy@{k}"][rows] > 0
            molecules = [scores.molecule[row] for row in rows]
            tables[name] = asdict(reliability(known[name][rows], right, molecules))
    return tables


def _provenance(settings: EvaluateSettings, inputs: EvaluationInputs) -> dict[str, Any]:
    """What decides the numbers, as plain values for JSON."""
    fold, names = inputs.fold or "all", sorted(truth.spectrum_id for truth in inputs.truths)
    return {
        "versions": {**versions(), "myopic-mces": version_of("myopic-mces") or "absent"},
        "title": f"{title_of(inputs.source)}, fold {fold}",
        "track": inputs.track,
        "remarks": inputs.remarks,
        "data": {
            "files": {inputs.source.name: sha256(inputs.source)},
            "fold": fold,
            "spectra_per_molecule": settings.spectra_per_molecule,
            "limit": settings.limit,
            "left_out_as_trained_on": list(inputs.left_out),
            # Two results with the same one scored the same spectra.
            "split_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        },
        "prediction": {
            "file": inputs.predictions.name,
            "sha256": sha256(inputs.predictions),
            **inputs.record,
        },
        "scoring": {
            "top_k": list(settings.top_k),
            "match": "first block of the InChIKey",
            "tanimoto": "Morgan radius 2, 2048 bits",
            "mces": "myopic-mces, threshold 15, always_stronger_bound, capped at 100",
            "mces_limit_s": MCES_LIMIT_S,
            "seed": settings.prediction.seed,
            "interval": _INTERVAL,
        },
    }


def _spectra(scores: Scores, statuses: Sequence[str], known: Columns) -> Iterator[Sequence[object]]:
    """The table of spectra."""
    columns = {**scores.columns, **known}
    yield ["spectrum_id", "molecule", "smiles", "status", *columns]
    numbers = zip(*(column.tolist() for column in columns.values()), strict=True)
    for truth, status, row in zip(scores.truths, statuses, numbers, strict=True):
        yield [truth.spectrum_id, truth.molecule, truth.smiles, status, *row]


def _groups(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """The table of all spectra and of every group, a row a score."""
    yield ["by", "group", "spectra", "molecules", "metric", *_ENDS]
    whole = {"by": "all", "label": "all", "estimates": results["metrics"]}
    for group in ({**results, **whole}, *results["groups"]):
        about = [group[name] for name in ("by", "label", "spectra", "molecules")]
        for name, estimate in group["estimates"].items():
            yield [*about, name, *(estimate[end] for end in _ENDS)]


def _bins(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[object]]:
    """The table of stated and observed probabilities."""
    yield ["of", "cases", "stated", "observed", "observed_low", "observed_high"]
    for name, table in tables.items():
        for part in table["bins"]:
            yield [name, part["count"], part["stated"], *part["observed"].values()]
