"""`duallgd merge`: one output from the shards of a run, or another format from a finished run."""

from pathlib import Path
from typing import Annotated

import typer

from duallgd_cli.cli import options
from duallgd_cli.runtime import loading

EPILOG = """
**Examples**

- `duallgd merge out.csv -o out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)

- `duallgd merge out.csv -o out.sdf` (the same results in another format)

- `duallgd merge out.csv -o so-far.csv --partial` (what an interrupted run has finished)

- `duallgd merge node*/out.csv.shard-*.journal.jsonl -o -`
"""


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
    rows: options.Rows = "feature",
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Write what is finished of an interrupted run or of some shards."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a spectrum was skipped.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Join the shards of a run, in the order of the input.

    Refuses shards of different settings, weights or inputs, and tells which one is missing. The
    result is the same, byte for byte, as that of one run without shards.
    """
    from duallgd_cli.cli import display, running

    display.configure_logging(quiet, json_log=False)
    with loading():
        from duallgd_cli.predict.run import merge as join
    with running.interruptible("nothing was written; the same command starts again"):
        done = join(
            runs,
            output,
            format or "",
            rows,
            parts=parts,
            summaries=summary or (),
            partial=partial,
        )
    running.report(done, strict)
