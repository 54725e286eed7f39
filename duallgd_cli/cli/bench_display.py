"""What a person sees of the scalability study: a bar while it runs, then tables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from duallgd_cli.bench.speed.rows import Row
    from duallgd_cli.bench.speed.scaling import Found, Group

# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 170
_COLUMNS: Final = (
    "N", "cand.", "steps", "time / ms", "iqr", "plain/fast", "floor / ms", "/floor", "MiB",
    "/plain", "GFLOP", "difference",
)  # fmt: skip


@contextmanager
def watching(total: int) -> Iterator[Callable[["Group"], None]]:
    """Yield a callback for every finished group: a bar on a terminal, silence elsewhere."""
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=total)

        def advance(group: "Group") -> None:
            progress.update(task, advance=1, description=f"{group} done")

        yield advance


def show(found: "Found") -> None:
    """Print machine, ceilings, figures, growth and crossings on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    for sentence in _setting(found):
        console.print(sentence, markup=False)
    console.print(_figures(found.rows))
    console.print(_growth(found))
    for part, atoms in found.crossings.items():
        if atoms is None:
            console.print(f"{part}: FAVOR+ is not faster than exact softmax at these sizes")
        else:
            console.print(f"{part}: FAVOR+ is faster than exact softmax from N = {atoms:.0f}")


def _setting(found: "Found") -> list[str]:
    machine, row = found.machine, found.rows[0]
    ceilings = found.ceilings
    known = {r.val_top1 for r in found.rows if r.val_top1 is not None}
    accuracy = ", ".join(f"{100 * share:.1f} %" for share in sorted(known))
    products = ", ".join(f"{rate / 1e9:.0f} {name}" for name, rate in ceilings.flop_s.items())
    where = machine["accelerator"] or machine["cpu"]
    return [
        f"{where}, {machine['threads']} of {machine['cores']} cores, "
        f"{' '.join(machine['instructions'])}, torch {machine['torch']}, load {machine['load']}",
        f"Reached here: {products} GFLOP/s in matrix products, "
        f"{ceilings.exponentials_s / 1e9:.2f} G exponentials/s, {ceilings.bytes_s / 1e9:.1f} GB/s",
        f"Preset {row.preset}, weights {row.weights}, {row.parameters:,} parameters, "
        f"{row.precision}, top-1 on validation spectra {accuracy or 'not known'}",
        f"Times: median {row.clock} time of a run. Memory: {found.memory_how}. GFLOP: matrix "
        "products of a candidate-step. Difference: of both paths' numbers; of loops, share of "
        "bonds that differ.",
    ]


def _figures(rows: "Sequence[Row]") -> Table:
    table = Table(title="Time and memory", title_justify="left")
    table.add_column("part, kernel, path", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    previous = None
    for row in sorted(rows, key=_order):
        kind = (row.sweep, row.part, row.kernel)
        if kind != previous:
            table.add_section()
            previous = kind
        table.add_row(f"{row.part} {row.kernel} {row.path}", *_cells(row))
    return table


def _order(row: "Row") -> tuple[object, ...]:
    return (row.sweep, row.part, row.kernel, row.path, row.atoms, row.samples, row.steps)


def _cells(row: "Row") -> list[str]:
    iqr = row.cpu_iqr_s if row.clock == "cpu" else row.wall_iqr_s
    return [
        str(row.atoms),
        str(row.samples),
        str(row.steps),
        f"{1000 * row.time_s:.2f}",
        f"{1000 * iqr:.2f}",
        _number(row.times_plain, ".2f"),
        _number(row.floor_s and 1000 * row.floor_s, ".2f"),
        _number(row.over_floor, ".1f"),
        f"{row.memory_mib:.1f}",
        _number(row.memory_of_plain, ".2f"),
        _number(row.gflop, ".3f"),
        _number(row.difference, ".1e"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _growth(found: "Found") -> Table:
    table = Table(title="Growth: exponent b of cost = a x^b", title_justify="left")
    for name in ("with", "part", "kernel", "path"):
        table.add_column(name, no_wrap=True)
    for name in ("time", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for fitted in found.exponents:
        key = tuple(fitted[name] for name in ("with", "part", "kernel", "path"))
        error = fitted["standard_error"]
        text = f"{fitted['value']:.2f}" + ("" if error is None else f" ± {error:.2f}")
        lines.setdefault(key, {})[fitted["of"]] = text
    for key, texts in lines.items():
        table.add_row(*key, texts.get("time", ""), texts.get("memory", ""))
    return table
