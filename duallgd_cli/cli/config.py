"""`duallgd config`: a commented file of settings, to change and give to `--config`."""

from typing import Annotated, Literal

import typer

EPILOG = """
**Examples**

- `duallgd config > settings.yaml`, then `duallgd predict spectra.mgf --config settings.yaml`

- `duallgd config train > training.yaml`, then `duallgd train --config training.yaml ...`
"""


def config(
    command: Annotated[
        Literal["predict", "train"], typer.Argument(help="Command whose settings are shown.")
    ] = "predict",
) -> None:
    """Print every setting with its default and what it does, as YAML for `--config`.

    Lines that you do not change may be deleted. `--set NAME=VALUE` changes one setting by its
    dotted name, such as `--set sampling.samples=30`; options and `--set` win over the file.
    """
    from duallgd_cli.config import commented_yaml

    typer.echo(f"# Settings of duallgd {command}, with their defaults.")
    if command == "predict":
        from duallgd_cli.predict.settings import PredictSettings

        typer.echo(commented_yaml(PredictSettings()), nl=False)
    else:
        from duallgd_cli.train.settings import run_settings

        typer.echo(commented_yaml(run_settings(None, [])), nl=False)
