"""What it is worth to say what is known: accuracy with true cores, parts and analogues.

    duallgd evaluate --benchmark massbank.tsv --fold val --spectra-per-molecule 1 -o val
    python examples/studies/known_core.py val massbank.tsv --limit 30 --samples 50 -o known.jsonl

Molecules with a ring are taken at random. What nothing gives is read from the journal of the
evaluation. Then each spectrum is predicted with its Murcko scaffold as core, with its largest ring
system as core, with the training molecule of highest Tanimoto similarity from 0.5 to 0.7 as
analogue, and with the rarest class that it belongs to as required part; twice as many samples are
drawn at most. Finished predictions are kept in the output: the same command goes on. The table
stands in docs/guide.md.
"""

import csv
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer
from rdkit import Chem, DataStructs
from rdkit.Chem import rdFingerprintGenerator
from rdkit.Chem.Scaffolds import MurckoScaffold

from duallgd_cli import GuideFiles, load, predict_spectra
from duallgd_cli.chem import parts
from duallgd_cli.chem.guide import read_core
from duallgd_cli.errors import UsageError
from duallgd_cli.predict.journal import read
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.run import predictions_of
from duallgd_cli.ranking.one_list import Ranking
from duallgd_cli.results import Prediction
from duallgd_cli.runtime import Runtime

_SPECTRUM: Final = ("precursor_mz", "adduct", "formula", "collision_energy", "instrument_type")
_ROWS: Final = {
    "nothing": "nothing",
    "scaffold": "Murcko scaffold, `--core`",
    "ring": "largest ring system, `--core`",
    "analogue": "similar molecule, `--analogues`",
    "class": "class, `--require`",
}
_ALIKE: Final = (0.5, 0.7)
_NO_CLASS: Final = {"functional group", "hydrocarbon", "aromatic pattern", parts.RING_SYSTEM}
_ALL: Final = (0, 1_000)
_SIZES: Final = ((0, 18), (19, 26), (27, 100))


