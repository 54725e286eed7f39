"""`duallgd score`: structures of one's own against spectra."""

from pathlib import Path
from typing import Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.stopping import interruptible, loading

EPILOG = options.examples("""
`duallgd score spectra.mgf --structures mine.smi`
`duallgd score spectra.mgf --structures isomers.csv --database coconut -o scores.csv`
`duallgd score spectra.mgf --structures mine.smi --formula C15H10O7 -o - | column -t -s ,`

Exit codes: as for duallgd predict.
""")

_OPTIONS: Final[options.Options] = {
    "Common options": {
        "structures": (Path, "Structures to be scored: .smi, .csv, .tsv or .sdf, at most 1,000.",
            {"metavar": "FILE", "show_default": False, **options.REQUIRED}),
        "output": (str, "File to write, its ending decides the format; - is standard output. By "
            "default the first input's name with .scores.csv, in this folder.", {"short": "-o"}),
    },
    "Output": {"format": (str, "csv, tsv or jsonl; by default from the output's ending.")},
}  # fmt: skip


@options.takes(
    "spectra structures output format force formula_col formula formulas adduct precursor_ppm "
    "group_by by rt_window rt mz min_peaks min_intensity database database_share database_only "
    "preset samples steps seed weights device precision threads workers timeout_per_spectrum "
    "strict quiet config set_",
    _OPTIONS,
)
def score(
    context: typer.Context,
    *,
    structures: Path,
    quiet: bool,
    **given: object,
) -> None:
    """Rank structures of your own among all other candidates of each spectrum.

    Candidates of the same formula are generated as duallgd predict does, and taken from databases;
    each of your structures gets a row with its rank and probability among them, every score, and
    the peaks that its fragments explain. One that does not fit the spectrum has a row that says
    why. Where a spectrum has no formula, those of your structures that fit its precursor are tried.
    """
    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.scoring import check, score_structures

        request = options.request_of(context, "scores")
        read, knowledge = check(request, structures)  # before the weights load
        request, model, total = options.load(context, request)
    with (
        interruptible("nothing was written; the same command starts again"),
        display.progress(quiet, total) as shown,
    ):
        done = score_structures(request, read, model, shown, knowledge)
    display.report(done, context)
