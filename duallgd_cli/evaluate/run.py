"""The evaluate use case: predictions, ours or anybody's, scored against a benchmark or a table.

A benchmark is predicted from unlabelled spectra by the predict use case with its journal, so it
resumes like `duallgd predict`. The folder of the report then holds ``spectra.tsv`` (all that the
prediction saw), ``truth.tsv``, ``predictions.csv`` and its journal. A prediction in shards is one
of `duallgd predict`, whose joined output is scored.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.evaluate import MASSSPECGYM
from duallgd_cli.evaluate.leakage import TrainingHashes, leave_out_trained
from duallgd_cli.evaluate.report import report, report_files
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import (
    EvaluationInputs,
    choose,
    massspecgym,
    rows_of,
    truths_of,
    write_truth,
    write_unlabelled,
)
from duallgd_cli.files import claim, sha256
from duallgd_cli.predict import api
from duallgd_cli.predict.journal import FinishedRun
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.run import Progress, claim_run, files_of_runs, predict
from duallgd_cli.predict.run import predictions as predictions_of
from duallgd_cli.predict.settings import PredictRequest
from duallgd_cli.results import Prediction
from duallgd_cli.runtime import Runtime
from duallgd_cli.sources.database import read_analogues
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.tables import table_rows

_ORACLE_TOP: Final = 100
SPECTRA: Final = "spectra.tsv"
TRUTH: Final = "truth.tsv"
PREDICTIONS: Final = "predictions.csv"
_LABELLED: Final = ("smiles", "mzs", "intensities", "precursor_mz")
_OURS: Final = "the training molecules of the weights"
_CHOSEN: Final = "Candidates were chosen from a database: structures that it lacks are not found."
_GIVEN: Final = "The run was given molecules; whether test molecules are among them is not checked."
_NOT_CHECKED: Final = (
    "Overlap with training molecules was not checked: no journal beside the predictions says which "
    "weights made them; give --train-hashes, or --weights."
)


def evaluate(settings: EvaluateSettings, progress: Progress | None = None) -> dict[str, Any]:
    """Score a table of predictions, or predict a benchmark and score that; write the report.

    Returns:
        What results.json holds.

    Raises:
        UsageError: The weights have seen all test molecules, the request is impossible, or tables
            do not belong together.
        MissingInputError: A table does not exist.
        UnreadableError: It cannot be read.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    inputs = inputs_of(settings)
    claim_files(settings, inputs)
    if settings.predictions is not None:
        _look_at_finished(settings, inputs)
    else:
        predict_inputs(settings, inputs, progress)
    return report(settings, inputs)


def inputs_of(settings: EvaluateSettings) -> EvaluationInputs:
    """The spectra to score, as the benchmark or the table of the truth says what they are."""
    benchmark, fold = settings.benchmark, settings.fold
    if benchmark is None and settings.predictions is None:
        raise UsageError("nothing to predict; give --benchmark, or --predictions with --truth")
    source = benchmark or settings.truth
    if benchmark is not None and str(benchmark).lower() == MASSSPECGYM:
        source, fold = massspecgym(), fold or "test"
    if source is None or (benchmark is not None and settings.truth is not None):
        raise UsageError("give --benchmark, or --predictions with either --truth or --benchmark")
    needed = ("smiles",) if benchmark is None else _LABELLED
    what = "the truth" if benchmark is None else "a benchmark"
    sentence = f"{what} is a table with the columns {', '.join(('identifier', *needed))}"
    listed = truths_of(rows_of(source, needed, sentence), fold, source.name)
    return EvaluationInputs(
        source=source,
        fold=fold,
        truths=choose(listed, settings.spectra_per_molecule, settings.limit),
        predictions=settings.predictions or settings.folder / PREDICTIONS,
    )


def claim_files(settings: EvaluateSettings, inputs: EvaluationInputs) -> None:
    """Refuse to lose a file; see `files.claim`."""
    folder = settings.folder
    single = (inputs.source, settings.predictions, settings.train_hashes, settings.config)
    read: list[str | Path] = [path for path in (*single, *settings.train_data) if path is not None]
    with suppress(WeightsError):  # loading them says so
        read.append(resolve_weights(settings.weights))
    written: dict[str, str | Path] = dict(report_files(folder))
    if settings.predictions is not None:
        with suppress(UsageError):  # predictions of others have no journal
            read += files_of_runs([settings.predictions])
        claim(written, read, force=settings.force, makes_folders=True)
        return
    written["the unlabelled spectra"] = folder / SPECTRA
    written["the table of the truth"] = folder / TRUTH
    request = replace(_request(settings, 1), inputs=(str(inputs.source),))
    claim_run(request, written, read, makes_folders=True)


def _training_list(settings: EvaluateSettings) -> dict[str, TrainingHashes | None]:
    """Training molecules of the weights, by what these are called; None where no list came."""
    path = settings.train_hashes or _beside(settings.weights)
    return {_OURS: None if path is None else TrainingHashes.read(path)}


def _beside(weights: str | None, digest: str = "") -> Path | None:
    """The list of training molecules that came with weights, of the SHA-256 that is given."""
    try:
        file = resolve_weights(weights)
    except WeightsError:
        return None  # loading them is about to say so
    path = file.with_suffix(".train.hashes")
    return path if path.is_file() and (not digest or sha256(file) == digest) else None


