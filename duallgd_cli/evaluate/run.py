"""The evaluate use case: predictions, ours or anybody's, scored against a benchmark or a table.

A benchmark is predicted from unlabelled spectra by the predict use case with its journal, so it
resumes and shards like `duallgd predict`; once all shards are finished, the same settings with
`resume` join and score them. The folder of the report then holds ``spectra.tsv`` (all that the
prediction saw), ``truth.tsv``, ``predictions.csv`` and its journal; ``formulas.csv`` where formulas
are predicted.
"""

import json
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from duallgd_cli.checkpoint.resolve import resolve_weights
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.evaluate.baselines import (
    ANALOGUE,
    RANDOM,
    analogue_predictions,
    model_predictions,
    random_predictions,
)
from duallgd_cli.evaluate.formula_track import predicted_formulas, tried_formulas
from duallgd_cli.evaluate.leakage import TrainingHashes, check_leakage
from duallgd_cli.evaluate.report import make_folder, report, write_results
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.suites import (
    EvaluationInputs,
    Suite,
    find,
    truth_only,
    write_truth,
    write_unlabelled,
)
from duallgd_cli.evaluate.tables import Predicted, choose, truths_of, write_table
from duallgd_cli.evaluate.true_order import RELEASED_ELEMENTS, by_authors_rules, with_elements
from duallgd_cli.files import sha256
from duallgd_cli.predict import api
from duallgd_cli.predict.finished import FinishedRun
from duallgd_cli.predict.finished import read as read_journals
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.journal import ENDING, few
from duallgd_cli.predict.output import merge, record_path
from duallgd_cli.predict.output import predictions as predictions_of
from duallgd_cli.predict.prediction import Prediction
from duallgd_cli.predict.run import Progress, predict, run_header
from duallgd_cli.predict.settings import PredictRequest
from duallgd_cli.runtime import Runtime
from duallgd_cli.spectra.inputs import Inputs

ORACLE_TOP: Final = 100
SPECTRA: Final = "spectra.tsv"
TRUTH: Final = "truth.tsv"
FORMULAS: Final = "formulas.csv"
PREDICTIONS: Final = "predictions.csv"
SWEEP: Final = "sweep.tsv"
_HASHES: Final = ".train.hashes"
_OURS: Final = "the weights"
_NOT_CHECKED: Final = (
    "Overlap with training molecules was not checked: no journal beside the predictions says which "
    "weights made them; give --train-hashes, or --weights."
)

Advance = Callable[[int, int], None]


class Models(NamedTuple):
    """What predicts: the weights, others to compare them with by name, and assembling processes."""

    ours: LoadedModel
    rivals: Mapping[str, LoadedModel]
    workers: int


