"""`duallgd train`: prepared data to weights."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from duallgd_cli.cli import options
from duallgd_cli.cli.display import duration, training_display
from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.files import claim

EPILOG: Final = (
    "Examples: `duallgd train --stage decoder --data prepared/structures -o runs/decoder` · "
    "`duallgd train --stage joint --data prepared/massbank --structures prepared/structures "
    "--simulated prepared/simulated --init-denoiser runs/decoder --init-encoder runs/encoder "
    "-o runs/joint` · the same command again goes on with an interrupted run"
)


def train(
    data: Annotated[Path, typer.Option(help="Folder made by 'duallgd data'.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the run; resumed if it holds one.")
    ],
    stage: Annotated[str | None, typer.Option(help="decoder, encoder or joint.")] = None,
    structures: Annotated[
        list[Path] | None,
        typer.Option(
            help="Prepared structures, for the joint stage; repeatable: folders take turns."
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
    """Train the denoiser, the spectrum encoder, or both together.

    Needs torch and numpy alone, so prepared data can be carried to another machine. Every figure
    goes to `metrics.jsonl` in the output folder; the weights to `model.safetensors`.
    """
    files = {name: output / name for name in ("metrics.jsonl", "state.pt", "model.safetensors")}
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
    from duallgd_cli.runtime import Runtime
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
    runtime = Runtime.resolve(
        device=device, precision=precision, compile=compile_layers, threads=threads
    )
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
