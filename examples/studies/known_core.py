"""What it is worth to know a part of the molecule: accuracy with and without a true core.

    duallgd evaluate --benchmark massbank.tsv.xz --fold val --spectra-per-molecule 1 -o val
    python examples/studies/known_core.py val --limit 60 --samples 50

Each spectrum is predicted with its formula alone, and with the Murcko scaffold of its truth
as `--core`. Molecules without a ring are left out. The table stands in docs/guide.md.
"""

import csv
import random
from pathlib import Path
from typing import Annotated, Final

import typer
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from duallgd_cli import load, predict_spectra
from duallgd_cli.predict.prediction import Prediction

_SPECTRUM: Final = ("precursor_mz", "adduct", "formula", "collision_energy", "instrument_type")


def cores(smiles: str) -> dict[str, str | None]:
    """What is told of a molecule, by name of the row; {} without a ring."""
    mol = Chem.MolFromSmiles(smiles)
    Chem.RemoveStereochemistry(mol)
    scaffold = Chem.MolToSmiles(MurckoScaffold.GetScaffoldForMol(mol))
    return {"nothing": None, "scaffold": scaffold} if scaffold else {}


def place_of(prediction: Prediction, block: str) -> int | None:
    """Rank of the true structure."""
    return next((one.rank for one in prediction.candidates if one.inchikey14 == block), None)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate: its spectra, truth.")],
    limit: Annotated[int, typer.Option(min=1, help="Number of molecules.")] = 60,
    samples: Annotated[int, typer.Option(min=1, help="Samples per molecule.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Random seed: of the molecules chosen.")] = 0,
) -> None:
    """Predict with and without a core, and print the shares found."""
    with (folder / "truth.tsv").open(newline="") as stream:
        truth = {row["identifier"]: row for row in csv.DictReader(stream, delimiter="\t")}
    with (folder / "spectra.tsv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["identifier"] in truth]
    random.Random(seed).shuffle(rows)
    told = [(row, cores(truth[row["identifier"]]["smiles"])) for row in rows]
    told = [(row, known) for row, known in told if known][:limit]
    model = load()
    places: dict[str, list[int | None]] = {}
    for number, (row, known) in enumerate(told, 1):
        spectrum = {name: row[name] for name in _SPECTRUM if row.get(name)}
        spectrum["mz"] = [float(x) for x in row["mzs"].split(",")]
        spectrum["intensity"] = [float(x) for x in row["intensities"].split(",")]
        for name, core in known.items():
            (found,) = predict_spectra(
                model, [spectrum], samples=samples, top_k=10 * samples, core=core
            )
            block = truth[row["identifier"]]["inchikey"][:14]
            places.setdefault(name, []).append(place_of(found, block))
        typer.echo(f"{number} of {len(told)}", err=True)
    typer.echo("| known | molecules | first | first ten | any sample |\n|---|---|---|---|---|")
    for name, ranks in places.items():
        shares = [
            sum(rank is not None and rank <= most for rank in ranks) / len(ranks)
            for most in (1, 10, 10**9)
        ]
        typer.echo(f"| {name} | {len(ranks)} | " + " | ".join(f"{s:.1%}" for s in shares) + " |")


if __name__ == "__main__":
    typer.run(main)
