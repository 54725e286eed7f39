"""The predict use case: spectrum files in, ranked structures out, nothing lost on the way."""

import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from duallgd_cli import __version__, config
from duallgd_cli.errors import InterruptedRunError, UnreadableError, UsageError
from duallgd_cli.files import STANDARD_STREAM
from duallgd_cli.guide.knowledge import Knowledge
from duallgd_cli.predict import stages
from duallgd_cli.predict.candidates import Workers
from duallgd_cli.predict.finished import FinishedRun
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.journal import ENDING, Header, Journal, scan
from duallgd_cli.predict.output import RunSummary, parts_path, record_path, write_all, write_record
from duallgd_cli.predict.pipeline import formula_source, results, table_identity
from duallgd_cli.predict.prediction import Case
from duallgd_cli.predict.ranking import for_run
from duallgd_cli.predict.settings import PredictRequest, knowledge_of
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import FormulaSource
from duallgd_cli.spectra.reading import Unreadable
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.formats import check_writable, resolve_format
from duallgd_cli.writers.summaries import summary_paths

logger = logging.getLogger(__name__)


class Progress(Protocol):
    """Told about a run as it goes; what it does with that is its own business."""

    def started(self, description: str) -> None:
        """Work on a stage begins, such as ``predicting`` or ``writing``."""
        ...

    def finished(self, case: Case, n_spectra: int) -> None:
        """One hypothesis of a feature is in the journal.

        Args:
            case: The feature with this outcome alone.
            n_spectra: Spectra newly accounted for by it; 0 for further hypotheses.
        """
        ...

    def skipped(self, n_spectra: int) -> None:
        """A feature with this many spectra was found finished in the journal."""
        ...


