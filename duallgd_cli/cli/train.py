"""`duallgd train`: prepared data to weights."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duallgd_cli.cli import options
from duallgd_cli.cli.display import counting, duration, training_display
from duallgd_cli.errors import InterruptedRunError, UsageError, counted
from duallgd_cli.files import claim, require_input
from duallgd_cli.runtime import Runtime

if TYPE_CHECKING:
    from duallgd_cli.train.recipe import Displays

EPILOG: Final = (
    "Examples: `duallgd train recipes/tiny.yaml -o run` makes a whole weights file · "
    "`duallgd train recipes/shipped.yaml --data DATA -o run --until simulate` · "
    "`duallgd train --adapt my_standards.msp -o mine.safetensors` · one stage: "
    "`duallgd train --stage decoder --data prepared/structures -o runs/decoder` · "
    "`duallgd train --stage joint --data prepared/massbank --structures prepared/structures "
    "--simulated prepared/simulated --init-denoiser runs/decoder --init-encoder runs/encoder "
    "-o runs/joint` · the same command again goes on with an interrupted run"
)
_OF_ONE_STAGE: Final = (
    "stage", "structures", "simulated", "init_denoiser", "init_encoder", "config", "stop_after",
)  # fmt: skip
_Recipe = Annotated[
    Path | None,
    typer.Argument(help="YAML file of a recipe: data to a whole weights file, all stages."),
]
_Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Folder of the run; resumed if it holds one.")
]
_Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", help="Draw the figures of a run into its folder plots; train nothing."
    ),
]
_Adapt = Annotated[
    Path | None,
    typer.Option(
        metavar="SPECTRA",
        help="Labelled spectra of your own standards, 20 or more: the weights get to know them; "
        "-o names the new file.",
    ),
]
_Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder made by 'duallgd data'; of a recipe the folder that its files are named from "
        "(default: the recipe's own)."
    ),
]
_Until = Annotated[
    str | None, typer.Option(help="Last stage of a recipe for now, such as simulate.")
]
_From = Annotated[
    str | None, typer.Option("--from", help="Stage of a recipe to make again, with all after it.")
]
_Stage = Annotated[str | None, typer.Option(help="decoder, encoder or joint.")]
_Structures = Annotated[
    list[Path] | None,
    typer.Option(help="Prepared structures, for the joint stage; repeatable: folders take turns."),
]
_Simulated = Annotated[
    Path | None,
    typer.Option(help="Folder made by 'duallgd data simulate', for encoder and joint stage."),
]
_InitDenoiser = Annotated[
    Path | None, typer.Option(help="Weights file whose denoiser to start from.")
]
_InitEncoder = Annotated[
    Path | None, typer.Option(help="Weights file whose encoder to start from.")
]
_Config = Annotated[
    str | None,
    typer.Option(
        help="YAML file of settings, or a preset: tiny (a network for tests), pretrain (the "
        "paper's decoder pretraining), nplib1 (its fine-tuning on NPLIB1) or massspecgym (its "
        "fine-tuning on MassSpecGym)."
    ),
]
_Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, such as training.steps=5000; repeatable."),
]
_StopAfter = Annotated[int | None, typer.Option(min=1, help="Stop at this step of the schedule.")]
_Compile = Annotated[
    str,
    typer.Option(
        "--compile", help="on compiles the layers: a minute at first, faster steps on a GPU."
    ),
]
_Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace weights and figures that are there without a run to go on with."
    ),
]


def train(
    context: typer.Context,
    recipe: _Recipe = None,
    output: _Output = None,
    plot: _Plot = None,
    adapt: _Adapt = None,
    weights: options.Weights = None,
    data: _Data = None,
    until: _Until = None,
    first: _From = None,
    stage: _Stage = None,
    structures: _Structures = None,
    simulated: _Simulated = None,
    init_denoiser: _InitDenoiser = None,
    init_encoder: _InitEncoder = None,
    config: _Config = None,
    overrides: _Overrides = None,
    stop_after: _StopAfter = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    compile_layers: _Compile = "off",
    threads: options.Threads = None,
    force: _Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow a recipe from data to weights, or train one stage: denoiser, encoder or both together.

    A recipe's finished stages are skipped, and the same command goes on where one was stopped. One
    stage needs torch and numpy alone, so prepared data can be carried to another machine. Every
    figure goes to `metrics.jsonl` in the output folder; the weights to `model.safetensors`.
    """
    if plot is not None:
        from duallgd_cli.train.plot import plot_run

        logs = plot_run(plot)
        typer.echo(f"{counted(len(logs), 'stage')} in {plot / 'plots'}", err=True)
        return
    if output is None:
        raise UsageError("no folder for the run; name one with -o")
    machine: dict[str, Any] = {
        "device": device, "precision": precision, "compile": compile_layers, "threads": threads
    }  # fmt: skip
    if adapt is not None:
        _adapt(adapt, output, weights, force, quiet, machine)
        return
    if recipe is not None:
        refused = options.given_of(context, _OF_ONE_STAGE)
        if refused is not None:
            raise UsageError(
                f"{refused} is for one stage; a recipe says it in its YAML, or by --set"
            )
        _follow(recipe, output, data, overrides or [], until, first, quiet, machine)
        return
    if data is None or until or first:
        raise UsageError(
            "--until and --from are for a recipe; give one, such as recipes/tiny.yaml"
            if data is not None
            else "nothing to train on; give a recipe, or --stage and --data"
        )
    init = {
        name: path / "model.safetensors" if path.is_dir() else path  # or the folder of a run
        for name, path in (("denoiser", init_denoiser), ("encoder", init_encoder))
        if path is not None
    }
    folders = (data, *(structures or ()), *(() if simulated is None else (simulated,)))
    _claim(output, init.values(), folders, config, force)
    from duallgd_cli.train.run import run_training
    from duallgd_cli.train.settings import plain_settings, run_settings

    chosen = [*(overrides or []), *([f"training.stage={stage}"] if stage else [])]
    plain, settings = plain_settings(config, chosen), run_settings(config, chosen)
    runtime, total = Runtime.resolve(**machine), settings.training.steps
    quiet = quiet or runtime.rank > 0
    try:
        with training_display(total, min(total, stop_after or total), quiet) as on_step:
            record = run_training(
                plain, data, output, runtime, on_step, structures=structures or (),
                simulated=simulated, init=init, stop_after=stop_after,
            ).record  # fmt: skip
    except KeyboardInterrupt:  # one that comes between the steps says itself what was saved
        raise InterruptedRunError(
            "stopped before a step was made; nothing is lost: run the same command again"
        ) from None
    made, ending = output / "model.safetensors", f"{total} steps in {duration(record['seconds'])}"
    if not quiet and record["step"] >= total:
        typer.echo(f"done: {ending}; weights are {made}", err=True)
    elif not quiet:
        typer.echo(
            f"stopped at step {record['step']} of {total} as asked; weights so far are {made}, "
            "and the same command without that limit goes on",
            err=True,
        )


