"""The evaluate use case: predictions, ours or anybody's, scored against a benchmark or a table.

A benchmark is predicted from unlabelled spectra by the predict use case with its journal, so it
resumes and shards like `duallgd predict`; once all shards are finished, the same settings with
`resume` join and score them. The folder of the report then holds ``spectra.tsv`` (all that the
prediction saw), ``truth.tsv``, ``predictions.csv`` and its journal; ``formulas.csv`` where formulas
are predicted.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.errors import UsageError, WeightsError
from duallgd_cli.evaluate.groups import RANKS
from duallgd_cli.evaluate.leakage import TrainingHashes, check_leakage
from duallgd_cli.evaluate.report import make_folder, report, report_files
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.suites import EvaluationInputs, Suite, find, write_truth, write_unlabelled
from duallgd_cli.evaluate.tables import choose, truths_of
from duallgd_cli.files import claim, sha256
from duallgd_cli.formulas import FormulaSettings
from duallgd_cli.formulas.rows import write_formulas
from duallgd_cli.predict import api
from duallgd_cli.predict.journal import ENDING, FinishedRun
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.run import (
    JOURNAL,
    OUTPUT,
    RECORD,
    Progress,
    claim_run,
    files_of_runs,
    merge,
    predict,
    run_header,
)
from duallgd_cli.predict.run import predictions as predictions_of
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.results import Prediction
from duallgd_cli.runtime import Runtime
from duallgd_cli.sources.known import GuideFiles
from duallgd_cli.sources.structures import Analogues
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.tables import table_rows

ORACLE_TOP: Final = 100
SPECTRA: Final = "spectra.tsv"
TRUTH: Final = "truth.tsv"
FORMULAS: Final = "formulas.csv"
PREDICTIONS: Final = "predictions.csv"
# Outputs, as messages name them.
_BLIND, _KEY, _CACHE = "the unlabelled spectra", "the table of the truth", "the MCES cache"
_HASHES: Final = ".train.hashes"
_OURS: Final = "the training molecules of the weights"
TRUE_ORDER: Final = (
    "TRUE ATOM ORDER: the network was shown the atoms in the order of the true molecule's "
    "canonical SMILES, as in the authors' tests; the order tells part of the answer and is not "
    "known of an unlabelled spectrum."
)
_CHOSEN: Final = "Candidates were chosen from a database: structures that it lacks are not found."
_GIVEN: Final = "The run was given molecules; whether test molecules are among them is not checked."
_NOT_CHECKED: Final = (
    "Overlap with training molecules was not checked: no journal beside the predictions says which "
    "weights made them; give --train-hashes, or --weights."
)


def evaluate(settings: EvaluateSettings, progress: Progress | None = None) -> dict[str, Any] | None:
    """Score a table of predictions, or predict a benchmark and score that; write the report.

    Returns:
        What results.json holds, or None for a shard: its report has to wait for the others.

    Raises:
        UsageError: The weights have seen test molecules, the request is impossible, or tables do
            not belong together.
        MissingInputError: A file does not exist.
        UnreadableError: A table cannot be read.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    inputs = inputs_of(settings)
    claim_files(settings, inputs)
    if settings.predictions is not None:
        _look_at_finished(settings, inputs)
    elif not predict_inputs(settings, inputs, progress):
        return None
    return report(settings, inputs)


def claim_files(settings: EvaluateSettings, inputs: EvaluationInputs) -> None:
    """Refuse to lose a file; see `files.claim`.

    Raises:
        UsageError: A file would be lost or cannot be written.
    """
    folder, is_shard = settings.folder, settings.shard.count > 1
    single = {
        "predictions": settings.predictions,
        "truth": settings.truth,
        "list of training molecules": settings.train_hashes,
        "settings": settings.config,
    }
    with suppress(WeightsError):  # loading them says so
        single["weights"] = resolve_weights(settings.weights)
    read: list[tuple[str, str | Path]] = [
        *(("an input, the benchmark", path) for path in inputs.suite.files),
        *((f"an input, the {kind}", path) for kind, path in single.items() if path is not None),
        *(("an input, the training molecules", path) for path in settings.train_data),
    ]
    written: dict[str, str | Path] = {} if is_shard else dict(report_files(folder))
    own: list[str] = []
    if settings.mces and settings.mces_cache is not None:
        written[_CACHE] = settings.mces_cache
        own.append(_CACHE)
    if settings.predictions is not None:
        with suppress(UsageError):  # predictions of others have no journal
            read += files_of_runs([settings.predictions])
        claim(written, read, force=settings.force, own=own, makes_folders=True)
        return
    given = {_BLIND: folder / SPECTRA, _KEY: folder / TRUTH}
    if settings.formulas is None and settings.prediction.formula is not None:
        written["the predicted formulas"] = folder / FORMULAS
    if is_shard:
        own += given  # another may have written the same
    elif settings.resume and any(folder.glob(f"{PREDICTIONS}*{ENDING}")):
        own += [*written, *given, OUTPUT, RECORD, JOURNAL]
    request = replace(_request(settings, 1), inputs=tuple(map(str, inputs.suite.files)))
    claim_run(request, written | given, read, own, makes_folders=True)


