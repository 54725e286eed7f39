"""`duallgd bench predict`: end-to-end throughput and where the time goes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from duallgd_cli.cli import options

EPILOG: Final = """
**Examples**

- `duallgd bench predict spectra.mgf --steps 10 --samples 100`

- `duallgd bench predict --atoms 30 --device cuda -o throughput/ --profile`

Without a file, spectra are made from chemistry. Without rdkit the network alone is measured. All
samples start from pure noise: predict is faster where known molecules are near the formula.
"""
_WHAT, _OUTPUT = "What is measured", "Output"


def predict(
    spectra: Annotated[
        list[str] | None,
        typer.Argument(help="Spectrum files, as predict takes them.", show_default=False),
    ] = None,
    atoms: Annotated[
        int,
        typer.Option(min=2, max=100, help="Heavy atoms of made spectra.", rich_help_panel=_WHAT),
    ] = 30,
    made: Annotated[
        int, typer.Option(min=1, help="Spectra to make without a file.", rich_help_panel=_WHAT)
    ] = 10,
    samples: options.Samples = None,
    steps: options.Steps = None,
    weights: options.Weights = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    workers: options.Workers = None,
    max_memory: options.MaxMemory = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Folder for results.json and tables.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Also the slowest operations of one spectrum, as profile.txt or on the screen.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
) -> None:
    """Run the whole of predict and report spectra per second and the time of each stage.

    Loading and the first spectrum of the process stand apart. Beside the figures stand network,
    accuracy of the weights and the share of what the machine reaches in matrix products.
    """
    from duallgd_cli.bench import throughput
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.runtime import Runtime

    given = {
        "sampling.samples": samples,
        "sampling.steps": steps,
        "sampling.max_memory_mib": max_memory,
        # Which samples start late depends on the formula; without any, each takes all the steps.
        "sampling.analogue_share": 0.0,
    }
    settings = options.settings_of(PredictSettings, None, given, [])
    runtime = Runtime.resolve(device, precision, threads=threads)
    request = throughput.ThroughputRequest(
        inputs=tuple(spectra or ()),
        atoms=atoms,
        spectra=made,
        settings=settings,
        workers=runtime.default_workers if workers is None else workers,
    )
    found, model = throughput.measure_throughput(weights, runtime, request)
    _show(found)
    if output is not None:
        throughput.write_throughput(found, output)
    if profile:
        text = throughput.profile(model, request)
        if output is None:
            typer.echo(text)
        else:
            (output / throughput.PROFILE).write_text(text, encoding="utf-8")
    if output is not None:
        typer.echo(f"-> {output}", err=True)


def _show(found: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for sentence in _sentences(found):
        console.print(sentence, markup=False, soft_wrap=True)
    table = Table("stage", title="Time by stage", title_justify="left")
    for name in ("seconds", "share", "ms a spectrum"):
        table.add_column(name, justify="right")
    for name, seconds in found["stages_s"].items():
        share, each = seconds / found["seconds"], 1000 * seconds / max(1, found["spectra"])
        table.add_row(name, f"{seconds:.3f}", f"{100 * share:.1f} %", f"{each:.1f}")
    table.add_section()
    table.add_row("whole run", f"{found['seconds']:.3f}", "", "")
    console.print(table)


def _sentences(found: Mapping[str, Any]) -> list[str]:
    machine, top1, gflop = found["machine"], found["val_top1"], found["gflop"]
    share, steady = found["share_of_ceiling"], found["steady_s"]
    sizes = ", ".join(f"{count} of {n}" for n, count in found["atoms"].items())
    return [
        f"{machine['accelerator'] or machine['cpu']}, load {machine['load']}; {found['runtime']}; "
        f"{found['workers']} workers",
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
