"""JSON lines: one object per spectrum, with all that was tried and the explained peaks."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from duallgd_cli.predict.prediction import Candidate, Outcome, Prediction

# JSON lets these stand as they are, but terminals and readers of lines would act on them.
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def pieces(predictions: Iterable[Prediction]) -> Iterator[str]:
    """One line per spectrum, line breaks included."""
    for prediction in predictions:
        line = json.dumps(values_of(prediction), ensure_ascii=False, allow_nan=False)
        yield line.translate(_ESCAPES) + "\n"


def values_of(prediction: Prediction) -> dict[str, Any]:
    """Plain values of a prediction, without its wall time."""
    return {
        "spectrum_id": prediction.spectrum_id,
        "file": prediction.source.file,
        "index": prediction.source.index,
        "feature_id": prediction.feature_id,
        "scans": prediction.scans,
        "precursor_mz": prediction.precursor_mz,
        "adduct": prediction.adduct,
        "formula": prediction.formula,
        "status": prediction.status,
        "message": prediction.message,
        "confidence_top10": prediction.confidence_top10,
        "name": prediction.name,
        "rt_seconds": prediction.rt_seconds,
        "collision_energy": prediction.collision_energy,
        "warnings": prediction.warnings,
        "group": [asdict(source) for source in prediction.group],
        "hypotheses": [_hypothesis(outcome) for outcome in prediction.hypotheses],
        "candidates": [_candidate(candidate) for candidate in prediction.candidates],
    }


def _hypothesis(outcome: Outcome) -> dict[str, Any]:
    return {
        "formula": outcome.formula,
        "adduct": outcome.adduct,
        "log_prior": outcome.log_prior,
        "status": outcome.status,
        "message": outcome.message,
        "n_peaks": outcome.n_peaks,
        "n_explained": outcome.n_explained,
        "explained_intensity": outcome.explained_intensity,
        "explained_peaks": [asdict(peak) for peak in outcome.peaks],
        **asdict(outcome.tallies),
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    values = asdict(candidate)
    values["inchikey14"] = candidate.inchikey14
    return values
