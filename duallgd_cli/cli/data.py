"""`duallgd data`: structures and labelled spectra to prepared folders, and what is made of them."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from duallgd_cli.errors import UsageError

EPILOG: Final = (
    "Examples: `duallgd data structures structures.tsv.xz -o prepared/structures` · "
    "`duallgd data spectra massbank.tsv.xz -o prepared/massbank --holdout keys.txt` · "
    "`duallgd data simulate prepared/structures --like prepared/massbank -o prepared/simulated` · "
    "`duallgd data select prepared/structures --like prepared/massbank --limit 150000 "
    "-o prepared/alike` · "
    "`duallgd data cations structures.tsv.xz -o cations.smi` · "
    "`duallgd data pack prepared/structures -o structures.pack --max-atoms 40 --no-keys`"
)

app = typer.Typer(
    no_args_is_help=True, help="Prepare structures and labelled spectra for training."
)

_OUTPUT = Annotated[Path, typer.Option("-o", "--output", help="Folder for the prepared arrays.")]
_HOLDOUT = Annotated[
    list[Path] | None,
    typer.Option(
        help="Text file of InChIKey first blocks that must not be trained on; repeatable."
    ),
]
_STRUCTURES = Annotated[Path, typer.Argument(help="Folder made by 'duallgd data structures'.")]
_LIKE = Annotated[
    Path, typer.Option(help="Folder made by 'duallgd data spectra': what is measured is like this.")
]
_WORKERS = Annotated[int | None, typer.Option(min=1, help="Processes; all cores if absent.")]


@app.command("structures", epilog=EPILOG)
def structures(
    source: Annotated[Path, typer.Argument(help="TSV, CSV, SMI or SDF, plain, .gz or .xz.")],
    output: _OUTPUT,
    holdout: _HOLDOUT = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only so many rows.")] = None,
    workers: _WORKERS = None,
) -> None:
    """Structures for decoder pretraining: one per InChIKey first block."""
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.holdout import read_holdout
    from duallgd_cli.data.prepare_structures import prepare_structures
    from duallgd_cli.runtime import available_cores

    with counting("structures") as advance:
        manifest = prepare_structures(
            source,
            output,
            holdout=read_holdout(holdout or []),
            limit=limit,
            workers=workers or available_cores(),
            advance=advance,
        )
    typer.echo(f"{manifest['molecules']} molecules in {output}; see report.tsv there", err=True)


@app.command("spectra", epilog=EPILOG)
def spectra(
    source: Annotated[
        Path,
        typer.Argument(
            help="Table in the MassSpecGym layout, NPLIB1 folder, or a MassBank release."
        ),
    ],
    output: _OUTPUT,
    holdout: _HOLDOUT = None,
    split: Annotated[Path | None, typer.Option(help="Fold table of an NPLIB1 folder.")] = None,
    workers: _WORKERS = None,
) -> None:
    """Labelled spectra for training the encoder and for the joint stage."""
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.holdout import read_holdout
    from duallgd_cli.data.prepare_spectra import prepare_spectra
    from duallgd_cli.runtime import available_cores

    with counting("records") as advance:
        manifest = prepare_spectra(
            source,
            output,
            holdout=read_holdout(holdout or []),
            split=split,
            workers=workers or available_cores(),
            advance=advance,
        )
    typer.echo(
        f"{manifest['spectra']} spectra of {manifest['molecules']} molecules in {output}; "
        "see report.tsv there",
        err=True,
    )


@app.command("simulate", epilog=EPILOG)
def simulate(
    structures: _STRUCTURES,
    output: _OUTPUT,
    like: _LIKE,
    limit: Annotated[
        int | None, typer.Option(min=1, help="So many structures, at random; all if absent.")
    ] = None,
    max_atoms: Annotated[int, typer.Option(min=2, help="Leave larger structures out.")] = 50,
    steps: Annotated[int, typer.Option(min=1, help="Of fitting the fragment model.")] = 2500,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 1,
    workers: _WORKERS = None,
) -> None:
    """Simulated spectra of structures, for training the encoder and the joint stage.

    A fragment model is fitted on fold train of the measured spectra; it says which fragments of a
    structure are seen, and how intense. Measured spectra of fold val are compared with simulated
    ones of the same ions.
    """
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.prepare_simulated import Selection, prepare_simulated
    from duallgd_cli.data.prepared import load_molecules, load_spectra
    from duallgd_cli.runtime import available_cores
    from duallgd_cli.train.fragment_model import fit_simulator
    from duallgd_cli.train.resemblance import compare

    _refuse_to_overwrite(output, structures, like)
    load_molecules(structures)  # what is wrong with them is said before minutes are spent
    spectra = load_spectra(like)
    with counting("steps of the fragment model") as advance:
        simulator, record = fit_simulator(spectra, steps, seed, advance)
    traits = compare(simulator, spectra, "val", seed)
    for name, own in traits.items():
        typer.echo(f"fold val, {name}: {own}", err=True)
    record["resemblance"] = {name: asdict(own) for name, own in traits.items()}
    with counting("spectra") as advance:
        manifest = prepare_simulated(
            structures,
            simulator,
            output,
            record,
            Selection(limit, max_atoms, seed),
            workers=workers or available_cores(),
            advance=advance,
        )
    typer.echo(f"{manifest['spectra']} simulated spectra in {output}", err=True)


@app.command("select", epilog=EPILOG)
def select(
    structures: _STRUCTURES,
    output: _OUTPUT,
    like: _LIKE,
    limit: Annotated[int, typer.Option(min=1, help="Training structures to keep.")],
    min_atoms: Annotated[int, typer.Option(min=1, help="Leave smaller ones out.")] = 1,
    max_atoms: Annotated[
        int | None, typer.Option(min=2, help="Leave larger ones out; none if absent.")
    ] = None,
    measured: Annotated[
        bool,
        typer.Option("--with-measured", help="Keep the training molecules of the spectra, too."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 1,
) -> None:
    """Structures that are like the molecules of measured spectra, to train on with little time.

    A classifier learns to tell the training molecules of the spectra by their Morgan bits;
    structures are drawn with its odds as weights. Held-out folds are kept whole.
    """
    from duallgd_cli.data.likeness import Wanted, select_alike

    _refuse_to_overwrite(output, structures, like)
    wanted = Wanted(limit, min_atoms, max_atoms, measured, seed)
    manifest = select_alike(structures, like, output, wanted)
    typer.echo(f"{manifest['molecules']} molecules in {output}", err=True)


@app.command("cations", epilog=EPILOG)
def make_cations(
    source: Annotated[Path, typer.Argument(help="TSV, CSV, SMI or SDF, plain, .gz or .xz.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File of SMILES, .smi.")],
    limit: Annotated[int, typer.Option(min=1, help="Cations of all kinds.")] = 12_000,
    seed: Annotated[int, typer.Option(min=0, help="Of what they are alkylated with.")] = 1,
) -> None:
    """Permanent cations made from neutral structures, for 'duallgd data structures --holdout'.

    Collections of structures leave them out; spectra of [M]+ are of little else. Quaternary
    ammonium, pyridinium, imidazolium, phosphonium and flavylium ions, as many of each.
    """
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.prepare_cations import cations
    from duallgd_cli.files import write_atomically

    _refuse_to_overwrite(output, source)
    with counting("structures") as advance:
        made = cations(source, limit, seed, advance)
    write_atomically(output, (f"{smiles} {kind}\n" for kind, smiles in made))
    counts = Counter(kind for kind, _ in made)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    typer.echo(f"{told} in {output}", err=True)


@app.command("massbank", epilog=EPILOG)
def massbank(
    release: Annotated[
        Path,
        typer.Argument(help="Folder or zip of record files, or the MSP with its MassBank.json."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help=".tsv, .tsv.gz or .tsv.xz.")],
    folds: Annotated[
        Path | None, typer.Option(help="Table with inchikey and fold; others go to train.")
    ] = None,
    holdout: _HOLDOUT = None,
) -> None:
    """Rebuild the table of open high-resolution spectra from MassBank's own release."""
    from duallgd_cli.cli.training_display import counting
    from duallgd_cli.data.holdout import read_holdout
    from duallgd_cli.data.prepare_massbank import read_folds, rebuild_massbank

    with counting("records") as advance:
        totals = rebuild_massbank(
            release,
            output,
            None if folds is None else read_folds(folds),
            holdout=read_holdout(holdout or []),
            advance=advance,
        )
    typer.echo("\n".join(f"{name}: {value}" for name, value in totals.items()), err=True)


