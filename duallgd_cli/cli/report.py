"""`duallgd report`: a finished run as one page to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.runtime import loading

if TYPE_CHECKING:
    from duallgd_cli.report.page import ReportSummary

EPILOG = """
**Examples**

- `duallgd report out.csv -o out.html`, then open out.html in a browser

- `duallgd report out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)

- `duallgd predict spectra.mgf -o out.csv --report out.html` (both at once)
"""


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Output of a finished run, its journal beside it; or the journals by name.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="HTML file to write. By default the output's name with .html at its end.",
        ),
    ] = None,
    top_k: Annotated[
        int, typer.Option(min=1, help="Candidates shown per feature, if the run wrote as many.")
    ] = 10,
    quiet: options.Quiet = False,
) -> None:
    """Write a page that shows spectra, explained peaks and candidates of a finished run.

    One file that opens in any browser, without a server and without the network. Features can be
    sorted and searched; pointing at a candidate marks its peaks, pointing at a peak marks its
    atoms. Spectra are read again from the inputs; where those are gone, explained peaks are shown.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet, json_log=False)
    with loading():
        from duallgd_cli.report.page import write_report
    with running.interruptible("nothing was written; the same command starts again"):
        say(write_report(runs, output or beside(runs[0]), top_k))


def beside(run: Path) -> Path:
    """Where a report lies if nobody says: ``out.html`` for ``out.csv``."""
    return run.with_name(f"{run.name.removesuffix('.journal.jsonl')}").with_suffix(".html")


def say(written: "ReportSummary") -> None:
    """Say in one line what was written and how to look at it."""
    import logging

    logger = logging.getLogger(__name__)
    if written.missing_inputs:
        names = ", ".join(written.missing_inputs)
        logger.warning("gone or changed since: %s; the report shows explained peaks alone", names)
    mib = written.n_bytes / (1 << 20)
    logger.info(
        "%d features, %.1f MiB -> %s; open it in a browser", written.n_features, mib, written.path
    )
