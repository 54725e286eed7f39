"""What a person sees on standard error: messages, progress, and how a run went.

Standard output belongs to results alone. On a terminal progress is a live bar; elsewhere there are
lines, few enough for a log.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from duallgd_cli.errors import UnreadableError, counted, printable
from duallgd_cli.files import STANDARD_STREAM

if TYPE_CHECKING:
    from duallgd_cli.predict.run import Progress as RunProgress
    from duallgd_cli.predict.run import RunSummary
    from duallgd_cli.results import HypothesisResult, Prediction

logger = logging.getLogger(__name__)

_EVERY_S: Final = 60.0  # between lines of a log, where no tenth of the run is done earlier
_STYLES: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}
# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 200
_BAR: Final = 10  # characters of a confidence of 1
MOST_SHOWN: Final = 20


@cache
def console() -> Console:
    """The one console on standard error, so that messages and a live bar do not overlap."""
    return Console(stderr=True, highlight=False)


def configure_logging(quiet: bool) -> None:
    """Send the package's messages to standard error, or only errors with `quiet`."""
    root = logging.getLogger("duallgd_cli")
    root.handlers[:] = [_Messages()]
    root.setLevel(logging.ERROR if quiet else logging.INFO)


def is_interactive(quiet: bool) -> bool:
    """Whether somebody watches a live bar."""
    return console().is_terminal and not quiet


@contextmanager
def progress(quiet: bool, total: int | None) -> Iterator["RunProgress | None"]:
    """A bar on a terminal; elsewhere a line whenever a tenth of `total` or a minute has passed."""
    if quiet:
        yield None
        return
    done = computed = tenths = 0
    started = said = time.monotonic()
    count = MofNCompleteColumn() if total is not None else TextColumn("{task.completed}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with bar(*columns, description="starting", total=total) as (shown, update):

        def tell(stage: str, n_spectra: int, result: "HypothesisResult | None") -> None:
            nonlocal done, computed, tenths, started, said
            now = time.monotonic()
            if not n_spectra and result is None:
                started = said = now  # a stage begins
            done += n_spectra
            computed += 0 if result is None else n_spectra  # a journal says nothing of the pace
            left = ""
            if total is not None and computed and done < total:
                left = f", {duration((now - started) / computed * (total - done))} left"
            update(description=f"{stage}{left}", advance=n_spectra)
            reached = 10 * done // total if total else 0
            is_due = now - said >= _EVERY_S or (reached > tenths and now - said >= 1)
            if is_due and not shown.is_terminal:
                of = "" if total is None else f" of {total}"
                logger.info("%s: %d%s spectra%s", stage, done, of, left)
                said, tenths = now, reached

        yield tell


@contextmanager
def bar(
    *columns: ProgressColumn, description: str = "", total: int | None = None, quiet: bool = False
) -> Iterator[tuple[Console, Callable[..., None]]]:
    """Yield the console and what updates a bar there, if it is a terminal; it goes at the end."""
    shown = Console(quiet=True) if quiet else console()
    progress = Progress(*columns, console=shown, transient=True)
    with progress if is_interactive(quiet) else nullcontext():  # even a disabled one ends a line
        yield shown, partial(progress.update, progress.add_task(description, total=total))


@contextmanager
def training_display(steps: int, quiet: bool) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Yield a callback for step, of so many, and figures: a bar on a terminal, else plain lines."""
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    words = TextColumn("{task.description}")
    with bar(TextColumn("step"), *columns, words, total=steps, quiet=quiet) as (console, update):

        def on_step(step: int, figures: dict[str, float]) -> None:
            text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
            update(completed=step, description=text)
            if "loss" not in figures or not console.is_terminal:
                left = ""
                if "s" in figures:  # of all steps so far, those of earlier commands too
                    left = f", {duration((steps - step) * figures['s'] / step)} left"
                console.print(f"step {step} of {steps}{left}  {text}", soft_wrap=True)

        yield on_step


@contextmanager
def counting(what: str, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Yield a callback that adds to a count, shown live on a terminal unless `quiet`."""
    count = TextColumn("{task.completed:,.0f} {task.description}")
    with bar(count, TextColumn("{task.speed}"), description=what, quiet=quiet) as (_, update):
        yield lambda number: update(advance=number)


def show_table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: Collection[str] = (),
    caption: str | None = None,
) -> None:
    """Print results as a table on standard output.

    Numbers stand at the right, the first column and texts at the left, these in several lines.
    """
    made = Table(title=title, title_justify="left", caption=caption)
    for head in heads:
        at_left = head in texts or head == heads[0]
        made.add_column(head, justify="left" if at_left else "right", no_wrap=head not in texts)
    for row in rows:
        made.add_row(*row)
    out = Console(highlight=False, markup=False)
    out.width = out.width if out.is_terminal else _WIDTH_WITHOUT_TERMINAL
    out.print(made)


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds, such as ``1:02:03``."""
    return str(timedelta(seconds=round(seconds)))


def show_candidates(predictions: Iterable["Prediction"]) -> None:
    """Show the first candidate of the first features on standard error."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("feature", no_wrap=True, max_width=20)
    table.add_column("formula", no_wrap=True)
    table.add_column("first candidate", no_wrap=True, ratio=1)
    table.add_column("confidence", no_wrap=True, min_width=_BAR + 6)
    features = (one for one in predictions if one.source == one.group[0])
    for one in islice(features, MOST_SHOWN):
        formula, smiles, bar = one.formula, one.status.replace("_", " "), ""
        for first in one.candidates[:1]:
            full = round(_BAR * first.confidence)
            formula, smiles = first.formula, first.smiles
            bar = f"{'█' * full}{'░' * (_BAR - full)} {first.confidence:4.0%}"
        cells = (printable(one.feature_id or one.spectrum_id), printable(formula), smiles, bar)
        table.add_row(*map(Text, cells))
    console().print(table)
    if next(features, None) is not None:
        console().print("and more in the output")