class Training:
    """Molecules of fold train."""

    def __init__(self, table: Path) -> None:
        with table.open(newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t")
            each = {row["inchikey"][:14]: row["smiles"] for row in rows if row["fold"] == "train"}
        self.smiles = list(each.values())
        self._bits = [_bits(Chem.MolFromSmiles(one)) for one in self.smiles]
        found, has = parts.find(random.Random(0).sample(self.smiles, min(1_000, len(self.smiles))))
        self._share = dict(zip([one.name for one in found], has.mean(1).tolist(), strict=True))

    def analogue(self, mol: Chem.Mol) -> str | None:
        """The most similar molecule that is not too similar."""
        alike = np.array(DataStructs.BulkTanimotoSimilarity(_bits(mol), self._bits))
        alike[alike >= _ALIKE[1]] = 0
        best = int(alike.argmax())
        return self.smiles[best] if alike[best] >= _ALIKE[0] else None

    def class_of(self, smiles: str) -> str | None:
        """The rarest class of the catalogue that a molecule belongs to."""
        found, _ = parts.find([smiles])
        named = {row["name"] for row in parts.catalogue() if row["kind"] not in _NO_CLASS}
        names = [one.name for one in found if one.name in named]
        return min(names, key=lambda name: (self._share.get(name, 0), name), default=None)


def _bits(mol: Chem.Mol) -> DataStructs.ExplicitBitVect:
    return rdFingerprintGenerator.GetMorganGenerator(2, fpSize=4096).GetFingerprint(mol)


def ring_system(mol: Chem.Mol) -> str | None:
    """The largest ring system with what is double-bonded to it."""
    rings = [set(ring) for ring in mol.GetRingInfo().AtomRings()]
    systems: list[set[int]] = []
    for ring in rings:
        joined = [one for one in systems if one & ring]
        systems = [one for one in systems if not one & ring] + [ring.union(*joined)]
    largest = max(systems, key=len)
    whole = Chem.RWMol(mol)
    double = Chem.BondType.DOUBLE
    kept = largest | {
        bond.GetOtherAtomIdx(atom)
        for atom in largest
        for bond in mol.GetAtomWithIdx(atom).GetBonds()
        if bond.GetBondType() == double
    }
    for atom in map(whole.GetAtomWithIdx, largest):
        outside = any(one.GetIdx() not in kept for one in atom.GetNeighbors())
        if atom.GetIsAromatic() and atom.GetSymbol() == "N" and outside:
            atom.SetNumExplicitHs(1)
    for index in sorted(set(range(mol.GetNumAtoms())) - kept, reverse=True):
        whole.RemoveAtom(index)
    return Chem.MolToSmiles(whole)


def told(smiles: str, training: Training) -> dict[str, str]:
    """What is said of a molecule, by name of the row; {} without a ring."""
    mol = Chem.MolFromSmiles(smiles)
    Chem.RemoveStereochemistry(mol)
    if not mol.GetRingInfo().NumRings():
        return {}
    cores = {
        "scaffold": Chem.MolToSmiles(MurckoScaffold.GetScaffoldForMol(mol)),
        "ring": ring_system(mol),
    }
    known = {"analogue": training.analogue(mol), "class": training.class_of(Chem.MolToSmiles(mol))}
    for name, core in cores.items():
        try:
            known[name] = core if read_core(core).is_in(mol) else None
        except UsageError:
            known[name] = None
    return {name: one for name in _ROWS if (one := known.get(name))}


def predicted(
    model: LoadedModel, spectrum: Mapping[str, Any], name: str, what: str, samples: int
) -> Prediction:
    """The prediction of a spectrum with what is known of its molecule."""
    changes: dict[str, Any] = {"core": what} if name in ("scaffold", "ring") else {}
    if name == "class":
        changes["require"] = (what,)
    with TemporaryDirectory() as folder:
        if name == "analogue":
            path = Path(folder) / "analogue.smi"
            path.write_text(f"{what}\n")
            changes["guide"] = GuideFiles(analogues=(str(path),))
        (found,) = predict_spectra(
            model, [spectrum], samples=samples, max_draws=2 * samples, top_k=20 * samples, **changes
        )
    return found


def from_journal(folder: Path) -> dict[str, Prediction]:
    """Predictions of an evaluation, by spectrum, all candidates."""
    (path,) = folder.glob("*.journal.jsonl")
    run = read([path], partial=True)
    ranking = Ranking.recorded(run.header.model, run.header.settings, path)
    found = (predictions_of(case, *ranking.rank(case), 10**6) for case in run.features())
    return {one.spectrum_id: one for predictions in found for one in predictions}


def rank_of(prediction: Prediction, block: str) -> int | None:
    """Rank of the true structure."""
    return next((one.rank for one in prediction.candidates if one.inchikey14 == block), None)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Molecules found with what is known, in brackets without, by size."""
    yield "| known | heavy atoms | molecules | first | first ten | any sample | s a spectrum |"
    yield "|---|---|---|---|---|---|---|"
    without = {row["id"]: row["rank"] for row in rows if row["known"] == "nothing"}
    for name, title in _ROWS.items():
        for low, high in (_ALL, *_SIZES):
            own = [row for row in rows if row["known"] == name and low <= row["atoms"] <= high]
            if not own:
                continue
            with_it = [row["rank"] for row in own]
            free = [without[row["id"]] for row in own]
            cells = (f"{_found(with_it, n)} ({_found(free, n)})" for n in (1, 10, 10**9))
            size = "all" if (low, high) == _ALL else f"{low} to {high}"
            seconds = np.mean([row["seconds"] for row in own])
            yield f"| {title} | {size} | {len(own)} | {' | '.join(cells)} | {seconds:.1f} |"


def _found(ranks: Sequence[int | None], most: int) -> int:
    return sum(rank is not None and rank <= most for rank in ranks)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate.")],
    benchmark: Annotated[Path, typer.Argument(help="Table of spectra with fold train, unpacked.")],
    output: Annotated[Path, typer.Option("-o", help="File of finished predictions.")],
    limit: Annotated[int, typer.Option(min=1, help="Number of molecules.")] = 30,
    samples: Annotated[int, typer.Option(min=1, help="Samples per molecule.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Random seed: of the molecules chosen.")] = 0,
    minutes: Annotated[float, typer.Option(help="Stop after so long.")] = 1e6,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    weights: Annotated[str | None, typer.Option(help="Weights, as of the evaluation.")] = None,
) -> None:
    """Predict with what is known, and print how many are found."""
    until = time.monotonic() + 60 * minutes
    with (folder / "truth.tsv").open(newline="") as stream:
        truth = {row["identifier"]: row for row in csv.DictReader(stream, delimiter="\t")}
    with (folder / "spectra.tsv").open(newline="") as stream:
        spectra = list(csv.DictReader(stream, delimiter="\t"))
    free = from_journal(folder)
    spectra = [row for row in spectra if row["identifier"] in truth and row["identifier"] in free]
    random.Random(seed).shuffle(spectra)
    lines = output.read_text().splitlines() if output.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["id"], row["known"]) for row in rows}
    training = Training(benchmark)
    model = load(weights, runtime=Runtime.resolve(precision=precision, threads=1))
    chosen = 0
    for row in spectra:
        known = told(truth[row["identifier"]]["smiles"], training)
        if "scaffold" not in known or chosen == limit or time.monotonic() > until:
            continue
        chosen += 1
        spectrum: dict[str, Any] = {name: row[name] for name in _SPECTRUM if row.get(name)}
        spectrum["mz"] = [float(x) for x in row["mzs"].split(",")]
        spectrum["intensity"] = [float(x) for x in row["intensities"].split(",")]
        for name, what in {"nothing": "", **known}.items():
            if (row["identifier"], name) in done:
                continue
            started = time.process_time()
            found = (
                predicted(model, spectrum, name, what, samples) if what else free[row["identifier"]]
            )
            entry = {
                "id": row["identifier"],
                "known": name,
                "what": what,
                "atoms": Chem.MolFromSmiles(truth[row["identifier"]]["smiles"]).GetNumHeavyAtoms(),
                "rank": rank_of(found, truth[row["identifier"]]["inchikey"][:14]),
                "seconds": time.process_time() - started if what else found.seconds,
                "candidates": len(found.candidates),
                "confidence": found.candidates[0].confidence if found.candidates else 0.0,
                "status": found.status,
            }
            rows.append(entry)
            with output.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
    for line in table(rows):
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
