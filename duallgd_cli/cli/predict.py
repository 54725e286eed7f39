"""`duallgd predict` and `merge`: structures for unlabelled spectra, and one output from shards."""

import logging
from pathlib import Path
from typing import Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.cli.report import write_page
from duallgd_cli.stopping import interruptible, loading

logger = logging.getLogger(__name__)

EPILOG = options.examples("""
`duallgd predict spectra.mgf -o structures.csv`
`duallgd predict run.mzML -o out.csv --report out.html` (one answer for each ion that elutes)
`duallgd predict spectra.mgf --formula-col MY_FORMULA --steps 10`
`duallgd predict a.mgf b.mzML --formulas formulas.csv -o out.sdf --top-k 10 --seed 7`
`duallgd predict spectra.mgf --core 'O=c1cc(-c2ccccc2)oc2ccccc12' --require hexose`
`cat spectra.mgf | duallgd predict - --formula C9H8O4 -o - | csvsort -c confidence`
`duallgd predict spectra.mgf -o out.csv --parts`, then see out.parts.csv
`duallgd predict spectra.mgf -o out.csv --summary gnps`, then import out.gnps.tsv in Cytoscape
`duallgd predict big.mgf -o out.csv --shard 2/8`, then `duallgd merge out.csv`

Exit codes: 0 ran (skipped spectra are rows that say why), 1 with --strict if a spectrum was
skipped, 2 usage, 65 nothing readable, 66 input missing, 69 weights missing or broken, 130
interrupted.
""")
MERGE_EPILOG = options.examples("""
`duallgd merge out.csv -o out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)
`duallgd merge out.csv -o out.sdf` (the same results in another format)
`duallgd merge out.csv -o so-far.csv --partial` (what an interrupted run has finished)
`duallgd merge node*/out.csv.shard-*.journal.jsonl -o -`
""")

_OPTIONS: Final[options.Options] = {
    "Common options": {
        "output": (str, "File to write, its ending decides the format; - is standard output. By "
            "default the first input's name with .structures.csv, in this folder.",
            {"short": "-o"}),
    }
}  # fmt: skip
_MERGE_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {
        "runs": (list[Path], "Outputs named in the runs (all their shards are found beside them), "
            "or journals by name."),
    },
    options.OPTIONS: {
        "output": (str, "File to write; - is standard output.",
            {"short": "-o", "show_default": False, **options.REQUIRED}),
        "format": (str, "csv, tsv, jsonl, sdf or mztab; by default from the output's ending."),
        "partial": (bool, "Write what is finished of an interrupted run or of some shards."),
    }
}  # fmt: skip


@options.takes(
    "spectra output format top_k certain report parts summary features names force formula_col "
    "formula formulas adduct formula_candidates elements precursor_ppm ppm group_by by rt_window "
    "rt mz min_peaks min_intensity core require forbid analogues library database database_share "
    "database_only guide exclude_known preset samples steps seed weights device precision "
    "threads workers max_memory timeout_per_spectrum resume shard journal strict quiet config "
    "set_",
    _OPTIONS,
)
def predict(
    context: typer.Context,
    *,
    quiet: bool,
    report: Path | None,
    **given: object,
) -> None:
    """Rank candidate structures for each spectrum.

    Spectra need no labels: only peaks and a precursor. The molecular formula comes from a field of
    the file, an option or a table; where there is none it is predicted. Every MS2 spectrum gets
    its candidates, or a row that says why not; scans of a run that are of one ion get them
    together.
    """
    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.journal import read
        from duallgd_cli.predict.run import check, predictions
        from duallgd_cli.predict.run import predict as predict_files

        request = options.request_of(context)
        knowledge = check(request)  # what is wrong with files is said before the weights load
        watched = display.is_interactive(quiet)
        if watched:
            logger.info("loading libraries and weights ...")
        request, model, total = options.load(context, request)
    with display.progress(quiet, total) as shown:
        done = predict_files(request, model, shown, knowledge)
    if done.journal is not None and done.output:
        if watched:
            display.show_candidates(predictions(read([done.journal])))
        if report is not None:
            kept = f"{done.output} is whole: duallgd report {done.output} goes on"
            with interruptible(kept):  # the page was claimed before the run
                write_page([done.journal], report, request.names, force=True)
    display.report(done, context)


@options.takes(
    "runs output format partial parts summary features names force strict quiet", _MERGE_OPTIONS
)
def merge(context: typer.Context, *, partial: bool, quiet: bool, **given: object) -> None:
    """Join the shards of a run, in the order of the input.

    Refuses shards of different settings, weights or inputs, and tells which one is missing. The
    result is the same, byte for byte, as that of one run without shards. The output of the run
    itself is written anew; what else exists is replaced with --force alone.
    """
    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.run import merge as join
    with interruptible("nothing was written; the same command starts again"):
        done = join(options.request_of(context), partial=partial)
    display.report(done, context)
