"""The predict use case: spectrum files in, ranked structures out, nothing lost on the way."""

import glob
import json
import logging
import platform
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial as with_arguments
from io import StringIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Final, TypeAlias

from duallgd_cli import __version__, config
from duallgd_cli.errors import InterruptedRunError, UsageError, counted
from duallgd_cli.files import (
    STANDARD_STREAM,
    claim,
    require_input,
    same_place,
    sha256,
    write_atomically,
)
from duallgd_cli.predict.journal import (
    ENDING,
    FinishedRun,
    Journal,
    inputs_of,
    is_journal,
    journals_of,
    read,
    scan,
)
from duallgd_cli.predict.model import LoadedModel, warn_uncalibrated
from duallgd_cli.predict.parts import FEWEST_SAMPLES, is_enough, likely_parts
from duallgd_cli.predict.pipeline import formula_source, results, table_identity
from duallgd_cli.predict.settings import CERTAIN, Header, PredictRequest
from duallgd_cli.predict.unmatched import telling_unmatched
from duallgd_cli.ranking.ladder import with_level
from duallgd_cli.ranking.one_list import Ranking
from duallgd_cli.results import OK, HypothesisResult, Prediction, predictions_of, references
from duallgd_cli.runtime import default_threads, in_order, versions
from duallgd_cli.sources.known import Knowledge
from duallgd_cli.spectra.feature_table import FeatureTable
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.run import record as record_of_scans
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.features import write_joined
from duallgd_cli.writers.formats import (
    PART_COLUMNS,
    TABLES,
    WHOLE,
    cells_of,
    lines_of,
    part_rows,
    pieces,
    resolve_format,
    write_pieces,
)
from duallgd_cli.writers.names import Names
from duallgd_cli.writers.summaries import SUMMARIES, summary_paths, write_summary

logger = logging.getLogger(__name__)

_BLOCK: Final = 1 << 20  # characters that are copied at once
_AT_ONCE: Final = 1000  # spectra that are ranked and written as one piece of text
_MOST_WORKERS: Final = 16
_LARGE_BYTES: Final = 1 << 26  # of journals: some ten seconds of work
_SHARD: Final = re.compile(r"\.shard-\d+-of-\d+$")
# The files of a run, as messages name them.
OUTPUT, RECORD, JOURNAL = "the output", "the run record", "the journal"
PARTS, PAGE, FEATURES = "the table of parts", "the page", "the table of features"
_OF_A_RUN: Final = "a journal of the run"
_GUIDES: Final = {
    "analogues": "an input, the analogues",
    "libraries": "an input, the library",
    "tables": "an input, the guide",
    "databases": "an input, the database",
}
_Files: TypeAlias = list[tuple[str, str | Path]]  # what each is, and its place

# Told the stage of a run, spectra that are newly accounted for (0 where a stage begins), and the
# first result of the feature just computed; None for the beginning of a stage and for what was
# found finished in the journal.
Progress: TypeAlias = Callable[[str, int, HypothesisResult | None], None]