def evaluate(
    settings: EvaluateSettings,
    progress: Progress | None = None,
    advance: Advance = lambda done, total: None,
) -> dict[str, Any] | None:
    """Score a table of predictions, or predict a benchmark and score that; write the report.

    Args:
        settings: What to do.
        progress: Told how a prediction goes.
        advance: Called with the number of spectra scored and of all.

    Returns:
        What results.json holds, or None for a shard: its report has to wait for the others.

    Raises:
        UsageError: The weights have seen test molecules, the request is impossible, or tables do
            not belong together.
        MissingInputError: A file does not exist.
        UnreadableError: A table cannot be read.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    if settings.benchmark is None and settings.predictions is None:
        raise UsageError("nothing to predict; give --benchmark, or --predictions with --truth")
    suite = _suite(settings)
    found = truths_of(suite.rows(), settings.fold or suite.fold, suite.title)
    inputs = EvaluationInputs(
        suite=suite,
        truths=tuple(choose(found, settings.spectra_per_molecule, settings.limit)),
        predictions=settings.predictions or settings.folder / PREDICTIONS,
    )
    if settings.predictions is not None:
        return report(settings, _finished(settings, inputs), advance)
    lists = training_lists(settings)
    runtime = Runtime.resolve(settings.device, settings.precision, threads=settings.threads)
    models = Models(
        ours=api.load(settings.weights, runtime=runtime),
        rivals={name: api.load(path, runtime=runtime) for name, path in settings.rival.items()},
        workers=runtime.default_workers if settings.workers is None else settings.workers,
    )
    for model in (models.ours, *models.rivals.values()):
        if model.known:
            lists[f"the analogues in {model.name}"] = TrainingHashes.of(model.known)
    inputs = check_leakage(inputs, lists, settings)
    if settings.sweep is None:
        return _benchmark(settings, inputs, models, progress, advance)
    alone = models._replace(rivals={})
    return _swept(settings, lambda one: _benchmark(one, inputs, alone, progress, advance))


def training_lists(settings: EvaluateSettings) -> dict[str, TrainingHashes | None]:
    """Training molecules of each model, by what it is called; None where no list came with it."""
    ours = settings.train_hashes or _beside(settings.weights)
    paths = {_OURS: ours} | {f"the rival {n}": _beside(w) for n, w in settings.rival.items()}
    return {
        name: None if path is None else TrainingHashes.read(path) for name, path in paths.items()
    }


def _beside(weights: str | None, digest: str = "") -> Path | None:
    """The list of training molecules that came with the weights, if there is one.

    Args:
        weights: As `resolve_weights` takes them.
        digest: SHA-256 that they must have; "" takes any.
    """
    try:
        found = resolve_weights(weights)
    except WeightsError:
        return None  # loading them is about to say so
    path = found.with_suffix(_HASHES)
    return path if path.is_file() and (not digest or sha256(found) == digest) else None


def _suite(settings: EvaluateSettings) -> Suite:
    """What knows the truth: a benchmark by its name, or a table that says what spectra are."""
    if settings.benchmark is not None and settings.truth is None:
        return find(settings.benchmark, settings.data_dir)
    if settings.truth is not None and settings.benchmark is None:
        return truth_only(settings.truth)
    raise UsageError("give --benchmark, or --predictions with either --truth or --benchmark")


def _finished(settings: EvaluateSettings, inputs: EvaluationInputs) -> EvaluationInputs:
    """A table of predictions; of our own the journal beside it says more than the table."""
    try:
        run = read_journals([inputs.predictions])  # in shards or not
    except UsageError:
        run = None  # as for the predictions of others
    lists: dict[str, TrainingHashes | None] = {}
    if settings.train_hashes is not None or settings.weights is not None:
        lists = training_lists(settings)
    elif run is not None:
        name, digest = (str(run.header.model.get(key)) for key in ("name", "sha256"))
        found = _beside(name, digest) or _beside(None, digest)
        lists[_OURS] = None if found is None else TrainingHashes.read(found)
    inputs = check_leakage(inputs if lists else inputs.noted(_NOT_CHECKED), lists, settings)
    if run is not None:
        inputs = _with_journal(inputs, run)
    return with_elements(inputs, RELEASED_ELEMENTS) if settings.preset == "reference" else inputs


def _benchmark(
    settings: EvaluateSettings,
    inputs: EvaluationInputs,
    models: Models,
    progress: Progress | None,
    advance: Advance,
) -> dict[str, Any] | None:
    """Predict and score a benchmark; None for a shard."""
    if settings.decompose:
        from duallgd_cli.evaluate.oracle import decoder_of  # torch loads only here

        decoder_of(models.ours)  # refused before anything is predicted
    model, inputs = by_authors_rules(settings, models.ours, inputs)
    folder, with_formula = settings.folder, settings.gives_formulas
    make_folder(folder)
    rows = inputs.suite.rows()
    write_unlabelled(rows, inputs.truths, folder / SPECTRA, with_formula=with_formula)
    write_truth(inputs.truths, folder / TRUTH)
    request = _request(settings, models.workers)
    run = _predicted(request, model, progress)
    if run is None:
        return None
    track = "formula known" if with_formula else "formula predicted"
    inputs = replace(inputs, predictions=folder / PREDICTIONS, track=track)
    inputs = _with_journal(inputs, run)
    if settings.formulas is not None:
        inputs = replace(inputs, formulas=tried_formulas(list(predictions_of(run))))
    elif not with_formula:
        search = settings.prediction.formula_search
        ranked = predicted_formulas(folder / SPECTRA, folder / FORMULAS, search)
        inputs = replace(inputs, formulas=ranked)
    record = {
        **inputs.record,
        "weights": {"name": model.name, "sha256": model.sha256, "record": dict(model.record)},
        "preset": settings.preset,
        "atom_order": settings.atom_order,
    }
    rivals = _rivals(settings, inputs, request, models._replace(ours=model))
    oracle = None
    if settings.decompose:
        from duallgd_cli.evaluate.oracle import true_fingerprint_predictions

        oracle = true_fingerprint_predictions(request, folder, inputs.truths, model)
    return report(settings, replace(inputs, record=record, rivals=rivals, oracle=oracle), advance)


def _request(settings: EvaluateSettings, workers: int) -> PredictRequest:
    top_k = max(ORACLE_TOP, *settings.top_k)
    return PredictRequest(
        inputs=(str(settings.folder / SPECTRA),),
        output=str(settings.folder / PREDICTIONS),
        formulas=settings.formulas,
        # Each spectrum of a benchmark counts alone, so each is predicted alone.
        settings=replace(settings.prediction, top_k=top_k, group_by="none"),
        shard=settings.shard,
        resume=settings.resume,
        workers=workers,
    )


def _predicted(
    request: PredictRequest, model: LoadedModel, progress: Progress | None
) -> FinishedRun | None:
    """Predict what is not predicted yet; None for a shard."""
    output = Path(request.output)
    if request.resume and request.shard.count == 1:
        found = sorted(output.parent.glob(f"*{ENDING}"))
        shards = [path for path in found if path.name.startswith(f"{output.name}.shard-")]
        if shards:
            read_journals(shards)  # refuses what is not all there, or not all finished
            _require_same(FinishedRun(shards), request, model)
            merge(shards, request.output)
            return FinishedRun(shards)
    predict(request, model, progress)
    journal = request.journal_path()
    assert journal is not None  # the output is a file
    return FinishedRun([journal]) if request.shard.count == 1 else None


def _require_same(run: FinishedRun, request: PredictRequest, model: LoadedModel) -> None:
    with Inputs(request.inputs) as inputs:
        wanted = run_header(request, model, inputs)
    changed = run.header.differences(replace(wanted, shard=run.header.shard))
    if changed:
        raise UsageError(
            f"the finished shards of {request.output} are of a different run: {few(changed)}; "
            "give another folder with -o"
        )


def _rivals(
    settings: EvaluateSettings, inputs: EvaluationInputs, request: PredictRequest, models: Models
) -> dict[str, Mapping[str, Predicted]]:
    rivals: dict[str, Mapping[str, Predicted]] = {
        name: model_predictions(request, settings.folder, name, rival)
        for name, rival in models.rivals.items()
    }
    if settings.rivals:
        rivals[RANDOM] = random_predictions(request, settings.folder, models.ours.ranking)
        n_candidates = max(settings.top_k)
        analogues = analogue_predictions(inputs.suite, inputs.truths, n_candidates)
        if analogues:
            rivals[ANALOGUE] = analogues
    return rivals


def _with_journal(inputs: EvaluationInputs, run: FinishedRun) -> EvaluationInputs:
    """What a finished run says, beyond the structures, about itself and every spectrum."""
    found = list(predictions_of(run))
    seconds = _run_seconds(inputs.predictions)
    record = {
        "settings": dict(run.header.settings),
        "weights": {name: run.header.model.get(name) for name in ("name", "sha256")},
        "samples": _samples(found),
        "run_seconds_per_spectrum": None if seconds is None else seconds / max(len(found), 1),
    }
    notes = {
        **inputs.notes,
        "explained_peaks": {
            one.spectrum_id: float(one.hypotheses[0].n_explained) for one in found if one.formula
        },
        "confidence_top10": {
            one.spectrum_id: one.confidence_top10 for one in found if one.candidates
        },
        "seconds": {one.spectrum_id: one.seconds for one in found},
    }
    return replace(inputs, record=record, notes=notes)


def _run_seconds(output: Path) -> float | None:
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


def _swept(
    settings: EvaluateSettings, evaluate_one: Callable[[EvaluateSettings], dict[str, Any] | None]
) -> dict[str, Any]:
    """Evaluate every value in a folder of its own; report the last with all values compared.

    Returns:
        What results.json of the sweep holds.
    """
    assert settings.sweep is not None
    make_folder(settings.folder)
    setting, values = settings.sweep
    runs = []
    for value in values:
        one = _with_value(settings, setting, value)
        found = evaluate_one(one)
        assert found is not None  # no shard
        runs.append(found)
    # Those that a report writes; the spectra and their truth lie in the folder of each value.
    for path in one.folder.glob("*.tsv"):
        if path.name not in (SPECTRA, TRUTH):
            shutil.copyfile(path, settings.folder / path.name)
    rows = _compared(values, runs)
    write_table(settings.folder / SWEEP, _table_rows(rows), runs[-1]["track"])
    found = {**runs[-1], "sweep": {"setting": setting, "rows": rows}}
    write_results(settings.folder, found)
    return found


def _with_value(settings: EvaluateSettings, setting: str, value: int) -> EvaluateSettings:
    """The settings of one value of a sweep: a folder of its own, and no rivals."""
    before = settings.prediction.sampling
    sampling = (
        replace(before, steps=value) if setting == "steps" else replace(before, samples=value)
    )
    return replace(
        settings,
        out=settings.folder / f"{setting}-{value}",
        prediction=replace(settings.prediction, sampling=sampling),
        rivals=False,
        decompose=False,
    )


def _compared(values: Sequence[int], runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Speed-up, in seconds a spectrum relative to the slowest value, and quality of every value."""
    predictions = [run["prediction"] for run in runs]
    # Of the clock where every run went through at one go; else the mean of the spectra's own
    # times, which overlap where one is assembled while the next is drawn.
    seconds = [prediction["run_seconds_per_spectrum"] for prediction in predictions]
    if None in seconds:
        seconds = [prediction["samples"]["seconds_per_spectrum"] for prediction in predictions]
    rows: list[dict[str, Any]] = [
        {
            "value": value,
            "seconds_per_spectrum": taken,
            "speed_up": max(seconds) / taken if taken > 0 else 1.0,
            "metrics": {
                name: ways["per_spectrum"] for name, ways in run["metrics"].items() if "@" in name
            },
        }
        for value, taken, run in zip(values, seconds, runs, strict=True)
    ]
    fronts = {name: front(rows, name) for name in rows[0]["metrics"]}
    return [
        {**row, "on_front": [name for name, on in fronts.items() if row["value"] in on]}
        for row in rows
    ]


def front(rows: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    """Values on the Pareto front of speed and one metric: no faster value is as good.

    Args:
        rows: With ``value``, ``speed_up`` and the means of ``metrics``.
        name: Of the metric; distances are better the smaller they are.
    """
    sign = -1.0 if "mces" in name else 1.0
    best, values = float("-inf"), []
    for row in sorted(rows, key=lambda row: -row["speed_up"]):
        quality = sign * row["metrics"][name]["mean"]
        if quality > best:
            best = quality
            values.append(row["value"])
    return values


def _table_rows(rows: Sequence[Mapping[str, Any]]) -> Iterable[list[object]]:
    names = list(rows[0]["metrics"])
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    yield ["value", "seconds_per_spectrum", "speed_up", "on_front", *ends]
    for row in rows:
        values = [row["metrics"][name][end] for name in names for end in ("mean", "low", "high")]
        cells = [row["value"], row["seconds_per_spectrum"], row["speed_up"]]
        yield [*cells, ",".join(row["on_front"]), *values]
