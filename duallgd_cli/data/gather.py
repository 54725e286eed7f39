"""Labelled spectra of many files as one table in the MassSpecGym layout, and who is held out.

Whatever `spectra.reading` reads is taken, with the structure as SMILES or InChI. The table holds
folds train and val; the molecules of all other folds, and those on hold-out lists, are left out.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final

from duallgd_cli.chem.identity import inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.data.prepared import write_report
from duallgd_cli.data.spectra import Labelled, RejectedSpectrum, read_labelled
from duallgd_cli.data.structures import ON_HOLDOUT, reason_of
from duallgd_cli.errors import FormulaError, MissingInputError, MoleculeError, UnreadableError
from duallgd_cli.files import write_atomically

COLUMNS: Final = (
    "identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz", "adduct",
    "instrument_type", "collision_energy", "fold",
)  # fmt: skip
_HASHED: Final = 1 << 32


def gather_spectra(
    sources: Sequence[Path],
    table: Path,
    keys: Path,
    *,
    holdout: frozenset[str] = frozenset(),
    validation: float = 0.0,
    seed: int = 1,
) -> dict[str, int]:
    """Write the spectra of all files that may be looked at as one table.

    Args:
        sources: Files of spectra with structures, or folders of them.
        table: To write; ``report.tsv`` beside it says of each record left out why.
        keys: To write: InChIKey first blocks that must not be trained on.
        holdout: First blocks that are left out altogether.
        validation: Share of the molecules of fold train that are moved to fold val.
        seed: Of that choice, which depends on nothing else but the molecule.

    Returns:
        Numbers of spectra by fold, of molecules that are held out (``held out``), of those that
        stand in several folds (``in several folds``), and of records left out by reason.

    Raises:
        MissingInputError: A file is not there.
        UnreadableError: None holds a labelled spectrum of fold train.
    """
    counts, held, trained = Counter[str](), set(holdout), set[str]()
    left_out: list[tuple[object, ...]] = []
    names = Counter[str]()

    def rows() -> Iterator[Sequence[str]]:
        for path in _files_of(sources):
            for record in read_labelled(path):
                row = _screened(record, holdout)
                if isinstance(row, RejectedSpectrum):
                    counts[row.reason] += 1
                    left_out.append((path.name, *row))
                    continue
                block = row["inchikey"]
                # A number that depends on the molecule and the seed alone.
                digest = hashlib.sha256(f"{seed} {block}".encode()).digest()
                is_drawn = int.from_bytes(digest[:4], "big") / _HASHED < validation
                if row["fold"] == "train" and is_drawn:
                    row["fold"] = "val"
                (trained if row["fold"] == "train" else held).add(block)
                counts[row["fold"]] += 1
                names[row["identifier"]] += 1
                if names[row["identifier"]] > 1:  # the truth is looked up by it
                    row["identifier"] += f"-{names[row['identifier']]}"
                if row["fold"] in ("train", "val"):
                    yield [row[name] for name in COLUMNS]

    lines = ("\t".join(cells) + "\n" for cells in chain([COLUMNS], rows()))
    write_atomically(table, lines)
    report = table.with_name("report.tsv")
    write_report(report, ("file", *RejectedSpectrum._fields), left_out)
    if not trained - held:
        raise UnreadableError(
            "there is no spectrum with a structure to train on; name structures as SMILES or "
            f"InChI, and fold train if there are folds; {report} says why each record was left out"
        )
    write_atomically(keys, (f"{block}\n" for block in sorted(held)))
    return {**counts, "held out": len(held), "in several folds": len(trained & held)}


def _files_of(sources: Iterable[Path]) -> Iterator[Path]:
    """The files, and those in the folders, in order; none may be missing."""
    for source in sources:
        if not source.exists():
            raise MissingInputError(f"{source} does not exist; check the paths of the recipe")
        inside = [path for path in sorted(source.rglob("*")) if path.is_file()]
        if source.is_dir() and not inside:
            raise MissingInputError(f"{source} is empty; put files of spectra into it")
        yield from inside if source.is_dir() else (source,)


def _screened(record: Labelled, holdout: frozenset[str]) -> dict[str, str] | RejectedSpectrum:
    """Cells of a record, or why it is left out."""
    if isinstance(record, RejectedSpectrum):
        return record
    spectrum = record.feature.first
    block, formula, trouble = _described(record.smiles)
    if block in holdout:
        trouble = ON_HOLDOUT
    if trouble:
        return RejectedSpectrum(record.number, spectrum.spectrum_id, trouble, record.smiles)
    energy, precursor = spectrum.collision_energy_ev, spectrum.precursor_mz
    return {
        "identifier": spectrum.spectrum_id,
        "mzs": ",".join(map(repr, spectrum.mz.tolist())),
        "intensities": ",".join(map(repr, spectrum.intensity.tolist())),
        "smiles": record.smiles,
        "inchikey": block,
        "formula": formula,
        "precursor_mz": "" if precursor is None else repr(float(precursor)),
        "adduct": spectrum.adduct_text,
        "instrument_type": spectrum.instrument,
        "collision_energy": "" if energy is None else repr(float(energy)),
        "fold": record.fold,
    }


@lru_cache(maxsize=4096)  # records of one molecule stand together
def _described(smiles: str) -> tuple[str, str, str]:
    """First block of the InChIKey and formula of a structure; or "", "" and why it has none."""
    try:
        mol = parse_smiles(smiles)
        return inchikey_block(mol), str(formula_of(mol)), ""
    except FormulaError:
        return "", "", "unsupported element"
    except MoleculeError as error:
        return "", "", reason_of(error)
