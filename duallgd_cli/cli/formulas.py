"""`duallgd formulas`: molecular formulas for unlabelled spectra."""

import sys
from typing import Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.files import STANDARD_STREAM

EPILOG = """
**Examples**

- `duallgd formulas spectra.mgf -o formulas.csv`

- `duallgd formulas spectra.mgf --elements CHNOPS --top-k 3`

- `cat spectra.mgf | duallgd formulas - --format jsonl`

Exit codes: as for duallgd predict.
"""


def formulas(
    context: typer.Context,
    spectra: options.Spectra,
    output: Annotated[
        str | None,
        options.common(
            "--output",
            "-o",
            help="File to write, its ending decides the format; - is standard output. By default "
            "the first input's name with .formulas.csv, in this folder; in a pipe, or where the "
            "output is redirected, standard output.",
        ),
    ] = None,
    format: Annotated[
        str | None, options.output(help="csv, tsv or jsonl; by default from the output's ending.")
    ] = None,
    top_k: Annotated[int, options.common(help="Formulas written per spectrum.")] = 10,
    adduct: options.Adduct = None,
    elements: options.Elements = None,
    precursor_ppm: Annotated[
        float | None,
        options.common(
            help="Largest difference between precursor m/z and formula, ppm. By default it "
            "follows the instrument: 5 for Orbitraps, else 10."
        ),
    ] = None,
    group_by: options.GroupBy = None,
    by: options.By = None,
    rt_window: options.RtWindow = None,
    rt: options.Rt = None,
    mz: options.Mz = None,
    min_peaks: options.MinPeaks = None,
    min_intensity: options.MinIntensity = None,
    force: options.Force = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Rank the molecular formulas that each precursor allows, with probabilities.

    Weighs the mass error, how often a formula occurs among known structures, how likely its
    composition is, which fragments and losses it explains, and its isotopes where the file has MS1
    spectra. Formulas in the file are not read.
    Without an adduct all that the polarity allows are tried. Uses no network and no GPU.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    from duallgd_cli.formulas.rows import write_formulas
    from duallgd_cli.predict.settings import PredictRequest, PredictSettings
    from duallgd_cli.spectra.reading import spectrum_files

    asked = {
        "top_k": top_k,
        "group_by": group_by,
        "adduct": adduct,
        "formula_search.precursor_ppm": precursor_ppm,
        "formula_search.elements": elements,
        **options.given(context, "features."),
    }
    settings = options.settings_of(PredictSettings, None, asked, [])
    if output is None:
        is_seen = sys.stdout is not None and sys.stdout.isatty()
        name = running.default_output(spectra, format, "formulas")
        output = name if is_seen else STANDARD_STREAM
    request = PredictRequest(
        spectrum_files(spectra), output, format or "", settings=settings, force=force
    )
    with running.interruptible("the output is not whole; the same command starts again"):
        summary = write_formulas(request)
    running.report(summary, strict)
