"""`duallgd train`: prepared data to weights."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duallgd_cli.cli import options
from duallgd_cli.cli.display import counting, duration, training_display
from duallgd_cli.errors import InterruptedRunError, UsageError, counted
from duallgd_cli.files import claim, require_input
from duallgd_cli.runtime import Runtime

if TYPE_CHECKING:
    from duallgd_cli.train.stages import Displays

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
    "minutes",
)  # fmt: skip


def train(
    context: typer.Context,
    recipe: Annotated[
        Path | None,
        typer.Argument(help="YAML file of a recipe: data to a whole weights file, all stages."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the run; resumed if it holds one."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Draw the figures of a run into its folder plots; train nothing."
        ),
    ] = None,
    adapt: Annotated[
        Path | None,
        typer.Option(
            metavar="SPECTRA",
            help="Labelled spectra of your own standards, 20 or more: the weights get to know "
            "them; -o names the new file.",
        ),
    ] = None,
    weights: options.Weights = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder made by 'duallgd data'; of a recipe the folder that its files are named "
            "from (default: the recipe's own)."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Last stage of a recipe for now, such as simulate.")
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", help="Stage of a recipe to make again, with all after it."),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="decoder, encoder or joint.")] = None,
    structures: Annotated[
        list[Path] | None,
        typer.Option(
            help="Prepared structures, for the joint stage; repeatable: folders take turns. For "
            "the encoder stage one folder, which is simulated as it learns."
        ),
    ] = None,
    simulated: Annotated[
        Path | None,
        typer.Option(help="Folder made by 'duallgd data simulate', for encoder and joint stage."),
    ] = None,
    init_denoiser: Annotated[
        Path | None, typer.Option(help="Weights file whose denoiser to start from.")
    ] = None,
    init_encoder: Annotated[
        Path | None, typer.Option(help="Weights file whose encoder to start from.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="YAML file of settings, or a preset: tiny (a network for tests), pretrain (the "
            "paper's decoder pretraining), nplib1 (its fine-tuning on NPLIB1) or massspecgym (its "
            "fine-tuning on MassSpecGym)."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, such as training.steps=5000; repeatable."),
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option(min=1, help="Stop at this step of the schedule.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after this many minutes; the same command goes on."),
    ] = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    compile_layers: Annotated[
        str,
        typer.Option(
            "--compile",
            help="on compiles the layers: a minute at first, faster steps on a GPU.",
        ),
    ] = "off",
    threads: options.Threads = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace weights and figures that are there without a run to go on with.",
        ),
    ] = False,
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
    runtime_options = {"device": device, "precision": precision, "compile": compile_layers}
    if adapt is not None:
        _adapt(adapt, output, weights, force, quiet, runtime_options, threads)
        return
    if recipe is not None:
        refused = options.given_of(context, _OF_ONE_STAGE)
        if refused is not None:
            raise UsageError(
                f"{refused} is for one stage; a recipe says it in its YAML, or by --set"
            )
        _follow(
            recipe,
            output,
            data,
            overrides or [],
            until,
            first,
            quiet,
            lambda: Runtime.resolve(**runtime_options, threads=threads),
        )
        return
    if data is None or until or first:
        raise UsageError(
            "--until and --from are for a recipe; give one, such as recipes/tiny.yaml"
            if data is not None
            else "nothing to train on; give a recipe, or --stage and --data"
        )
    names = ("metrics.jsonl", "state.pt", "model.safetensors", "best.safetensors")
    files = {name: output / name for name in names}
    init = {
        name: path / "model.safetensors" if path.is_dir() else path  # or the folder of a run
        for name, path in (("denoiser", init_denoiser), ("encoder", init_encoder))
        if path is not None
    }
    folders = (data, *(structures or ()), *(() if simulated is None else (simulated,)))
    settings_file = [Path(config)] if config and Path(config).is_file() else []
    claim(
        {f"the run's {name}": path for name, path in files.items()},
        [
            *(("an input, the weights", path) for path in init.values()),
            *(("an input, the prepared data", path) for path in folders),
            *(("an input, the settings", path) for path in settings_file),
        ],
        force=force,
        own=[f"the run's {name}" for name in files] if files["state.pt"].is_file() else (),
        makes_folders=True,
    )
    from duallgd_cli.train.run import TrainingRequest, run_training
    from duallgd_cli.train.settings import run_settings, said

    chosen = [*(overrides or []), *([f"training.stage={stage}"] if stage else [])]
    settings = run_settings(config, chosen)
    request = TrainingRequest(
        settings=settings,
        out=output,
        data=data,
        structures=tuple(structures or ()),
        simulated=simulated,
        init=init,
        said=said(config, chosen).get("model", {}),
        stop_after=stop_after,
        minutes=minutes,
    )
    runtime = Runtime.resolve(**runtime_options, threads=threads)
    total, quiet = settings.training.steps, quiet or runtime.rank > 0
    try:
        with training_display(total, min(total, stop_after or total), quiet) as on_step:
            record = run_training(request, runtime, on_step).record
    except KeyboardInterrupt:  # one that comes between the steps says itself what was saved
        raise InterruptedRunError(
            "stopped before a step was made; nothing is lost: run the same command again"
        ) from None
    if not quiet:
        typer.echo(_ending(record, total, output / "model.safetensors"), err=True)


def _ending(record: dict[str, Any], steps: int, weights: Path) -> str:
    """The last line of a run that was not interrupted."""
    if record["step"] >= steps:
        return f"done: {steps} steps in {duration(record['seconds'])}; weights are {weights}"
    return (
        f"stopped at step {record['step']} of {steps} as asked; weights so far are {weights}, "
        "and the same command without that limit goes on"
    )


def _adapt(
    standards: Path,
    output: Path,
    weights: str | None,
    force: bool,
    quiet: bool,
    runtime_options: dict[str, str],
    threads: int | None,
) -> None:
    """Write weights that know a laboratory's standards."""
    from duallgd_cli.checkpoint import resolve_weights

    start = resolve_weights(weights)
    read = [("an input, the weights", start), ("an input, the spectra", standards)]
    claim({"the new weights": output}, read, force=force, makes_folders=True)
    from duallgd_cli.train.adapt import AdaptSettings, adapt

    runtime = Runtime.resolve(**runtime_options, threads=threads)
    try:
        adapt(AdaptSettings(standards, start, output), runtime, _displays(quiet))
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "stopped before the new weights were written; the same command goes on"
        ) from None


def _displays(quiet: bool) -> "Displays":
    """What shows how far a recipe, or an adaptation, is."""
    from duallgd_cli.train.stages import Displays

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
    resolve: Callable[[], Runtime],
) -> None:
    """Follow a recipe in the folder of a run."""
    require_input(str(recipe))
    claim(
        {"the run's recipe": output / "recipe.yaml"},
        [("an input, the recipe", recipe)],
        force=True,
        makes_folders=True,
    )
    from duallgd_cli.config import assigned
    from duallgd_cli.train.recipe import NAMES, follow, read_recipe
    from duallgd_cli.train.stages import WEIGHTS

    runtime = resolve()
    quiet = quiet or runtime.rank > 0
    shows = _displays(quiet)
    run = read_recipe(recipe, assigned(overrides), base, output, runtime, shows)
    follow(run, until or NAMES[-1], first)
    if not until or until == NAMES[-1]:
        shows.say(f"done: weights are {output / WEIGHTS}; card.md there says what they are made of")
    else:
        shows.say(f"done until {until}; the same command without --until goes on")
