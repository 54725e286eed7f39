"""The `duallgd` command: which sub-commands there are.

To add one: write a function that imports what it needs inside, in a module of its own or in that
of the command it goes with, and add a line below. No module here may import torch or rdkit at its
top: ``duallgd --help`` stays instant.
"""

from typing import Annotated

import typer

from duallgd_cli import __version__
from duallgd_cli.cli import (
    bench,
    database,
    evaluate,
    features,
    formulas,
    info,
    predict,
    report,
    score,
    train,
)

app = typer.Typer(
    name="duallgd",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("predict", epilog=predict.EPILOG)(predict.predict)
app.command("score", epilog=score.EPILOG)(score.score)
app.command("formulas", epilog=formulas.EPILOG)(formulas.formulas)
app.command("features", epilog=features.EPILOG)(features.features)
app.command("merge", epilog=predict.MERGE_EPILOG)(predict.merge)
app.command("report", epilog=report.EPILOG)(report.report)
app.command("train", epilog=train.EPILOG)(train.train)
app.add_typer(database.app, name="database")
app.add_typer(bench.app, name="bench")
app.command("evaluate", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("calibrate", epilog=evaluate.CALIBRATE_EPILOG)(evaluate.calibrate)
app.command("config", epilog=info.CONFIG_EPILOG)(info.config)
app.command("parts", epilog=info.PARTS_EPILOG)(info.parts)
app.command("info", epilog=info.EPILOG)(info.info)
app.command("selftest", epilog=info.SELFTEST_EPILOG)(info.selftest)


@app.command("version")
def version() -> None:
    """Print the version and nothing else."""
    typer.echo(__version__)


def _show_version(wanted: bool) -> None:
    """Answer ``duallgd --version``."""
    if wanted:
        typer.echo(f"duallgd {__version__}")
        raise typer.Exit


@app.callback()
def duallgd(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
) -> None:
    """Ranked molecular structures for the tandem mass spectrum of an unknown.

    Spectra need no labels: peaks and a precursor are enough. A molecular formula helps; without one
    it is predicted. Everything runs on this machine; nothing of yours is sent anywhere. Start with
    `duallgd predict spectra.mgf`; every command explains itself with `--help`.
    """
