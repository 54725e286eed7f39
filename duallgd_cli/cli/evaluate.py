"""`duallgd evaluate`: how good predictions are."""

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """
**Examples**

- `duallgd evaluate --predictions out.csv --truth truth.tsv`

- `duallgd evaluate --predictions rival.tsv --truth massbank.tsv.xz --fold test --no-mces`
"""

_WHAT, _SCORING, _MACHINE = "What is scored", "Scoring", "Machine and output"


def evaluate(
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="CSV or TSV of anybody's predictions: an identifier, smiles and, unless the rows "
            "are in order, rank.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="Table in the MassSpecGym layout (.tsv, .gz, .xz): identifier and smiles.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    fold: Annotated[
        str, typer.Option(help="Fold of the truth to score; all if absent.", rich_help_panel=_WHAT)
    ] = "",
    spectra_per_molecule: Annotated[
        str,
        typer.Option(
            help="1 (always the same one of each molecule) or all.", rich_help_panel=_WHAT
        ),
    ] = "all",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Score so many spectra, always the same.", rich_help_panel=_WHAT),
    ] = None,
    top_k: Annotated[
        str, typer.Option(help="Ranks to report, such as 1,10.", rich_help_panel=_SCORING)
    ] = "1,10",
    mces: Annotated[
        bool,
        typer.Option(help="Compute MCES distances, the slow part.", rich_help_panel=_SCORING),
    ] = True,
    mces_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time for one pair.", rich_help_panel=_SCORING),
    ] = 10.0,
    mces_cache: Annotated[
        Path | None,
        typer.Option(
            help="File of solved pairs; by default ~/.cache/duallgd/mces.sqlite.",
            rich_help_panel=_SCORING,
        ),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Add columns by the rules of the authors' code: whole InChI, canonical tautomers, "
            "its own MCES ceiling.",
            rich_help_panel=_SCORING,
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of the bootstrap and of sampling.", rich_help_panel=_SCORING)
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the report; by default the name of the predictions with .evaluation.",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that score. By default the physical cores at hand.",
            rich_help_panel=_MACHINE,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Errors only.", rich_help_panel=_MACHINE)
    ] = False,
) -> None:
    """Score predictions against the truth: accuracy, Tanimoto and MCES with intervals."""
    from duallgd_cli.bench.evaluate import Choice, ScoreRequest, score_predictions
    from duallgd_cli.cli import display, scoreboard
    from duallgd_cli.errors import UsageError
    from duallgd_cli.evaluation.scoring import Scorer
    from duallgd_cli.runtime import available_cores

    display.configure_logging(quiet, json_log=False)
    if predictions is None or truth is None:
        raise UsageError("give --predictions and --truth")
    request = ScoreRequest(
        predictions=predictions,
        truth=truth,
        output=out or Path(f"{predictions.name}.evaluation"),
        choice=Choice(fold, spectra_per_molecule, limit),
        scorer=Scorer(
            top_k=ranks(top_k),
            mces=mces,
            reference=reference,
            mces_limit_s=mces_limit,
            workers=workers or available_cores(),
            cache=mces_cache or default_cache(),
        ),
        seed=seed,
    )
    evaluated = score_predictions(request)
    scoreboard.show(evaluated.results)
    typer.echo(f"report in {request.output}", err=True)


def ranks(text: str) -> tuple[int, ...]:
    """Read ``1,10``.

    Raises:
        UsageError: It is not a list of whole numbers from 1.
    """
    from duallgd_cli.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--top-k {text!r} is not a list of whole numbers such as 1,10")
    return tuple(sorted({int(part) for part in parts}))


def default_cache() -> Path:
    """Where solved MCES pairs are kept unless another file is named."""
    return Path.home() / ".cache" / "duallgd" / "mces.sqlite"
