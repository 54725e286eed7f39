"""`duallgd report` and `trace`: a finished run, or how one spectrum was denoised, to look at."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.files import STANDARD_STREAM, claim, require_input
from duallgd_cli.runtime import Runtime, loading

if TYPE_CHECKING:
    from duallgd_cli.report import Report

EPILOG = """
**Examples**

- `duallgd report out.csv -o out.html`, then open out.html in a browser

- `duallgd report out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)

- `duallgd predict spectra.mgf -o out.csv --report out.html` (both at once)
"""
TRACE_EPILOG = """
**Examples**

- `duallgd trace spectra.mgf --spectrum 3 -o trace.html`, then open trace.html in a browser

- `duallgd trace spectra.mgf --formula C9H8O4 --samples 2 --steps 50 -o trace.gif`
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


def trace(
    spectra: Annotated[
        str, typer.Argument(help="Spectra file, as for duallgd predict.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="File to write: .html, .svg, .png or .gif."),
    ],
    spectrum: Annotated[
        str, typer.Option(help="Number of the feature in the file, from 1, or an id.")
    ] = "1",
    formula: Annotated[
        str | None, typer.Option(help="Its molecular formula, if the file does not say.")
    ] = None,
    formulas: Annotated[
        Path | None, typer.Option(help="CSV or TSV table of formulas by feature id.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=12, help="Molecules drawn, side by side.")] = 3,
    steps: Annotated[int, typer.Option(min=1, max=500, help="Denoising steps per molecule.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    force: options.Force = False,
    weights: options.Weights = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Show how one spectrum's candidates are denoised, from noise to molecules.

    A page with a slider, a strip of a few steps (.svg, .png), or an animation (.gif): bonds as
    wide as the network thinks them probable, in the layout of the finished molecule, with spectrum
    and predicted fingerprint beside them.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.report.trace import require_ending

    require_ending(output)
    for path in (spectra, *(() if formulas is None else (str(formulas),))):
        if path != STANDARD_STREAM:
            require_input(path)
    read = [("an input, the spectra", spectra), *options.reads(weights=weights)]
    read += [] if formulas is None else [("an input, the table of formulas", str(formulas))]
    claim({"the output": output}, read, force=force)
    given = {
        "seed": seed,
        "formula": formula,
        "sampling.samples": samples,
        "sampling.steps": steps,
    }
    settings = options.settings_of(PredictSettings, None, given, [])
    from duallgd_cli.generator.trace import trace as follow
    from duallgd_cli.predict import api
    from duallgd_cli.report.trace import write_trace

    model = api.load(weights, runtime=Runtime.resolve(device))
    with running.interruptible("no file was written"):
        write_trace(follow(model, spectra, spectrum, settings, formulas), output)
    logger.info("-> %s", output)
