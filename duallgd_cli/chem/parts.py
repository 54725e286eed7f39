"""Parts of molecules that chemists name: groups, building blocks, ring systems, fatty acyls.

The catalogue `parts.tsv` names patterns (SMARTS) and ring systems (canonical SMILES). Ring systems
and fatty acyls are read from the molecule itself, so those without a name are found too. A ring
system is every ring that shares an atom with another of it, with the atoms that are bound to it by
double bonds.

What is asked of all molecules is asked once, of arrays of their atoms and bonds. A pattern needs so
many atoms and bonds of some types: a search for it is spared where a molecule has fewer, which is
nearly always. C molecules with A atoms and B bonds, P parts or patterns, these with Q different
atoms and R different bonds.
"""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
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


RING_SYSTEM: Final = "ring system"
FATTY_ACYL: Final = "fatty acyl"
# Shorter acyls are groups with names of their own (acetyl, propionyl).
_SHORTEST_ACYL: Final = 4
_DOUBLE: Final = 4  # twice the order of a double bond
_PLAIN: Final = {"B", "C", "N", "O", "P", "S"}
_ACYL: Final = Chem.MolFromSmarts("[CX3;!R](=O)([O,N,S])[CH2,CH1;!R]")
# Ring systems by their atoms and bonds as they are numbered, and how many are remembered.
_SMILES_OF: Final[dict[bytes, str]] = {}
_MOST_REMEMBERED: Final = 200_000


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A part that a molecule may contain.

    Attributes:
        kind: Such as ``sugar`` or ``ring system``.
        name: Of the catalogue, the SMILES of a ring system without a name, or such as ``C18:1``.
        smarts: Pattern that finds it.
    """

    kind: str
    name: str
    smarts: str


@cache
def catalogue() -> tuple[dict[str, str], ...]:
    """The rows of ``parts.tsv``: name, kind, smarts, example and counterexample.

    Example and counterexample are SMILES of a molecule with and one without the part; ring systems
    have none, since each is its own.
    """
    text = resources.files("duallgd_cli.chem").joinpath("parts.tsv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines(), delimiter="\t"))


def find(smiles: Sequence[str]) -> tuple[list[Part], NDArray[np.bool_]]:
    """The parts of some molecules.

    Args:
        smiles: Of C molecules.

    Returns:
        Every part that is in at least one, in a fixed order, and which molecule has it, (P, C). A
        SMILES that cannot be read has no part.
    """
    index, table = _read(tuple(smiles))
    if table is None:
        return [], np.zeros((0, len(smiles)), bool)
    with_part: dict[Part, list[int]] = {}
    for place, number in enumerate(index):
        for part in (*_ring_systems(table, place), *fatty_acyls(table.mols[place])):
            with_part.setdefault(part, []).append(number)
    patterns, screen = _patterns()
    for (part, query), possible in zip(patterns, screen.possible(table), strict=True):
        for place in np.flatnonzero(possible).tolist():
            if table.mols[place].HasSubstructMatch(query):
                with_part.setdefault(part, []).append(index[place])
    parts = sorted(with_part)
    present = np.zeros((len(parts), len(smiles)), bool)
    for row, part in enumerate(parts):
        present[row, with_part[part]] = True
    return parts, present


@lru_cache(maxsize=1)  # what asks for parts asks for bonds next
def _read(smiles: tuple[str, ...]) -> tuple[list[int], AtomTable | None]:
    """Which SMILES could be read, and what they are."""
    mols = [Chem.MolFromSmiles(text) for text in smiles]
    index = [number for number, mol in enumerate(mols) if mol is not None]
    return index, AtomTable.of([mols[number] for number in index]) if index else None


def overlap(smarts: str, other: str, smiles: Sequence[str]) -> float:
    """Share of a part's atoms that lie in another part, most of all matches.

    Args:
        smarts: Pattern of the part.
        other: Pattern of the other part.
        smiles: Molecules; the first that has both is looked at. 0 if there is none.
    """
    for text in smiles:
        inside, within = matches(smarts, text), matches(other, text)
        if inside and within:
            return max(len(one & two) / len(one) for one in inside for two in within)
    return 0.0


def bond_environments(smiles: Sequence[str]) -> list[list[int]]:
    """What each bond of some molecules joins: a number that is equal for what is alike.

    Both atoms count with their hydrogens and charge, and with the atoms and bonds around them.

    Args:
        smiles: Of C molecules.

    Returns:
        For each molecule a number for each of its bonds, in the order of their pairs of atoms.
    """
    found: list[list[int]] = [[] for _ in smiles]
    index, table = _read(tuple(smiles))
    if table is not None:
        cuts = np.searchsorted(table.owner, np.arange(1, len(index)))
        for number, own in zip(index, np.split(table.bond_environments(), cuts), strict=True):
            found[number] = own.tolist()
    return found


def ring_system(smiles: str) -> Part:
    """The part that a ring system of this canonical SMILES is."""
    # A substituted nitrogen has no hydrogen, so that the pattern asks for none.
    smarts = smiles.replace("[nH]", "n")
    return Part(RING_SYSTEM, _ring_names().get(smiles, smiles), smarts)


def fatty_acyls(mol: Chem.Mol) -> list[Part]:
    """The unbranched acyl chains of a molecule, by carbons and double bonds: ``C18:1``."""
    found = set()
    for carbonyl, _, _, first in mol.GetSubstructMatches(_ACYL):
        counts = _chain(mol, carbonyl, first)
        if counts is not None and counts[0] >= _SHORTEST_ACYL:
            found.add(counts)
    return [fatty_acyl(carbons, double_bonds) for carbons, double_bonds in sorted(found)]


def fatty_acyl(carbons: int, double_bonds: int) -> Part:
    """The part that an unbranched acyl chain is; its pattern does not count double bonds."""
    middle = "[CH2]" if not double_bonds else "~[CH1,CH2]"
    smarts = f"[CX3](=O)([O,N,S]){middle * (carbons - 2)}[CH3]"
    return Part(FATTY_ACYL, f"C{carbons}:{double_bonds}", smarts)


@lru_cache(maxsize=10_000)
def matches(smarts: str, smiles: str) -> list[set[int]]:
    """The atoms of every place in a molecule where a part is.

    Args:
        smarts: Pattern of the part.
        smiles: Of the molecule; its atoms have RDKit's numbers.
    """
    mol = Chem.MolFromSmiles(smiles)
    found = mol.GetSubstructMatches(Chem.MolFromSmarts(smarts)) if mol is not None else ()
    return [set(match) for match in found]


@cache
def _patterns() -> tuple[list[tuple[Part, Chem.Mol]], Screen]:
    """Parts that have a pattern, with it, and what spares most searches for them."""
    rows = [row for row in catalogue() if row["kind"] != RING_SYSTEM]
    parts = [Part(row["kind"], row["name"], row["smarts"]) for row in rows]
    queries = [Chem.MolFromSmarts(part.smarts) for part in parts]
    return list(zip(parts, queries, strict=True)), Screen(queries)


@cache
def _ring_names() -> dict[str, str]:
    return {row["smarts"]: row["name"] for row in catalogue() if row["kind"] == RING_SYSTEM}


def ring_atoms(mol: Chem.Mol) -> list[set[int]]:
    """Atoms of each ring system, those at its double bonds not yet included."""
    systems: list[set[int]] = []
    for ring in mol.GetRingInfo().AtomRings():
        joined = set(ring)
        apart = []
        for system in systems:
            if joined & system:
                joined |= system
            else:
                apart.append(system)
        systems = [*apart, joined]
    return systems


def _ring_systems(table: AtomTable, number: int) -> list[Part]:
    """The ring systems of one molecule of a table."""
    mol, orders = table.mols[number], table.orders[number]
    if not mol.GetRingInfo().NumRings():
        return []
    atoms = table.atoms[table.starts[number] : table.starts[number + 1]]
    # Of a substituent only its place matters, and to nitrogen whether there is one.
    written = atoms[:, [ELEMENT, CHARGE, AROMATIC, DEGREE]]
    written[:, 3] = atoms[:, AROMATIC] * (atoms[:, DEGREE] + atoms[:, HYDROGENS])
    texts = set()
    for system in ring_atoms(mol):
        ring = sorted(system)
        doubly_bound = set(np.flatnonzero((orders[ring] == _DOUBLE).any(0)).tolist()) - system
        inside = [*ring, *sorted(doubly_bound)]
        key = bytes([len(ring)]) + written[inside].tobytes() + orders[inside][:, inside].tobytes()
        if key not in _SMILES_OF:
            if len(_SMILES_OF) >= _MOST_REMEMBERED:
                _SMILES_OF.clear()
            _SMILES_OF[key] = _system_smiles(mol, system, set(inside))
        texts.add(_SMILES_OF[key])
    return [ring_system(text) for text in sorted(texts)]


def _system_smiles(mol: Chem.Mol, ring_atoms: set[int], atoms: set[int]) -> str:
    """Canonical SMILES of a ring system, cut bonds replaced by hydrogens."""
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    for number in ring_atoms:
        symbols[number] = _symbol(mol.GetAtomWithIdx(number), atoms)
    text = Chem.MolFragmentToSmiles(mol, sorted(atoms), atomSymbols=symbols)
    with Chem.rdBase.BlockLogs():
        alone = Chem.MolFromSmiles(text)
    return text if alone is None else Chem.MolToSmiles(alone)


def _symbol(atom: Chem.Atom, atoms: set[int]) -> str:
    """How a ring atom is written when what is not in `atoms` has become hydrogen."""
    symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
    inside = [bond for bond in atom.GetBonds() if bond.GetOtherAtomIdx(atom.GetIdx()) in atoms]
    mark = "+" if charge > 0 else ""
    if atom.GetIsAromatic():
        symbol = symbol.lower()
        needs_hydrogen = atom.GetTotalDegree() == 3 and len(inside) == 2
        if symbol == "n" and (needs_hydrogen or charge):
            return f"[n{'H' if needs_hydrogen else ''}{mark}]"
        return symbol if not charge and symbol.upper() in _PLAIN else f"[{symbol}{mark}]"
    if symbol not in _PLAIN:
        return f"[{symbol}]"
    crowded = sum(bond.GetBondTypeAsDouble() for bond in inside) > 3
    return f"[{symbol}+]" if charge > 0 and crowded else symbol


def _chain(mol: Chem.Mol, carbonyl: int, first: int) -> tuple[int, int] | None:
    """Carbons and double bonds of an acyl chain; None unless it is plain to its end."""
    carbons, double_bonds = 2, 0
    before, here = carbonyl, first
    while True:
        atom = mol.GetAtomWithIdx(here)
        onward = [bond for bond in atom.GetBonds() if bond.GetOtherAtomIdx(here) != before]
        if not onward:
            return (carbons, double_bonds) if atom.GetTotalNumHs() == 3 else None
        bond = onward[0]
        following = bond.GetOtherAtom(atom)
        is_plain = following.GetAtomicNum() == 6 and not following.IsInRing()
        if len(onward) > 1 or not is_plain or bond.GetBondTypeAsDouble() > 2:
            return None
        carbons += 1
        double_bonds += bond.GetBondType() == Chem.BondType.DOUBLE
        before, here = here, following.GetIdx()
