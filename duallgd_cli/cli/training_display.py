"""Live figures of a training run, and of the making of data, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def training_display(
    steps: int, last: int, quiet: bool
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Yield a callback for step and figures: a bar on a terminal, plain lines elsewhere.

    Args:
        steps: Optimiser steps of the whole run.
        last: Step at which this command stops, which the time left is told to.
        quiet: Show nothing.
    """
    console = Console(stderr=True, quiet=quiet, soft_wrap=True)
    columns = (
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("", total=steps)

        def on_step(step: int, figures: dict[str, float]) -> None:
            text = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
            progress.update(task, completed=step, description=text)
            if "loss" not in figures or not console.is_terminal:
                left = ""
                if "s" in figures:  # of all steps so far, those of earlier commands too
                    left = f", {duration((last - step) * figures['s'] / step)} left"
                console.print(f"step {step} of {steps}{left}  {text}", highlight=False)

        yield on_step


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Yield a callback that adds to a count, shown live on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.completed:,.0f} {task.description}"), TextColumn("{task.speed}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda number: progress.advance(task, number)


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds, such as ``1:02:03``."""
    return str(timedelta(seconds=round(seconds)))
