"""The predict use case: spectrum files in, ranked structures out, nothing lost on the way."""

import json
import logging
import platform
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from duallgd_cli import __version__, config
from duallgd_cli.errors import InterruptedRunError, counted, quote
from duallgd_cli.files import STANDARD_STREAM, claim, sha256, write_atomically
from duallgd_cli.predict.journal import FinishedRun, Journal, journals_of, read, scan
from duallgd_cli.predict.parts import FEWEST_SAMPLES, is_enough, likely_parts
from duallgd_cli.predict.pipeline import results
from duallgd_cli.predict.settings import (
    ENDING,
    PredictRequest,
    formula_source,
    record_path,
)
from duallgd_cli.ranking.one_list import Ranking, predictions_of, without_parts
from duallgd_cli.results import OK, Header, HypothesisResult, Prediction, references
from duallgd_cli.runtime import default_threads, versions
from duallgd_cli.sources.known import GuideFiles, Knowledge, names_in_guides
from duallgd_cli.spectra.features import Inputs, record_of_scans
from duallgd_cli.spectra.tables import FeatureTable, names_in_tables, read_table
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.features import joined_table
from duallgd_cli.writers.formats import (
    PART_COLUMNS,
    part_rows,
    pieces,
    resolve_format,
    table_beside,
    write_pieces,
)
from duallgd_cli.writers.names import Names
from duallgd_cli.writers.summaries import SUMMARIES, summary_paths, summary_rows

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel

logger = logging.getLogger(__name__)

_MOST_WORKERS: Final = 16
_LARGE_BYTES: Final = 1 << 26  # of journals: some ten seconds of work
_SHARD: Final = re.compile(r"\.shard-\d+-of-\d+$")
_SHOWN_IDS: Final = 3

# Told the stage of a run, spectra that are newly accounted for (0 where a stage begins), and the
# first result of the feature just computed; None for the beginning of a stage and for what was
# found finished in the journal.
Progress: TypeAlias = Callable[[str, int, HypothesisResult | None], None]


@dataclass(slots=True)
class RunSummary:
    """What a run did; the counts are of what has been written."""

    output: str  # file written, ``-`` for standard output, "" for a shard, which writes none
    journal: Path | None = None  # kept journal, or None
    counts: Counter[str] = field(default_factory=Counter)  # spectra by status
    messages: dict[str, str] = field(default_factory=dict)  # of the first spectrum of each status
    n_candidates: int = 0  # of all features; what spectra read together share counts once
    notes: Counter[str] = field(default_factory=Counter)  # remarks for the run record
    computing_s: float = 0.0  # seconds of computing, of all features together
    n_features: int = 0  # fewer than spectra where several are read together
    n_few: int = 0  # features with candidates, but of too few samples to state parts
    n_ms1: int = 0  # MS1 spectra, which are read for isotopes alone, in the whole input
    n_resumed: int = 0  # features that the journal already held
    seconds: float = 0.0  # wall time
    n_own: int = 0  # structures of the user's that were to be ranked
    n_own_ranked: int = 0  # of them, those that are a candidate of one spectrum at least

    def count(self, prediction: Prediction) -> None:
        """Add what became of a spectrum and, with its first one, of its feature."""
        self.counts[prediction.status] += 1
        self.messages.setdefault(prediction.status, prediction.message)
        if prediction.source == prediction.group[0]:
            self.n_features += 1
            self.n_candidates += len(prediction.candidates)
            self.computing_s += sum(one.seconds for one in prediction.hypotheses)
            self.notes.update(note for one in prediction.hypotheses for note in one.notes)

    @property
    def n_spectra(self) -> int:
        """MS2 spectra accounted for."""
        return sum(self.counts.values())

    @property
    def n_ok(self) -> int:
        """Spectra with candidates."""
        return self.counts[OK]


