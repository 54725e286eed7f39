"""`duallgd weights`: check weights files, list what they were trained on, add parts to them."""

from pathlib import Path
from typing import Annotated, Any, Final

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
    "molecules of fold val with it and fit the ranking by `duallgd calibrate`"
)
ANALOGUES_EPILOG: Final = (
    "Example: `duallgd weights analogues runs/joint/model.safetensors --molecules "
    "prepared/massbank -o runs/templates.safetensors`, then add a re-ranker by `duallgd weights "
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
    from duallgd_cli.checkpoint.lineage import require_trained
    from duallgd_cli.checkpoint.plugins import plugin_for
    from duallgd_cli.errors import WeightsError
    from duallgd_cli.files import sha256
    from duallgd_cli.predict.loading import parts_of

    if (plugin := plugin_for(weights)) is not None:
        content = plugin.describe(weights)["weights"]["network"]
    else:
        checkpoint = weights_format.load(weights)
        parts_of(checkpoint, weights)
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
    from duallgd_cli.data.prepared import load_molecules

    _claim(output, force, *prepared, *(() if also is None else (also,)))
    from duallgd_cli.evaluate.leakage import TrainingHashes

    before = None if also is None else TrainingHashes.read(also)
    keys: list[str] = []
    for folder in prepared:
        found = load_molecules(folder)
        trained = found.in_folds("train") & (found.n_heavy <= max_atoms)
        keys += [key.decode("ascii") for key in found.inchikey[trained].tolist()]
    listed = TrainingHashes.of(keys)
    if before is not None:
        listed = listed.joined(before)
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
    """Add a re-ranker: substructure priors, and a score of the peaks that fragments explain.

    All are fitted to fold train. Where the weights hold known molecules (so run 'duallgd weights
    analogues' first), the score learns to tell each molecule from others of its formula that are
    made of these, and so does a copy of the encoder. The network stays as it is. The ranking is
    dropped: until 'duallgd calibrate' fits another, the scores are recorded and do not count.
    """
    _claim(output, force, weights, structures, spectra)
    from dataclasses import replace

    import numpy as np

    from duallgd_cli.checkpoint import format as weights_format
    from duallgd_cli.cli.display import counting
    from duallgd_cli.data.prepared import load_molecules, load_spectra
    from duallgd_cli.scores.substructures import known_environments
    from duallgd_cli.sources.collection import Collection, mols_of
    from duallgd_cli.train.contrast import fit_contrast
    from duallgd_cli.train.evidence import fit_evidence, one_of_each
    from duallgd_cli.train.rivals import rivals_of

    checkpoint = weights_format.load(weights)
    known, measured = load_molecules(structures), load_spectra(spectra)
    rivals: dict[int, Any] = {}
    contrast: dict[str, Any] = {}
    told: dict[str, Any] = {}
    if checkpoint.templates:
        templates, encoder = Collection.of(checkpoint.templates), checkpoint.build().encoder
        with counting("molecules with their rivals") as advance:
            for number in (seed, seed + 1):  # two spectra of each, doubted in two ways
                for spectrum in one_of_each(measured, number):
                    row = int(measured.molecule[spectrum])
                    made = rivals_of(measured, spectrum, encoder, templates, number)
                    rivals[row] = (*(rivals.get(row) or made[:1]), *made[1:])
                    advance(1)
        with counting("steps of the contrastive encoder") as advance:
            contrast, told = fit_contrast(encoder, measured, rivals, seed, advance)
    with counting("structures") as advance:
        rows = np.flatnonzero(known.in_folds("train"))
        seen = known_environments(mols_of(known, rows, advance))
    with counting("steps of the fragment model") as advance:
        tensors, fitted = fit_evidence(known, seen, measured, rivals, steps, seed, advance)
    record = {**checkpoint.record, "evidence": {**fitted, **told}}
    asking = replace(checkpoint, reranker=tensors, contrast=contrast, record=record, ranking={})
    weights_format.save(output, asking)
    described = ", ".join(f"{name} {value}" for name, value in {**fitted, **told}.items())
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
    spectrum have a say in its fingerprint, as much as suits fold val. The network stays as it is.
    The ranking is dropped: fit another by 'duallgd calibrate'.
    """
    _claim(output, force, weights, molecules, *(() if structures is None else (structures,)))
    from dataclasses import replace

    from duallgd_cli.checkpoint import format as weights_format
    from duallgd_cli.cli.display import counting
    from duallgd_cli.data.prepared import load_molecules, load_spectra, read_manifest
    from duallgd_cli.sources.collection import known_molecules
    from duallgd_cli.train.known_spectra import fit_kernel

    checkpoint = weights_format.load(weights)
    others = None if structures is None else load_molecules(structures)
    with counting("molecules cut into building blocks") as advance:
        known = known_molecules(load_molecules(molecules), max_atoms, others, advance)
    kernel = {}
    if read_manifest(molecules).get("kind") == "spectra":
        encoder = checkpoint.build().encoder
        kernel = fit_kernel(encoder, load_spectra(molecules), known.molecules)
    added = replace(checkpoint, templates=known.tensors(), kernel=kernel, ranking={})
    weights_format.save(output, added)
    found = counted(len(known.molecules), "template")
    with_spectra = f" with {len(kernel['place'])} fragments and losses" if kernel else ""
    n_blocks = counted(len(known.blocks.smiles), "building block")
    typer.echo(f"wrote {output}: {found}{with_spectra}, {n_blocks}", err=True)


def _claim(output: Path, force: bool, *inputs: Path) -> None:
    """Refuse to lose a file to an output; see `files.claim`.

    Raises:
        UsageError: A file would be lost or cannot be written.
    """
    read = [("an input", path) for path in inputs]
    claim({"the new file": output}, read, force=force, makes_folders=True)
