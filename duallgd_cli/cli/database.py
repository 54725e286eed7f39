"""`duallgd database`: files of structures read once, under names that `--database` takes."""

from pathlib import Path
from typing import Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.errors import counted
from duallgd_cli.stopping import interruptible

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Read structures once, under a name that --database takes.",
)

_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {"file": (Path, "SMI, CSV, TSV or SDF, plain, .gz, .xz or .bz2.")},
    options.OPTIONS: {
        "name": (str, "What it is called: letters, digits, . _ and -.",
            {"default": "", "show_default": "the name of the file without its endings"}),
        "force": (bool, "Replace the one of this name."),
        "workers": (int, "Processes.", {"min": 1, "show_default": "one a core"}),
        "quiet": (bool, "Show errors only.", {"short": "-q"}),
    }
}  # fmt: skip

ADD_EPILOG = options.examples("""
`duallgd database add coconut.csv.gz`, then `duallgd predict spectra.mgf --database coconut`
`duallgd database add PubChemLite_exposomics_20240101.csv --name pubchemlite`
`duallgd database add pubchemlite.csv --force`, to replace the one of that name
""")


@app.command("add", epilog=ADD_EPILOG)
@options.takes("file name force workers quiet", _OPTIONS)
def add(
    *,
    file: Path,
    name: str,
    force: bool,
    workers: int | None,
    quiet: bool,
) -> None:
    """Read the structures of a file into a database, whole or not at all.

    Rows that are no structures are counted by reason. The file is not needed afterwards.
    """
    display.configure_logging(quiet)
    from duallgd_cli.runtime import available_cores
    from duallgd_cli.sources.database import add as add_database

    with (
        interruptible("nothing is kept; the same command starts again"),
        display.counting("rows", quiet) as advance,
    ):
        name, about = add_database(
            file, name, force=force, workers=workers or available_cores(), advance=advance
        )
    if not quiet:
        typer.echo(
            f"database {name} holds {counted(about.structures, 'structure')} of "
            f"{counted(about.formulas, 'formula')}; duallgd predict SPECTRA --database {name} "
            "uses it",
            err=True,
        )


@app.command("list", epilog="Example: `duallgd database list`")
def list_() -> None:
    """Show which databases there are, and what they hold."""
    from duallgd_cli.runtime import databases_folder
    from duallgd_cli.sources.database import Database, entries

    rows = []
    for name, database in entries():
        if isinstance(database, Database):
            about, size = database.about, database.path.stat().st_size
            numbers = (about.structures, about.formulas, -(-size // 1_000_000))
            rows.append((name, *(f"{number:,}" for number in numbers), about.file, about.remarks))
        else:
            rows.append((name, "", "", "", "", database))
    if not rows:
        typer.echo("there is no database; duallgd database add FILE adds the first", err=True)
        return
    heads = ("name", "structures", "formulas", "MB", "file", "remarks")
    title = f"databases in {databases_folder()}"
    display.show_table(title, heads, rows, texts=heads[4:])


@app.command("remove", epilog="Example: `duallgd database remove coconut`")
@options.takes("name", {options.ARGUMENTS: {"name": (str, "Of the database.")}})
def remove(name: str) -> None:
    """Delete a database; the file that it was read from stays."""
    from duallgd_cli.sources.database import remove as remove_database

    remove_database(name)
    typer.echo(f"database {name} is deleted", err=True)
