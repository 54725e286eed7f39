"""`duallgd version`: the version alone, for scripts."""

import typer

from duallgd_cli import __version__


def version() -> None:
    """Print the version and nothing else."""
    typer.echo(__version__)


def show_and_exit(wanted: bool) -> None:
    """Answer ``duallgd --version``.

    Raises:
        typer.Exit: After printing, when the option was given.
    """
    if wanted:
        typer.echo(f"duallgd {__version__}")
        raise typer.Exit
