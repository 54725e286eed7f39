"""`duallgd bench leak` and `duallgd bench ablations`: studies that train small networks."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duallgd_cli.cli import options

if TYPE_CHECKING:
    from duallgd_cli.bench.ablations import AblationRequest
    from duallgd_cli.bench.arms import Watcher
    from duallgd_cli.bench.leak import LeakRequest
    from duallgd_cli.bench.study_report import Circumstances, Table
    from duallgd_cli.runtime import Runtime

LEAK_EPILOG: Final = (
    "Example: `duallgd bench leak --data prepared/structures --budget 8m -o leak` · the same "
    "command again goes on with an interrupted study"
)
ABLATIONS_EPILOG: Final = (
    "Examples: `duallgd bench ablations --data prepared/structures --budget 5m -o ablations` · "
    "`duallgd bench ablations --data prepared/structures --budget 1h --variants "
    "full,single-stream -o ablations` · each variant's `model.safetensors` is a weights file"
)

_DATA = Annotated[Path, typer.Option(help="Folder made by 'duallgd data structures'.")]
_OUTPUT = Annotated[
    Path, typer.Option("-o", "--output", help="Folder of the study; finished arms are kept.")
]
_BUDGET = Annotated[
    str | None, typer.Option(help="Processor time of each training, such as 5m, 90s, 0.5h.")
]
_STEPS = Annotated[int | None, typer.Option("--steps", min=1, help="Steps instead of a budget.")]
_MOLECULES = Annotated[int, typer.Option(min=1, help="Held-out molecules to judge by.")]
_SAMPLES = Annotated[int, typer.Option(min=1, help="Samples of each of them.")]
_CONFIG = Annotated[str, typer.Option(help="YAML file or preset with sizes and training.")]
_SET = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, such as model.denoiser.layers=4; repeatable."),
]


def leak(
    data: _DATA,
    output: _OUTPUT,
    budget: _BUDGET = None,
    steps: _STEPS = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Some of published, published-blind, sorted, duallgd, with commas."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=2, help="Molecules of 6 to 12 heavy atoms, at most.")
    ] = 8_000,
    molecules: _MOLECULES = 200,
    samples: _SAMPLES = 10,
    config: _CONFIG = "leak",
    overrides: _SET = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """What the published system reads from the order of the true molecule's atoms.

    Trains the authors' network at a narrow size with atoms in the order of the true canonical
    SMILES, as published, and with atoms sorted by element; and ours. Each is judged with the atoms
    given in the true order, in a random one and in the formula's. The order is derived with rdkit,
    once, into `data` in the output folder.
    """
    from duallgd_cli.bench import leak as study
    from duallgd_cli.bench.arms import Budget
    from duallgd_cli.bench.judging import even_jumps
    from duallgd_cli.bench.study_report import draw_leak, leak_table
    from duallgd_cli.runtime import Runtime
    from duallgd_cli.train.presets import run_settings

    settings = run_settings(config, overrides or [])
    request = study.LeakRequest(
        data=output / "data",
        output=output,
        budget=Budget.parse(budget, steps),
        settings=settings,
        arms=_names(arms) or tuple(study.BY_NAME),
        sampling=even_jumps(samples),
        molecules=molecules,
    )
    runtime = Runtime.resolve(device=device, precision=precision, compile="off", threads=threads)
    _orders(data, request.data, limit, settings.training.data.max_atoms, molecules)
    with _watching(quiet) as watcher:
        readings = study.run_leak(request, runtime, watcher)
    known = _circumstances(request, runtime)
    draw_leak(output, readings)
    _show(output, leak_table(readings, known, settings.training.data.max_atoms), quiet)


def ablations(
    data: _DATA,
    output: _OUTPUT,
    budget: _BUDGET = None,
    steps: _STEPS = None,
    variants: Annotated[
        str | None, typer.Option(help="Some of the variants, with commas; all if absent.")
    ] = None,
    encoder: Annotated[
        Path | None,
        typer.Option(help="Weights whose encoder the checkpoints take along, for 'evaluate'."),
    ] = None,
    molecules: _MOLECULES = 300,
    samples: _SAMPLES = 20,
    config: _CONFIG = "study",
    overrides: _SET = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
) -> None:
    """What each part of the network is worth: one part replaced, the same budget for all.

    Trains every variant on fold train of prepared structures, atoms sorted by element, and judges
    by finished samples on fold dev, given true fingerprints. Prints the paper's table beside ours.
    """
    from duallgd_cli.bench import ablations as study
    from duallgd_cli.bench.arms import Budget
    from duallgd_cli.bench.judging import even_jumps
    from duallgd_cli.bench.study_report import ablation_table
    from duallgd_cli.runtime import Runtime
    from duallgd_cli.train.presets import run_settings

    settings = run_settings(config, overrides or [])
    request = study.AblationRequest(
        data=data,
        output=output,
        budget=Budget.parse(budget, steps),
        settings=settings,
        variants=_names(variants) or tuple(study.BY_NAME),
        sampling=even_jumps(samples),
        molecules=molecules,
        encoder=encoder,
    )
    runtime = Runtime.resolve(device=device, precision=precision, compile="off", threads=threads)
    if any(study.BY_NAME[name].kekule for name in request.variants):
        _kekule_forms(request)
    with _watching(quiet) as watcher:
        rows = study.run_ablations(request, runtime, watcher)
    known = _circumstances(request, runtime)
    _show(output, ablation_table(rows, known, settings.training.data.max_atoms), quiet)


def _orders(source: Path, out: Path, limit: int, max_atoms: int, molecules: int) -> None:
    """Derive the order of canonical SMILES, unless an earlier run did."""
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.prepare_orders import OrderSelection, prepare_orders

    selection = OrderSelection(largest=max_atoms, limit=limit, held_out=molecules)
    with counting("molecules put together") as advance:
        prepare_orders(source, out, selection, advance)


def _kekule_forms(request: "AblationRequest") -> None:
    """Derive structures without aromatic bonds, unless an earlier run did."""
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.prepare_kekule_forms import prepare_kekule_forms

    with counting("molecules brought to a Kekule form") as advance:
        prepare_kekule_forms(request.data, request.kekule_folder, request.max_atoms, advance)


def _circumstances(request: "LeakRequest | AblationRequest", runtime: "Runtime") -> "Circumstances":
    """How a study was run, for its caption."""
    from duallgd_cli.bench.study_report import Circumstances

    return Circumstances(
        command=_command(),
        budget=str(request.budget),
        runtime=runtime,
        seed=request.settings.training.seed,
        samples=request.sampling.samples,
        steps=request.sampling.steps,
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _command() -> str:
    """What was typed, with the program by its name alone."""
    return shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "duallgd"), *sys.argv[1:]])


@contextmanager
def _watching(quiet: bool) -> "Iterator[Watcher]":
    """Live lines on standard error: one display an arm, a count while it is judged."""
    from rich.console import Console

    from duallgd_cli.bench.arms import Watcher

    console = Console(stderr=True, quiet=quiet, soft_wrap=True)

    def on_arm(title: str, steps: int) -> None:
        console.print(f"{title}: {steps} steps", highlight=False)

    def on_step(step: int, figures: dict[str, float]) -> None:
        if step % 200 == 0 and "loss" in figures:
            console.print(f"  step {step}  loss {figures['loss']:.4f}", highlight=False)

    def on_judged(done: int, total: int) -> None:
        if done == total:
            console.print(f"  {total} molecules judged", highlight=False)

    yield Watcher(on_arm, on_step, on_judged)


def _show(output: Path, table: "Table", quiet: bool) -> None:
    """Write the table's files and print it."""
    from rich.console import Console
    from rich.table import Table as RichTable

    from duallgd_cli.bench.study_report import write_table

    files = write_table(output, table)
    if quiet:
        return
    shown = RichTable(*table.narrow)
    for cells in table.rows:
        by_name = dict(zip(table.header, cells, strict=True))
        shown.add_row(*(by_name[name] for name in table.narrow))
    console = Console()
    console.print(shown)
    console.print(table.caption, highlight=False, markup=False)
    typer.echo("-> " + ", ".join(str(path) for path in files.values()), err=True)
