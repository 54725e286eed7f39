"""`duallgd predict` and `merge`: structures for unlabelled spectra, and one output from shards."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.stopping import loading

logger = logging.getLogger(__name__)

EPILOG = """
**Examples**

- `duallgd predict spectra.mgf -o structures.csv`

- `duallgd predict run.mzML -o out.csv --report out.html` (one answer for each ion that elutes)

- `duallgd predict spectra.mgf --formula-col MY_FORMULA --steps 10`

- `duallgd predict a.mgf b.mzML --formulas formulas.csv -o out.sdf --top-k 10 --seed 7`

- `duallgd predict spectra.mgf --core 'O=c1cc(-c2ccccc2)oc2ccccc12' --require hexose`

- `cat spectra.mgf | duallgd predict - --formula C9H8O4 -o - | csvsort -c confidence`

- `duallgd predict spectra.mgf -o out.csv --parts`, then see out.parts.csv

- `duallgd predict spectra.mgf -o out.csv --summary gnps`, then import out.gnps.tsv in Cytoscape

- `duallgd predict big.mgf -o out.csv --shard 2/8`, then `duallgd merge out.csv`

Exit codes: 0 ran (skipped spectra are rows that say why), 1 with --strict if a spectrum was
skipped, 2 usage, 65 nothing readable, 66 input missing, 69 weights missing or broken, 130
interrupted.
"""
MERGE_EPILOG = """
**Examples**

