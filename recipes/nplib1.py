"""NPLIB1 as MIST's authors released it, to a table in the MassSpecGym layout.

    python recipes/nplib1.py canopus/ -o canopus/nplib1.tsv
    duallgd evaluate --benchmark canopus/nplib1.tsv --fold test
    duallgd train RECIPE --set spectra=[nplib1.tsv] --data canopus -o run

The folder is that of canopus_train_public.tar (zenodo.org/records/7897324): ``labels.tsv``,
``splits`` and ``spec_files``. A file is one spectrum, however many collision energies it holds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from duallgd_cli.errors import DuallgdError, MissingInputError, UnreadableError, printable
from duallgd_cli.files import claim, write_atomically
from duallgd_cli.spectra.reading import read
from duallgd_cli.tables import table_rows

LABELS, SPECTRA = "labels.tsv", "spec_files"
SPLIT: Final = Path("splits") / "canopus_hplus_100_0.tsv"
COLUMNS: Final = (
    "identifier", "mzs", "intensities", "smiles", "formula", "precursor_mz", "adduct",
    "instrument_type", "collision_energy", "fold",
)  # fmt: skip
_ADDUCT: Final = "[M+H]+"


def spectra_of(folder: Path, split: Path) -> Iterator[dict[str, str]]:
    """A row by `COLUMNS` for each spectrum of a fold, peaks of all energies together.

    The peaks of each energy are relative to their base peak. Spectra in no fold are left out.

    Args:
        folder: Of the release.
        split: Table of names and folds.

    Raises:
        MissingInputError: A table, or the file of a label, does not exist.
        UnreadableError: A table lacks a column, or a file has no MS2 peaks.
    """
    folds = {row["name"]: row["split"].lower() for row in table_rows(split, ("name", "split"))}
    for label in table_rows(folder / LABELS, required=("spec", "smiles", "formula")):
        name, path = label["spec"], folder / SPECTRA / f"{label['spec']}.ms"
        if name not in folds:
            continue
        if not path.is_file():
            raise MissingInputError(f"{path} does not exist, though {LABELS} lists it")
        blocks = [block for block in read(str(path)) if block.ms_level > 1 and block.mz.size]
        if not blocks:
            raise UnreadableError(f"{path} holds no MS2 peaks")
        mz = np.concatenate([block.mz for block in blocks])
        intensity = np.concatenate([block.intensity / block.intensity.max() for block in blocks])
        order, ion = np.argsort(mz, kind="stable"), blocks[0].precursor_mz
        yield {
            "identifier": name,
            "mzs": ",".join(map(repr, mz[order].tolist())),
            "intensities": ",".join(map(repr, intensity[order].tolist())),
            "smiles": label["smiles"],
            "formula": label["formula"],
            "precursor_mz": "" if ion is None else repr(ion),
            "adduct": label.get("ionization") or blocks[0].adduct_text or _ADDUCT,
            "instrument_type": label.get("instrument", ""),
            "collision_energy": "",
            "fold": folds[name],
        }


def main(
    folder: Annotated[Path, typer.Argument(help="Folder with labels.tsv, splits and spec_files.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Table to write, .tsv.")],
    split: Annotated[
        Path | None, typer.Option(help="Table of folds; by default the official one.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write the spectra of NPLIB1 as one table in the MassSpecGym layout."""
    split = split or folder / SPLIT
    claim({"the table": output}, [folder / LABELS, split], force=force)
    rows = ("\t".join(map(row.__getitem__, COLUMNS)) + "\n" for row in spectra_of(folder, split))
    write_atomically(output, ["\t".join(COLUMNS) + "\n", *rows])
    typer.echo(f"-> {output}", err=True)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {printable(str(error))}") from None