def predict(
    request: PredictRequest,
    model: "LoadedModel",
    progress: Progress | None = None,
    knowledge: Knowledge | None = None,
) -> RunSummary:
    """Predict structures for every MS2 spectrum of the inputs.

    Finished features are kept in a journal as they come; the output is written from it at the end,
    whole or not at all. A shard writes no output: `merge` joins the journals of all. `knowledge` is
    what `check` has read, if it was called before.

    Raises:
        UsageError: The request is impossible, or the journal belongs to a different run.
        MissingInputError: An input does not exist.
        UnreadableError: The inputs hold no MS2 spectrum.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    tell = progress or (lambda *_: None)
    knowledge = knowledge or check(request)
    kept_at = request.journal_path()
    summary = RunSummary("" if request.shard.count > 1 else request.output, kept_at)
    began, clock = datetime.now(UTC), time.perf_counter()
    n_finished: int | None = None  # features, once the journal is open
    # Where nobody names a journal for standard output, it goes with the run.
    aside = nullcontext("") if kept_at else TemporaryDirectory(prefix="duallgd-")
    with aside as folder, Inputs(request.inputs) as inputs:
        path = kept_at or Path(folder) / "journal.jsonl"
        try:
            tell("reading", 0, None)
            source = formula_source(request.settings, request.formulas, model.max_heavy_atoms)
            header = run_header(request, model, inputs)
            with Journal.opened(path, header, resume=request.resume) as journal:
                summary.n_resumed = n_finished = len(journal.finished)
                if journal.end is None:
                    tell("predicting", 0, None)
                    features = _features(request, inputs, journal.finished, tell, knowledge)
                    given = (features, model, request.settings, request.workers)
                    for feature in results(*given, source=source, knowledge=knowledge):
                        journal.append(feature)
                        n_finished += 1
                        tell("predicting", len(feature.spectra), feature.hypotheses[0])
                    totals = {"cases": inputs.n_features, "ms1": inputs.n_ms1}
                    journal.finish(totals | inputs.runs)
            finished = read([path], alone=True)
            tell("writing", 0, None)
            _write_all(finished, summary, request)
        except KeyboardInterrupt:
            raise InterruptedRunError(f"stopped; {_kept(request, path, n_finished)}") from None
        summary.seconds = time.perf_counter() - clock
        _write_record(request, finished, summary, began)
    return summary


def run_header(request: PredictRequest, model: "LoadedModel", inputs: Inputs) -> Header:
    """What the journal of a request says it is of."""
    settings = config.dump(request.settings) | table_identity(request.formulas, request.guide)
    if request.features is not None:
        settings["features_sha256"] = sha256(request.features)
    return Header(
        version=__version__,
        settings=settings,
        model=model.identity(model.ranking_for(request.settings, request.guide)),
        inputs=inputs.identity(),
        shard=str(request.shard),
    )


def table_identity(table: Path | None, guide: GuideFiles | None = None) -> dict[str, Any]:
    """Names and contents of formula table and guide files, for the header of a journal."""
    identity: dict[str, Any] = {"formulas": None if table is None else str(table)}
    if table is not None:
        identity["formulas_sha256"] = sha256(table)
    return identity | (guide.identity() if guide is not None else {})


def _features(
    request: PredictRequest,
    inputs: Inputs,
    finished: set[int],
    tell: Progress,
    knowledge: Knowledge | None,
) -> Iterator[tuple[int, Feature]]:
    """What this shard still has to do, with its number among the features of all shards."""
    features = inputs.features(*request.settings.grouping)
    if request.features is not None:
        features = FeatureTable(request.features).applied(features)
    if request.formulas is not None:
        names = defaultdict[int, list[str]](list)
        for by_name in read_table(str(request.formulas)).values():
            for name, rows in by_name.items():
                for row in rows:
                    names[id(row)].append(name)
        features = _telling_unmatched(features, "--formulas", names_in_tables, [*names.values()])
    if knowledge is not None:
        named = (name for one in knowledge.analogues for name in one.features if name)
        ids = [(name,) for name in (*knowledge.guides, *named)]
        features = _telling_unmatched(features, "--guide or --analogues", names_in_guides, ids)
    for number, item in enumerate(features):
        if request.shard.holds(number) and number not in finished:
            yield number, item
        elif request.shard.holds(number):
            tell("predicting", len(references(item.spectra)), None)


def _telling_unmatched(
    features: Iterable[Feature],
    option: str,
    names_of: Callable[[Feature], Iterable[str]],
    rows: Sequence[Sequence[str]],
) -> Iterator[Feature]:
    """All features; then it is said which ids of a table none had: a typo, or a wrong table.

    Of each row there are its names, one of which must be what a feature is called.
    """
    absent = set(chain.from_iterable(rows))
    for feature in features:
        absent.difference_update(names_of(feature))
        yield feature
    if ids := list(dict.fromkeys(row[0] for row in rows if absent.issuperset(row))):
        matches = "match" if len(ids) > 1 else "matches"
        shown = ", ".join(map(quote, ids[:_SHOWN_IDS]))
        others = " and others" if len(ids) > _SHOWN_IDS else ""
        logger.warning(
            "%s of %s %s no feature of the input: %s%s; check the ids",
            *(counted(len(ids), "id"), option, matches, shown, others),
        )


def _kept(request: PredictRequest, path: Path, n_finished: int | None) -> str:
    """What is kept of a run that was stopped, and how to go on."""
    if request.journal_path() is None:
        return "nothing is kept of a run to standard output without --journal FILE"
    if n_finished is None:
        n_finished = len(scan(path).finished) if path.is_file() else 0
    kept = f"{counted(n_finished, 'finished feature')} {'is' if n_finished == 1 else 'are'} kept"
    again = "the same command" + " with --resume" * (not request.resume)
    return f"{kept} in {path}: {again} goes on, duallgd merge --partial writes what is there"


def check(request: PredictRequest) -> Knowledge | None:
    """Refuse what cannot be done, before hours are spent; what the files say of molecules, or None.

    Raises:
        UsageError: A file would be lost or cannot be written, or the request is impossible.
        MissingInputError: An input does not exist.
        UnreadableError: An input cannot be read.
    """
    claim_run(request)
    if request.features is not None:
        FeatureTable(request.features)
    if request.names is not None:
        Names.read(request.names)
    formula_source(request.settings, request.formulas, request.settings.limits.max_heavy_atoms)
    guide = request.settings.guide  # reads the core and the parts
    return None if request.guide is None else Knowledge.read(guide, request.guide)


def claim_run(
    request: PredictRequest,
    outputs: Mapping[str, str | Path] = MappingProxyType({}),
    inputs: Iterable[str | Path] = (),
    *,
    makes_folders: bool = False,
) -> None:
    """Refuse to lose a file to a run, with what else is written and read; see `files.claim`."""
    written, own = {**request.files_written(), **outputs}, list[str]()
    if (journal := request.journal_path()) is not None:
        written["the journal"] = journal
        if journal.is_file() and journal.stat().st_size:
            is_asked = request.resume or request.force
            begun = scan(journal, 0 if is_asked else 2)  # the header and the first feature
            if request.resume:
                own += written
            elif not request.force and not begun.finished:
                own.append("the journal")
    claim(
        written,
        [*request.files_read(), *inputs],
        own=own,
        force=request.force,
        makes_folders=makes_folders,
        otherwise="or --resume to continue its run",
    )


def files_of_runs(names: Sequence[Path], *, made_of: bool = False) -> list[str | Path]:
    """The files of finished runs, or what they are `made_of` alone; UsageError without a journal.

    That is journals and inputs; the others are the output and its record.
    """
    journals = journals_of(names)
    headers = [scan(path, 1).header for path in journals if path.is_file()]
    inputs = [str(entry["name"]) for header in headers if header for entry in header.inputs]
    runs = [] if made_of else [_output_of(path) for path in journals]
    return [*journals, *inputs, *runs, *map(record_path, runs)]


def _output_of(journal: Path) -> Path:
    """The output of the run that a journal is of, or its shard's."""
    return Path(_SHARD.sub("", str(journal).removesuffix(ENDING)))


