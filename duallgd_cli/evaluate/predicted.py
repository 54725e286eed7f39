"""What the journal of a prediction run says, beyond the structures, about the run it is of."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.accuracy import Extra
from duallgd_cli.evaluate.overlap import Training, check_leakage
from duallgd_cli.evaluate.run import Known, ScoreRequest
from duallgd_cli.predict.journal import ENDING, FinishedRun
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.output import predictions as predictions_of
from duallgd_cli.predict.output import record_path
from duallgd_cli.predict.prediction import Prediction


@dataclass(frozen=True, slots=True)
class Journalled:
    """Numbers from a finished run.

    Attributes:
        record: Settings, weights and what became of the samples, for results.json.
        extra: Numbers by spectrum.
    """

    record: Mapping[str, Any]
    extra: Extra


def journalled(run: FinishedRun, output: Path) -> Journalled:
    """Read a finished run that wrote an output; of its predictions a few numbers are kept."""
    found = list(predictions_of(run))
    model = run.header.model
    seconds = run_seconds(output)
    return Journalled(
        record={
            "settings": dict(run.header.settings),
            "weights": {"name": model.get("name"), "sha256": model.get("sha256")},
            "samples": _samples(found),
            "run_seconds_per_spectrum": None if seconds is None else seconds / max(len(found), 1),
        },
        extra=_extra(found),
    )


def run_seconds(output: Path) -> float | None:
    """Wall time of the run that wrote an output at one go; None if it was resumed or joined.

    Raises:
        UsageError: The record of the run beside it is damaged.
    """
    path = record_path(output)
    if not path.is_file():
        return None
    try:
        times = json.loads(path.read_text(encoding="utf-8"))["times"]
        return None if times.get("resumed", 1) else float(times["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no record of a run ({error}); run it again") from None


def run_beside(output: Path) -> FinishedRun | None:
    """The whole finished run, in shards or not, that wrote a table of predictions.

    None if there is none, as for the predictions of others.
    """
    try:
        return read_journals([output])
    except UsageError:
        return None


def finished_shards(output: Path) -> list[Path]:
    """Journals of shards beside an output; empty where it was not predicted in shards.

    Raises:
        UsageError: They are not all there, or not all finished.
    """
    found = sorted(output.parent.glob(f"*{ENDING}"))
    shards = [path for path in found if path.name.startswith(f"{output.name}.shard-")]
    if shards:
        read_journals(shards)
    return shards


def known_of(request: ScoreRequest, training: Training) -> Known:
    """What is known of a table of predictions: its journal if it has one, and what was trained on.

    Args:
        request: The table, of anybody, and the spectra to score.
        training: For the leakage check.

    Raises:
        UsageError: Test molecules were trained on, and that is not allowed.
    """
    checked = check_leakage(request.choice.truths(request.suite), training)
    run = run_beside(request.predictions)
    if run is None:
        return Known(checked=checked)
    found = journalled(run, request.predictions)
    return Known(prediction=found.record, extra=found.extra, checked=checked)


def _samples(found: Sequence[Prediction]) -> dict[str, float]:
    """What became of the drawn samples; every assembled one has the requested formula exactly."""
    tallies = [outcome.tallies for prediction in found for outcome in prediction.hypotheses]
    drawn = sum(tally.sampled for tally in tallies)
    seconds = [prediction.seconds for prediction in found]
    return {
        "drawn": drawn,
        "valid_share": sum(tally.assembled for tally in tallies) / max(drawn, 1),
        "repaired_share": sum(tally.repaired for tally in tallies) / max(drawn, 1),
        "formula_exact_share": sum(t.assembled + t.repaired for t in tallies) / max(drawn, 1),
        "distinct_per_spectrum": sum(tally.distinct for tally in tallies) / max(len(found), 1),
        "seconds_per_spectrum": statistics.fmean(seconds) if seconds else 0.0,
        "median_seconds_per_spectrum": statistics.median(seconds) if seconds else 0.0,
    }


def _extra(found: Sequence[Prediction]) -> Extra:
    return Extra(
        explained_peaks={
            prediction.spectrum_id: float(prediction.hypotheses[0].n_explained)
            for prediction in found
            if prediction.formula
        },
        confidence_top10={
            prediction.spectrum_id: prediction.confidence_top10
            for prediction in found
            if prediction.candidates
        },
        seconds={prediction.spectrum_id: prediction.seconds for prediction in found},
    )
