"""What the shipped path is worth: time and memory beside a plain path that computes the same.

    python examples/studies/plain_path.py --atoms 10..100 -o scaling

The plain path has dense masks, scores and features written out, and the condition computed at every
step (`plain.py`). Both must give the same numbers; where they differ the study ends with an error,
since figures of a path that computes something else mean nothing. It measures as 'duallgd bench'
does and writes the same files, with a row for either path and columns that compare them.
examples/benchmarks/scaling.md holds such a table.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import command
import numpy as np
import typer
from numpy.typing import NDArray
from plain import PlainDenoiser

from duallgd_cli.bench import plot, scaling
from duallgd_cli.bench.measure import Cell, Row, read_cells
from duallgd_cli.bench.work import Ceilings
from duallgd_cli.cli import bench, options
from duallgd_cli.cli.display import measuring
from duallgd_cli.cli.running import interruptible
from duallgd_cli.errors import DuallgdError
from duallgd_cli.runtime import Runtime

# Largest difference of the paths' numbers, as a share of the largest of them (but at least of one).
_TOLERANCE: Final = {"float32": 1e-4, "bfloat16": 4e-2}
# Bond classes are draws: a number on the edge between two may fall either way and change others.
_TOLERANCE_OF_DRAWS: Final = {"float32": 0.01, "bfloat16": 1.0}


class ParityError(DuallgdError):
    """The fast path computes something else than the plain one."""


def plain_path(
    atoms: Annotated[
        str, typer.Option(help="Numbers of heavy atoms: 10..100 (every tenth), or 30,60,100.")
    ],
    attention: Annotated[str, typer.Option(help="Kernels: softmax, favor or both.")] = (
        "softmax,favor"
    ),
    weights: options.Weights = None,
    samples: Annotated[int, typer.Option(min=1, help="Candidates in the loop.")] = 1,
    steps: Annotated[int, typer.Option(min=1, max=500, help="Steps of the loop.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs of each figure.")] = 5,
    limit: Annotated[
        float, typer.Option(min=0, help="Seconds after which nothing is repeated.")
    ] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of inputs and noise.")] = 1,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the table and results.")
    ] = Path("scaling"),
    draw: Annotated[bool, typer.Option("--plot", help="Draw four panels.")] = False,
    resume: options.Resume = False,
) -> None:
    """Time and memory of the shipped path beside a plain one that computes the same."""
    if draw:
        plot.require_matplotlib()
    runtime = Runtime.resolve(device, precision, threads=threads)
    cell = Cell(
        runtime,
        samples=samples,
        steps=steps,
        repeats=repeats,
        limit_s=limit,
        seed=seed,
        weights=weights,
    )
    groups = scaling.groups_of(cell, scaling.parse_atoms(atoms), scaling.parse_kernels(attention))
    with interruptible(bench.KEPT.format(output)), measuring() as say:
        found = scaling.run_study(groups, output, say, both_paths, resume=resume)
    bench.show(found)
    if draw:
        plot.write_plot(output, found)
    command.say(f"-> {output}")
    check_parity(found["rows"])


def both_paths(cells: Sequence[Cell], ceilings: Ceilings) -> list[Row]:
    """Measure cells on either path; the row of the fast one says what they say of each other."""
    rows: list[Row] = []
    slow = [replace(cell, plain=PlainDenoiser.__module__) for cell in cells]
    either = read_cells(slow, ceilings), read_cells(cells, ceilings)
    for (plain, before), (fast, after) in zip(*either, strict=True):
        fast["times_plain"] = scaling.time_s(plain) / scaling.time_s(fast)
        if plain["memory_mib"]:
            fast["memory_of_plain"] = fast["memory_mib"] / plain["memory_mib"]
        fast["difference"], fast["allowed"] = apart(fast, before, after)
        rows += [plain, fast]
    return rows


def apart(row: Row, plain: NDArray[np.float32], fast: NDArray[np.float32]) -> tuple[float, float]:
    """Largest difference of states or logits, of a loop the share of other bonds; and its limit."""
    if row["part"] == "loop":
        return float((plain != fast).mean()), _TOLERANCE_OF_DRAWS[row["precision"]]
    largest = max(1.0, float(np.abs(plain).max()))
    allowed = _TOLERANCE[row["precision"]] * largest
    return float(np.abs(plain - fast).max()), allowed


def check_parity(rows: Sequence[Row]) -> None:
    """Make sure that the paths agree; a result that is no number agrees with nothing.

    Raises:
        ParityError: They do not; the message names the first place.
    """
    wrong = [row for row in rows if "difference" in row and not row["difference"] <= row["allowed"]]
    if wrong:
        row = wrong[0]
        raise ParityError(
            f"{len(wrong)} rows differ between the plain and the fast path, the first at "
            f"{row['part']}, {row['kernel']}, {row['atoms']} atoms: {row['difference']:.2g}, "
            f"allowed {row['allowed']:.2g}; figures of a path that computes something else mean "
            "nothing"
        )


if __name__ == "__main__":
    command.run(plain_path)