class _Messages(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Show a message above the bar, coloured by its level."""
        word = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        style = _STYLES.get(record.levelno)
        # What a file calls itself must not steer the terminal; each line is looked at alone.
        text = "\n".join(map(printable, record.getMessage().split("\n")))
        console().print(word + text, style=style, markup=False, soft_wrap=True)


def report(summary: "RunSummary", context: typer.Context) -> None:
    """Say in one line how it went, and end as the documented exit codes promise.

    Raises:
        UnreadableError: No record of the inputs could be read.
        typer.Exit: With 1, if spectra were skipped and that was to be an error.
    """
    logger.info("%s", sentence(summary))
    if summary.n_spectra and not summary.n_ok:
        # What the first of the commonest status says.
        status, count = max(summary.counts.items(), key=lambda item: (item[1], item[0]))
        them = "it is" if summary.n_spectra == 1 else f"{count} of {summary.n_spectra} are"
        why = summary.messages.get(status, "see the messages of the rows")
        logger.warning("no spectrum has candidates; %s %s: %s", them, status, why)
    elif n_broken := summary.counts["unreadable"]:
        why = summary.messages.get("unreadable", "see the rows")
        logger.warning("%s cannot be read: %s", counted(n_broken, "record"), why)
    if set(+summary.counts) == {"unreadable"}:
        n_records = counted(summary.n_spectra, "record")
        raise UnreadableError(f"none of {n_records} could be read; see the rows")
    n_settled = summary.n_ok + summary.counts["same_compound"]
    if context.params["strict"] and n_settled < summary.n_spectra:
        raise typer.Exit(1)


def sentence(summary: "RunSummary") -> str:
    """A run in one line: spectra by status, candidates, time and where things are."""
    others = [f"{count} {status}" for status, count in summary.counts.items() if status != "ok"]
    spectra = counted(summary.n_spectra, "spectrum", "spectra")
    words = [f"{summary.n_ok} of {spectra} with candidates"]
    words += [f"({', '.join(others)})"] if others else []
    if 0 < summary.n_features < summary.n_spectra:
        words.append(f"read as {counted(summary.n_features, 'feature')}")
    words.append(counted(summary.n_candidates, "candidate"))
    if summary.n_own:
        words.append(f"{summary.n_own_ranked} of your {counted(summary.n_own, 'structure')} ranked")
    if summary.n_resumed:
        words.append(f"{counted(summary.n_resumed, 'feature')} taken from the journal")
    if summary.n_ms1:
        words.append(f"{counted(summary.n_ms1, 'MS1 spectrum', 'MS1 spectra')} read for isotopes")
    if summary.seconds:
        words.append(f"{summary.seconds:.1f} s")
    said = ", ".join(words).replace(", (", " (")
    if summary.output == STANDARD_STREAM:
        return said
    merging = f"{summary.journal}; when every shard is done, join them with duallgd merge"
    return f"{said} -> {summary.output or merging}"
