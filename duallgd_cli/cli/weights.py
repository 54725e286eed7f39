"""`duallgd weights`: check weights files, list what they were trained on, add parts to them."""

from pathlib import Path
from typing import Annotated, Final

import typer

from duallgd_cli.errors import counted
from duallgd_cli.files import claim

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Check weights files; add to them.",
)

_Weights = Annotated[Path, typer.Argument(help="A .safetensors file.")]
_Output = Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]

HASHES_EPILOG: Final = (
    "Examples: `duallgd weights hashes prepared/structures prepared/massbank --max-atoms 50 "
    "-o runs/first.train.hashes` · "
    "`duallgd weights hashes prepared/more --also runs/first.train.hashes "
    "-o runs/second.train.hashes`, of weights that were trained on from the first"
)
EVIDENCE_EPILOG: Final = (
    "Example: `duallgd weights evidence runs/templates.safetensors --structures "
    "prepared/structures --spectra prepared/massbank -o runs/reranked.safetensors`, then predict "
    "validation molecules with it and fit the ranking by `duallgd calibrate`"
)
ANALOGUES_EPILOG: Final = (
    "Example: `duallgd weights analogues runs/joint/model.safetensors --molecules "
    "prepared/massbank -o runs/templates.safetensors`, then add scores by `duallgd weights "
    "evidence`"
)
VERIFY_EPILOG: Final = "Example: `duallgd weights verify my.safetensors`"


@app.command("verify", epilog=VERIFY_EPILOG)
def verify(weights: _Weights) -> None:
    """Check that a weights file is whole and that everything in it fits; print its SHA-256.

    The file's own digest is compared where it has one. Weights of which only one part was trained
    pass with a warning, since 'duallgd predict' refuses them.
    """
    from duallgd_cli.checkpoint import format as weights_format
    from duallgd_cli.checkpoint.format import require_trained
    from duallgd_cli.checkpoint.plugins import plugin_for
    from duallgd_cli.errors import WeightsError
    from duallgd_cli.files import sha256
    from duallgd_cli.predict.model import model_of
    from duallgd_cli.runtime import Runtime

    if (plugin := plugin_for(weights)) is not None:
        content = plugin.describe(weights)["weights"]["network"]
    else:
        checkpoint = weights_format.load(weights)
        model_of(checkpoint, weights, Runtime.resolve("cpu"))
        content = f"{counted(len(checkpoint.tensors), 'tensor')} of encoder, denoiser"
        try:
            require_trained(checkpoint.record, weights)
        except WeightsError as untrained:
            typer.echo(f"warning: {untrained}", err=True)
    typer.echo(f"{sha256(weights)}  {weights}  {content}")


@app.command("hashes", epilog=HASHES_EPILOG)
def hashes(
    prepared: Annotated[list[Path], typer.Argument(help="Folders made by 'duallgd data'.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="NAME.train.hashes beside the weights NAME.")
    ],
    max_atoms: Annotated[
        int, typer.Option(min=2, help="The largest molecule trained on, in heavy atoms.")
    ] = 100,
    also: Annotated[
        Path | None,
        typer.Option(help="List to add to: that of the weights from which training went on."),
    ] = None,
    force: _Force = False,
) -> None:
    """List, as hashes, the molecules of fold train, so that evaluations can look for overlap."""
    _claim(output, force, *prepared, also)
    from duallgd_cli.train.additions import training_molecules

    listed = training_molecules(prepared, max_atoms, () if also is None else (also,))
    listed.write(output)
    typer.echo(f"{counted(len(listed), 'molecule')} in {output}", err=True)


@app.command("evidence", epilog=EVIDENCE_EPILOG)
def evidence(
    weights: _Weights,
    structures: Annotated[
        Path, typer.Option(help="Folder made by 'duallgd data structures', for the priors.")
    ],
    spectra: Annotated[
        Path, typer.Option(help="Folder made by 'duallgd data spectra', for the score.")
    ],
    output: _Output,
    steps: Annotated[int, typer.Option(min=1, help="Steps of fitting the fragment model.")] = 2500,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    force: _Force = False,
) -> None:
    """Add scores for the ranking: substructure priors, and the peaks that fragments explain.

    All are fitted to fold train. Where the weights hold known molecules (so run 'duallgd weights
    analogues' first), the score learns to tell each molecule from others of its formula that are
    made of these, and so does a copy of the encoder. The network stays as it is. The ranking is
    dropped: until 'duallgd calibrate' fits another, the scores are recorded and do not count.
    """
    _claim(output, force, weights, structures, spectra)
    from duallgd_cli.cli.display import counting
    from duallgd_cli.train.additions import add_reranker

    fitted = add_reranker(weights, structures, spectra, output, counting, steps=steps, seed=seed)
    described = ", ".join(f"{name} {value}" for name, value in fitted.items())
    typer.echo(f"wrote {output}: {described}", err=True)


@app.command("analogues", epilog=ANALOGUES_EPILOG)
def analogues(
    weights: _Weights,
    molecules: Annotated[
        Path, typer.Option(help="Folder made by 'duallgd data', whose fold train is taken.")
    ],
    output: _Output,
    max_atoms: Annotated[
        int, typer.Option(min=2, help="The largest molecule to keep, in heavy atoms.")
    ] = 100,
    structures: Annotated[
        Path | None,
        typer.Option(
            help="Folder made by 'duallgd data structures': building blocks that several of its "
            "molecules have are added to those of the known ones. Two hours for a million."
        ),
    ] = None,
    force: _Force = False,
) -> None:
    """Add known molecules: templates, building blocks, and spectra to compare with.

    Of templates with a fingerprint like the predicted one, the atoms are changed to the formula's.
    All are cut at one or two single bonds, and what is left is put together to candidates.
    From a folder of spectra, fragments and losses are kept too: molecules that share them with a
    spectrum have a say in its fingerprint, as much as suits the validation spectra. The network
    stays as it is. The ranking is dropped: fit another by 'duallgd calibrate'.
    """
    _claim(output, force, weights, molecules, structures)
    from duallgd_cli.cli.display import counting
    from duallgd_cli.train.additions import add_templates

    counts = add_templates(
        weights, molecules, output, counting, structures=structures, max_atoms=max_atoms
    )
    templates, fragments, blocks = counts.values()
    with_spectra = f" with {fragments} fragments and losses" if fragments else ""
    known = f"{counted(templates, 'template')}{with_spectra}, {counted(blocks, 'building block')}"
    typer.echo(f"wrote {output}: {known}", err=True)


def _claim(output: Path, force: bool, *inputs: Path | None) -> None:
    """Refuse to lose a file to an output; see `files.claim`."""
    read = [("an input", path) for path in inputs if path is not None]
    claim({"the new file": output}, read, force=force, makes_folders=True)
