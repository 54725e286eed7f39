"""What the commands of the studies share: options, how they end, and what they say meanwhile."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from duallgd_cli.errors import DuallgdError, printable
from duallgd_cli.runtime import prepare_environment

_WIDTH_WITHOUT_TERMINAL = 180

Output = Annotated[
    Path, typer.Option("-o", "--output", help="Folder of the study; what is finished is kept.")
]
Molecules = Annotated[int, typer.Option(min=1, help="Held-out molecules to judge by.")]


def run(command: Callable[..., Any]) -> None:
    """Run a study as a program: an anticipated problem is one sentence and an exit code."""
    prepare_environment()
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command()(command)
    try:
        app()
    except DuallgdError as error:
        typer.secho(f"error: {printable(str(error))}", err=True, fg=typer.colors.RED)
        sys.exit(error.exit_code)


def say(text: str) -> None:
    """One line on standard error: how the study goes."""
    typer.echo(text, err=True)


def show(table: Table, *sentences: str) -> None:
    """Print a table and sentences on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:  # piped output has no width of its own
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print(table)
    for sentence in sentences:
        console.print(sentence, markup=False)
