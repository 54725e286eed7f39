"""Structures that a study finds again from their true fingerprints.

Letters: N atoms, M pairs, S samples.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.elements import BOND_NONE, N_BOND_CLASSES
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.skeleton import pair_index
from duallgd_cli.data.atom_orders import OrderedMolecules, load_in_order
from duallgd_cli.data.batches import MoleculeCollator
from duallgd_cli.data.prepared import Molecules
from duallgd_cli.errors import UsageError
from duallgd_cli.model.condition import Condition
from duallgd_cli.model.settings import AtomOrder

_DIGITS: Final = 6  # of a share


@dataclass(frozen=True, eq=False)
class KnownStructure:
    """A molecule to be found again.

    Attributes:
        block: First block of its InChIKey.
        formula: Of it.
        bits: Its set Morgan bits, ascending, uint16 (n_on,), whatever the condition tells of them.
        condition: What the denoiser is told, a batch of one; its atoms may come in any order.
        bond_class: True classes in that order, int64 (1, M).
        place: Where each atom of the element-sorted list stands in that order, int64 (N,).
    """

    block: str
    formula: Formula
    bits: NDArray[np.uint16]
    condition: Condition
    bond_class: Tensor
    place: NDArray[np.int64]

    @property
    def n_atoms(self) -> int:
        """N."""
        return len(self.place)

    def in_formula_order(self, pairs: NDArray[np.generic]) -> NDArray[np.generic]:
        """Values of pairs (S, M, ...) for the element-sorted list instead of the order here."""
        low, high = np.triu_indices(self.n_atoms, 1)
        ends = np.sort(np.stack([self.place[low], self.place[high]]), 0)
        return pairs[:, pair_index(ends[0], ends[1], self.n_atoms)]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Which structures are judged by.

    Attributes:
        folder: Prepared structures.
        fold: Of them.
        limit: So many, always the same ones.
        max_atoms: The largest, in heavy atoms.
        order: In which their atoms are listed.
        seed: Of a random order.
        truth: Folder with the same molecules and their fingerprints, where `folder` withholds them.
    """

    folder: Path
    fold: str = "dev"
    limit: int = 200
    max_atoms: int = 100
    order: AtomOrder = "formula"
    seed: int = 0
    truth: Path | None = None

    def structures(self) -> list[KnownStructure]:
        """The molecules that are meant, in the order of the folder.

        Raises:
            MissingInputError: The folder holds no prepared data.
            UsageError: None is of that fold and size, or the order is not known there.
        """
        molecules = load_in_order(self.folder, self.order, self.seed)
        fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= self.max_atoms)
        rows = np.flatnonzero(fits & molecules.in_folds(self.fold))
        if not len(rows):
            raise UsageError(
                f"{self.folder} holds no molecule of fold {self.fold} with 2 to "
                f"{self.max_atoms} heavy atoms; use other data or a larger limit of atoms"
            )
        # Keys are hashes, so their order is as good as chance and always the same.
        chosen = rows[np.argsort(molecules.inchikey[rows], kind="stable")][: self.limit]
        collator = MoleculeCollator(molecules, None)
        true = molecules if self.truth is None else load_in_order(self.truth, "formula")
        return [
            _known(collator, row, true.fingerprint_bits(row)) for row in np.sort(chosen).tolist()
        ]


def _known(collator: MoleculeCollator, row: int, bits: NDArray[np.uint16]) -> KnownStructure:
    molecules, rows, unused = collator.molecules, np.array([row]), np.random.default_rng(0)
    size = int(molecules.n_heavy[row])
    counts = tuple(int(n) for n in molecules.atom_counts[row])
    return KnownStructure(
        block=molecules.inchikey[row].decode(),
        formula=Formula(counts, int(molecules.charge[row])),
        bits=bits,
        condition=collator.condition(rows, size, unused),
        bond_class=collator.graphs(rows, size, unused).bond_class,
        place=_place(molecules, row),
    )


def _place(molecules: Molecules, row: int) -> NDArray[np.int64]:
    if isinstance(molecules, OrderedMolecules):
        return molecules.place[molecules.atom_offset[row] : molecules.atom_offset[row + 1]]
    return np.arange(int(molecules.n_heavy[row]))


def bond_marginal(folder: Path, max_atoms: int) -> tuple[float, ...]:
    """Share of each bond class among the atom pairs of the molecules trained on.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UsageError: None of fold train is that small.
    """
    molecules = load_in_order(folder, "formula")
    fits = (molecules.n_heavy >= 2) & (molecules.n_heavy <= max_atoms)
    fits &= molecules.in_folds("train")
    n = molecules.n_heavy[fits]
    if not len(n):
        raise UsageError(
            f"{folder} holds no molecule of fold train with 2 to {max_atoms} heavy atoms"
        )
    of_bond = np.repeat(fits, np.diff(molecules.bond_offset))
    counts = np.bincount(molecules.bond_type[of_bond], minlength=N_BOND_CLASSES).astype(float)
    counts[BOND_NONE] = (n * (n - 1) // 2).sum() - counts.sum()
    share = (counts / counts.sum()).round(_DIGITS)
    return tuple(float(max(value, 10**-_DIGITS)) for value in share)  # none may be zero
