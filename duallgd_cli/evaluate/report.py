"""The report of an evaluation: results.json, tables as TSV, plots."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final

import numpy as np

from duallgd_cli import __version__
from duallgd_cli.errors import UsageError, quote
from duallgd_cli.evaluate.groups import formula_accuracy, strata
from duallgd_cli.evaluate.intervals import reliability
from duallgd_cli.evaluate.metrics import Scores, score
from duallgd_cli.evaluate.plots import PLOTS, write_plots
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.suites import EvaluationInputs
from duallgd_cli.evaluate.tables import Predicted, Truth, read_predictions, write_table
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import version_of

RESULTS: Final = "results.json"
_TABLES: Final = ("per_spectrum", "metrics", "groups", "calibration", "formula_accuracy")
INTERVAL: Final = (
    "95 %; shares of right answers: Wilson with the effective sample size of spectra clustered by "
    "molecule; other means: bootstrap, 2000 draws of molecules"
)
_FORMAT: Final = "duallgd-results-1"
_LIBRARIES: Final = ("torch", "numpy", "scipy", "rdkit", "myopic-mces")
# Numbers by spectrum that the table of spectra holds beside the scores.
_NOTES: Final = ("confidence_top10", "explained_peaks", "nearest_training", "seconds")
_COUNTS: Final = ("candidates", "valid", "formula_exact", "distinct")
_ENDS: Final = ("mean", "low", "high")
_NOT_PREDICTED: Final = "not_predicted"

Rows = Iterable[Sequence[object]]


def report(settings: EvaluateSettings, inputs: EvaluationInputs) -> dict[str, Any]:
    """Score predictions and write the report; returns what results.json holds.

    Raises:
        UsageError: The tables do not belong together, or the report cannot be written.
        MissingInputError: A table does not exist.
        UnreadableError: A table cannot be read.
    """
    folder, truths, seed = settings.folder, inputs.truths, settings.prediction.seed
    make_folder(folder)
    predicted = read_predictions(inputs.predictions)
    ranked = ranked_of(truths, predicted)
    scores = score(truths, ranked, settings)
    stated = [one.confidence[0] if one.confidence else nan for one in ranked]
    known: dict[str, list[Any]] = {
        "status": [one.status for one in ranked],
        "confidence": [value if isfinite(value) else None for value in stated],
        **{
            name: [inputs.notes.get(name, {}).get(truth.spectrum_id) for truth in truths]
            for name in _NOTES
        },
    }
    counts = {name: float(scores.columns[name].sum()) for name in _COUNTS}
    shares = {f"{n}_share": counts[n] / max(counts[_COUNTS[0]], 1.0) for n in _COUNTS[1:]}
    kinds = ("accuracy", "mces", "tanimoto") if settings.mces else ("accuracy", "tanimoto")
    results = {
        **_provenance(settings, inputs, scores),
        "spectra": len(scores),
        "molecules": len(set(scores.molecule)),
        "statuses": dict(Counter(known["status"]).most_common()),
        "predicted_but_not_in_truth": len(predicted.keys() - {t.spectrum_id for t in truths}),
        "mces_work": dict(scores.mces_work),
        "candidates": {"total": counts[_COUNTS[0]], **shares},
        "metrics": scores.summary(seed),
        "groups": strata(
            scores, [f"{kind}@{k}" for k in settings.top_k for kind in kinds], inputs.notes, seed
        ),
    }
    if inputs.formulas is not None:
        results["formula_accuracy"] = formula_accuracy(truths, inputs.formulas, seed)
    results["calibration"] = _calibration(scores, known)
    for name, rows in _tables(results, scores, known).items():
        write_table(folder / f"{name}.tsv", rows, inputs.track)
    text = json.dumps(finite(results), indent=2, ensure_ascii=False)
    write_atomically(folder / RESULTS, [text + "\n"])
    write_plots(folder, results)
    return results


def report_files(folder: Path) -> dict[str, Path]:
    """All that `report` may write, by what it is; of plots those that are there."""
    names = (RESULTS, *(f"{name}.tsv" for name in _TABLES))
    plots = [folder / "plots" / name for name in PLOTS]
    return {
        **{f"the report's {name}": folder / name for name in names},
        **{f"the report's plots/{path.name}": path for path in plots},
    }


def make_folder(path: Path) -> None:
    """Make the folder of a report."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {path} cannot be made: {error.strerror}") from None


