"""`duallgd bench`: how time and memory of the network grow, and the throughput of predict."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duallgd_cli.cli import options
from duallgd_cli.cli.running import interruptible
from duallgd_cli.files import STANDARD_STREAM, claim, require_input, write_atomically

if TYPE_CHECKING:
    from rich.table import Table

EPILOG: Final = """
**Examples**

- `duallgd bench --atoms 10..100` (every tenth; `10..100:5`, or a list such as `30,60,100`)

- `duallgd bench --atoms 10..100 --steps 500 --device cuda -o bench/ --plot`

- `duallgd bench --atoms 30 --samples 100 --threads 1`

Time and peak memory of the attention over pairs alone, of one evaluation of the denoiser and of
the whole sampling loop, for exact softmax and FAVOR+. Each figure stands beside the time that
nothing can beat on this machine, measured in the same run. A plain path to compare with:
`python examples/studies/plain_path.py`.
"""
PREDICT_EPILOG: Final = """
**Examples**

- `duallgd bench predict spectra.mgf --steps 10 --samples 100`

- `duallgd bench predict --atoms 30 --device cuda -o throughput/ --profile`

Without a file, spectra are made from chemistry. Without rdkit the network alone is measured. All
samples start from pure noise: predict is faster where known molecules are near the formula.
"""
_what = partial(typer.Option, rich_help_panel="What is measured")
# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 170
# Columns of the printed table: title, name in a row, factor, format. Those of a study that compares
# two paths stand in no other.
_COLUMNS: Final = (
    ("N", "atoms", 1, "d"), ("cand.", "samples", 1, "d"), ("steps", "steps", 1, "d"),
    ("time / ms", "time", 1000, ".2f"), ("iqr", "iqr", 1000, ".2f"),
    ("plain/fast", "times_plain", 1, ".2f"), ("floor / ms", "floor_s", 1000, ".2f"),
    ("/floor", "over_floor", 1, ".1f"), ("MiB", "memory_mib", 1, ".1f"),
    ("/plain", "memory_of_plain", 1, ".2f"), ("GFLOP", "gflop", 1, ".3f"),
    ("difference", "difference", 1, ".1e"),
)  # fmt: skip
# What Ctrl-C leaves.
KEPT: Final = "what was measured is kept in {}: the same command with --resume goes on"
# Load on a core beyond this program's own at which its times say little.
_BUSY: Final = 0.5

app = typer.Typer(
    invoke_without_command=True, help="Measure speed and memory of the network and of predict."
)


@app.callback(epilog=EPILOG)
def bench(
    context: typer.Context,
    atoms: Annotated[
        str | None,
        _what(help="Numbers of heavy atoms: 10..100 (every tenth), 10..100:5, or 30,60,100."),
    ] = None,
    attention: Annotated[str, _what(help="Kernels: softmax, favor or both.")] = "softmax,favor",
    weights: options.Weights = None,
    samples: Annotated[int, _what(min=1, help="Candidates in the loop.")] = 1,
    steps: Annotated[int, _what(min=1, max=500, help="Steps of the loop.")] = 10,
    repeats: Annotated[int, _what(min=1, help="Timed runs of each figure.")] = 5,
    limit: Annotated[
        float, _what(min=0, metavar="SECONDS", help="No repeat of what took longer in all.")
    ] = 20.0,
    seed: Annotated[int, _what(min=0, help="Seed of inputs and noise.")] = 1,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    output: Annotated[
        Path, options.output("-o", "--output", help="Folder for the table and results.")
    ] = Path("bench"),
    plot: Annotated[bool, options.output("--plot", help="Four panels as PNG and SVG.")] = False,
    resume: options.Resume = False,
    force: options.Force = False,
) -> None:
    """Measure speed and memory of the network and of predict."""
    if context.invoked_subcommand is not None:
        return
    if atoms is None:
        typer.echo(context.get_help())
        return
    from duallgd_cli.bench import plot as drawing
    from duallgd_cli.bench import scaling
    from duallgd_cli.bench.measure import Cell
    from duallgd_cli.cli.display import measuring
    from duallgd_cli.runtime import Runtime

    if plot:
        drawing.require_matplotlib()
    names = [scaling.RESULTS, scaling.TABLE, *(("scaling.png", "scaling.svg") if plot else ())]
    ways = "or --resume to continue its run"
    _claim(output, names, weights, force, resume=resume, otherwise=ways)
    sizes, kernels = scaling.parse_atoms(atoms), scaling.parse_kernels(attention)
    cell = Cell(
        Runtime.resolve(device, precision, threads=threads),
        samples=samples,
        steps=steps,
        repeats=repeats,
        limit_s=limit,
        seed=seed,
        weights=weights,
    )
    groups = scaling.groups_of(cell, sizes, kernels)
    with interruptible(KEPT.format(output)), measuring() as say:
        found = scaling.run_study(groups, output, say, resume=resume)
    show(found)
    if plot:
        drawing.write_plot(output, found)
    typer.echo(f"-> {output}", err=True)


def _claim(
    folder: Path,
    names: Sequence[str],
    weights: str | None,
    force: bool,
    spectra: Sequence[str] = (),
    *,
    resume: bool = False,
    otherwise: str = "",
) -> None:
    """Refuse to lose a file to the results; see `files.claim`.

    Raises:
        UsageError: A file would be lost or cannot be written.
    """
    outputs = {f"the result {name}": folder / name for name in names}
    going_on = resume and (folder / names[0]).is_file()
    claim(
        outputs,
        [*options.reads(weights=weights), *(("an input, the spectra", name) for name in spectra)],
        force=force,
        own=outputs if going_on else (),
        makes_folders=True,
        otherwise=otherwise,
    )


def show(found: Mapping[str, Any]) -> None:
    """Print machine, ceilings, figures, growth and crossings on standard output."""
    from duallgd_cli.cli.display import results_console

    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    rows = found["rows"]  # of a kernel that the weights were trained with, where there is one
    row = next((row for row in rows if row["val_top1"] is not None), rows[0])
    network = {n: row[n] for n in ("weights", "parameters", "val_top1", "precision", "memory_how")}
    for title in ("machine", "ceilings"):
        console.print(_sentence(title, found[title]), soft_wrap=True)
    console.print(_sentence("network", network), soft_wrap=True)
    console.print(_figures(rows))
    for sentence in _growth(found):
        console.print(sentence)
    load, cores = found["machine"]["load"], found["machine"]["cores"]
    if load is not None and load + found["machine"]["threads"] > cores + _BUSY:
        typer.echo(
            f"warning: the machine was busy before (load {load} on {cores} cores), so times and "
            "their growth say little; measure again on an idle machine",
            err=True,
        )


def _sentence(title: str, values: Mapping[str, Any]) -> str:
    """Known values in a line, by the names that they have in results.json."""
    from duallgd_cli.config import flatten

    known = ((name, value) for name, value in flatten(values).items() if value is not None)
    shown = (f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in known)
    return f"{title}: {', '.join(shown)}"


def _figures(rows: Sequence[Mapping[str, Any]]) -> "Table":
    """A table of the columns in which there is anything."""
    from duallgd_cli.cli.display import table

    rows = [
        {**row, "time": row[f"{row['clock']}_s"], "iqr": row[f"{row['clock']}_iqr_s"]}
        for row in sorted(rows, key=lambda row: (row["part"], row["kernel"], row["path"]))
    ]
    columns = [column for column in _COLUMNS if any(column[1] in row for row in rows)]
    lines = [
        [f"{row['part']} {row['kernel']} {row['path']}"]
        + [format(k * row[n], form) if n in row else "" for _, n, k, form in columns]
        for row in rows
    ]
    heads = ["part, kernel, path", *(title for title, *_ in columns)]
    return table("Time and memory", heads, lines)


def _growth(found: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on how each figure grows, and from where FAVOR+ is faster."""
    for series in found["exponents"]:
        words = []
        for quantity in ("time", "memory"):
            if fitted := series[quantity]:
                error = fitted["standard_error"]
                spread = "" if error is None else f" ± {error:.2f}"
                words.append(f"{quantity} as N^{fitted['value']:.2f}{spread}")
        if words:
            yield f"{series['part']} {series['kernel']} {series['path']} grows: {', '.join(words)}"
    for part, atoms in found["favor_faster_from_atoms"].items():
        where = "not faster than exact softmax at these sizes"
        if atoms is not None:
            where = f"faster than exact softmax from N = {atoms:.0f}"
        yield f"{part}: FAVOR+ is {where}"