- `duallgd merge out.csv -o out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)

- `duallgd merge out.csv -o out.sdf` (the same results in another format)

- `duallgd merge out.csv -o so-far.csv --partial` (what an interrupted run has finished)

- `duallgd merge node*/out.csv.shard-*.journal.jsonl -o -`
"""


def predict(
    context: typer.Context,
    spectra: options.Spectra,
    output: Annotated[
        str | None,
        options.common(
            "--output",
            "-o",
            help="File to write, its ending decides the format; - is standard output. By default "
            "the first input's name with .structures.csv, in this folder.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        options.output(help="csv, tsv, jsonl, sdf or mztab; by default from the output's ending."),
    ] = None,
    top_k: Annotated[
        int | None, options.output(help="Candidates written per spectrum.", show_default="10")
    ] = None,
    certain: Annotated[
        float | None,
        options.output(
            metavar="P",
            help="Probability from which on an answer counts as certain, for the column level.",
            show_default="0.7",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        options.output(
            metavar="HTML",
            help="Write a page to look at, too: spectra, explained peaks, drawn candidates.",
        ),
    ] = None,
    parts: options.Parts = False,
    summary: options.Summary = None,
    features: options.Features = None,
    names: options.Names = None,
    force: options.Force = False,
    formula_col: options.FormulaColumn = None,
    formula: options.OneFormula = None,
    formulas: options.FormulaTable = None,
    adduct: options.Adduct = None,
    formula_candidates: Annotated[
        int | None,
        options.checks(
            help="Most predicted formulas that structures are drawn for, 1 to 20; those that hold "
            "95 % of the probability share the samples.",
            show_default="5",
        ),
    ] = None,
    elements: options.Elements = None,
    precursor_ppm: options.PrecursorPpm = None,
    ppm: Annotated[
        float | None,
        options.checks(
            help="Mass tolerance for explaining peaks, ppm. By default it follows the instrument: "
            "7 for Orbitraps, 20 for Q-TOF instruments, else 10."
        ),
    ] = None,
    group_by: options.GroupBy = None,
    by: options.By = None,
    rt_window: options.RtWindow = None,
    rt: options.Rt = None,
    mz: options.Mz = None,
    min_peaks: options.MinPeaks = None,
    min_intensity: options.MinIntensity = None,
    core: Annotated[
        str | None,
        options.known(
            metavar="SMILES",
            help="A substructure that is certain: candidates without it are left out. With "
            "attachment points (*) its other atoms have no further bonds.",
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        options.known(
            metavar="PART",
            help="SMARTS, or a name such as hexose, that every candidate must have; may be "
            "repeated, as --forbid.",
        ),
    ] = None,
    forbid: Annotated[
        list[str] | None,
        options.known(metavar="PART", help="SMARTS or name that no candidate may have."),
    ] = None,
    analogues: Annotated[
        list[Path] | None,
        options.known(
            metavar="FILE",
            help="Molecules that are like the unknown ones, to start samples from: .smi, .csv "
            "(smiles, name, feature_id) or .sdf; may be repeated, as --library.",
        ),
    ] = None,
    library: Annotated[
        list[Path] | None,
        options.known(
            metavar="FILE",
            help="Spectral library with structures (.msp, .mgf, .json, ...). The structure of "
            "the best match is a candidate, as probable as such matches are right; those of "
            "similar spectra are analogues.",
        ),
    ] = None,
    database: options.Database = None,
    database_share: options.DatabaseShare = None,
    database_only: options.DatabaseOnly = False,
    guide: Annotated[
        list[Path] | None,
        options.known(
            metavar="FILE",
            help="CSV or TSV of what is known of single features: feature_id, core, require, "
            "forbid, analogue; several values with | between them.",
        ),
    ] = None,
    exclude_known: options.ExcludeKnown = None,
    preset: options.Preset = None,
    samples: options.Samples = None,
    steps: options.Steps = None,
    seed: options.Seed = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    timeout_per_spectrum: options.TimeoutPerSpectrum = None,
    resume: options.Resume = False,
    shard: options.Shard = None,
    journal: Annotated[
        Path | None,
        options.long(
            help="Where finished spectra are kept as they come. By default beside the output."
        ),
    ] = None,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
    config: options.Config = None,
    set_: options.Assignments = None,
) -> None:
    """Rank candidate structures for each spectrum.

    Spectra need no labels: only peaks and a precursor. The molecular formula comes from a field of
    the file, an option or a table; where there is none it is predicted. Every MS2 spectrum gets
    its candidates, or a row that says why not; scans of a run that are of one ion get them
    together.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.run import check
        from duallgd_cli.predict.run import predict as predict_files
        from duallgd_cli.predict.settings import Shard

        request = replace(
            running.request_of(context, config, "structures"),
            formulas=formulas,
            features=features,
            guide=options.guide_files(
                analogues=analogues, libraries=library, tables=guide, databases=database
            ),
            shard=Shard.parse(shard) if shard else Shard(),
            resume=resume,
            journal=journal,
            parts=parts,
            summaries=tuple(summary or ()),
            names=names,
            page=report,
        )
        knowledge = check(request)  # what is wrong with files is said before the weights load
        watched = display.is_interactive(quiet)
        if watched:
            logger.info("loading libraries and weights ...")
        request, model, total = running.load(context, request)
    with display.progress(quiet, total) as shown:
        done = predict_files(request, model, shown, knowledge)
    if watched:
        running.show_first(done)
    if report is not None:
        running.write_page(done, report, names)
    running.report(done, strict)


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Outputs named in the runs (all their shards are found beside them), or "
            "journals by name.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="File to write; - is standard output.", show_default=False
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(help="csv, tsv, jsonl, sdf or mztab; by default from the output's ending."),
    ] = None,
    parts: options.Parts = False,
    summary: options.Summary = None,
    features: options.Features = None,
    names: options.Names = None,
    force: options.Force = False,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Write what is finished of an interrupted run or of some shards."
        ),
    ] = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Join the shards of a run, in the order of the input.

    Refuses shards of different settings, weights or inputs, and tells which one is missing. The
    result is the same, byte for byte, as that of one run without shards. The output of the run
    itself is written anew; what else exists is replaced with --force alone.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.run import merge as join
        from duallgd_cli.predict.settings import PredictRequest
    with running.interruptible("nothing was written; the same command starts again"):
        request = PredictRequest(
            inputs=tuple(map(str, runs)),
            output=output,
            format=format or "",
            parts=parts,
            summaries=tuple(summary or ()),
            features=features,
            names=names,
            force=force,
        )
        done = join(request, partial=partial)
    running.report(done, strict)