def _look_at_finished(settings: EvaluateSettings, inputs: EvaluationInputs) -> None:
    """A table of predictions; of our own the journal beside it says more than the table."""
    try:
        run = read_journals([inputs.predictions])  # in shards or not
    except UsageError:
        run = None  # as for the predictions of others
    lists: dict[str, TrainingHashes | None] = {}
    if settings.train_hashes is not None or settings.weights is not None:
        lists = _training_list(settings)
    elif run is not None:
        name, digest = (str(run.header.model.get(key)) for key in ("name", "sha256"))
        path = _beside(name, digest) or _beside(None, digest)
        lists[_OURS] = None if path is None else TrainingHashes.read(path)
    else:
        inputs.remark(_NOT_CHECKED)
    leave_out_trained(inputs, lists, settings.train_data)
    if run is not None:
        _take_journal(inputs, run)
        if run.header.settings.keys() & asdict(GuideFiles()).keys():
            inputs.remark(_GIVEN)


def predict_inputs(
    settings: EvaluateSettings,
    inputs: EvaluationInputs,
    progress: Progress | None = None,
    model: LoadedModel | None = None,
) -> None:
    """Predict the spectra, where that is not done yet; see `evaluate`."""
    lists = _training_list(settings)
    runtime = Runtime.resolve(settings.device, settings.precision, threads=settings.threads)
    model = model or api.load(settings.weights, runtime=runtime)
    if model.known:
        lists[f"the known molecules in {model.name}"] = TrainingHashes.of(model.known)
    for name in settings.analogues:
        blocks = read_analogues(Path(name)).isomers(truth.smiles for truth in inputs.truths)
        lists[f"the analogues of {name} that have a formula of theirs"] = TrainingHashes.of(blocks)
    leave_out_trained(inputs, lists, settings.train_data)
    folder, with_formula = settings.folder, settings.prediction.formula is None
    folder.mkdir(parents=True, exist_ok=True)
    rows = table_rows(inputs.source)
    write_unlabelled(rows, inputs.truths, folder / SPECTRA, with_formula=with_formula)
    write_truth(inputs.truths, folder / TRUTH)
    request = _request(settings, settings.workers or runtime.default_workers)
    predict(replace(request, force=True), model, progress)  # it was claimed before
    journal = request.journal_path()
    assert journal is not None  # the output is a file
    inputs.track = "formula known" if with_formula else "formula predicted"
    predictions = _take_journal(inputs, read_journals([journal]))
    inputs.record["weights"]["record"] = dict(model.record)
    if settings.databases and settings.prediction.sampling.database_share == 1:
        inputs.remark(_CHOSEN)
    if not with_formula:
        inputs.formulas = tried_formulas(predictions)


def _request(settings: EvaluateSettings, workers: int) -> PredictRequest:
    """What is asked of `predict`."""
    top_k = max(_ORACLE_TOP, *settings.top_k)
    guide = GuideFiles(analogues=settings.analogues, databases=settings.databases)
    return PredictRequest(
        inputs=(str(settings.folder / SPECTRA),),
        output=str(settings.folder / PREDICTIONS),
        # Each spectrum of a benchmark counts alone, so each is predicted alone.
        settings=replace(settings.prediction, top_k=top_k, group_by="none"),
        guide=guide if guide != GuideFiles() else None,
        resume=settings.resume,
        workers=workers,
        force=settings.force,
    )


def tried_formulas(predictions: Iterable[Prediction]) -> dict[str, list[str]]:
    """The formulas under which structures were drawn, by spectrum, the most probable first."""
    ranked = {}
    for prediction in predictions:
        by_prior = sorted(prediction.hypotheses, key=lambda hypothesis: -hypothesis.log_prior)
        formulas = (hypothesis.formula for hypothesis in by_prior if hypothesis.formula)
        ranked[prediction.spectrum_id] = list(dict.fromkeys(formulas))
    return ranked


def _take_journal(inputs: EvaluationInputs, run: FinishedRun) -> list[Prediction]:
    """What a finished run says, beyond the structures, about itself and every spectrum."""
    predictions = list(predictions_of(run))
    if remark := run.header.model.get("remark"):
        inputs.remark(str(remark))
    tallies = [tally for prediction in predictions for tally in prediction.hypotheses]
    drawn, count = sum(tally.sampled for tally in tallies), max(len(predictions), 1)
    inputs.record = {
        "settings": dict(run.header.settings),
        "weights": {name: run.header.model.get(name) for name in ("name", "sha256")},
        "samples": {  # every assembled one has the requested formula exactly
            "drawn": drawn,
            "valid_share": sum(tally.assembled for tally in tallies) / max(drawn, 1),
            "repaired_share": sum(tally.repaired for tally in tallies) / max(drawn, 1),
            "distinct_per_spectrum": sum(tally.distinct for tally in tallies) / count,
            "seconds_per_spectrum": sum(one.seconds for one in predictions) / count,
        },
    }
    for one in predictions:
        noted = {"seconds": one.seconds}
        if one.formula:
            noted["explained_peaks"] = float(one.hypotheses[0].n_explained)
        if one.candidates:
            noted["confidence_top10"] = one.confidence_top10
        for name, value in noted.items():
            inputs.notes.setdefault(name, {})[one.spectrum_id] = value
    return predictions
