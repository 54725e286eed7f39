"""`duallgd data`: structures and labelled spectra to prepared folders, and what is made of them."""

from collections.abc import Callable, Iterable, Iterator
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

_OUTPUT = Annotated[Path, typer.Option("-o", "--output", help="Folder for the prepared arrays.")]
_HOLDOUT = Annotated[
    list[Path] | None,
    typer.Option(
        help="Text file of InChIKey first blocks that must not be trained on; repeatable."
    ),
]
_FORCE = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
_WORKERS = Annotated[int | None, typer.Option(min=1, help="Processes (default: all cores).")]


@app.command("structures", epilog=EPILOG)
def structures(
    source: Annotated[Path, typer.Argument(help="TSV, CSV, SMI or SDF, plain, .gz or .xz.")],
    output: _OUTPUT,
    holdout: _HOLDOUT = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of rows to read (default: all).")
    ] = None,
    workers: _WORKERS = None,
    force: _FORCE = False,
) -> None:
    """Structures for decoder pretraining: one per InChIKey first block."""
    from duallgd_cli.data.prepared import MOLECULE_ARRAYS
    from duallgd_cli.data.structures import prepare_structures, read_holdout
    from duallgd_cli.runtime import available_cores

    _claim(output, MOLECULE_ARRAYS, force, source, *(holdout or ()))
    with _making(output, "structures") as advance:
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
        typer.Argument(help="Table in the MassSpecGym layout."),
    ],
    output: _OUTPUT,
    holdout: _HOLDOUT = None,
    workers: _WORKERS = None,
    force: _FORCE = False,
) -> None:
    """Labelled spectra for training the encoder and for the joint stage."""
    from duallgd_cli.data.prepared import MOLECULE_ARRAYS, SPECTRUM_ARRAYS
    from duallgd_cli.data.spectra import prepare_spectra
    from duallgd_cli.data.structures import read_holdout
    from duallgd_cli.runtime import available_cores

    _claim(output, (*MOLECULE_ARRAYS, *SPECTRUM_ARRAYS), force, source, *(holdout or ()))
    with _making(output, "records") as advance:
        manifest = prepare_spectra(
            source,
            output,
            holdout=read_holdout(holdout or []),
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
    structures: Annotated[Path, typer.Argument(help="Folder made by 'duallgd data structures'.")],
    output: _OUTPUT,
    like: Annotated[
        Path,
        typer.Option(
            "--like",
            "--reference-spectra",
            help="Folder made by 'duallgd data spectra': measured spectra to imitate.",
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of structures, at random (default: all).")
    ] = None,
    max_atoms: Annotated[
        int, typer.Option(min=2, help="Leave structures with more heavy atoms out.")
    ] = 50,
    steps: Annotated[
        int, typer.Option(min=1, help="Optimiser steps of fitting the fragment model.")
    ] = 7000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    workers: _WORKERS = None,
    force: _FORCE = False,
) -> None:
    """Simulated spectra of structures, for training the encoder and the joint stage.

    A fragment model is fitted on fold train of the measured spectra; it says which fragments of a
    structure are seen, and how intense. How well it expects the validation spectra is printed.
    """
    from duallgd_cli.data.prepared import (
        MOLECULE_ARRAYS,
        SPECTRUM_ARRAYS,
        load_molecules,
        load_spectra,
    )
    from duallgd_cli.data.simulation import Selection, prepare_simulated
    from duallgd_cli.runtime import available_cores
    from duallgd_cli.train.simulator import fit_simulator

    _claim(output, (*MOLECULE_ARRAYS, *SPECTRUM_ARRAYS), force, structures, like)
    load_molecules(structures)  # what is wrong with them is said before minutes are spent
    spectra = load_spectra(like)
    with _making(output, "steps of the fragment model") as advance:
        simulator, record = fit_simulator(spectra, steps, seed, advance)
    for name, value in record["val"].items():
        typer.echo(f"fold val: {name} of expected and measured spectra {value:.3f}", err=True)
    with _making(output, "spectra") as advance:
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


def _claim(folder: Path, arrays: Iterable[str], force: bool, *inputs: Path) -> None:
    """Refuse to lose a file to a folder of prepared data; see `files.claim`.

    Raises:
        UsageError: A file would be lost or cannot be written.
    """
    names = ("manifest.json", "report.tsv", *(f"{name}.npy" for name in arrays))
    claim(
        {f"the prepared {name}": folder / name for name in names},
        [("an input", path) for path in inputs],
        force=force,
        makes_folders=True,
    )


@contextmanager
def _making(output: Path, what: str) -> Iterator[Callable[[int], None]]:
    """Count while an output is made; after Ctrl-C say how to go on.

    Raises:
        InterruptedRunError: Somebody pressed Ctrl-C.
    """
    try:
        with counting(what) as advance:
            yield advance
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped before {output} was whole; run the same command with --force to begin again"
        ) from None
