"""`duallgd bench`: how time and memory of the network grow, and the throughput of predict."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.files import STANDARD_STREAM, claim, require_input, write_atomically
from duallgd_cli.stopping import interruptible

EPILOG = options.examples("""
`duallgd bench --atoms 10..100` (every tenth; `10..100:5`, or a list such as `30,60,100`)
`duallgd bench --atoms 10..100 --steps 500 --device cuda -o bench/`

Time and peak memory of the attention over pairs alone, of one evaluation of the denoiser and of
the whole sampling loop, for exact softmax and FAVOR+. Each figure stands beside the time of its
matrix products at the rate that this machine reached in the same run.
""")
PREDICT_EPILOG = options.examples("""
`duallgd bench predict spectra.mgf --steps 10 --samples 100`
`duallgd bench predict --atoms 30 --device cuda -o throughput/ --profile`

Without a file, spectra are made from chemistry. All samples start from pure noise: predict is
faster where known molecules are near the formula.
""")
_MEASURED: Final = "What is measured"
_OUTPUT: Final = {
    "output": (Path, "Folder for the results; none without it.", {"short": "-o"}),
    "profile": (bool, "Also the slowest operations of one spectrum, as profile.txt or on the "
        "screen."),
}  # fmt: skip
_OPTIONS: Final[options.Options] = {
    _MEASURED: {
        "atoms": (str, "Numbers of heavy atoms: 10..100 (every tenth), 10..100:5, or 30,60,100."),
        "attention": (Literal["softmax", "favor", "both"], "Kernel of the attention over pairs.",
            {"default": "both"}),
        "samples": (int, "Candidates in the loop.", {"default": 1, "min": 1}),
        "steps": (int, "Steps of the loop.", {"default": 10, "min": 1, "max": 500}),
        "seconds": (float, "Time each figure for as long.", {"default": 1.0, "min": 0}),
    },
    "Output": _OUTPUT,
}  # fmt: skip
_PREDICT_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {
        "spectra": (list[str], "Spectrum files, as predict takes them.", {"default": None}),
    },
    _MEASURED: {
        "atoms": (int, "Heavy atoms of made spectra.", {"default": 30, "min": 2, "max": 100}),
        "made": (int, "Spectra to make without a file.", {"default": 10, "min": 1}),
    },
    "Output": _OUTPUT,
}
# Columns of the printed table: title, name in a row, factor, format.
_COLUMNS: Final = (
    ("N", "atoms", 1, "d"), ("cand.", "samples", 1, "d"), ("steps", "steps", 1, "d"),
    ("time / ms", "time_s", 1000, ".2f"), ("iqr", "iqr_s", 1000, ".2f"),
    ("floor / ms", "floor_s", 1000, ".2f"), ("/floor", "over_floor", 1, ".1f"),
    ("MiB", "memory_mib", 1, ".1f"), ("GFLOP", "gflop", 1, ".3f"),
)  # fmt: skip
app = typer.Typer(invoke_without_command=True)


@app.callback(epilog=EPILOG)
@options.takes(
    "atoms attention weights samples steps seconds device precision threads output force", _OPTIONS
)
def bench(
    context: typer.Context,
    *,
    atoms: str | None,
    attention: str,
    samples: int,
    steps: int,
    seconds: float,
    output: Path | None,
    weights: str | None,
    **given: object,
) -> None:
    """Measure speed and memory of the network and of predict."""
    if context.invoked_subcommand is not None:
        return
    if atoms is None:
        typer.echo(context.get_help())
        return
    from duallgd_cli.bench import scaling

    _claim(context, scaling.RESULTS)
    sizes = scaling.parse_atoms(atoms)
    kernels = scaling.KERNELS if attention == "both" else (attention,)
    runtime = options.runtime_of(context)
    cell = scaling.Cell(runtime, samples=samples, steps=steps, seconds=seconds, weights=weights)
    kept = "nothing is kept" if output is None else f"what was measured is kept in {output}"
    with interruptible(kept):
        cells = scaling.cells_of(cell, sizes, kernels)
        study = scaling.run_study(cells, output, partial(typer.echo, err=True))
    rows = sorted(study["rows"], key=lambda row: (row["part"], row["kernel"]))
    # Of a kernel that the weights were trained with, where there is one.
    network = next((row for row in rows if row["val_top1"] is not None), rows[0])
    about = {n: network[n] for n in ("weights", "parameters", "val_top1", "precision", "clock")}
    typer.echo(_sentence("machine", study["machine"]))
    typer.echo(_sentence("network", about))
    lines = [
        [f"{row['part']} {row['kernel']}", *(format(k * row[n], f) for _, n, k, f in _COLUMNS)]
        for row in rows
    ]
    heads = ["part, kernel", *(title for title, *_ in _COLUMNS)]
    display.show_table("Time and memory", heads, lines)
    for series in study["exponents"]:
        words = []
        for quantity in ("time", "memory"):
            if fitted := series[quantity]:
                error = fitted["standard_error"]
                spread = "" if error is None else f" ± {error:.2f}"
                words.append(f"{quantity} as N^{fitted['value']:.2f}{spread}")
        if words:
            typer.echo(f"{series['part']} {series['kernel']} grows: {', '.join(words)}")
    if output is not None:
        typer.echo(f"-> {output}", err=True)


def _claim(context: typer.Context, *names: str) -> None:
    """Refuse to lose a file to the results of these names; see `files.claim`."""
    values = context.params
    if values["output"] is not None:
        outputs = {f"the result {name}": values["output"] / name for name in names}
        read = [*options.reads(values), *(values.get("spectra") or ())]
        claim(outputs, read, force=values["force"], makes_folders=True)


def _sentence(title: str, values: Mapping[str, Any]) -> str:
    """Values in a line, by the names that they have in results.json."""
    from duallgd_cli.config import flatten

    stated = ((name, value) for name, value in flatten(values).items() if value is not None)
    shown = (f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in stated)
    return f"{title}: {', '.join(shown)}"


@app.command("predict", epilog=PREDICT_EPILOG)
@options.takes(
    "spectra atoms made samples steps weights device precision threads workers max_memory output "
    "profile force",
    _PREDICT_OPTIONS,
)
def predict(
    context: typer.Context,
    *,
    spectra: list[str] | None,
    atoms: int,
    made: int,
    output: Path | None,
    profile: bool,
    weights: str | None,
    workers: int | None,
    **given: object,
) -> None:
    """Run the whole of predict and report spectra per second.

    Loading and the first spectrum of the process stand apart. Beside the figures stand network,
    accuracy of the weights and the share of what the machine reaches in matrix products.
    """
    for name in spectra or ():
        if name != STANDARD_STREAM:
            require_input(name)
    from duallgd_cli.bench import throughput
    from duallgd_cli.bench.scaling import made_formulas

    _claim(context, throughput.RESULTS, *((throughput.PROFILE,) if profile else ()))
    # How late a sample from a template starts depends on the formula; others take all steps.
    settings = options.prediction_of(context, {"sampling.sources": "enumerated=60 noise=40"})
    formulas, files = made_formulas(atoms, made), tuple(spectra or ())
    figures, model = throughput.measure_throughput(
        weights, options.runtime_of(context), settings, formulas, files, workers or 1
    )
    run = {name: value for name, value in figures.items() if name != "machine"}
    typer.echo(_sentence("machine", figures["machine"]))
    typer.echo(_sentence("run", run))
    written = {throughput.RESULTS: json.dumps(figures, indent=1) + "\n"}
    if profile:
        written[throughput.PROFILE] = throughput.profile(model, settings, formulas)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_atomically(output / name, [text])
        typer.echo(f"-> {output}", err=True)
    elif profile:
        typer.echo(written[throughput.PROFILE])
