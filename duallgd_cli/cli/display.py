"""What a person or a log collector sees on standard error: messages and progress.

Standard output belongs to results alone. On a terminal progress is a live bar; elsewhere it is
silent, unless JSON lines were asked for.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_STYLES: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}
_JSON_EVERY_S: Final = 5.0


class Display(Protocol):
    """Something that is told how far a run is."""

    def advance(self, done: int, total: int | None) -> None:
        """Say that `done` spectra are finished, of `total` where that is known."""
        ...


class Silence:
    """Shows nothing."""

    def advance(self, done: int, total: int | None) -> None:
        """Do nothing."""


class JsonLines:
    """One JSON object on standard error every few seconds, and at the end."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._next = 0.0

    def advance(self, done: int, total: int | None) -> None:
        """Write a line unless one was written just now."""
        elapsed = time.monotonic() - self._started
        if elapsed < self._next and done != total:
            return
        self._next = elapsed + _JSON_EVERY_S
        rate = round(done / elapsed, 4) if elapsed > 0 else 0.0
        write_json("progress", done=done, total=total, seconds=round(elapsed, 2), per_second=rate)


class LiveBar:
    """A bar on the terminal: spectra done, rate and time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("predicting", total=None, rate="")

    def advance(self, done: int, total: int | None) -> None:
        """Move the bar."""
        elapsed = self._progress.tasks[0].elapsed or 0.0
        rate = f"{elapsed / done:.1f} s each" if done else ""
        self._progress.update(self._task, completed=done, total=total, rate=rate)


@cache
def console() -> Console:
    """The one console on standard error, so that messages and a live bar do not overlap."""
    return Console(stderr=True, highlight=False)


def configure_logging(quiet: bool, json_log: bool) -> None:
    """Send the package's messages to standard error.

    Args:
        quiet: Errors only.
        json_log: One JSON object a line instead of text.
    """
    root = logging.getLogger("duallgd_cli")
    root.handlers[:] = [_JsonHandler() if json_log else _TextHandler()]
    root.setLevel(logging.ERROR if quiet else logging.INFO)
    root.propagate = False


@contextmanager
def progress(quiet: bool, json_log: bool) -> Iterator[Display]:
    """A display that suits where standard error goes."""
    if json_log and not quiet:
        yield JsonLines()
    elif quiet or not console().is_terminal:
        yield Silence()
    else:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console(),
            transient=True,
        ) as bar:
            yield LiveBar(bar)


def write_json(event: str, **values: object) -> None:
    """Write one event as a JSON line on standard error."""
    time_text = datetime.now(UTC).isoformat(timespec="milliseconds")
    line: dict[str, Any] = {"time": time_text, "event": event, **values}
    typer.echo(json.dumps(line, ensure_ascii=False, default=str), err=True)


class _TextHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Show a message above the bar, coloured by its level."""
        word = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        style = _STYLES.get(record.levelno)
        console().print(word + record.getMessage(), style=style, markup=False, soft_wrap=True)


class _JsonHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a message as an event."""
        level, text = record.levelname.lower(), record.getMessage()
        write_json("message", level=level, logger=record.name, message=text)