def inputs_of(settings: EvaluateSettings) -> EvaluationInputs:
    """The spectra to score, as the benchmark or the table of the truth says what they are.

    Raises:
        UsageError: The request is impossible, or its tables do not belong together.
        MissingInputError: A file does not exist.
        UnreadableError: A table cannot be read.
    """
    if settings.benchmark is None and settings.predictions is None:
        raise UsageError("nothing to predict; give --benchmark, or --predictions with --truth")
    truth = settings.truth
    if settings.benchmark is not None and truth is None:
        suite = find(settings.benchmark, settings.data_dir)
    elif truth is not None and settings.benchmark is None:
        suite = Suite(truth.name, (truth,), lambda: table_rows(truth, required=("smiles",)))
    else:
        raise UsageError("give --benchmark, or --predictions with either --truth or --benchmark")
    found = truths_of(suite.rows(), settings.fold or suite.fold, suite.title)
    return EvaluationInputs(
        suite=suite,
        truths=choose(found, settings.spectra_per_molecule, settings.limit),
        predictions=settings.predictions or settings.folder / PREDICTIONS,
    )


def _training_list(settings: EvaluateSettings) -> dict[str, TrainingHashes | None]:
    """Training molecules of the weights, by what these are called; None where no list came."""
    path = settings.train_hashes or _beside(settings.weights)
    return {_OURS: None if path is None else TrainingHashes.read(path)}


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
        found = _beside(name, digest) or _beside(None, digest)
        lists[_OURS] = None if found is None else TrainingHashes.read(found)
    else:
        inputs.remark(_NOT_CHECKED)
    check_leakage(inputs, lists, settings)
    if run is not None:
        _take_journal(inputs, run)
        if run.header.settings.keys() & asdict(GuideFiles()).keys():
            inputs.remark(_GIVEN)
    rows = table_rows(inputs.predictions, required=("smiles",))
    if any(TRUE_ORDER in row.get("message", "") for row in rows):
        inputs.remark(TRUE_ORDER)


