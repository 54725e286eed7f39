"""Molecules of a prepared folder, one at a time, for studies of what a network does with them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.molecule import places
from duallgd_cli.chem.skeleton import Skeleton, bonds_of
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.data.peaks import from_prepared, peak_batch
from duallgd_cli.data.prepared import (
    FOLDS,
    Molecules,
    PreparedSpectra,
    load_molecules,
    load_spectra,
    read_manifest,
)
from duallgd_cli.errors import UsageError
from duallgd_cli.model.condition import Condition
from duallgd_cli.model.encoder import PeakBatch

_SPECTRA: Final = "spectrum_id"


@dataclass(frozen=True, eq=False)
class KnownMolecule:
    """One molecule whose bonds are known; N heavy atoms, M = N (N - 1) / 2 pairs.

    Attributes:
        key: First block of its InChIKey.
        atom_class: Elements, sorted, int64 (N,).
        bond_class: True classes, int64 (M,).
        condition: Its formula and true fingerprint, a batch of one.
        peaks: One of its spectra, a batch of one; None where none was asked for.
    """

    key: str
    atom_class: NDArray[np.int64]
    bond_class: NDArray[np.int64]
    condition: Condition
    peaks: PeakBatch | None = None

    def places(self) -> NDArray[np.float64]:
        """Where a drawing puts its atoms, float64 (N, 2)."""
        bonds = bonds_of(len(self.atom_class), self.bond_class)
        return places(Skeleton.of(self.atom_class.tolist(), bonds))


@dataclass(frozen=True)
class Selection:
    """Which molecules of a folder are looked at.

    Attributes:
        fold: Their fold; "" takes val where there is one, else dev.
        limit: So many, always the same ones; None takes all.
        peaks: Whether a spectrum of each is needed.
        max_atoms: The largest, in heavy atoms.
    """

    fold: str = ""
    limit: int | None = None
    peaks: bool = False
    max_atoms: int = 100


def known_molecules(folder: Path, selection: Selection) -> tuple[list[KnownMolecule], str]:
    """Molecules of one fold, by the hash of their InChIKey, and the fold they are of.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UnreadableError: They are broken.
        UsageError: No molecule is of that fold, or spectra are needed and there are none.
    """
    if selection.peaks and _SPECTRA not in read_manifest(folder)["arrays"]:
        raise UsageError(f"{folder} holds no spectra; use the true fingerprints, or other data")
    spectra = load_spectra(folder) if selection.peaks else None
    molecules = load_molecules(folder) if spectra is None else spectra.molecules
    fold = selection.fold or _held_out(molecules)
    rows = _rows(molecules, fold, selection, folder)
    if spectra is not None:
        rows = rows[np.isin(rows, np.asarray(spectra.molecule))]
    order = sorted(rows.tolist(), key=lambda row: _hash(molecules.inchikey[row].tobytes()))
    collator = MoleculeCollator(molecules, None)
    return [_known(collator, row, spectra) for row in order[: selection.limit]], fold


def _rows(molecules: Molecules, fold: str, selection: Selection, folder: Path) -> NDArray[np.int64]:
    if fold not in FOLDS:
        raise UsageError(f"fold {fold!r} is unknown; choose one of {', '.join(FOLDS)}")
    fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= selection.max_atoms)
    rows = np.flatnonzero(fits & molecules.in_folds(fold))
    if not len(rows):
        present = ", ".join(FOLDS[number] for number in np.unique(molecules.fold))
        raise UsageError(f"{folder} holds no molecule of fold {fold}; its folds are {present}")
    return rows


def _held_out(molecules: Molecules) -> str:
    return "val" if molecules.in_folds("val").any() else "dev"


def _known(collator: MoleculeCollator, row: int, spectra: PreparedSpectra | None) -> KnownMolecule:
    molecules, rows, unused = collator.molecules, np.array([row]), np.random.default_rng(0)
    size = int(molecules.n_heavy[row])
    return KnownMolecule(
        key=molecules.inchikey[row].decode(),
        atom_class=molecules.atom_class(row),
        bond_class=collator.graphs(rows, size, unused).bond_class[0].numpy(),
        condition=collator.condition(rows, size, unused),
        peaks=None if spectra is None else _peaks(spectra, row),
    )


def _peaks(spectra: PreparedSpectra, row: int) -> PeakBatch:
    own = np.flatnonzero(np.asarray(spectra.molecule) == row)
    chosen = min(own.tolist(), key=lambda number: _hash(spectra.spectrum_id[number].tobytes()))
    return peak_batch([from_prepared(spectra, [chosen])])


def _hash(name: bytes) -> bytes:
    return hashlib.blake2b(name, digest_size=8).digest()
