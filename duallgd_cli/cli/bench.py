"""`duallgd bench`: how time and memory of the network grow, and the throughput of predict."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duallgd_cli.cli import options
from duallgd_cli.cli.running import refuse_to_replace

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
_WHAT, _OUTPUT = "What is measured", "Output"
_what = partial(typer.Option, rich_help_panel=_WHAT)
_output = partial(typer.Option, rich_help_panel=_OUTPUT)
# Piped output has no width of its own; tables then take what they need.
_WIDTH_WITHOUT_TERMINAL: Final = 170
# Columns of the printed table: title, name in `scaling.COLUMNS`, factor, format.
_COLUMNS: Final = (
    ("N", "atoms", 1, "d"), ("cand.", "samples", 1, "d"), ("steps", "steps", 1, "d"),
    ("time / ms", "time", 1000, ".2f"), ("iqr", "iqr", 1000, ".2f"),
    ("plain/fast", "times_plain", 1, ".2f"), ("floor / ms", "floor_s", 1000, ".2f"),
    ("/floor", "over_floor", 1, ".1f"), ("MiB", "memory_mib", 1, ".1f"),
    ("/plain", "memory_of_plain", 1, ".2f"), ("GFLOP", "gflop", 1, ".3f"),
    ("difference", "difference", 1, ".1e"),
)  # fmt: skip

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
    batch: Annotated[int, _what(min=1, help="Graphs in one evaluation, outside the loop.")] = 1,
    sweeps: Annotated[
        bool, _what(help="Also measure growth with candidates and steps, at the middle size.")
    ] = True,
    repeats: Annotated[int, _what(min=1, help="Timed runs of each figure.")] = 5,
    limit: Annotated[
        float, _what(min=0, metavar="SECONDS", help="No repeat of what took longer in all.")
    ] = 20.0,
    seed: Annotated[int, _what(min=0, help="Seed of inputs and noise.")] = 1,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    output: Annotated[
        Path, _output("-o", "--output", help="Folder for the table and results.")
    ] = Path("bench"),
    plot: Annotated[bool, _output("--plot", help="Draw four panels as PNG and SVG.")] = False,
    resume: Annotated[
        bool, _output("--resume", help="Continue an interrupted run of the same settings.")
    ] = False,
    force: Annotated[
        bool, _output("--force", help="Replace the measurements that the folder holds.")
    ] = False,
) -> None:
    """Measure speed and memory of the network and of predict."""
    if context.invoked_subcommand is not None:
        return
    if atoms is None:
        typer.echo(context.get_help())
        return
    from duallgd_cli.bench import plot as drawing
    from duallgd_cli.bench import scaling
    from duallgd_cli.bench.measure import Study
    from duallgd_cli.cli.display import measuring

    if plot:
        drawing.require_matplotlib()
    refuse_to_replace(str(output / scaling.JOURNAL), allowed=force or resume)
    study = Study(
        atoms=scaling.parse_atoms(atoms),
        kernels=scaling.parse_kernels(attention),
        samples=samples,
        steps=steps,
        batch=batch,
        sweeps=sweeps,
        repeats=repeats,
        limit_s=limit,
        seed=seed,
        weights=weights,
    ).on(device, precision, threads)
    with measuring() as say:
        found = scaling.run_study(study, output, say, resume=resume)
    show(found)
    if plot:
        drawing.write_plot(output, found)
    typer.echo(f"-> {output}", err=True)


def show(found: Mapping[str, Any]) -> None:
    """Print machine, ceilings, figures, growth and crossings on standard output."""
    from duallgd_cli.cli.display import results_console

    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    for sentence in _setting(found):
        console.print(sentence)
    console.print(_figures(found["rows"]))
    console.print(_growth(found["exponents"]))
    for part, atoms in found["favor_faster_from_atoms"].items():
        where = "not faster than exact softmax at these sizes"
        if atoms is not None:
            where = f"faster than exact softmax from N = {atoms:.0f}"
        console.print(f"{part}: FAVOR+ is {where}")
    if found["not_stated"]:
        lines = ["warning: not stated, as the figures are too bad for it:", *found["not_stated"]]
        typer.echo("\n  ".join(lines), err=True)
        typer.echo("measure again on an idle machine, or with more --repeats", err=True)


def _setting(found: Mapping[str, Any]) -> list[str]:
    machine, row, ceilings = found["machine"], found["rows"][0], found["ceilings"]
    known = {r["val_top1"] for r in found["rows"] if r["val_top1"] is not None}
    accuracy = ", ".join(f"{100 * share:.1f} %" for share in sorted(known))
    products = ", ".join(f"{rate / 1e9:.0f} {name}" for name, rate in ceilings["flop_s"].items())
    return [
        f"{machine['accelerator'] or machine['cpu']}, {machine['threads']} of {machine['cores']} "
        f"cores, {' '.join(machine['instructions'])}, torch {machine['torch']}, load "
        f"{machine['load']}",
        f"Reached here: {products} GFLOP/s in matrix products, "
        f"{ceilings['exponentials_s'] / 1e9:.2f} G exponentials/s, "
        f"{ceilings['bytes_s'] / 1e9:.1f} GB/s",
        f"Preset {row['preset']}, weights {row['weights']}, {row['parameters']:,} parameters, "
        f"{row['precision']}, top-1 on validation spectra {accuracy or 'not known'}",
        f"Times: median {row['clock']} time of a run. Memory: {found['memory']}. GFLOP: matrix "
        "products of a candidate-step. Difference: of both paths' numbers; of loops, share of "
        "bonds that differ.",
    ]


def _figures(rows: Sequence[Mapping[str, Any]]) -> "Table":
    """A table of the columns in which there is anything."""
    from duallgd_cli.cli.display import table

    rows = [
        {**row, "time": row[f"{row['clock']}_s"], "iqr": row[f"{row['clock']}_iqr_s"]}
        for row in rows
    ]
    columns = [column for column in _COLUMNS if any(row[column[1]] is not None for row in rows)]
    heads = ["part, kernel, path", *(title for title, *_ in columns)]
    shown = table("Time and memory", heads, ())
    names = ("sweep", "part", "kernel", "path", "atoms", "samples", "steps")
    previous = None
    for row in sorted(rows, key=lambda row: [row[name] for name in names]):
        if previous not in (None, [row[name] for name in names[:3]]):
            shown.add_section()
        previous = [row[name] for name in names[:3]]
        cells = ("" if row[n] is None else format(k * row[n], form) for _, n, k, form in columns)
        shown.add_row(f"{row['part']} {row['kernel']} {row['path']}", *cells)
    return shown


def _growth(exponents: Sequence[Mapping[str, Any]]) -> "Table":
    from duallgd_cli.cli.display import table

    names = ("with", "part", "kernel", "path")
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for fitted in exponents:
        error = fitted["standard_error"]
        text = f"{fitted['value']:.2f}" + ("" if error is None else f" ± {error:.2f}")
        lines.setdefault(tuple(fitted[name] for name in names), {})[fitted["of"]] = text
    rows = ([*key, t.get("time", ""), t.get("memory", "")] for key, t in lines.items())
    return table("Growth: exponent b of cost = a x^b", [*names, "time", "memory"], rows)


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
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    output: Annotated[
        Path | None, _output("-o", "--output", help="Folder for results.json and tables.")
    ] = None,
    profile: Annotated[
        bool,
        _output(
            "--profile",
            help="Also the slowest operations of one spectrum, as profile.txt or on the screen.",
        ),
    ] = False,
) -> None:
    """Run the whole of predict and report spectra per second and the time of each stage.

    Loading and the first spectrum of the process stand apart. Beside the figures stand network,
    accuracy of the weights and the share of what the machine reaches in matrix products.
    """
    from duallgd_cli.bench import throughput
    from duallgd_cli.bench.measure import made_formulas
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.runtime import Runtime

    # Which samples start late depends on the formula; without any, each takes all the steps.
    given = {**options.sampling_of(context), "sampling.analogue_share": 0.0}
    settings = options.settings_of(PredictSettings, None, given, [])
    runtime = Runtime.resolve(device, precision, threads=threads, engine=engine)
    formulas = made_formulas(atoms, made)
    workers = runtime.default_workers if workers is None else workers
    found, model = throughput.measure_throughput(
        weights, runtime, settings, formulas, tuple(spectra or ()), workers
    )
    show_throughput(found)
    if output is not None:
        throughput.write_throughput(found, output)
    if profile:
        text = throughput.profile(model, settings, formulas)
        if output is None:
            typer.echo(text)
        else:
            (output / throughput.PROFILE).write_text(text, encoding="utf-8")
    if output is not None:
        typer.echo(f"-> {output}", err=True)


def show_throughput(found: Mapping[str, Any]) -> None:
    """Print figures and the time of each stage on standard output."""
    from duallgd_cli.cli.display import results_console, table

    console = results_console(_WIDTH_WITHOUT_TERMINAL)
    for sentence in _sentences(found):
        console.print(sentence, soft_wrap=True)
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


def _sentences(found: Mapping[str, Any]) -> list[str]:
    machine, top1, gflop = found["machine"], found["val_top1"], found["gflop"]
    share, steady = found["share_of_ceiling"], found["steady_s"]
    sizes = ", ".join(f"{count} of {n}" for n, count in found["atoms"].items())
    return [
        f"{machine['accelerator'] or machine['cpu']}, load {machine['load']}; {found['runtime']}; "
        f"engine {found['engine']}, {found['workers']} workers",
        f"Weights {found['weights']}: {found['parameters']:,} parameters, top-1 on validation "
        f"spectra {'not known' if top1 is None else f'{100 * top1:.1f} %'}; "
        + ("" if gflop is None else f"{gflop:.3f} GFLOP per candidate-step"),
        f"{found['spectra']} spectra (heavy atoms: {sizes}), {found['samples']} samples, "
        f"{found['steps']} steps"
        + ("" if found["assembled"] else "; network alone: rdkit is absent"),
        f"{found['spectra_per_s']:.3g} spectra/s, {found['candidates_per_s']:.4g} candidates/s"
        + ("" if steady is None else f"; once under way {steady:.3g} s a spectrum"),
        f"Loading {found['load_s']:.2f} s, warm-up {found['warm_up_s']:.2f} s; "
        f"peak memory {found['memory_mib']:.0f} MiB ({found['memory_how']})",
        f"Machine reaches {found['ceiling_gflop_s']:.0f} GFLOP/s"
        + ("" if share is None else f"; sampling uses {100 * share:.0f} % of it"),
    ]