def predictions(run: FinishedRun, *, parts: bool = False) -> Iterator[Prediction]:
    """The predictions of a run, one per spectrum, features in input order, ranked as it was."""
    settings = run.header.settings
    ranking = Ranking.recorded(run.header.model, settings, run.header.inputs[0]["name"])
    top_k, certain = int(settings["top_k"]), float(settings["certain"])
    for feature in run.features():
        candidates, top10 = ranking.rank(feature.hypotheses, None if parts else top_k)
        likely = likely_parts(feature.hypotheses, candidates) if parts else None
        yield from predictions_of(feature, candidates, top10, top_k, certain, likely)


def merge(request: PredictRequest, *, partial: bool = False) -> RunSummary:
    """Join the shards of a run and write its output; if `partial`, what is finished of it.

    The inputs of the request are journals, or outputs that have journals beside them. The output of
    that very run is written anew; any other file needs `force`.

    Raises:
        UsageError: A shard is absent, unfinished or of another run, or the output is impossible.
    """
    if request.names is not None:
        Names.read(request.names)
    names = [Path(name) for name in request.inputs]
    runs = {_output_of(path).resolve() for path in journals_of(names)}
    is_own = Path(request.output).resolve() in runs
    claim(
        request.files_written(),
        [*files_of_runs(names, made_of=is_own), *request.tables_read()],
        own=("the output", "the run record") if is_own and not partial else (),
        force=request.force,
    )
    run, summary = read(names, partial=partial), RunSummary(request.output)
    _write_all(run, summary, request)
    _write_record(request, run, summary)
    return summary


