"""Predict a benchmark from unlabelled spectra, then score: what `duallgd evaluate` does.

It is the predict use case with its journal, so it resumes and shards like `duallgd predict`; once
all shards are finished, the same request with `resume` joins and scores them. The folder of the
report then holds ``spectra.tsv`` (all that the prediction saw), ``truth.tsv``, ``predictions.csv``
and its journal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.baselines import (
    ANALOGUE,
    RANDOM,
    analogue_predictions,
    model_predictions,
    random_predictions,
)
from duallgd_cli.evaluate.leakage import TrainingHashes
from duallgd_cli.evaluate.overlap import Checked, Training, check_leakage
from duallgd_cli.evaluate.predicted import finished_shards, journalled
from duallgd_cli.evaluate.protocol import Protocol
from duallgd_cli.evaluate.run import (
    FORMULA_KNOWN,
    FORMULA_PREDICTED,
    Advance,
    Choice,
    Evaluated,
    Known,
    ScoreRequest,
    make_folder,
    no_progress,
    score_predictions,
)
from duallgd_cli.evaluate.scoring import Scorer
from duallgd_cli.evaluate.suites.suite import Suite, write_truth, write_unlabelled
from duallgd_cli.evaluate.tables import Predicted, Truth
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.inputs import Inputs
from duallgd_cli.predict.journal import FinishedRun, few
from duallgd_cli.predict.output import merge
from duallgd_cli.predict.run import Progress, predict, run_header
from duallgd_cli.predict.settings import PredictRequest, PredictSettings, Shard

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
        rivals: Other weights to score beside, by name.
        with_oracle: Predict from the true fingerprints too, for the decomposition of the loss.
        shard: Part of the spectra to predict; a part is not scored.
        resume: Continue an interrupted run; finished shards of it are joined.
        workers: Processes that assemble molecules.
        protocol: By whose rules.
    """

    suite: Suite
    output: Path
    choice: Choice = field(default_factory=Choice)
    scorer: Scorer = field(default_factory=Scorer)
    settings: PredictSettings = field(default_factory=PredictSettings)
    formulas: Path | None = None
    training: Training = field(default_factory=Training)
    with_rivals: bool = True
    rivals: Mapping[str, LoadedModel] = field(default_factory=dict)
    with_oracle: bool = False
    shard: Shard = field(default_factory=Shard)
    resume: bool = False
    workers: int = 1
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        if self.protocol.tells_order and self.formulas is not None:
            raise UsageError(
                "--atom-order truth and --formulas exclude each other: the true order is that of "
                "the true formula's atoms"
            )

    @property
    def track(self) -> str:
        """Whether the formula is given."""
        return FORMULA_KNOWN if self.formulas is None else FORMULA_PREDICTED


def check(request: BenchmarkRequest, model: LoadedModel) -> Checked:
    """The spectra of a request, after the check of what the weights have seen or hold.

    Raises:
        UsageError: The weights have seen test molecules, or there is no such fold.
        UnreadableError: The benchmark cannot be read.
    """
    held = {
        f"the analogues in {one.name}": TrainingHashes.of(one.known)
        for one in (model, *request.rivals.values())
        if one.known
    }
    training = replace(request.training, hashes={**request.training.hashes, **held})
    return check_leakage(request.choice.truths(request.suite), training)


def run_benchmark(
    request: BenchmarkRequest,
    model: LoadedModel,
    progress: Progress | None = None,
    advance: Advance = no_progress,
    checked: Checked | None = None,
) -> Evaluated | None:
    """Predict and score a benchmark.

    Args:
        request: What to do.
        model: Predicts.
        progress: Told how the prediction goes.
        advance: Called with the number of spectra scored and of all.
        checked: The spectra, if `check` was asked already.

    Returns:
        The evaluation, or None for a shard: its report has to wait for the others.

    Raises:
        UsageError: The weights have seen test molecules, or the request is impossible.
        UnreadableError: The benchmark cannot be read.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    if request.with_oracle:
        _require_decoder(model)
    model, checked = request.protocol.applied(model, checked or check(request, model))
    truths = checked.truths
    make_folder(request.output)
    write_unlabelled(
        request.suite.rows(),
        truths,
        request.output / SPECTRA,
        with_formula=request.formulas is None,
    )
    write_truth(truths, request.output / TRUTH)
    run = _predicted(request, model, progress)
    if run is None:
        return None
    found = journalled(run, request.output / PREDICTIONS)
    weights = {"name": model.name, "sha256": model.sha256, "record": dict(model.record)}
    known = Known(
        prediction={
            **found.record,
            "weights": weights,
            "preset": request.protocol.preset,
            "atom_order": request.protocol.atom_order,
        },
        extra=found.extra,
        checked=checked,
        rivals=_rivals(request, truths, model),
        oracle=_oracle(request, truths, model) if request.with_oracle else None,
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


def _predicted(
    request: BenchmarkRequest, model: LoadedModel, progress: Progress | None
) -> FinishedRun | None:
    """Predict what is not predicted yet; None for a shard."""
    asked = _predict_request(request)
    output = request.output / PREDICTIONS
    if request.resume and request.shard.count == 1:
        shards = finished_shards(output)
        if shards:
            _require_same(FinishedRun(shards), asked, model)
            merge(shards, str(output))
            return FinishedRun(shards)
    predict(asked, model, progress)
    journal = asked.journal_path()
    assert journal is not None  # the output is a file
    return FinishedRun([journal]) if request.shard.count == 1 else None


def _require_same(run: FinishedRun, asked: PredictRequest, model: LoadedModel) -> None:
    with Inputs(asked.inputs) as inputs:
        wanted = run_header(asked, model, inputs)
    changed = run.header.differences(replace(wanted, shard=run.header.shard))
    if changed:
        raise UsageError(
            f"the finished shards of {asked.output} are of a different run: {few(changed)}; "
            "give another folder with -o"
        )


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


def _rivals(
    request: BenchmarkRequest, truths: Sequence[Truth], model: LoadedModel
) -> Mapping[str, Mapping[str, Predicted]]:
    asked = _predict_request(request)
    rivals: dict[str, Mapping[str, Predicted]] = {
        name: model_predictions(asked, request.output, name, rival)
        for name, rival in request.rivals.items()
    }
    if request.with_rivals:
        rivals[RANDOM] = random_predictions(asked, request.output, model.ranking)
        analogues = analogue_predictions(request.suite, truths, max(request.scorer.top_k))
        if analogues:
            rivals[ANALOGUE] = analogues
    return rivals


def _require_decoder(model: LoadedModel) -> None:
    """Refuse, before anything is predicted, a decomposition that cannot be made."""
    from duallgd_cli.bench.oracle import decoder_of  # torch loads only here

    decoder_of(model)


def _oracle(
    request: BenchmarkRequest, truths: Sequence[Truth], model: LoadedModel
) -> Mapping[str, Predicted]:
    from duallgd_cli.bench.oracle import true_fingerprint_predictions  # torch loads only here

    return true_fingerprint_predictions(_predict_request(request), request.output, truths, model)
