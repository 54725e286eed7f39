"""Which molecules can hold which patterns, by counting atoms and bonds.

A pattern needs so many atoms and bonds of some types. A search for it is spared where a molecule
has fewer, which is nearly always. C molecules with A atoms and B bonds, P patterns with Q
different atoms and R different bonds.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.atom_table import BEGIN, END, ORDER, RING, AtomTable

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
