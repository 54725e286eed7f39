"""The same molecules with their atoms listed in another order: what the leak study compares.

Prepared molecules list their atoms by element, as a formula does. A folder made by
`data.prepare_orders` also knows the order of each molecule's canonical SMILES, which only those
know who know the molecule. Letters: G molecules, N atoms of one molecule.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.data.prepared import Molecules, load_array, load_molecules, read_manifest
from duallgd_cli.errors import UsageError
from duallgd_cli.model.settings import AtomOrder

SMILES_PLACE: Final = "smiles_place"


@dataclass(frozen=True, eq=False)
class OrderedMolecules(Molecules):
    """Molecules whose atoms are listed in any order.

    Attributes:
        element: Elements in that order, molecule after molecule, int64 (atoms,).
        place: Where each atom of the element-sorted list stands in it, likewise, int64 (atoms,).
        atom_offset: int64 (G + 1,).
    """

    element: NDArray[np.int64]
    place: NDArray[np.int64]
    atom_offset: NDArray[np.int64]

    def atom_class(self, molecule: int) -> NDArray[np.int64]:
        """Heavy atoms of one molecule in their order, int64 (N,)."""
        return self.element[self.atom_offset[molecule] : self.atom_offset[molecule + 1]]


def load_in_order(folder: Path, order: AtomOrder, seed: int = 0) -> Molecules:
    """Molecules of a prepared folder with their atoms in an order.

    Args:
        folder: Made by `data.prepare_orders` unless the order is the formula's.
        order: The canonical SMILES's (``truth``), one drawn for each molecule (``random``), or by
            element (``formula``).
        seed: Of the random order.

    Raises:
        MissingInputError: The folder holds no prepared data.
        UsageError: The order of the true molecules is asked for and not known there.
    """
    molecules = load_molecules(folder)
    if order == "formula":
        return molecules
    if order == "random":
        return in_order(molecules, _random_places(molecules, seed))
    if SMILES_PLACE not in read_manifest(folder)["arrays"]:
        raise UsageError(
            f"{folder} does not know the order of atoms in canonical SMILES; "
            "'python examples/studies/leak.py' derives it"
        )
    return in_order(molecules, load_array(folder, SMILES_PLACE).astype(np.int64))


def in_order(molecules: Molecules, place: NDArray[np.int64]) -> OrderedMolecules:
    """Molecules with their atoms moved.

    Args:
        molecules: With element-sorted atoms.
        place: New place of each atom within its molecule, molecule after molecule, int64 (atoms,).
    """
    offset = np.concatenate([[0], np.cumsum(molecules.n_heavy)])
    start = np.repeat(offset[:-1], molecules.n_heavy)
    by_formula = [molecules.atom_class(row) for row in range(len(molecules))]
    element = np.empty(len(place), np.int64)
    element[start + place] = np.concatenate(by_formula)
    of_bond = np.repeat(offset[:-1], np.diff(molecules.bond_offset))
    moved = place[of_bond[:, None] + molecules.bond_pair]
    same = {f.name: getattr(molecules, f.name) for f in fields(Molecules) if f.init}
    same["bond_pair"] = np.sort(moved, 1).astype(np.uint8)
    return OrderedMolecules(**same, element=element, place=place, atom_offset=offset)


def _random_places(molecules: Molecules, seed: int) -> NDArray[np.int64]:
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.permutation(n) for n in molecules.n_heavy])
