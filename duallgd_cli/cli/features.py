"""`duallgd features`: what is made of the scans of a run before anything is predicted."""

import logging
from typing import Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.errors import counted
from duallgd_cli.files import STANDARD_STREAM
from duallgd_cli.stopping import interruptible

logger = logging.getLogger(__name__)

EPILOG = options.examples("""
`duallgd features run.mzML -o features.mgf`, then look at features.csv
`duallgd features run.mzML -o features.mgf --rt 60-600 --min-intensity 1e5`
`duallgd predict features.mgf -o out.csv` (the same candidates as `duallgd predict run.mzML`)

Exit codes: 0 written, 2 usage, 65 nothing readable, 66 input missing, 130 interrupted.
""")

_OPTIONS: Final[options.Options] = {
    "Common options": {
        "output": (str, "MGF file to write; the table beside it ends in .csv. - is standard "
            "output, without a table. By default the first input's name with .features.mgf, in "
            "this folder.", {"short": "-o"}),
    }
}  # fmt: skip


@options.takes(
    "spectra output group_by rt_window rt mz min_peaks min_intensity force quiet config set_",
    _OPTIONS,
)
def features(
    context: typer.Context,
    spectra: list[str],
    *,
    output: str | None,
    force: bool,
    quiet: bool,
    **given: object,
) -> None:
    """Group the MS2 scans of a run into features, one for each ion that elutes.

    Scans of one ion and one collision energy become a consensus spectrum. Writes an MGF file with a
    record for each feature and energy, and a table with a row for each feature: when it elutes, of
    which scans it is made, how strong its ion is, and what is doubtful about it.
    """
    display.configure_logging(quiet)
    from duallgd_cli.spectra.reading import spectrum_files
    from duallgd_cli.writers.features import table_path, write_features

    settings = options.prediction_of(context)
    output = output or options.default_output(spectra, "mgf", "features")
    with interruptible("the output is not whole; the same command starts again"):
        n_written, n_left_out, why = write_features(
            spectrum_files(spectra), output, settings.group_by, settings.features, force=force,
            others=options.reads(context.params),
        )  # fmt: skip
    places = output if output == STANDARD_STREAM else f"{output} and {table_path(output)}"
    left_out = f" ({n_left_out} without a usable spectrum: {why})" if n_left_out else ""
    logger.info("%s%s -> %s", counted(n_written, "feature"), left_out, places)
