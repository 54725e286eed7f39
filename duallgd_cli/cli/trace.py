"""`duallgd trace`: how the candidates of one spectrum came to be."""

from pathlib import Path
from typing import Annotated

import typer

from duallgd_cli.cli import options

EPILOG = """
**Examples**

- `duallgd trace spectra.mgf --spectrum 3 -o trace.html`, then open trace.html in a browser

- `duallgd trace spectra.mgf --formula C9H8O4 --samples 2 --steps 50 -o trace.gif`
"""


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
    weights: options.Weights = None,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Show how one spectrum's candidates are denoised, from noise to molecules.

    A page with a slider, a strip of a few steps (.svg, .png), or an animation (.gif): bonds as
    wide as the network thinks them probable, in the layout of the finished molecule, with spectrum
    and predicted fingerprint beside them.
    """
    import logging

    from duallgd_cli.cli import display, running

    display.configure_logging(quiet, json_log=False)
    from duallgd_cli.generator.trace import trace as follow
    from duallgd_cli.predict import api
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.report.trace import check, write_trace
    from duallgd_cli.runtime import Runtime

    check(output)
    given = {
        "seed": seed,
        "formula": formula,
        "sampling.samples": samples,
        "sampling.steps": steps,
    }
    settings = options.settings_of(PredictSettings, None, given, [])
    model = api.load(weights, runtime=Runtime.resolve(device))
    with running.interruptible("no file was written"):
        write_trace(follow(model, spectra, spectrum, settings, formulas), output)
    logging.getLogger(__name__).info("-> %s", output)
