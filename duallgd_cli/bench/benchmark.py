"""Predict a benchmark from unlabelled spectra, then score: what `duallgd evaluate` does.

It is the predict use case with its journal, so it resumes and shards like `duallgd predict`. The
folder of the report then holds ``spectra.tsv`` (all that the prediction saw), ``truth.tsv``,
``predictions.csv`` and its journal.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli import config
from duallgd_cli.bench.accuracy import Extra
from duallgd_cli.bench.evaluate import (
    Advance,
    Choice,
    Evaluated,
    Known,
    ScoreRequest,
    make_folder,
    no_progress,
    score_predictions,
)
from duallgd_cli.bench.overlap import Training, check_leakage, similarities
from duallgd_cli.bench.rivals import analogue_predictions, random_predictions
from duallgd_cli.bench.suites.suite import Suite, write_truth, write_unlabelled
from duallgd_cli.evaluation.scoring import Scorer
from duallgd_cli.evaluation.tables import Predicted, Truth
from duallgd_cli.inference.finished import FinishedRun
from duallgd_cli.inference.generation import LoadedModel
from duallgd_cli.inference.outputs import predictions as predictions_of
from duallgd_cli.inference.predict import predict
from duallgd_cli.inference.prediction import Prediction
from duallgd_cli.inference.progress import Progress
from duallgd_cli.inference.settings import PredictRequest, PredictSettings, Shard

FORMULA_KNOWN: Final = "formula known"
FORMULA_PREDICTED: Final = "formula predicted"
ORACLE_TOP: Final = 100
SPECTRA: Final = "spectra.tsv"
TRUTH: Final = "truth.tsv"
PREDICTIONS: Final = "predictions.csv"


@dataclass(frozen=True, slots=True, eq=False)
class BenchmarkRequest:
    """A benchmark to predict and score.

    Attributes:
        suite: The benchmark.
        output: Folder of the report; made if absent.
        choice: Spectra.
        scorer: What to compute.
        settings: Of the prediction.
        formulas: Table of predicted formulas; None gives the true ones (another track).
        training: For the leakage check.
        with_rivals: Score random graphs and the nearest training analogues too.
        with_oracle: Predict from the true fingerprints too, for the decomposition of the loss.
        shard: Part of the spectra to predict; a part is not scored.
        resume: Continue an interrupted run.
        workers: Processes that assemble molecules.
    """

    suite: Suite
    output: Path
    choice: Choice = field(default_factory=Choice)
    scorer: Scorer = field(default_factory=Scorer)
    settings: PredictSettings = field(default_factory=PredictSettings)
    formulas: Path | None = None
    training: Training = field(default_factory=Training)
    with_rivals: bool = True
    with_oracle: bool = False
    shard: Shard = field(default_factory=Shard)
    resume: bool = False
    workers: int = 1

    @property
    def track(self) -> str:
        """Whether the formula is given."""
        return FORMULA_KNOWN if self.formulas is None else FORMULA_PREDICTED


def run_benchmark(
    request: BenchmarkRequest,
    model: LoadedModel,
    progress: Progress | None = None,
    advance: Advance = no_progress,
) -> Evaluated | None:
    """Predict and score a benchmark.

    Args:
        request: What to do.
        model: Predicts.
        progress: Told how the prediction goes.
        advance: Called with the number of spectra scored and of all.

    Returns:
        The evaluation, or None for a shard: its report has to wait for the others.

    Raises:
        UsageError: The weights have seen test molecules, or the request is impossible.
        UnreadableError: The benchmark cannot be read.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    truths = request.choice.truths(request.suite)
    remarks = check_leakage(truths, request.training)
    make_folder(request.output)
    write_unlabelled(
        request.suite.rows(),
        truths,
        request.output / SPECTRA,
        with_formula=request.formulas is None,
    )
    write_truth(truths, request.output / TRUTH)
    predict(_predict_request(request), model, progress)
    if request.shard.count > 1:
        return None
    run = FinishedRun([_journal(request)])
    found = list(predictions_of(run))
    known = Known(
        prediction=_record(request, model, found),
        extra=_extra(found, truths, request.training),
        rivals=_rivals(request, truths, model) if request.with_rivals else {},
        oracle=_oracle(request, truths, model) if request.with_oracle else None,
        remarks=remarks,
    )
    scored = ScoreRequest(
        predictions=request.output / PREDICTIONS,
        suite=request.suite,
        output=request.output,
        choice=request.choice,
        scorer=request.scorer,
        track=request.track,
        seed=request.settings.seed,
    )
    return score_predictions(scored, known, advance)


def _predict_request(request: BenchmarkRequest) -> PredictRequest:
    top_k = max(ORACLE_TOP, *request.scorer.top_k)
    return PredictRequest(
        inputs=(str(request.output / SPECTRA),),
        output=str(request.output / PREDICTIONS),
        formulas=request.formulas,
        # Each spectrum of a benchmark counts alone, so each is predicted alone.
        settings=replace(request.settings, top_k=top_k, group_by="none"),
        shard=request.shard,
        resume=request.resume,
        workers=request.workers,
    )


def _journal(request: BenchmarkRequest) -> Path:
    path = _predict_request(request).journal_path()
    assert path is not None  # the output is a file
    return path


def _record(
    request: BenchmarkRequest, model: LoadedModel, found: Sequence[Prediction]
) -> dict[str, Any]:
    return {
        "settings": config.dump(_predict_request(request).settings),
        "weights": {"name": model.name, "sha256": model.sha256, "record": dict(model.record)},
        "samples": _samples(found),
    }


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


def _extra(found: Sequence[Prediction], truths: Sequence[Truth], training: Training) -> Extra:
    return Extra(
        explained_peaks={
            prediction.spectrum_id: float(prediction.hypotheses[0].n_explained)
            for prediction in found
            if prediction.formula
        },
        nearest_training=similarities(truths, training.data) if training.data else {},
        confidence_top10={
            prediction.spectrum_id: prediction.confidence_top10
            for prediction in found
            if prediction.candidates
        },
    )


def _rivals(
    request: BenchmarkRequest, truths: Sequence[Truth], model: LoadedModel
) -> Mapping[str, Mapping[str, Predicted]]:
    rivals: dict[str, Mapping[str, Predicted]] = {
        "random formula-exact graphs": random_predictions(
            _predict_request(request), request.output, model.ranking
        )
    }
    top_k = max(request.scorer.top_k)
    analogues = analogue_predictions(request.suite, truths, top_k)
    if analogues:
        rivals["nearest training analogue"] = analogues
    return rivals


def _oracle(
    request: BenchmarkRequest, truths: Sequence[Truth], model: LoadedModel
) -> Mapping[str, Predicted]:
    from duallgd_cli.bench.oracle import true_fingerprint_predictions  # torch loads only here

    return true_fingerprint_predictions(_predict_request(request), request.output, truths, model)