def workers_for(names: Sequence[Path]) -> int:
    """Processes that report runs of this size: one, or as many as there are cores."""
    size = sum(path.stat().st_size for path in journals_of(names) if path.is_file())
    return min(_MOST_WORKERS, default_threads()) if size > _LARGE_BYTES else 1


def _write_all(run: FinishedRun, summary: RunSummary, request: PredictRequest) -> None:
    """Write the output of a finished run and the tables beside it; a shard is counted only.

    What structures contain takes a while: all is written on one way along the journal.
    """
    summary.n_ms1 = run.totals.get("ms1", 0)
    if request.shard.count > 1:
        for prediction in predictions(run):
            summary.count(prediction)
        return
    certain = float(run.header.settings["certain"])
    names = None if request.names is None else Names(request.names)
    output_format = resolve_format(request.output, request.format)
    with ExitStack() as beside:
        tables = [beside.enter_context(table) for table in _tables(request)]

        def watched() -> Iterator[Prediction]:
            for prediction in predictions(run, parts=request.parts or request.features is not None):
                summary.count(prediction)
                if prediction.source == prediction.group[0]:
                    for add in tables:
                        add(prediction)
                    if request.parts and prediction.candidates:
                        summary.n_few += not is_enough(prediction.hypotheses)
                yield prediction if request.parts else without_parts(prediction, certain)

        write_pieces(pieces(watched(), output_format, run.header, names), request.output)
    if summary.n_few:
        logger.warning(
            "parts of %s are not stated: their probabilities take %d samples or more (--samples)",
            counted(summary.n_few, "feature"), FEWEST_SAMPLES,
        )  # fmt: skip


def _tables(
    request: PredictRequest,
) -> Iterator[AbstractContextManager[Callable[[Prediction], None]]]:
    """The tables beside the output; each takes the first prediction of every feature."""
    if request.parts:
        yield table_beside(request.beside("parts"), PART_COLUMNS, part_rows)
    if request.features is not None:
        yield joined_table(FeatureTable(request.features), request.beside("features"))
    if request.summaries:
        for name, path in summary_paths(request.summaries, Path(request.output)).items():
            summary = SUMMARIES[name]
            yield table_beside(path, [*summary.columns], partial(summary_rows, summary=summary))


def _write_record(
    request: PredictRequest, run: FinishedRun, summary: RunSummary, began: datetime | None = None
) -> None:
    """Write what was run with what, and how it went; joined runs did not begin at one time."""
    if request.output == STANDARD_STREAM:
        return
    times: dict[str, Any] = {"computing_s": round(summary.computing_s, 3)}
    if began is not None:
        seconds = round(summary.seconds, 3)
        times |= {"started": began.isoformat(), "seconds": seconds, "resumed": summary.n_resumed}
    record = {
        "duallgd": run.header.version,
        "versions": versions(),
        "platform": platform.platform(),
        "weights": run.header.model,
        "settings": run.header.settings,
        "inputs": list(run.header.inputs),
        "shard": run.header.shard,
        "spectra": summary.n_spectra,
        "counts_by_status": dict(sorted(summary.counts.items())),
        "candidates": summary.n_candidates,
        "ms1_skipped": summary.n_ms1,
        **record_of_scans(run.totals),
        "notes": dict(sorted(summary.notes.items())),
        "times": times,
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_atomically(record_path(request.run_name), [text])