def finite(value: object) -> Any:  # noqa: ANN401
    """Plain values for JSON, which has no NaN: a number that does not exist becomes null."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


def ranked_of(truths: Sequence[Truth], predicted: Mapping[str, Predicted]) -> list[Predicted]:
    """The predictions of each spectrum of the truth; one without any counts as wrong.

    Raises:
        UsageError: Not one identifier of the truth is among the predictions.
    """
    names = {truth.spectrum_id for truth in truths}
    if not names & set(predicted):
        raise UsageError(
            f"none of the {len(names)} spectra of the truth is among the {len(predicted)} "
            f"predicted ones; identifiers look like {quote(next(iter(names), ''))} there and "
            f"{quote(next(iter(predicted), ''))} here"
        )
    nothing = Predicted((), (), _NOT_PREDICTED)
    return [predicted.get(truth.spectrum_id, nothing) for truth in truths]


def _calibration(scores: Scores, known: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Of the first candidate and of the first ten, each only where probabilities are stated."""
    tables = {}
    for name, k in (("confidence", 1), ("confidence_top10", 10)):
        rows = [row for row, value in enumerate(known[name]) if value is not None]
        if not rows or f"accuracy@{k}" not in scores.columns:
            continue
        stated = np.array([known[name][row] for row in rows], dtype=np.float64)
        right = scores.columns[f"accuracy@{k}"][rows] > 0
        molecules = [scores.molecule[row] for row in rows]
        table = reliability(stated, right, n_bins=10, clusters=molecules)
        tables[name] = asdict(table)
    return tables


def _provenance(
    settings: EvaluateSettings, inputs: EvaluationInputs, scores: Scores
) -> dict[str, Any]:
    """What decides the numbers, as plain values for JSON."""
    suite, fold = inputs.suite, settings.fold or inputs.suite.fold
    names = sorted(truth.spectrum_id for truth in scores.truths)
    return {
        "format": _FORMAT,
        "duallgd": __version__,
        "versions": {
            "python": platform.python_version(),
            **{library: version_of(library) or "absent" for library in _LIBRARIES},
        },
        "title": f"{suite.title}, fold {fold or 'all'}",
        "track": inputs.track,
        "remarks": [*suite.remarks, *inputs.remarks],
        "data": {
            "files": {path.name: sha256(path) for path in suite.files},
            "fold": fold or "all",
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
            "mces_limit_s": settings.mces_limit,
            "seed": settings.prediction.seed,
            "interval": INTERVAL,
        },
    }


def _tables(
    results: Mapping[str, Any], scores: Scores, known: Mapping[str, Sequence[Any]]
) -> dict[str, Rows]:
    """Tables of the numbers, by the name of their file; a mean stands with its interval.

    Args:
        results: What results.json holds.
        scores: Of every spectrum.
        known: What else is known of each, by column; None where it is not.
    """
    spectra: list[list[Any]] = [
        ["spectrum_id", "molecule", "smiles", *scores.columns, *known],
        *(
            [truth.spectrum_id, truth.molecule, truth.smiles]
            + [float(column[row]) for column in scores.columns.values()]
            + ["" if column[row] is None else column[row] for column in known.values()]
            for row, truth in enumerate(scores.truths)
        ),
    ]
    tables: dict[str, Rows] = {
        "per_spectrum": spectra,
        "metrics": [
            ["spectra", "molecules", "metric", *_ENDS],
            *(
                [results["spectra"], results["molecules"], name, *(mean[end] for end in _ENDS)]
                for name, mean in results["metrics"].items()
            ),
        ],
        "groups": _groups(results["groups"]),
        "calibration": [
            ["of", "cases", "stated", "observed", "observed_low", "observed_high"],
            *(
                [name, part["count"], part["stated"], *part["observed"].values()]
                for name, table in results["calibration"].items()
                for part in table["bins"]
            ),
        ],
    }
    if "formula_accuracy" in results:
        tables["formula_accuracy"] = _groups(results["formula_accuracy"])
    return tables


def _groups(groups: Sequence[Mapping[str, Any]]) -> Rows:
    """One row a group of spectra."""
    names = list(groups[0]["estimates"]) if groups else []
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    yield ["by", "group", "spectra", "molecules", *ends]
    for group in groups:
        values = [group["estimates"][name][end] for name in names for end in _ENDS]
        yield [group["by"], group["label"], group["spectra"], group["molecules"], *values]
