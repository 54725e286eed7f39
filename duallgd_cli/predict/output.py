"""From what was computed to ranked predictions, output files and the run record beside them."""

import json
import platform
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial as with_arguments
from pathlib import Path
from typing import Any, Final

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.data.pool import in_order
from duallgd_cli.errors import Failure, UsageError, counted
from duallgd_cli.files import STANDARD_STREAM, write_atomically
from duallgd_cli.predict import stages
from duallgd_cli.predict.finished import FinishedRun, journals_of, read
from duallgd_cli.predict.parts import likely_parts
from duallgd_cli.predict.prediction import (
    OK,
    Candidate,
    Case,
    Outcome,
    Prediction,
    sentences,
)
from duallgd_cli.predict.ranking import rank, recorded
from duallgd_cli.runtime import default_threads, leave_to_parent, versions
from duallgd_cli.writers.formats import (
    TABLES,
    WHOLE,
    Rows,
    check_writable,
    pieces,
    resolve_format,
    write,
    write_parts,
    write_pieces,
)
from duallgd_cli.writers.summaries import summary_paths, write_summary

_AT_ONCE: Final = 1000  # spectra that are ranked and written as one piece of text
_MOST_WORKERS: Final = 16
_LARGE_BYTES: Final = 1 << 26  # of journals: some ten seconds of work


@dataclass(slots=True)
class RunSummary:
    """What a run did; the counts are of what has passed `watch`.

    Attributes:
        output: File written, ``-`` for standard output, "" for a shard, which writes none.
        journal: Kept journal, or None.
        counts: Spectra by status.
        n_candidates: Candidates of all features; what spectra read together share counts once.
        notes: Remarks for the run record, and how often each was made.
        computing_s: Seconds of computing, of all features together.
        n_ms1: MS1 spectra, which are read for isotopes alone, in the whole input.
        n_resumed: Features that the journal already held.
        seconds: Wall time.
    """

    output: str
    journal: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    n_candidates: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    computing_s: float = 0.0
    n_ms1: int = 0
    n_resumed: int = 0
    seconds: float = 0.0

    def watch(self, run: FinishedRun, *, parts: bool = False) -> Iterator[Prediction]:
        """The predictions of a run, counted on their way to a writer; see `predictions`."""
        self.n_ms1 = run.totals.get("ms1", 0)
        for prediction in predictions(run, parts=parts):
            self.counts[prediction.status] += 1
            if prediction.source == prediction.group[0]:
                self.n_candidates += len(prediction.candidates)
                self.computing_s += sum(one.seconds for one in prediction.hypotheses)
                self.notes.update(note for one in prediction.hypotheses for note in one.notes)
            yield prediction

    def add(self, other: "RunSummary") -> None:
        """Count what passed another's `watch`, of the same run."""
        self.n_ms1 = other.n_ms1
        self.counts += other.counts
        self.n_candidates += other.n_candidates
        self.computing_s += other.computing_s
        self.notes += other.notes

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


def predictions_of(
    case: Case, candidates: tuple[Candidate, ...], confidence_top10: float, top_k: int
) -> list[Prediction]:
    """The predictions of a case's spectra, in the order of its members.

    Spectra read together share their candidates; one that could not be used has its own status
    and none.

    Args:
        case: As predicted.
        candidates: All of them, as `ranking.rank` orders them.
        confidence_top10: That the first ten hold the right one.
        top_k: How many candidates are kept.
    """
    return [
        _prediction(case, position, candidates[:top_k], confidence_top10)
        for position in range(len(case.members))
    ]


def _prediction(
    case: Case, position: int, candidates: tuple[Candidate, ...], confidence_top10: float
) -> Prediction:
    member, first = case.members[position], case.outcomes[0]
    adduct = parse_adduct(member.adduct_text)
    unused = Prediction(
        source=member.source,
        spectrum_id=member.spectrum_id,
        feature_id=member.feature_id,
        scans=member.scans,
        precursor_mz=member.precursor_mz,
        formula=first.formula or member.formula_text,
        adduct=first.adduct or (member.adduct_text if isinstance(adduct, Failure) else adduct.name),
        status=member.status,
        message=member.message,
        hypotheses=(),
        candidates=(),
        confidence_top10=0.0,
        group=(member.source,),
        seconds=sum(outcome.seconds for outcome in case.outcomes),
        name=member.name,
        rt_seconds=member.rt_seconds,
        collision_energy=member.collision_energy,
        warnings=member.warnings,
    )
    if member.status != OK:
        return unused
    failures = (outcome.status for outcome in case.outcomes if outcome.status != OK)
    group = tuple(other.source for other in case.members if other.status == OK)
    others = [str(source.index) for source in group if source != member.source]
    together = f"read together with index {', '.join(others)}" if others else ""
    # What accompanies candidates is a warning; the message says it too.
    remarks = (outcome.message for outcome in case.outcomes if outcome.status == OK)
    described = replace(unused, hypotheses=case.outcomes)
    return replace(
        described,
        status=OK if candidates else next(failures),
        message=sentences(
            member.message, *_remarks(case.outcomes), together, _in_library(described)
        ),
        candidates=candidates,
        confidence_top10=confidence_top10,
        group=group,
        warnings=sentences(member.warnings, *remarks),
    )


def _in_library(prediction: Prediction) -> str:
    """What a spectral library says of a feature, "" if nothing."""
    match = prediction.library_match
    if not match:
        return ""
    found = "found in" if match["offered"] else "nearest of its mass in"
    named = match["name"] or match["smiles"]
    matched = f"cosine {match['score']:.2f}, {counted(match['matched_peaks'], 'peak')}"
    return f"{found} {match['library']}: {named} ({matched})"


