"""Atoms and bonds of many molecules as arrays: what is asked of all is asked once.

C molecules with A atoms and B bonds in all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

ELEMENT, HYDROGENS, CHARGE, DEGREE, AROMATIC, RINGS, SMALLEST = range(7)
BEGIN, END, ORDER, RING = range(4)
_HASHES: Final = np.random.default_rng(0).integers(1, 2**63, (8, 128), np.uint64)
_OFFSET: Final = 8  # makes charges positive
_MOST: Final = np.array([127, 15, 15, 15, 1, 15, 63])  # what the columns of atoms are cut to
_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class AtomTable:
    """C molecules, their atoms and bonds one after the other.

    Attributes:
        mols: RDKit's molecules, (C,).
        atoms: Element, hydrogens, charge, degree, whether aromatic, number of rings, size of the
            smallest one or 0: int64 (A, 7).
        bonds: Rows of two atoms, twice the bond order (3 is aromatic), size of the smallest ring or
            0: int64 (B, 4), in the order of the atoms.
        owner: The molecule of each bond, (B,).
        starts: The first atom of each molecule, and A, (C + 1,).
        orders: Twice the bond orders of each molecule, (C,) of (N, N).
    """

    mols: tuple[Chem.Mol, ...]
    atoms: NDArray[np.int64]
    bonds: NDArray[np.int64]
    owner: NDArray[np.int64]
    starts: NDArray[np.int64]
    orders: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, mols: Sequence[Chem.Mol]) -> "AtomTable":
        """Read molecules, one at least."""
        orders = [(2 * Chem.GetAdjacencyMatrix(mol, useBO=True)).astype(np.int64) for mol in mols]
        tables = [_atoms_and_bonds(*each) for each in zip(mols, orders, strict=True)]
        starts = np.cumsum([0, *(len(atoms) for atoms, _ in tables)])
        for (_, bonds), start in zip(tables, starts, strict=False):
            bonds[:, [BEGIN, END]] += start
        return cls(
            mols=tuple(mols),
            atoms=np.concatenate([atoms for atoms, _ in tables]),
            bonds=np.concatenate([bonds for _, bonds in tables]),
            owner=np.repeat(np.arange(len(mols)), [len(bonds) for _, bonds in tables]),
            starts=starts,
            orders=tuple(orders),
        )

    def atom_owner(self) -> NDArray[np.int64]:
        """The molecule of each atom, (A,)."""
        return np.repeat(np.arange(len(self.mols)), np.diff(self.starts))

    def kinds(self) -> NDArray[np.int64]:
        """A number for each atom, equal for atoms of equal rows, (A,)."""
        columns = self.atoms + (np.arange(7) == CHARGE) * _OFFSET
        return np.asarray(
            np.ravel_multi_index(tuple(np.minimum(columns, _MOST).T), tuple(_MOST + 1))
        )

    def bond_environments(self) -> NDArray[np.uint64]:
        """What each bond joins, as a number that is equal for what is alike, (B,).

        Both atoms count with their hydrogens and charge, and with the elements and bonds around
        them.
        """
        begin, end, order = self.bonds[:, BEGIN], self.bonds[:, END], self.bonds[:, ORDER]
        element, hydrogens, charge = self.atoms[:, [ELEMENT, HYDROGENS, CHARGE]].T
        own = ((element * 16 + hydrogens) * 16 + charge + _OFFSET).astype(np.uint64)
        # The sum of a random number for each neighbour stands for the set of them.
        to_end, to_begin = _HASHES[order, element[end]], _HASHES[order, element[begin]]
        around = np.zeros(len(own), np.uint64)
        np.add.at(around, begin, to_end)
        np.add.at(around, end, to_begin)
        one = own[begin] * _ODD[0] + (around[begin] - to_end) * _ODD[1]
        other = own[end] * _ODD[0] + (around[end] - to_begin) * _ODD[1]
        ends = np.minimum(one, other) * _ODD[0] + np.maximum(one, other) * _ODD[1]
        return np.asarray(ends + order.astype(np.uint64) * _ODD[2])


def _atoms_and_bonds(
    mol: Chem.Mol, order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    atom_of, number = mol.GetAtomWithIdx, len(order)
    atoms = np.zeros((number, 7), np.int64)
    atoms[:, [ELEMENT, HYDROGENS, CHARGE]] = [
        (atom.GetAtomicNum(), atom.GetTotalNumHs(), atom.GetFormalCharge())
        for atom in map(atom_of, range(number))
    ]
    atoms[:, DEGREE] = (order > 0).sum(1)
    atoms[:, AROMATIC] = (order == 3).any(1)
    ring = np.zeros_like(order)
    for members in sorted(mol.GetRingInfo().AtomRings(), key=len, reverse=True):
        at = list(members)
        atoms[at, RINGS] += 1
        atoms[at, SMALLEST] = len(at)
        after = [*at[1:], at[0]]
        ring[at, after] = ring[after, at] = len(at)
    begin, end = np.nonzero(np.triu(order))
    return atoms, np.stack([begin, end, order[begin, end], ring[begin, end]], axis=1)
