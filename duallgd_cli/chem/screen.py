"""Which molecules can hold which patterns, by counting atoms and bonds.

A pattern needs so many atoms and bonds of some types. A search for it is spared where a molecule
has fewer, which is nearly always. C molecules with A atoms and B bonds, P patterns with Q
different atoms and R different bonds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

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


Flags = NDArray[np.bool_]


class Screen:
    """Says which molecules may hold which patterns; what it leaves out holds none.

    What fits an atom or a bond is asked of RDKit once for each kind, and remembered. Recursive
    conditions, which look beyond an atom, count as fulfilled.
    """

    def __init__(self, queries: Sequence[Chem.Mol]) -> None:
        """Read what P patterns need."""
        atoms: dict[str, int] = {}
        bonds: dict[tuple[int, int, str, int], int] = {}
        orders: dict[str, Chem.Bond] = {}
        needed: list[tuple[Counter[int], Counter[int]]] = []
        for query in queries:
            Chem.FastFindRings(query)
            texts = [_without_recursion(atom.GetSmarts()) for atom in query.GetAtoms()]
            own = [atoms.setdefault(text, len(atoms)) for text in texts]
            keys = []
            for bond in query.GetBonds():
                order: str = bond.GetSmarts()  # type: ignore[call-arg] # its stub is wrong
                orders.setdefault(order, bond)
                one, other = own[bond.GetBeginAtomIdx()], own[bond.GetEndAtomIdx()]
                ring = query.GetRingInfo().MinBondRingSize(bond.GetIdx())  # 0 outside rings
                keys.append((one, other, order, ring))
            needed.append((Counter(own), Counter(bonds.setdefault(k, len(bonds)) for k in keys)))
        self._atoms = [Chem.AtomFromSmarts(text) for text in atoms]
        self._orders = list(orders.values())
        self._begin, self._end, self._order, self._ring = np.array(
            [(one, other, list(orders).index(text), ring) for one, other, text, ring in bonds]
        ).T
        pattern, self._column, self._number = np.array(
            [
                (number, column, count)
                for number, (of_atoms, of_bonds) in enumerate(needed)
                for first, counts in ((0, of_atoms), (len(atoms), of_bonds))
                for column, count in ((first + key, count) for key, count in counts.items())
            ]
        ).T
        self._firsts = np.searchsorted(pattern, np.arange(len(queries)))
        self._atom_fits: dict[int, Flags] = {}
        self._order_fits: dict[tuple[int, bool], Flags] = {}

    def possible(self, table: AtomTable) -> Flags:
        """Which molecules may hold which patterns, (P, C)."""
        kinds, first, kind = np.unique(table.kinds(), return_index=True, return_inverse=True)
        atoms = np.stack(
            [self._of_atom(*one, table) for one in zip(kinds.tolist(), first.tolist(), strict=True)]
        )
        ends = np.column_stack([kind[table.bonds[:, [BEGIN, END]]], table.bonds[:, [ORDER, RING]]])
        rows, first, row = np.unique(ends, axis=0, return_index=True, return_inverse=True)
        bonds = np.zeros((len(rows), len(self._ring)), bool)
        for number, (one, other, order, ring) in enumerate(rows.tolist()):
            straight = atoms[one, self._begin] & atoms[other, self._end]
            reverse = atoms[one, self._end] & atoms[other, self._begin]
            in_ring = (self._ring == 0) | (0 < ring <= self._ring)
            of_order = self._of_order((order, ring > 0), int(first[number]), table)[self._order]
            bonds[number] = (straight | reverse) & in_ring & of_order
        counts = [
            _sums(atoms[kind], table.atom_owner(), len(table.mols)),
            _sums(bonds[row], table.owner, len(table.mols)),
        ]
        enough = np.concatenate(counts, axis=1)[:, self._column]
        return np.logical_and.reduceat(enough >= self._number, self._firsts, axis=1).T

    def _of_atom(self, kind: int, row: int, table: AtomTable) -> Flags:
        """Which atoms of patterns an atom of this kind fits, by the one of this row."""
        if kind not in self._atom_fits:
            owner = int(np.searchsorted(table.starts, row, side="right")) - 1
            atom = table.mols[owner].GetAtomWithIdx(row - int(table.starts[owner]))
            self._atom_fits[kind] = np.array([query.Match(atom) for query in self._atoms])
        return self._atom_fits[kind]

    def _of_order(self, key: tuple[int, bool], row: int, table: AtomTable) -> Flags:
        """Which bonds of patterns a bond of this order fits, by the one of this row."""
        if key not in self._order_fits:
            owner = table.owner[row]
            ends = (table.bonds[row, [BEGIN, END]] - table.starts[owner]).tolist()
            bond = table.mols[owner].GetBondBetweenAtoms(*ends)
            self._order_fits[key] = np.array([query.Match(bond) for query in self._orders])
        return self._order_fits[key]


def _sums(rows: Flags, owner: NDArray[Any], n_owners: int) -> NDArray[np.int32]:
    """Sums of the rows of each owner, whose rows follow each other, (owners, columns)."""
    # Not a product of matrices: its threads cost more than they save on these sizes.
    total = np.zeros((len(rows) + 1, rows.shape[1]), np.int32)
    np.cumsum(rows, axis=0, out=total[1:])
    edges = np.searchsorted(owner, np.arange(n_owners + 1))
    return total[edges[1:]] - total[edges[:-1]]


def _without_recursion(smarts: str) -> str:
    """An atom's SMARTS with ``*``, which fits all, for each recursive condition or its denial."""
    while (start := smarts.find("$(")) >= 0:
        depth, end = 1, start + 2
        while depth:
            depth += {"(": 1, ")": -1}.get(smarts[end], 0)
            end += 1
        smarts = smarts[:start].removesuffix("!") + "*" + smarts[end:]
    return smarts
