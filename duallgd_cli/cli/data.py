"""`duallgd data`: structures and labelled spectra to prepared folders, and what is made of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from duallgd_cli.cli.display import counting
from duallgd_cli.errors import InterruptedRunError
from duallgd_cli.files import claim

EPILOG: Final = (
    "Examples: `duallgd data structures structures.tsv.xz -o prepared/structures` · "
    "`duallgd data spectra massbank.tsv.xz -o prepared/massbank --holdout keys.txt` · "
    "`duallgd data simulate prepared/structures --like prepared/massbank -o prepared/simulated` · "
    "`tar -cJf prepared.tar.xz prepared` carries prepared folders to a machine without rdkit"
)

app = typer.Typer(
    no_args_is_help=True, help="Prepare structures and labelled spectra for training."
)

_Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the prepared arrays.")]
_Holdout = Annotated[
    list[Path] | None,
    typer.Option(
        help="Text file of InChIKey first blocks that must not be trained on; repeatable."
    ),
]
_Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
_Workers = Annotated[int | None, typer.Option(min=1, help="Processes (default: all cores).")]
_Limit = Annotated[int | None, typer.Option(min=1, help="Number of rows to read (default: all).")]
_Structures = Annotated[Path, typer.Argument(help="Folder made by 'duallgd data structures'.")]
_Like = Annotated[
    Path,
    typer.Option(
        "--like",
        "--reference-spectra",
        help="Folder made by 'duallgd data spectra': measured spectra to imitate.",
    ),
]
_OfStructures = Annotated[
    int | None, typer.Option(min=1, help="Number of structures, at random (default: all).")
]
_MaxAtoms = Annotated[int, typer.Option(min=2, help="Leave structures with more heavy atoms out.")]
_Steps = Annotated[int, typer.Option(min=1, help="Optimiser steps of fitting the fragment model.")]


@app.command("structures", epilog=EPILOG)
def structures(
    source: Annotated[Path, typer.Argument(help="TSV, CSV, SMI or SDF, plain, .gz or .xz.")],
    output: _Output,
    holdout: _Holdout = None,
    limit: _Limit = None,
    workers: _Workers = None,
    force: _Force = False,
) -> None:
    """Structures for decoder pretraining: one per InChIKey first block."""
    from duallgd_cli.data.structures import prepare_structures, read_holdout
    from duallgd_cli.runtime import available_cores

    with _making(output, "structures", force, source, *(holdout or ())) as advance:
        manifest = prepare_structures(
            source, output, holdout=read_holdout(holdout or []), limit=limit,
            workers=workers or available_cores(), advance=advance,
        )  # fmt: skip
    typer.echo(f"{manifest['molecules']} molecules in {output}; see report.tsv there", err=True)


@app.command("spectra", epilog=EPILOG)
def spectra(
    source: Annotated[Path, typer.Argument(help="Table in the MassSpecGym layout.")],
    output: _Output,
    holdout: _Holdout = None,
    workers: _Workers = None,
    force: _Force = False,
) -> None:
    """Labelled spectra for training the encoder and for the joint stage."""
    from duallgd_cli.data.spectra import prepare_spectra
    from duallgd_cli.data.structures import read_holdout
    from duallgd_cli.runtime import available_cores

    with _making(output, "records", force, source, *(holdout or ())) as advance:
        manifest = prepare_spectra(
            source, output, holdout=read_holdout(holdout or []),
            workers=workers or available_cores(), advance=advance,
        )  # fmt: skip
    typer.echo(
        f"{manifest['spectra']} spectra of {manifest['molecules']} molecules in {output}; "
        "see report.tsv there",
        err=True,
    )


@app.command("simulate", epilog=EPILOG)
def simulate(
    structures: _Structures,
    output: _Output,
    like: _Like,
    limit: _OfStructures = None,
    max_atoms: _MaxAtoms = 50,
    steps: _Steps = 7000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    workers: _Workers = None,
    force: _Force = False,
) -> None:
    """Simulated spectra of structures, for training the encoder and the joint stage.

    A fragment model is fitted on fold train of the measured spectra; it says which fragments of a
    structure are seen, and how intense. How well it expects the validation spectra is printed.
    """
    from duallgd_cli.data.prepared import load_molecules, load_spectra
    from duallgd_cli.data.simulation import Selection, prepare_simulated
    from duallgd_cli.runtime import available_cores
    from duallgd_cli.train.simulator import fit_simulator

    with _making(output, "steps of the fragment model", force, structures, like) as advance:
        load_molecules(structures)  # what is wrong with them is said before minutes are spent
        simulator, record = fit_simulator(load_spectra(like), steps, seed, advance)
    for name, value in record["val"].items():
        typer.echo(f"fold val: {name} of expected and measured spectra {value:.3f}", err=True)
    with _making(output, "spectra", force, structures, like) as advance:
        manifest = prepare_simulated(
            structures, simulator, output, record, Selection(limit, max_atoms, seed),
            workers=workers or available_cores(), advance=advance,
        )  # fmt: skip
    typer.echo(f"{manifest['spectra']} simulated spectra in {output}", err=True)


@contextmanager
def _making(output: Path, what: str, force: bool, *inputs: Path) -> Iterator[Callable[[int], None]]:
    """Count while a folder is made, of which no file is lost; after Ctrl-C say how to go on.

    Raises:
        UsageError: A file would be lost or cannot be written; see `files.claim`.
        InterruptedRunError: Somebody pressed Ctrl-C.
    """
    from duallgd_cli.data.prepared import MOLECULE_ARRAYS, SPECTRUM_ARRAYS

    arrays = (f"{name}.npy" for name in (*MOLECULE_ARRAYS, *SPECTRUM_ARRAYS))
    claim(
        {
            f"the prepared {name}": output / name
            for name in ("manifest.json", "report.tsv", *arrays)
        },
        [("an input", path) for path in inputs],
        force=force,
        makes_folders=True,
    )
    try:
        with counting(what) as advance:
            yield advance
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped before {output} was whole; run the same command with --force to begin again"
        ) from None
