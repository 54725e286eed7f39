"""`duallgd report`: a finished run to look at."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.runtime import loading

if TYPE_CHECKING:
    from duallgd_cli.report import Report

EPILOG = """
**Examples**

- `duallgd report out.csv -o out.html`, then open out.html in a browser

- `duallgd report out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)

- `duallgd predict spectra.mgf -o out.csv --report out.html` (both at once)
"""

logger = logging.getLogger(__name__)


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
        int | None,
        typer.Option(
            min=1,
            help="Candidates drawn per feature, if the run wrote as many. By default 10; of more "
            "than 1,000 features 3, and 7 are listed.",
        ),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a page that shows spectra, explained peaks and candidates of a finished run.

    One file that opens in any browser, without a server and without the network; of more than
    1,000 features an index, and a folder of pages beside it. Features can be sorted and searched;
    pointing at a candidate marks its peaks, pointing at a peak marks its
    atoms. Spectra are read again from the inputs; where those are gone, explained peaks are shown.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.journal import ENDING
        from duallgd_cli.predict.run import workers_for
        from duallgd_cli.report import write_report
    with running.interruptible("nothing was written; the same command starts again"):
        run = runs[0].with_name(runs[0].name.removesuffix(ENDING))
        page = output or run.with_suffix(".html")  # out.html for out.csv
        say(write_report(runs, page, top_k, workers_for(runs), force=force))


def say(report: "Report") -> None:
    """Say in one line what was written and how to look at it."""
    if report.missing_inputs:
        names = ", ".join(report.missing_inputs)
        logger.warning("gone or changed since: %s; the report shows explained peaks alone", names)
    mib = report.size_bytes / (1 << 20)
    pages = f" and {report.n_pages} pages in {report.folder}" if report.n_pages else ""
    logger.info(
        "%d features, %.1f MiB -> %s%s; open it in a browser",
        *(report.n_features, mib, report.page, pages),
    )
