"""What the shipped path is worth: time and memory beside a plain path that computes the same.

    python examples/studies/plain_path.py --atoms 10..100 -o scaling

The plain path has dense masks, scores and features written out, and the condition computed at every
step (`plain.py`). Both must give the same numbers; where they differ the study ends with an error,
since figures of a path that computes something else mean nothing. It measures as 'duallgd bench'
does, and writes a row for either path. examples/benchmarks/scaling.md holds such a table.
"""

import copy
import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import command
import torch
import typer
from plain import PlainDenoiser
from rich.table import Table
from torch import Tensor

from duallgd_cli.bench import scaling
from duallgd_cli.bench.machine import ceiling_gflop_s
from duallgd_cli.bench.scaling import Cell, Row, job_of, measure_cell
from duallgd_cli.cli import options
from duallgd_cli.errors import DuallgdError
from duallgd_cli.files import replaced_text
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.runtime import Runtime

# Largest difference of the paths' numbers, as a proportion of the largest of them (but of one at
# least).
_TOLERANCE: Final = {"float32": 1e-4, "bfloat16": 4e-2}
# Bond classes are draws: a number on the edge between two may fall either way and change others.
_TOLERANCE_OF_DRAWS: Final = {"float32": 0.01, "bfloat16": 1.0}
_SHOWN: Final = ("part", "kernel", "path", "atoms", "time_s", "memory_mib", "times_plain")


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
    seconds: Annotated[float, typer.Option(min=0, help="Time each figure for as long.")] = 1.0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the table.")] = Path(
        "scaling"
    ),
) -> None:
    """Time and memory of the shipped path beside a plain one that computes the same."""
    runtime = Runtime.resolve(device, precision, threads=threads)
    cell = Cell(runtime, samples=samples, steps=steps, seconds=seconds, weights=weights)
    sizes, kernels = scaling.parse_atoms(atoms), scaling.parse_kernels(attention)
    ceiling, rows = ceiling_gflop_s(runtime), list[Row]()
    output.mkdir(parents=True, exist_ok=True)
    for each in scaling.cells_of(cell, sizes, kernels):
        rows += both_paths(each, *scaling.network_of(weights, each.kernel, runtime), ceiling)
        with replaced_text(output / scaling.TABLE) as stream:
            table = csv.DictWriter(stream, list(dict.fromkeys(n for row in rows for n in row)))
            table.writeheader()
            table.writerows(rows)
        command.say(f"{each.part}, {each.kernel}, {each.atoms} atoms done")
    shown = Table(*_SHOWN)
    for row in rows:
        values = (row.get(name, "") for name in _SHOWN)
        shown.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in values))
    command.show(shown)
    command.say(f"-> {output}")
    check_parity(rows)


def plain_network(fast: DualLGD) -> DualLGD:
    """The network with the plain denoiser; its parameters are shared."""
    network = copy.copy(fast)
    network._modules = {**fast._modules, "denoiser": PlainDenoiser(fast.denoiser)}
    return network


def both_paths(cell: Cell, fast: DualLGD, about: Row, ceiling: float) -> list[Row]:
    """Measure a cell on either path; the row of the fast one compares them."""
    slow, plain = plain_network(fast), replace(cell, runtime=replace(cell.runtime, compile=False))
    before = {"path": "plain", **measure_cell(plain, slow, about, ceiling)}
    after = {"path": "fast", **measure_cell(cell, fast, about, ceiling)}
    after["times_plain"] = before["time_s"] / after["time_s"]
    with torch.inference_mode():
        numbers = job_of(plain, slow)(), job_of(cell, fast)()
    after["difference"], after["allowed"] = apart(cell, *numbers)
    return [before, after]


def apart(cell: Cell, plain: Tensor, fast: Tensor) -> tuple[float, float]:
    """Largest difference of states or logits, of a loop the share of other bonds; and its limit."""
    precision = cell.runtime.precision
    if cell.part == "loop":
        return float((plain != fast).float().mean()), _TOLERANCE_OF_DRAWS[precision]
    allowed = _TOLERANCE[precision] * max(1.0, float(plain.abs().max()))
    return float((plain.float() - fast.float()).abs().max()), allowed


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