@dataclass(slots=True)
class RunSummary:
    """What a run did; the counts are of what has passed `watch`.

    Attributes:
        output: File written, ``-`` for standard output, "" for a shard, which writes none.
        journal: Kept journal, or None.
        counts: Spectra by status.
        messages: What the first spectrum of each status says.
        n_candidates: Candidates of all features; what spectra read together share counts once.
        notes: Remarks for the run record, and how often each was made.
        computing_s: Seconds of computing, of all features together.
        n_features: Features; fewer than spectra where several are read together.
        n_few: Features with candidates, but of too few samples to state parts.
        n_ms1: MS1 spectra, which are read for isotopes alone, in the whole input.
        n_resumed: Features that the journal already held.
        seconds: Wall time.
        n_own: Structures of the user's that were to be ranked.
        n_own_ranked: Of them, those that are a candidate of one spectrum at least.
    """

    output: str
    journal: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    n_candidates: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    computing_s: float = 0.0
    n_features: int = 0
    n_few: int = 0
    n_ms1: int = 0
    n_resumed: int = 0
    seconds: float = 0.0
    n_own: int = 0
    n_own_ranked: int = 0

    def watch(self, run: FinishedRun, parts: IO[str] | None = None) -> Iterator[Prediction]:
        """The predictions of a finished run, counted on their way to a writer."""
        self.n_ms1 = run.totals.get("ms1", 0)
        for prediction in predictions(run, parts=parts is not None):
            tried = prediction.hypotheses
            self.counts[prediction.status] += 1
            self.messages.setdefault(prediction.status, prediction.message)
            if prediction.source == prediction.group[0]:
                self.n_features += 1
                self.n_candidates += len(prediction.candidates)
                self.computing_s += sum(one.seconds for one in tried)
                self.notes.update(note for one in tried for note in one.notes)
                if parts is not None:
                    cells = (cells_of(row, PART_COLUMNS) for row in part_rows(prediction))
                    parts.writelines(lines_of(cells, "csv"))
                    self.n_few += bool(prediction.candidates) and not is_enough(tried)
            yield prediction

    def add(self, other: "RunSummary") -> None:
        """Count what passed another's `watch`, of the same run."""
        self.messages = {**other.messages, **self.messages}
        for name in ("counts", "notes", "n_candidates", "n_features", "n_few", "computing_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.n_ms1 = other.n_ms1

    @property
    def n_spectra(self) -> int:
        """MS2 spectra accounted for."""
        return sum(self.counts.values())

    @property
    def n_ok(self) -> int:
        """Spectra with candidates."""
        return self.counts[OK]

    @property
    def nothing_readable(self) -> bool:
        """Whether every record of the input was unreadable."""
        return self.n_spectra > 0 and set(+self.counts) == {"unreadable"}


def predict(
    request: PredictRequest,
    model: LoadedModel,
    progress: Progress | None = None,
    knowledge: Knowledge | None = None,
) -> RunSummary:
    """Predict structures for every MS2 spectrum of the inputs.

    Finished features are kept in a journal as they come; the output is written from it at the end,
    whole or not at all. A shard writes no output: `merge` joins the journals of all.

    Args:
        request: What to predict, and where things are.
        model: Draws and ranks.
        progress: Told how the run goes; None for nobody.
        knowledge: What `check` has read, if it was called before.

    Raises:
        UsageError: The request is impossible, or the journal belongs to a different run.
        MissingInputError: An input does not exist.
        UnreadableError: The inputs hold no MS2 spectrum.
        InterruptedRunError: Ctrl-C; what was finished is kept.
    """
    tell = progress or (lambda *_: None)
    settings, is_shard = request.settings, request.shard.count > 1
    knowledge = knowledge or check(request)
    warn_uncalibrated(model, settings, request.guide)
    summary = RunSummary("" if is_shard else request.output, request.journal_path())
    began, clock = datetime.now(UTC), time.perf_counter()
    n_finished: int | None = None  # features, once the journal is open
    with _journal_path(request) as path, Inputs(request.inputs) as inputs:
        try:
            tell("reading", 0, None)
            source = formula_source(settings, request.formulas, model.max_heavy_atoms)
            open_journal = Journal.resume if request.resume else Journal.create
            with open_journal(path, run_header(request, model, inputs)) as journal:
                kept = journal.finished
                summary.n_resumed = n_finished = len(kept)
                if journal.end is None:
                    tell("predicting", 0, None)
                    features = _features(request, inputs, kept, tell, knowledge)
                    given = (features, model, settings, request.workers)
                    for together in results(*given, source=source, knowledge=knowledge):
                        journal.append(together)
                        n_finished += 1
                        tell("predicting", len(together[0].spectra), together[0])
                    totals = {"cases": inputs.n_features, "ms1": inputs.n_ms1}
                    journal.finish(totals | inputs.runs)
            finished = FinishedRun([path])
            tell("writing", 0, None)
            write_all(finished, summary, request)
        except KeyboardInterrupt:
            raise InterruptedRunError(_interrupted(request, path, n_finished)) from None
        summary.seconds = time.perf_counter() - clock
        shown = str(path).removesuffix(ENDING) if is_shard else request.output
        _write_record(shown, finished, summary, began)
    return summary


def run_header(request: PredictRequest, model: LoadedModel, inputs: Inputs) -> Header:
    """What the journal of a request says it is of."""
    ranking = model.ranking_for(request.settings, request.guide)
    about = {"name": model.name, "sha256": model.sha256, "ranking": config.dump(ranking.generated)}
    if ranking.database is not None:
        about["database"] = config.dump(ranking.database)
        about["membership"] = config.dump(ranking.membership)
    said = {"remark": model.remark, "own": model.own}
    settings = config.dump(request.settings) | table_identity(request.formulas, request.guide)
    if request.features is not None:
        settings["features_sha256"] = sha256(request.features)
    return Header(
        version=__version__,
        settings=settings,
        model=about | {name: value for name, value in said.items() if value},
        inputs=inputs.identity(),
        shard=str(request.shard),
    )


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
    if request.formulas is not None or knowledge is not None:
        features = telling_unmatched(features, request.formulas, knowledge)
    for number, item in enumerate(features):
        if request.shard.holds(number) and number not in finished:
            yield number, item
        elif request.shard.holds(number):
            tell("predicting", len(references(item.spectra)), None)


@contextmanager
def _journal_path(request: PredictRequest) -> Iterator[Path]:
    """The journal's place; for standard output without one, a folder that goes with the run."""
    path = request.journal_path()
    if path is not None:
        yield path
        return
    with TemporaryDirectory(prefix="duallgd-") as folder:
        yield Path(folder) / "journal.jsonl"


def _interrupted(request: PredictRequest, path: Path, n_finished: int | None) -> str:
    if request.journal_path() is None:
        return "stopped; nothing is kept of a run to standard output without --journal FILE"
    if n_finished is None:
        n_finished = len(scan(path).finished) if path.is_file() else 0
    features = "finished feature is" if n_finished == 1 else "finished features are"
    again = "the same command" if request.resume else "the same command with --resume"
    return (
        f"stopped; {n_finished} {features} kept in {path}: {again} goes on, "
        "duallgd merge --partial writes what is there"
    )


# What may be written: decided here for predict, merge, evaluate and report, by `files.claim`.


def check(request: PredictRequest) -> Knowledge | None:
    """Refuse what cannot be done, before hours are spent or weights are loaded.

    Returns:
        What is known of the molecules, as the files of the request say; None without any.

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
    inputs: Iterable[tuple[str, str | Path]] = (),
    own: Collection[str] = (),
    *,
    makes_folders: bool = False,
) -> None:
    """Refuse to lose a file to a run; see `files.claim`.

    Args:
        request: Of the run.
        outputs: What is written beside its own files.
        inputs: What is read beside them.
        own: Which outputs may exist, beside those of a run that is resumed.
        makes_folders: Whether folders are made for the outputs.
    """
    resolve_format(request.output, request.format)
    journal = request.journal_path()
    written = {**_outputs(request), **({} if journal is None else {JOURNAL: journal}), **outputs}
    read = [*read_by(request), *inputs]
    read += [(kind, written[kind]) for kind in (JOURNAL, RECORD) if kind in written]
    if request.output != STANDARD_STREAM:
        read += _all_files(request.output)
    if journal is not None and journal.is_file() and journal.stat().st_size:
        if not is_journal(journal):
            raise UsageError(f"{journal} is not a duallgd journal; name another file")
        if request.resume:
            own = written
        elif not request.force:
            kept = scan(journal)
            # What is in no output yet is kept under another name.
            own = own if len(kept.rows) and kept.is_written else (*own, JOURNAL)
    otherwise = "or --resume to continue its run"
    options = {"force": request.force, "makes_folders": makes_folders}
    claim(written, read, own=own, otherwise=otherwise, **options)


def read_by(request: PredictRequest) -> _Files:
    """All that a run reads, each with what it is, for `files.claim`; all of it must be there."""
    for name in request.inputs:
        if name != STANDARD_STREAM:
            require_input(name)
    guide = () if request.guide is None else request.guide.places()
    tables = {
        "formulas": request.formulas, "features": request.features, "names": request.names,
    }  # fmt: skip
    read: _Files = [("an input, the spectra", name) for name in request.inputs]
    read += [(f"an input, the table of {of}", name) for of, name in tables.items() if name]
    return [*read, *((_GUIDES[kind], place) for kind, _, place in guide), *request.reads]


def _outputs(request: PredictRequest) -> dict[str, str | Path]:
    """All that a run writes but its journal, by what it is."""
    if request.shard.count > 1:
        journal = str(request.journal_path())
        return {RECORD: record_path(Path(journal.removesuffix(ENDING)))}
    if request.output == STANDARD_STREAM:
        return {OUTPUT: request.output}
    files = _run_files(request.output, request.summaries)
    unasked = {JOURNAL: None, PAGE: request.page, PARTS: request.parts, FEATURES: request.features}
    for kind, asked in unasked.items():
        if not asked:
            del files[kind]
    return {**files, **({} if request.page is None else {PAGE: request.page})}


def _run_files(output: str | Path, summaries: Iterable[str] = SUMMARIES) -> dict[str, str | Path]:
    """Where the files of a run lie if nobody says, by what they are."""
    path = Path(output)
    return {
        OUTPUT: output,
        RECORD: record_path(path),
        JOURNAL: path.parent / f"{path.name}{ENDING}",
        PARTS: path.parent / f"{path.stem}.parts.csv",
        FEATURES: path.parent / f"{path.stem}.features.csv",
        PAGE: path.parent / f"{path.stem}.html",
        **{f"the table for {name}": at for name, at in summary_paths(summaries, path).items()},
    }


def record_path(output: Path) -> Path:
    """Where the record of a run lies: ``out.csv.run.json``."""
    return output.parent / f"{output.name}.run.json"


def _all_files(output: str | Path) -> _Files:
    """The files of a run, with what they are; of its shards and what was kept what is there."""
    path = Path(output)
    journals = sorted(path.parent.glob(f"{glob.escape(path.name)}*{ENDING}*"))
    records = sorted(path.parent.glob(f"{glob.escape(path.name)}.shard-*.run.json"))
    shards = [
        *((_OF_A_RUN, one) for one in journals),
        *(("the record of a shard", one) for one in records),
    ]
    return [*_run_files(output).items(), *shards]


def files_of_runs(names: Sequence[Path]) -> _Files:
    """The files of finished runs, each with what it is, for a command that reads them.

    Raises:
        UsageError: A name is neither a journal nor an output that has one.
    """
    journals = journals_of(names)
    runs = (str(path).removesuffix(ENDING) for path in journals)
    whole = dict.fromkeys(_SHARD.sub("", name) for name in (*map(str, names), *runs))
    return [
        *((_OF_A_RUN, path) for path in journals),
        *(("the input of the run", name) for path in journals for name in inputs_of(path)),
        *(item for name in whole for item in _all_files(name)),
    ]


def predictions(run: FinishedRun, *, parts: bool = False) -> Iterator[Prediction]:
    """The predictions of a run, one per spectrum, in input order, ranked as its header says."""
    header = run.header
    ranking = Ranking.recorded(header.model, header.settings, header.inputs[0]["name"])
    top_k = int(header.settings["top_k"])
    certain = float(header.settings.get("certain", CERTAIN))
    latest: tuple[HypothesisResult, ...] = ()
    for tried, place in run.in_input_order():
        if tried is not latest:
            candidates, top10 = ranking.rank(tried, None if parts else top_k)
            latest, ranked = tried, predictions_of(tried, candidates, top10, top_k)
            if parts:
                likely = likely_parts(tried, candidates)
                ranked = [replace(one, parts=likely if one.hypotheses else ()) for one in ranked]
            ranked = [*with_level(ranked, certain)]
        yield ranked[place]


def merge(
    names: list[Path],
    output: str,
    format_name: str = "",
    *,
    parts: bool = False,
    summaries: Collection[str] = (),
    features: Path | None = None,
    names_table: Path | None = None,
    partial: bool = False,
    force: bool = False,
) -> RunSummary:
    """Join the shards of a run and write its output.

    The output of that very run is written anew; any other file needs `force`.

    Args:
        names: Journals, or outputs that have journals beside them.
        output: File, or ``-``.
        format_name: One of `writers.FORMATS`; empty decides by the ending.
        parts: As for `summaries` and `features`, see `PredictRequest`.
        summaries: Tables for other programs.
        features: Table of features, which comes back with the answers.
        names_table: Names and classes of molecules; see `PredictRequest`.
        partial: Write what is finished, whatever is missing or still going on.
        force: Replace files that exist.

    Raises:
        UsageError: A shard is absent, unfinished or of another run, or the output is impossible.
    """
    request = PredictRequest(
        inputs=tuple(map(str, names)),
        output=output,
        format=format_name,
        parts=parts,
        summaries=tuple(summaries),
        features=features,
        names=names_table,
    )
    if names_table is not None:
        Names.read(names_table)
    resolve_format(output, format_name)
    inputs = files_of_runs(names)
    tables = (("features", features), ("names", names_table))
    inputs += [(f"an input, the table of {of}", path) for of, path in tables if path is not None]
    is_own = any(kind == OUTPUT and same_place(path, output) for kind, path in inputs)
    own = (OUTPUT, RECORD) if is_own and not partial else ()
    claim(_outputs(request), inputs, force=force, own=own)
    workers = workers_for(names)
    run = read(names, partial=partial, workers=workers)
    summary = RunSummary(output)
    write_all(run, summary, request, workers)
    _write_record(output, run, summary)
    return summary


def workers_for(names: Sequence[Path]) -> int:
    """Processes that read journals of this size: one, or as many as there are cores."""
    size = sum(path.stat().st_size for path in journals_of(names) if path.is_file())
    return min(_MOST_WORKERS, default_threads()) if size > _LARGE_BYTES else 1


def write_all(
    run: FinishedRun, summary: RunSummary, request: PredictRequest, workers: int = 1
) -> None:
    """Write the output of a finished run and, if asked for, further tables beside it.

    A shard is counted only: the output is written from all of them.

    Raises:
        UsageError: A file cannot be written.
    """
    output = request.output
    output_format = resolve_format(output, request.format)
    if request.shard.count > 1:
        deque(summary.watch(run), maxlen=0)
        return
    places = {} if output == STANDARD_STREAM else _run_files(output, ())
    # What structures contain takes minutes, so its table is made on the way of the output.
    with TemporaryFile("w+", encoding="utf-8", errors="backslashreplace", newline="") as parts:
        given = parts if request.parts else None
        names = None if request.names is None else Names(request.names)
        if output_format in WHOLE:
            text = pieces(summary.watch(run, given), output_format, run.header, names)
        else:
            work = with_arguments(
                _text, output_format=output_format, parts=request.parts, names=names
            )
            texts = in_order(work, run.slices(_AT_ONCE), workers, at_a_time=1)
            text = _joined(texts, summary, output_format, parts)
        write_pieces(text, output)
        if request.parts:
            parts.seek(0)
            header = lines_of([PART_COLUMNS], "csv")
            blocks = iter(lambda: parts.read(_BLOCK), "")
            write_atomically(Path(places[PARTS]), chain(header, blocks))
    if request.features is not None:
        table = FeatureTable(request.features)
        write_joined(predictions(run, parts=True), table, Path(places[FEATURES]))
    if summary.n_few:
        logger.warning(
            "parts of %s are not stated: their probabilities take %d samples or more (--samples)",
            counted(summary.n_few, "feature"), FEWEST_SAMPLES,
        )  # fmt: skip
    for name, path in summary_paths(request.summaries, Path(output)).items():
        write_summary(predictions(run), name, path)


def _text(
    run: FinishedRun, output_format: str, parts: bool, names: Names | None
) -> tuple[str, str, RunSummary]:
    """Text of some spectra of a run, rows of the table of their parts, and their counts."""
    summary, table = RunSummary(""), StringIO()
    watched = list(summary.watch(run, table if parts else None))
    return "".join(pieces(watched, output_format, run.header, names)), table.getvalue(), summary


def _joined(
    texts: Iterable[tuple[str, str, RunSummary]],
    summary: RunSummary,
    output_format: str,
    parts: IO[str],
) -> Iterator[str]:
    """Text of all spectra, the columns named once; the summary and the parts grow on the way."""
    for position, (text, table, counts) in enumerate(texts):
        summary.add(counts)
        parts.write(table)
        yield text.partition("\n")[2] if position and output_format in TABLES else text


def _write_record(
    output: str, run: FinishedRun, summary: RunSummary, began: datetime | None = None
) -> None:
    """Write what was run with what, and how it went; the one place for times and versions.

    Joined runs did not begin at one time: `began` is None.
    """
    if output == STANDARD_STREAM:
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
    write_atomically(record_path(Path(output)), [text])
