"""`duallgd formulas`: molecular formulas for unlabelled spectra."""

import sys
from typing import Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.files import STANDARD_STREAM
from duallgd_cli.stopping import interruptible

EPILOG = options.examples("""
`duallgd formulas spectra.mgf -o formulas.csv`
`duallgd formulas spectra.mgf --elements CHNOPS --top-k 3`
`cat spectra.mgf | duallgd formulas - --format jsonl`

Exit codes: as for duallgd predict.
""")

_OPTIONS: Final[options.Options] = {
    "Common options": {
        "output": (str, "File to write, its ending decides the format; - is standard output. By "
            "default the first input's name with .formulas.csv, in this folder; in a pipe, or "
            "where the output is redirected, standard output.", {"short": "-o"}),
        "top_k": (int, "Formulas written per spectrum.", {"default": 10}),
        "precursor_ppm": (float, "Largest difference between precursor m/z and formula, ppm. By "
            "default it follows the instrument: 5 for Orbitraps, else 10."),
    },
    "Output": {"format": (str, "csv, tsv or jsonl; by default from the output's ending.")},
}  # fmt: skip


@options.takes(
    "spectra output format top_k adduct elements precursor_ppm group_by by rt_window rt mz "
    "min_peaks min_intensity force strict quiet",
    _OPTIONS,
)
def formulas(
    context: typer.Context,
    *,
    output: str | None,
    precursor_ppm: float | None,
    quiet: bool,
    **given: object,
) -> None:
    """Rank the molecular formulas that each precursor allows, with probabilities.

    Weighs the mass error, how often a formula occurs among known structures, how likely its
    composition is, which fragments and losses it explains, and its isotopes where the file has MS1
    spectra. Formulas in the file are not read.
    Without an adduct all that the polarity allows are tried. Uses no network and no GPU.
    """
    display.configure_logging(quiet)
    from duallgd_cli.formulas.rows import write_formulas

    if output is None and not (sys.stdout is not None and sys.stdout.isatty()):
        context.params["output"] = STANDARD_STREAM
    own = {"formula_search.precursor_ppm": precursor_ppm}
    request = options.request_of(context, "formulas", own)
    with interruptible("the output is not whole; the same command starts again"):
        summary = write_formulas(request)
    display.report(summary, context)