@app.command("pack", epilog=EPILOG)
def pack(
    prepared: Annotated[Path, typer.Argument(help="Folder made by 'duallgd data'.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file.")],
    max_atoms: Annotated[
        int | None, typer.Option(min=2, help="Leave structures with more heavy atoms out.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Keep so many training structures, by a hash of their InChIKeys."),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys/--no-keys", help="InChIKeys, which training does not need.")
    ] = True,
) -> None:
    """One small file of prepared data, to carry to a machine without rdkit or a network."""
    from duallgd_cli.data.packing import pack

    record = pack(prepared, output, max_atoms, limit, keys)
    size = output.stat().st_size / 2**20
    typer.echo(f"{record['molecules']} molecules in {output}, {size:.1f} MiB", err=True)


@app.command("unpack", epilog=EPILOG)
def unpack(
    packed: Annotated[Path, typer.Argument(help="File made by 'duallgd data pack'.")],
    output: _OUTPUT,
) -> None:
    """The prepared folder that a packed file holds, its checksums compared."""
    from duallgd_cli.data.packing import unpack

    manifest = unpack(packed, output)
    typer.echo(f"{manifest['molecules']} molecules in {output}", err=True)


def _refuse_to_overwrite(output: Path, *sources: Path) -> None:
    if output.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{output} holds what the output is made of; give another output")
