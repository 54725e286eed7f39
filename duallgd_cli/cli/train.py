"""`duallgd train`: a recipe from data to a whole weights file; weights that know your standards."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from duallgd_cli.cli import display, options
from duallgd_cli.errors import UsageError, counted
from duallgd_cli.files import claim, require_input
from duallgd_cli.stopping import interruptible

if TYPE_CHECKING:
    from duallgd_cli.train.run import Displays

EPILOG: Final = (
    "Examples: `duallgd train recipes/tiny.yaml -o run` makes a whole weights file · "
    "`duallgd train recipes/shipped.yaml --data DATA -o run --until simulate` · "
    "`duallgd train --adapt my_standards.msp -o mine.safetensors` · "
    "the same command again goes on with an interrupted run"
)

_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {
        "recipe": (Path, "YAML file: the data and what differs from the defaults.",
            {"default": None}),
    },
    options.OPTIONS: {
        "output": (Path, "Folder of the run; resumed if it holds one.", {"short": "-o"}),
        "plot": (Path, "Draw the figures of a run into its folder plots; train nothing.",
            {"metavar": "RUN"}),
        "adapt": (Path, "Labelled spectra of your own standards, 20 or more: the weights get to "
            "know them; -o names the new file.", {"metavar": "SPECTRA"}),
        "data": (Path, "Folder that a recipe's files are named from (default: its own)."),
        "until": (str, "Last stage for now, such as simulate."),
        "from_": (str, "Stage to make again, with all after it."),
        "set_": (list[str], "One line of the recipe, such as decoder.training.steps=5000; "
            "repeatable."),
        "compile_": (str, "on compiles the layers: a minute at first, faster steps on a GPU.",
            {"default": "off"}),
        "force": (bool, "Replace weights that are there (--adapt)."),
    }
}  # fmt: skip


@options.takes(
    "recipe output plot adapt weights data until from_ set_ device precision compile_ threads "
    "force quiet",
    _OPTIONS,
)
def train(
    context: typer.Context,
    *,
    recipe: Path | None,
    output: Path | None,
    plot: Path | None,
    adapt: Path | None,
    data: Path | None,
    until: str | None,
    from_: str | None,
    set_: list[str] | None,
    compile_: str,
    force: bool,
    weights: str | None,
    quiet: bool,
    **given: object,
) -> None:
    """Follow a recipe from spectra and structures to weights that predict.

    Finished stages are skipped, and the same command goes on where one was stopped. Every figure of
    a stage that trains goes to its `metrics.jsonl`.
    """
    if plot is not None:
        from duallgd_cli.plots import plot_run

        logs = plot_run(plot)
        typer.echo(f"{counted(len(logs), 'stage')} in {plot / 'plots'}", err=True)
        return
    if output is None:
        raise UsageError("no folder for the run; name one with -o")
    for path in filter(None, (adapt, data, recipe)):
        require_input(str(path))
    if adapt is not None:
        from duallgd_cli.checkpoint import resolve_weights
        from duallgd_cli.train.adapt import adapt as adapt_weights
        from duallgd_cli.train.recipe import HASHES_ENDING

        start = resolve_weights(weights)
        before, after = (path.with_suffix(HASHES_ENDING) for path in (start, output))
        outputs = {"the new weights": output, "their list of training molecules": after}
        claim(outputs, [start, before, adapt], force=force, makes_folders=True)

        runtime = options.runtime_of(context, compile_)
        with interruptible("the new weights were not written; the same command goes on"):
            adapt_weights(adapt, start, output, runtime, _displays(quiet))
        return
    if recipe is None:
        raise UsageError("nothing to train on; give a recipe, such as recipes/tiny.yaml")
    outputs = {"the run's recipe": output / "recipe.yaml"}
    claim(outputs, [recipe], force=True, makes_folders=True)
    from duallgd_cli.config import assigned
    from duallgd_cli.train.recipe import NAMES, WEIGHTS, follow, read_recipe

    runtime = options.runtime_of(context, compile_)
    shows = _displays(quiet or runtime.rank > 0)
    run = read_recipe(recipe, assigned(set_ or []), data, output, runtime, shows)
    follow(run, until or NAMES[-1], from_)
    if not until or until == NAMES[-1]:
        shows.say(f"done: weights are {output / WEIGHTS}; card.md there says what they are made of")
    else:
        shows.say(f"done until {until}; the same command without --until goes on")


def _displays(quiet: bool) -> "Displays":
    """What shows how far a recipe, or an adaptation, is."""
    from duallgd_cli.train.run import Displays

    return Displays(
        lambda text: None if quiet else typer.echo(text, err=True),
        lambda what: display.counting(what, quiet),
        lambda steps: display.training_display(steps, quiet),
    )