@app.command("predict", epilog=PREDICT_EPILOG)
def predict(
    context: typer.Context,
    spectra: Annotated[
        list[str] | None,
        typer.Argument(help="Spectrum files, as predict takes them.", show_default=False),
    ] = None,
    atoms: Annotated[int, _what(min=2, max=100, help="Heavy atoms of made spectra.")] = 30,
    made: Annotated[int, _what(min=1, help="Spectra to make without a file.")] = 10,
    samples: options.Samples = None,
    steps: options.Steps = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    output: Annotated[
        Path | None, options.output("-o", "--output", help="Folder for results.json.")
    ] = None,
    profile: Annotated[
        bool,
        options.output(
            "--profile",
            help="Also the slowest operations of one spectrum, as profile.txt or on the screen.",
        ),
    ] = False,
    force: options.Force = False,
) -> None:
    """Run the whole of predict and report spectra per second and the time of each stage.

    Loading and the first spectrum of the process stand apart. Beside the figures stand network,
    accuracy of the weights and the share of what the machine reaches in matrix products.
    """
    for name in spectra or ():
        if name != STANDARD_STREAM:
            require_input(name)
    from duallgd_cli.bench import throughput
    from duallgd_cli.bench.measure import made_formulas
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.runtime import Runtime

    if output is not None:
        names = [throughput.RESULTS, *((throughput.PROFILE,) if profile else ())]
        _claim(output, names, weights, force, spectra or ())
    # Which samples start late depends on the formula; without any, each takes all the steps.
    given = {**options.sampling_of(context), "sampling.analogue_share": 0.0}
    settings = options.settings_of(PredictSettings, None, given, [])
    runtime = Runtime.resolve(device, precision, threads=threads)
    formulas = made_formulas(atoms, made)
    found, model = throughput.measure_throughput(  # stages are of this process
        weights, runtime, settings, formulas, tuple(spectra or ()), workers or 1
    )
    show_throughput(found)
    written = {throughput.RESULTS: json.dumps(found, indent=1) + "\n"}
    if profile:
        written[throughput.PROFILE] = throughput.profile(model, settings, formulas)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_atomically(output / name, [text])
        typer.echo(f"-> {output}", err=True)
    elif profile:
        typer.echo(written[throughput.PROFILE])


def show_throughput(found: Mapping[str, Any]) -> None:
    """Print figures and the time of each stage on standard output."""
    from duallgd_cli.cli.display import results_console, table

    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    run = {name: value for name, value in found.items() if name not in ("machine", "stages_s")}
    console.print(_sentence("machine", found["machine"]), soft_wrap=True)
    console.print(_sentence("run", run), soft_wrap=True)
    rows = (
        [
            name,
            f"{seconds:.3f}",
            f"{100 * seconds / found['seconds']:.1f} %",
            f"{1000 * seconds / max(1, found['spectra']):.1f}",
        ]
        for name, seconds in found["stages_s"].items()
    )
    shown = table("Time by stage", ["stage", "seconds", "share", "ms a spectrum"], rows)
    shown.add_section()
    shown.add_row("whole run", f"{found['seconds']:.3f}")
    console.print(shown)
