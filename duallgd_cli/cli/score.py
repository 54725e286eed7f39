"""`duallgd score`: structures of one's own against spectra."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.stopping import loading

EPILOG = """
**Examples**

- `duallgd score spectra.mgf --structures mine.smi`

- `duallgd score spectra.mgf --structures isomers.csv --database coconut -o scores.csv`

- `duallgd score spectra.mgf --structures mine.smi --formula C15H10O7 -o - | column -t -s ,`

Exit codes: as for duallgd predict.
"""


def score(
    context: typer.Context,
    spectra: options.Spectra,
    structures: Annotated[
        Path,
        options.common(
            metavar="FILE",
            help="Structures to be scored: .smi, .csv, .tsv or .sdf, at most 1,000.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str | None,
        options.common(
            "--output",
            "-o",
            help="File to write, its ending decides the format; - is standard output. By default "
            "the first input's name with .scores.csv, in this folder.",
        ),
    ] = None,
    format: Annotated[
        str | None, options.output(help="csv, tsv or jsonl; by default from the output's ending.")
    ] = None,
    force: options.Force = False,
    formula_col: options.FormulaColumn = None,
    formula: options.OneFormula = None,
    formulas: options.FormulaTable = None,
    adduct: options.Adduct = None,
    precursor_ppm: options.PrecursorPpm = None,
    group_by: options.GroupBy = None,
    by: options.By = None,
    rt_window: options.RtWindow = None,
    rt: options.Rt = None,
    mz: options.Mz = None,
    min_peaks: options.MinPeaks = None,
    min_intensity: options.MinIntensity = None,
    database: options.Database = None,
    database_share: options.DatabaseShare = None,
    database_only: options.DatabaseOnly = False,
    preset: options.Preset = None,
    samples: options.Samples = None,
    steps: options.Steps = None,
    seed: options.Seed = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    workers: options.Workers = None,
    timeout_per_spectrum: options.TimeoutPerSpectrum = None,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
    set_: options.Assignments = None,
) -> None:
    """Rank structures of your own among all other candidates of each spectrum.

    Candidates of the same formula are generated as duallgd predict does, and taken from databases;
    each of your structures gets a row with its rank and probability among them, every score, and
    the peaks that its fragments explain. One that does not fit the spectrum has a row that says
    why. Where a spectrum has no formula, those of your structures that fit its precursor are tried.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.scoring import check, score_structures

        request = running.request_of(context, config, "scores")
        guide = options.guide_files(databases=database)
        request = replace(request, formulas=formulas, guide=guide)
        read, knowledge = check(request, structures)  # before the weights load
        request, model, total = running.load(context, request)
    with (
        running.interruptible("nothing was written; the same command starts again"),
        display.progress(quiet, total) as shown,
    ):
        done = score_structures(request, read, model, shown, knowledge)
    running.report(done, strict)
