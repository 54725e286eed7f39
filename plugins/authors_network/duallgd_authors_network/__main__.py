"""`python -m duallgd_authors_network convert`: the authors' checkpoints as weights of duallgd."""

from pathlib import Path
from typing import Annotated, Final

import typer

from duallgd_authors_network.convert import DEFAULT_SEED
from duallgd_authors_network.convert import convert as converted
from duallgd_authors_network.core import claim, counted, exit_codes
from duallgd_authors_network.weights_file import save

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")
EPILOG: Final = (
    "Example: `python -m duallgd_authors_network convert nplib1.ckpt -o nplib1.safetensors`, then "
    "`duallgd predict spectra.mgf --weights nplib1.safetensors`"
)


@app.callback()
def _commands() -> None:
    """The authors' network for duallgd."""


@app.command(epilog=EPILOG)
def convert(
    source: Annotated[Path, typer.Argument(help="The authors' .ckpt or .pt file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    seed: Annotated[
        int,
        typer.Option(
            min=0, help="Seed of the random features, which the authors' files do not hold."
        ),
    ] = DEFAULT_SEED,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Turn a fine-tuned system, a pre-trained decoder or an encoder into a weights file.

    Nothing in the checkpoint is run. Every tensor of it is taken, or the command fails and lists
    what is missing and what is left over.
    """
    claim({"the new file": output}, [source], force=force, makes_folders=True)
    checkpoint = converted(source, seed)
    save(output, checkpoint)
    content = f"{counted(len(checkpoint.tensors), 'tensor')} of {', '.join(checkpoint.parts)}"
    typer.echo(f"wrote {output}: {content}", err=True)


if __name__ == "__main__":
    with exit_codes():
        app(prog_name="python -m duallgd_authors_network")