def _claim(
    output: Path, weights: Iterable[Path], folders: Iterable[Path], config: str | None, force: bool
) -> None:
    """Refuse to lose a file to the run of one stage; see `files.claim`."""
    names = ("metrics.jsonl", "state.pt", "model.safetensors", "best.safetensors")
    files = {f"the run's {name}": output / name for name in names}
    settings = [Path(config)] if config and Path(config).is_file() else []
    claim(
        files,
        [
            *(("an input, the weights", path) for path in weights),
            *(("an input, the prepared data", path) for path in folders),
            *(("an input, the settings", path) for path in settings),
        ],
        force=force,
        own=[*files] if (output / "state.pt").is_file() else (),
        makes_folders=True,
    )


def _adapt(
    standards: Path,
    output: Path,
    weights: str | None,
    force: bool,
    quiet: bool,
    machine: dict[str, Any],
) -> None:
    """Write weights that know a laboratory's standards."""
    from duallgd_cli.checkpoint import resolve_weights

    start = resolve_weights(weights)
    read = [("an input, the weights", start), ("an input, the spectra", standards)]
    claim({"the new weights": output}, read, force=force, makes_folders=True)
    from duallgd_cli.train.adapt import adapt

    runtime = Runtime.resolve(**machine)
    try:
        adapt(standards, start, output, runtime, _displays(quiet))
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "stopped before the new weights were written; the same command goes on"
        ) from None


def _displays(quiet: bool) -> "Displays":
    """What shows how far a recipe, or an adaptation, is."""
    from duallgd_cli.train.recipe import Displays

    return Displays(
        lambda text: None if quiet else typer.echo(text, err=True),
        lambda what: counting(what, quiet),
        lambda steps: training_display(steps, steps, quiet),
    )


def _follow(
    recipe: Path,
    output: Path,
    base: Path | None,
    overrides: list[str],
    until: str | None,
    first: str | None,
    quiet: bool,
    machine: dict[str, Any],
) -> None:
    """Follow a recipe in the folder of a run."""
    require_input(str(recipe))
    outputs, read = {"the run's recipe": output / "recipe.yaml"}, [("an input, the recipe", recipe)]
    claim(outputs, read, force=True, makes_folders=True)
    from duallgd_cli.config import assigned
    from duallgd_cli.train.recipe import NAMES, WEIGHTS, follow, read_recipe

    runtime = Runtime.resolve(**machine)
    shows = _displays(quiet or runtime.rank > 0)
    run = read_recipe(recipe, assigned(overrides), base, output, runtime, shows)
    follow(run, until or NAMES[-1], first)
    if not until or until == NAMES[-1]:
        shows.say(f"done: weights are {output / WEIGHTS}; card.md there says what they are made of")
    else:
        shows.say(f"done until {until}; the same command without --until goes on")
