"""`duallgd bench`: how fast the network is, and other measurements of it.

To add a sub-command: write ``cli/bench_<name>.py`` with a function that imports what it needs
inside, import it above, and add a line ``app.command("<name>")(bench_<name>.<function>)`` below.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from duallgd_cli.cli import bench_attention, bench_predict, bench_training, options

EPILOG: Final = """
**Examples**

- `duallgd bench --atoms 10..100` (every tenth; `10..100:5`, or a list such as `30,60,100`)

- `duallgd bench --atoms 10..100 --steps 500 --device cuda -o bench/ --plot`

- `duallgd bench --atoms 30 --preset reference --samples 100 --threads 1`

Time and peak memory of the attention over pairs alone, of one evaluation of the denoiser and of
the whole sampling loop, for exact softmax and FAVOR+ and for a plain path (dense masks,
written-out scores, the condition computed at every step) beside the fast one; both must give the
same numbers. Each figure stands beside the time that nothing can beat on this machine.
"""
_WHAT, _OUTPUT = "What is measured", "Output"

app = typer.Typer(
    invoke_without_command=True,
    help="Measure speed and memory of the network, and what its parts are worth.",
)


@app.callback(epilog=EPILOG)
def bench(
    context: typer.Context,
    atoms: Annotated[
        str | None,
        typer.Option(
            help="Numbers of heavy atoms: 10..100 (every tenth), 10..100:5, or 30,60,100.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    attention: Annotated[
        str, typer.Option(help="Kernels: softmax, favor or both.", rich_help_panel=_WHAT)
    ] = "softmax,favor",
    paths: Annotated[
        str,
        typer.Option(help="plain, fast or both; only both are compared.", rich_help_panel=_WHAT),
    ] = "plain,fast",
    preset: Annotated[
        str,
        typer.Option(help="duallgd, or reference for the authors' network.", rich_help_panel=_WHAT),
    ] = "duallgd",
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights file or name, or random. By default those that come with duallgd; for "
            "the reference random ones.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=1, help="Candidates in the loop.", rich_help_panel=_WHAT)
    ] = 1,
    steps: Annotated[
        int, typer.Option(min=1, max=500, help="Steps of the loop.", rich_help_panel=_WHAT)
    ] = 10,
    batch: Annotated[
        int,
        typer.Option(
            min=1, help="Graphs in one evaluation, outside the loop.", rich_help_panel=_WHAT
        ),
    ] = 1,
    sweeps: Annotated[
        bool,
        typer.Option(
            help="Also measure growth with candidates and steps, at the middle size.",
            rich_help_panel=_WHAT,
        ),
    ] = True,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed runs of each figure.", rich_help_panel=_WHAT)
    ] = 5,
    limit: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="No repeat of what took longer in all.",
            rich_help_panel=_WHAT,
        ),
    ] = 20.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Of inputs and noise.", rich_help_panel=_WHAT)
    ] = 1,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for the table and results.", rich_help_panel=_OUTPUT
        ),
    ] = Path("bench"),
    plot: Annotated[
        bool,
        typer.Option("--plot", help="Draw four panels as PNG and SVG.", rich_help_panel=_OUTPUT),
    ] = False,
) -> None:
    """Measure speed and memory of the network, and what its parts are worth."""
    if context.invoked_subcommand is not None:
        return
    if atoms is None:
        typer.echo(context.get_help())
        return
    from duallgd_cli.bench.speed import cells, scaling
    from duallgd_cli.bench.speed import plot as drawing
    from duallgd_cli.cli import bench_display

    if plot:
        drawing.require_matplotlib()
    subject = scaling.subject_on(
        device,
        precision,
        threads,
        cells.Subject(preset, weights, seed=seed, repeats=repeats, limit_s=limit),
    )
    request = scaling.StudyRequest(
        subject=subject,
        atoms=cells.parse_atoms(atoms),
        kernels=cells.parse_choices("attention", attention, cells.KERNELS),
        paths=cells.parse_choices("paths", paths, cells.PATHS),
        samples=samples,
        steps=steps,
        batch=batch,
        sweeps=sweeps,
    )
    with bench_display.watching(len(scaling.groups_of(request))) as advance:
        found = scaling.run_study(request, output, advance)
    bench_display.show(found)
    if plot:
        drawing.write_plot(output, scaling.read_results(output))
    typer.echo(f"-> {output}", err=True)
    found.check_parity()


app.command("predict", epilog=bench_predict.EPILOG)(bench_predict.predict)
app.command("attention", epilog=bench_attention.EPILOG)(bench_attention.attention)
app.command("leak", epilog=bench_training.LEAK_EPILOG)(bench_training.leak)
app.command("ablations", epilog=bench_training.ABLATIONS_EPILOG)(bench_training.ablations)