def _remarks(outcomes: tuple[Outcome, ...]) -> list[str]:
    """What is said of each hypothesis; of several it is said which."""
    if len(outcomes) == 1:
        return [outcomes[0].message]
    return [f"{one.formula} {one.adduct}: {one.message}" for one in outcomes if one.message]


def predictions(run: FinishedRun, *, parts: bool = False) -> Iterator[Prediction]:
    """The predictions of a run, one per spectrum, in input order, ranked as its header says.

    Args:
        run: Finished.
        parts: Say what the structures contain, too.
    """
    model = recorded(run.header.model["ranking"], run.header.inputs[0]["name"])
    top_k = int(run.header.settings["top_k"])
    latest: Case | None = None
    for case, position in run.in_input_order():
        if case is not latest:
            with stages.stage(stages.RANK):
                candidates, top10 = rank(case, model, None if parts else top_k)
            latest, ranked = case, predictions_of(case, candidates, top10, top_k)
            if parts:
                found = likely_parts(case, candidates)
                ranked = [replace(one, parts=found if one.hypotheses else ()) for one in ranked]
        yield ranked[position]


def merge(
    names: list[Path],
    output: str,
    format_name: str = "",
    rows: Rows = "feature",
    *,
    parts: bool = False,
    summaries: Collection[str] = (),
    partial: bool = False,
) -> RunSummary:
    """Join the shards of a run and write its output.

    Args:
        names: Journals, or outputs that have journals beside them.
        output: File, or ``-``.
        format_name: One of `writers.FORMATS`; empty decides by the ending.
        rows: See `writers.write`.
        parts: See `write_all`.
        summaries: See `write_all`.
        partial: Write what is finished, whatever is missing or still going on.

    Raises:
        UsageError: A shard is absent, unfinished or of another run, or the output is impossible.
    """
    kind = resolve_format(output, format_name)
    check_writable(output)
    if parts:
        parts_path(output)
    summary_paths(summaries, output)
    size = sum(path.stat().st_size for path in journals_of(names) if path.is_file())
    workers = min(_MOST_WORKERS, default_threads()) if size > _LARGE_BYTES else 1
    run = read(names, partial=partial, workers=workers)
    summary = RunSummary(output)
    write_all(run, summary, kind, rows, parts=parts, summaries=summaries, workers=workers)
    if output != STANDARD_STREAM:
        write_record(record_path(Path(output)), run, summary, {})
    return summary


def write_all(
    run: FinishedRun,
    summary: RunSummary,
    output_format: str,
    rows: Rows,
    *,
    parts: bool = False,
    summaries: Collection[str] = (),
    workers: int = 1,
) -> None:
    """Write the output of a run and, if asked for, further tables beside it.

    Args:
        run: Finished.
        summary: Knows the output; counts what is written.
        output_format: One of `writers.FORMATS`.
        rows: See `writers.write`.
        parts: Write what structures contain beside the output; JSON lines hold that too.
        summaries: Tables for other programs, see `summaries.SUMMARIES`.
        workers: Processes that rank and write; they change nothing.

    Raises:
        UsageError: A file cannot be written.
    """
    told = parts and output_format == "jsonl"
    if output_format in WHOLE:
        write(summary.watch(run, parts=told), summary.output, output_format, run.header, rows)
    else:
        work = with_arguments(_text, output_format=output_format, rows=rows, parts=told)
        texts = in_order(work, run.slices(_AT_ONCE), workers, leave_to_parent, at_a_time=1)
        write_pieces(_joined(texts, summary, output_format), summary.output)
    if parts:
        write_parts(predictions(run, parts=True), parts_path(summary.output))
    if summaries:
        for name, path in summary_paths(summaries, summary.output).items():
            write_summary(predictions(run), name, path)


def _text(run: FinishedRun, output_format: str, rows: Rows, parts: bool) -> tuple[str, RunSummary]:
    """Text of some spectra of a run, and their counts."""
    summary = RunSummary("")
    watched = summary.watch(run, parts=parts)
    return "".join(pieces(watched, output_format, run.header, rows)), summary


def _joined(
    texts: Iterable[tuple[str, RunSummary]], summary: RunSummary, output_format: str
) -> Iterator[str]:
    """Text of all spectra, the columns named once; the summary learns the counts."""
    for place, (text, counts) in enumerate(texts):
        summary.add(counts)
        yield text.partition("\n")[2] if place and output_format in TABLES else text


def parts_path(output: str) -> Path:
    """Where the parts of a run lie: ``out.parts.csv`` for ``out.csv``.

    Raises:
        UsageError: There is no place beside the output, or it cannot be written.
    """
    if output == STANDARD_STREAM:
        raise UsageError("--parts needs an output file to lie beside; name one with -o")
    path = Path(output).with_suffix(".parts.csv")
    check_writable(str(path))
    return path


def record_path(output: Path) -> Path:
    """Where the record of a run lies: ``out.csv.run.json``."""
    return output.with_name(f"{output.name}.run.json")


def write_record(
    path: Path, run: FinishedRun, summary: RunSummary, times: Mapping[str, Any]
) -> None:
    """Write what was run with what, and how it went; the one place for times and versions.

    Raises:
        UsageError: The file cannot be written.
    """
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
        "notes": dict(sorted(summary.notes.items())),
        "times": {"computing_s": round(summary.computing_s, 3), **times},
    }
    write_atomically(path, [json.dumps(record, indent=2, ensure_ascii=False) + "\n"])
