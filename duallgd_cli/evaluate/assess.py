"""Assess predictions against the truth: scores, groups, calibration, and what is missing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import isfinite, nan
from typing import Any, Final

import numpy as np

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import Assembled, assemble, disassemble
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError, quote
from duallgd_cli.evaluate.groups import part_records, parts, strata
from duallgd_cli.evaluate.intervals import CalibrationTable, Estimate, reliability, share
from duallgd_cli.evaluate.metrics import Scores, score
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth

NOT_PREDICTED: Final = "not_predicted"
# Numbers by spectrum that tables hold beside the scores.
_NOTES: Final = ("confidence_top10", "explained_peaks", "nearest_training", "seconds")


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Everything that was found out about one set of predictions.

    Attributes:
        truths: The spectra, in the order of `scores`.
        scores: Of each spectrum.
        notes: What else is known of each spectrum, by name, as long as `truths`; None where a
            number does not exist.
        numbers: What results.json holds of it.
    """

    truths: tuple[Truth, ...]
    scores: Scores
    notes: Mapping[str, Sequence[object]]
    numbers: Mapping[str, Any]


def assess(
    truths: Sequence[Truth],
    predicted: Mapping[str, Predicted],
    settings: EvaluateSettings,
    notes: Mapping[str, Mapping[str, float]] | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Assessment:
    """Score predictions; a spectrum of the truth without predictions counts as wrong.

    Args:
        truths: What the spectra are.
        predicted: Ranked structures by spectrum.
        settings: What to compute, and the seed of the bootstrap.
        notes: Further numbers by spectrum, any may be missing: ``explained_peaks`` (with a
            sub-formula), ``nearest_training`` (Tanimoto similarity to that molecule),
            ``confidence_top10`` and ``seconds`` (wall time of the prediction).
        advance: Called with the number of spectra scored.

    Raises:
        UsageError: Not one identifier of the truth is among the predictions.
    """
    notes, seed = notes or {}, settings.prediction.seed
    names = {truth.spectrum_id for truth in truths}
    if not names & set(predicted):
        raise UsageError(
            f"none of the {len(names)} spectra of the truth is among the {len(predicted)} "
            f"predicted ones; identifiers look like {quote(next(iter(names), ''))} there and "
            f"{quote(next(iter(predicted), ''))} here"
        )
    nothing = Predicted((), (), NOT_PREDICTED)
    found = [predicted.get(truth.spectrum_id, nothing) for truth in truths]
    scores = score(truths, found, settings, advance)
    columns = _columns(truths, found, notes)
    kinds = ("accuracy", "mces", "tanimoto") if settings.mces else ("accuracy", "tanimoto")
    shown = [f"{kind}@{k}" for k in settings.top_k for kind in kinds]
    numbers = {
        "spectra": len(scores),
        "molecules": len(set(scores.molecule)),
        "statuses": dict(Counter(ranked.status for ranked in found).most_common()),
        "predicted_but_not_in_truth": len(set(predicted) - names),
        "mces_work": dict(scores.mces_work),
        "candidates": _candidates(scores),
        "metrics": scores.summary(seed),
        "parts": part_records(scores, truths, seed=seed),
        "groups": strata(scores, truths, shown, notes, seed=seed),
        "calibration": _calibration(scores, columns),
    }
    return Assessment(tuple(truths), scores, columns, numbers)


def compare(
    ours: Assessment, predicted: Mapping[str, Predicted], settings: EvaluateSettings
) -> dict[str, Any]:
    """A rival's numbers and the paired differences (ours minus theirs) with clustered intervals.

    Of all spectra, and of each part of the test set.
    """
    # The reference's columns are for comparison with published numbers alone.
    settings = replace(settings, reference=False, preset="duallgd")
    theirs, seed = assess(ours.truths, predicted, settings), settings.prediction.seed

    def record(mine: Scores, other: Scores, metrics: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for name in metrics if "@" in name]
        differences = mine.minus(other, names, seed)
        return {
            "metrics": {name: metrics[name] for name in names},
            "ours_minus_theirs": {name: asdict(found) for name, found in differences.items()},
        }

    kept = parts(ours.truths)
    return {
        **record(ours.scores, theirs.scores, theirs.numbers["metrics"]),
        "parts": {
            part["name"]: record(
                ours.scores.subset(kept[part["name"]]),
                theirs.scores.subset(kept[part["name"]]),
                part["metrics"],
            )
            for part in theirs.numbers["parts"]
        },
    }


def decompose(ours: Assessment, oracle: Scores | None) -> dict[str, Estimate]:
    """Where accuracy is lost between a perfect answer and the first candidate, in order.

    Shares of spectra, each at most about the one before it: a perfect bond matrix is assembled into
    the right molecule; the decoder, given the true fingerprint, draws the right molecule at all; it
    does so with the predicted fingerprint; the right molecule is among the first ten; it is first.

    Args:
        ours: The predictions.
        oracle: Of predictions of the same spectra from their true fingerprints, or None to leave
            those steps out.
    """
    recovered = [float(assembly_recovers(truth.smiles)) for truth in ours.truths]
    steps = {"perfect bond matrix, assembled": np.array(recovered)}
    if oracle is not None:
        steps["true fingerprint, any sample"] = oracle.columns["oracle_accuracy"]
        if "accuracy@1" in oracle.columns:
            steps["true fingerprint, first candidate"] = oracle.columns["accuracy@1"]
    columns = ours.scores.columns
    steps["predicted fingerprint, any sample"] = columns["oracle_accuracy"]
    for name in reversed([name for name in columns if name.startswith("accuracy@")]):
        steps[f"predicted fingerprint, first {name.partition('@')[2]}"] = columns[name]
    return {name: share(right, ours.scores.molecule) for name, right in steps.items()}


@lru_cache(maxsize=100_000)
def assembly_recovers(smiles: str) -> bool:
    """Whether the perfect bond matrix of a molecule is assembled into that molecule first."""
    try:
        taken_apart = disassemble(identity.parse_smiles(smiles))
    except (MoleculeError, FormulaError):
        return False  # outside what bond matrices can express
    built = assemble(taken_apart.formula, taken_apart.bond_class)
    if not isinstance(built, Assembled):
        return False
    wanted = identity.inchikey_block(identity.parse_smiles(smiles))
    return identity.inchikey_block(built.molecules[0]) == wanted


def _columns(
    truths: Sequence[Truth],
    found: Sequence[Predicted],
    notes: Mapping[str, Mapping[str, float]],
) -> dict[str, list[Any]]:
    stated = [ranked.confidence[0] if ranked.confidence else nan for ranked in found]
    return {
        "status": [ranked.status for ranked in found],
        "confidence": [value if isfinite(value) else None for value in stated],
        **{
            name: [notes.get(name, {}).get(truth.spectrum_id) for truth in truths]
            for name in _NOTES
        },
    }


def _candidates(scores: Scores) -> dict[str, float]:
    """Shares of all candidates that were given."""
    total = float(scores.columns["candidates"].sum())
    return {"total": total} | {
        f"{name}_share": float(scores.columns[name].sum()) / max(total, 1.0)
        for name in ("valid", "formula_exact", "distinct")
    }


def _calibration(
    scores: Scores, columns: Mapping[str, Sequence[float | None]]
) -> dict[str, dict[str, Any]]:
    """Of the first candidate and of the first ten, each only where probabilities are stated."""
    tables = {}
    for name, k in (("confidence", 1), ("confidence_top10", 10)):
        known = [row for row, value in enumerate(columns[name]) if value is not None]
        if known and f"accuracy@{k}" in scores.columns:
            stated = np.array([columns[name][row] for row in known], dtype=np.float64)
            right = scores.columns[f"accuracy@{k}"][known] > 0
            molecules = [scores.molecule[row] for row in known]
            tables[name] = _plain(reliability(stated, right, n_bins=10, clusters=molecules))
    return tables


def _plain(table: CalibrationTable) -> dict[str, Any]:
    return {
        "bins": [
            {
                "count": one.count,
                "stated": one.predicted,
                "observed": asdict(Estimate(one.observed, one.observed_low, one.observed_high)),
            }
            for one in table.bins
        ],
        "expected_error": table.calibration_error,
        "brier": table.brier,
        "base_brier": table.base_brier,
    }