def predict_inputs(
    settings: EvaluateSettings,
    inputs: EvaluationInputs,
    progress: Progress | None = None,
    model: LoadedModel | None = None,
) -> bool:
    """Predict the spectra; False for a shard.

    Raises:
        UsageError: The weights have seen test molecules, or the request is impossible.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    lists = _training_list(settings)
    runtime = Runtime.resolve(settings.device, settings.precision, threads=settings.threads)
    model = model or api.load(settings.weights, runtime=runtime)
    if model.known:
        lists[f"the known molecules in {model.name}"] = TrainingHashes.of(model.known)
    for name in settings.analogues:
        blocks = Analogues.read(Path(name)).isomers(truth.smiles for truth in inputs.truths)
        lists[f"the analogues of {name} that have a formula of theirs"] = TrainingHashes.of(blocks)
    check_leakage(inputs, lists, settings)
    folder = settings.folder
    with_formula = settings.formulas is None and settings.prediction.formula is None
    make_folder(folder)
    shared = settings.shard.count > 1 and not settings.force
    rows, truths = inputs.suite.rows(), inputs.truths
    blind = partial(write_unlabelled, rows, truths, with_formula=with_formula)
    for name, write in ((SPECTRA, blind), (TRUTH, partial(write_truth, truths))):
        _write(folder / name, write, shared=shared)
    workers = runtime.default_workers if settings.workers is None else settings.workers
    request = _request(settings, workers)
    run = _predicted(request, model, progress)
    if run is None:
        return False
    inputs.track = "formula known" if with_formula else "formula predicted"
    found = _take_journal(inputs, run)
    inputs.record["weights"]["record"] = dict(model.record)
    if settings.databases and settings.prediction.sampling.database_share == 1:
        inputs.remark(_CHOSEN)
    if settings.formulas is not None:
        inputs.formulas = tried_formulas(found)
    elif not with_formula:
        search = settings.prediction.formula_search
        inputs.formulas = predicted_formulas(folder / SPECTRA, folder / FORMULAS, search)
    return True


def _write(path: Path, write: Callable[[Path], None], *, shared: bool) -> None:
    """Write a file; one that all shards write may be there, but must be the same."""
    if not (shared and path.exists()):
        write(path)
        return
    with TemporaryDirectory(prefix="duallgd-") as aside:
        fresh = Path(aside) / path.name
        write(fresh)
        if sha256(fresh) != sha256(path):
            raise UsageError(
                f"{path} exists and is of another evaluation; name another folder with -o, or add "
                "--force to replace it"
            )


def _request(settings: EvaluateSettings, workers: int) -> PredictRequest:
    top_k = max(ORACLE_TOP, *settings.top_k)
    guide = GuideFiles(analogues=settings.analogues, databases=settings.databases)
    return PredictRequest(
        inputs=(str(settings.folder / SPECTRA),),
        output=str(settings.folder / PREDICTIONS),
        formulas=settings.formulas,
        # Each spectrum of a benchmark counts alone, so each is predicted alone.
        settings=replace(settings.prediction, top_k=top_k, group_by="none"),
        guide=guide if guide != GuideFiles() else None,
        shard=settings.shard,
        resume=settings.resume,
        workers=workers,
        force=settings.force,
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
            run = read_journals(shards)  # refuses what is not all there, or not all finished
            with Inputs(request.inputs) as inputs:
                wanted = run_header(request, model, inputs)
            changed = run.header.differences(replace(wanted, shard=run.header.shard))
            if changed:
                raise UsageError(
                    f"the finished shards of {request.output} are of a different run: {changed}; "
                    "give another folder with -o"
                )
            merge(shards, request.output)
            return run
    predict(replace(request, force=True), model, progress)  # it was claimed before
    journal = request.journal_path()
    assert journal is not None  # the output is a file
    return FinishedRun([journal]) if request.shard.count == 1 else None


def predicted_formulas(
    spectra: Path, output: Path, settings: FormulaSettings
) -> dict[str, list[str]]:
    """The ten most probable formulas of every spectrum, as `duallgd formulas` writes them.

    Returns:
        Formulas by spectrum, best first; a formula with several adducts stands at its best rank.
    """
    asked = PredictSettings(top_k=max(RANKS), group_by="none", formula_search=settings)
    write_formulas(PredictRequest((str(spectra),), str(output), "csv", settings=asked, force=True))
    found: dict[str, list[str]] = {}
    for row in table_rows(output, required=("spectrum_id", "formula")):
        found.setdefault(row["spectrum_id"], []).append(row["formula"])
    return {name: list(dict.fromkeys(filter(None, ranked))) for name, ranked in found.items()}


def tried_formulas(predictions: Sequence[Prediction]) -> dict[str, list[str]]:
    """The formulas under which structures were drawn, by spectrum, the likeliest first."""
    found = {}
    for one in predictions:
        likeliest = sorted(one.hypotheses, key=lambda tried: -tried.log_prior)
        named = (tried.formula for tried in likeliest if tried.formula)
        found[one.spectrum_id] = list(dict.fromkeys(named))
    return found


def _take_journal(inputs: EvaluationInputs, run: FinishedRun) -> list[Prediction]:
    """What a finished run says, beyond the structures, about itself and every spectrum."""
    found = list(predictions_of(run))
    if remark := run.header.model.get("remark"):
        inputs.remark(str(remark))
    inputs.record = {
        "settings": dict(run.header.settings),
        "weights": {name: run.header.model.get(name) for name in ("name", "sha256")},
        "samples": _samples(found),
    }
    inputs.notes |= {
        "explained_peaks": {
            one.spectrum_id: float(one.hypotheses[0].n_explained) for one in found if one.formula
        },
        "confidence_top10": {
            one.spectrum_id: one.confidence_top10 for one in found if one.candidates
        },
        "seconds": {one.spectrum_id: one.seconds for one in found},
    }
    return found


def _samples(found: Sequence[Prediction]) -> dict[str, float]:
    """What became of the drawn samples; every assembled one has the requested formula exactly."""
    tallies = [outcome for prediction in found for outcome in prediction.hypotheses]
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