def predict(
    request: PredictRequest, model: LoadedModel, progress: Progress | None = None
) -> RunSummary:
    """Predict structures for every MS2 spectrum of the inputs.

    Finished spectra are kept in a journal as they come; the output is written from it at the end,
    whole or not at all. A shard writes no output: `output.merge` joins the journals of all.

    Args:
        request: What to predict, and where things are.
        model: Draws and ranks.
        progress: Told how the run goes; None for nobody.

    Raises:
        UsageError: The request is impossible, or the journal belongs to a different run.
        MissingInputError: An input does not exist.
        UnreadableError: The inputs hold no MS2 spectrum.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    output_format = _checked(request)
    knowledge = knowledge_of(request.settings, request.guide)
    model = replace(model, ranking=for_run(model.ranking, request.settings, request.guide))
    is_shard = request.shard.count > 1
    summary = RunSummary("" if is_shard else request.output, request.journal_path())
    began, clock = datetime.now(UTC), time.perf_counter()
    with _journal_path(request) as path, Inputs(request.inputs) as inputs:
        try:
            if progress is not None:
                progress.started("reading")
            source = formula_source(request.settings, request.formulas, model.max_heavy_atoms)
            open_journal = Journal.resume if request.resume else Journal.create
            with open_journal(path, run_header(request, model, inputs)) as journal:
                summary.n_resumed = journal.contents.n_finished
                if journal.contents.end is None:
                    _fill(journal, request, model, inputs, source, knowledge, progress)
            finished = FinishedRun([path])
            _require_spectra(finished)
            if progress is not None:
                progress.started("writing")
            with stages.stage(stages.WRITE):
                if is_shard:  # counted: the output is written from all shards
                    deque(summary.watch(finished), maxlen=0)
                else:
                    write_all(
                        finished,
                        summary,
                        output_format,
                        request.rows,
                        parts=request.parts,
                        summaries=request.summaries,
                    )
        except KeyboardInterrupt:
            raise InterruptedRunError(_interrupted(request, path)) from None
        summary.seconds = time.perf_counter() - clock
        _write_record(request, path, finished, summary, began)
    return summary


def run_header(request: PredictRequest, model: LoadedModel, inputs: Inputs) -> Header:
    """What the journal of a request says it is of."""
    ranking = config.dump(model.ranking)
    remark = {"remark": model.remark} if model.remark else {}
    return Header(
        version=__version__,
        settings=config.dump(request.settings) | table_identity(request.formulas, request.guide),
        model={"name": model.name, "sha256": model.sha256, "ranking": ranking, **remark},
        inputs=inputs.identity(),
        shard=str(request.shard),
    )


def _fill(
    journal: Journal,
    request: PredictRequest,
    model: LoadedModel,
    inputs: Inputs,
    source: FormulaSource,
    knowledge: Knowledge | None,
    progress: Progress | None,
) -> None:
    """Compute what the journal does not hold yet, in order."""
    if progress is not None:
        progress.started("predicting")
    features = _features(request, inputs, journal, progress)
    settings, held = request.settings, journal.contents.holds
    with Workers(request.workers, draws_aside=model.draws_aside) as workers:
        done = results(features, source, model.generator, settings, workers, held, knowledge)
        for case in done:
            with stages.stage(stages.WRITE):
                journal.append(case)
            if progress is not None:
                is_first = case.outcomes[0].position == 0
                progress.finished(case, len(case.members) if is_first else 0)
    journal.finish({"cases": inputs.n_features, "ms1": inputs.n_ms1})


def _features(
    request: PredictRequest, inputs: Inputs, journal: Journal, progress: Progress | None
) -> Iterator[tuple[int, Feature | Unreadable]]:
    """What this shard still has to do, with its number among the features of all shards."""
    settings = request.settings
    features = stages.each(stages.READ, inputs.features(settings.group_by, settings.adduct))
    for number, item in enumerate(features):
        if not request.shard.holds(number):
            continue
        if not journal.contents.is_finished(number):
            yield number, item
        elif progress is not None:
            progress.skipped(1 if isinstance(item, Unreadable) else len(item.spectra))


def _checked(request: PredictRequest) -> str:
    """The format of the output, once nothing stands against writing all that is asked for."""
    if request.settings.guide is not None:
        request.settings.guide.check()
    output_format = resolve_format(request.output, request.format)
    check_writable(request.output)
    if request.parts:
        parts_path(request.output)
    if request.summaries:
        summary_paths(request.summaries, request.output)
    _refuse_to_overwrite(request)
    return output_format


def _refuse_to_overwrite(request: PredictRequest) -> None:
    # realpath, since Path.resolve gives up on a link to itself with a RuntimeError.
    places = {os.path.realpath(name) for name in request.inputs if name != STANDARD_STREAM}
    if request.output == STANDARD_STREAM:
        return
    output = os.path.realpath(request.output)
    if output in places:
        raise UsageError(f"output {request.output} would overwrite an input; name another file")
    if request.journal is not None and output == os.path.realpath(request.journal):
        raise UsageError(f"journal and output are the same file {request.output}; name another one")


@contextmanager
def _journal_path(request: PredictRequest) -> Iterator[Path]:
    """The journal's place; for standard output without one, a folder that goes with the run."""
    path = request.journal_path()
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="duallgd-") as folder:
        yield Path(folder) / "journal.jsonl"


def _require_spectra(run: FinishedRun) -> None:
    if run.totals["cases"] == 0:
        names = ", ".join(str(entry["name"]) for entry in run.header.inputs)
        n_ms1 = run.totals["ms1"]
        raise UnreadableError(f"no MS2 spectrum in {names} ({n_ms1} of MS1)")


def _write_record(
    request: PredictRequest, path: Path, run: FinishedRun, summary: RunSummary, began: datetime
) -> None:
    if request.shard.count > 1:
        output = path.with_name(path.name.removesuffix(ENDING))
    elif request.output != STANDARD_STREAM:
        output = Path(request.output)
    else:
        return
    seconds = round(summary.seconds, 3)
    times = {"started": began.isoformat(), "seconds": seconds, "resumed": summary.n_resumed}
    write_record(record_path(output), run, summary, times)


def _interrupted(request: PredictRequest, path: Path) -> str:
    if request.journal_path() is None:
        return "stopped; nothing is kept of a run to standard output without --journal FILE"
    n_finished = scan(path).n_finished if path.is_file() else 0
    features = "finished feature is" if n_finished == 1 else "finished features are"
    again = "the same command" if request.resume else "the same command with --resume"
    return (
        f"stopped; {n_finished} {features} kept in {path}: {again} goes on, "
        "duallgd merge --partial writes what is there"
    )
