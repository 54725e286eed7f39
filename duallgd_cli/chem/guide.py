"""What a chemist knows of an unknown: a core it holds, parts it must have or must not have.

A core is held while molecules are drawn: its atoms are given places among those of the formula, at
random but in the order of a SMILES, and the bonds between them do not change. S samples, N heavy
atoms, M = N (N - 1) / 2 pairs.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdqueries

from duallgd_cli.chem.elements import INDEX, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.parts import RING_SYSTEM, catalogue
from duallgd_cli.errors import UsageError, quote

FREE: Final = -1
_CLASSES: Final = {
    Chem.BondType.SINGLE: 1,
    Chem.BondType.DOUBLE: 2,
    Chem.BondType.TRIPLE: 3,
    Chem.BondType.AROMATIC: 4,
}


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """A substructure whose bonds are known.

    Attributes:
        element: Of each atom, in the order of `elements.SYMBOLS`, (A,).
        bonds: Class of the bond between each two atoms of one fragment, 0 for none, `FREE` between
            fragments, int8 (A, A).
        is_closed: Atoms that have no bond to any other atom than those of the core, bool (A,).
        traversals: Orders in which a SMILES may name the atoms, the canonical one first, (K, A).
        query: Finds it in a molecule.
    """

    element: NDArray[np.int64]
    bonds: NDArray[np.int8]
    is_closed: NDArray[np.bool_]
    traversals: NDArray[np.int64]
    query: Chem.Mol

    def missing(self, formula: Formula) -> str:
        """The atoms that a formula has too few of for the core, such as ``2 O``; "" if none."""
        needed = Counter(self.element.tolist())
        lacking = {e: n - formula.counts[e] for e, n in needed.items() if n > formula.counts[e]}
        return ", ".join(f"{n} {SYMBOLS[e]}" for e, n in sorted(lacking.items()))

    def held(self, formula: Formula, samples: int, seed: int) -> NDArray[np.int8]:
        """Bond classes that are known, `FREE` elsewhere, (S, M); each sample has own places.

        Args:
            formula: That has all atoms of the core.
            samples: S.
            seed: Of the places.
        """
        atom_class = formula.atom_class
        n_atoms, generator = len(atom_class), np.random.default_rng(seed)
        first, second = np.triu_indices(n_atoms, 1)
        rows = []
        for _ in range(samples):
            place = self._places(atom_class, generator)
            square = np.full((n_atoms, n_atoms), FREE, np.int8)
            closed = place[self.is_closed]
            square[closed] = 0
            square[:, closed] = 0
            square[np.ix_(place, place)] = self.bonds
            rows.append(square[first, second])
        return np.stack(rows)

    def _places(
        self, atom_class: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Atoms of the formula that are those of the core, (A,).

        The network learnt molecules whose atoms of one element stand in the order of the canonical
        SMILES. How the whole molecule's runs through the core is not known: half of the samples
        take the core's own, the others one that starts from another atom.
        """
        other = generator.integers(len(self.traversals)) * generator.integers(2)
        order = self.traversals[other]
        place = np.empty(len(self.element), np.int64)
        for element in np.unique(self.element):
            own = order[self.element[order] == element]
            there = np.flatnonzero(atom_class == element)
            place[own] = np.sort(generator.choice(there, len(own), replace=False))
        return place


@dataclass(frozen=True, slots=True)
class Guide:
    """What a molecule must be like; plain texts, so that other processes can be told.

    Attributes:
        core: SMILES of one or several fragments, or None.
        require: SMARTS, or names of the catalogue of parts, of which each must be there.
        forbid: Of which none may be there.
    """

    core: str | None = None
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    def check(self) -> None:
        """Read all of it.

        Raises:
            UsageError: A text cannot be read; the message names it.
        """
        if self.core is not None:
            read_core(self.core)
        for text in (*self.require, *self.forbid):
            _pattern(text)

    def fault(self, mol: Chem.Mol) -> str:
        """What is wrong with a molecule, "" if nothing is."""
        if self.core is not None and not mol.HasSubstructMatch(read_core(self.core).query):
            return "without the core"
        for text in self.require:
            if not mol.HasSubstructMatch(_pattern(text)):
                return f"without {text}"
        for text in self.forbid:
            if mol.HasSubstructMatch(_pattern(text)):
                return f"with {text}"
        return ""


@lru_cache(maxsize=64)
def read_core(text: str) -> Core:
    """Read a core.

    Args:
        text: SMILES, fragments apart by dots. Where it has attachment points (``*``), its other
            atoms have no further bonds but those to hydrogen.

    Raises:
        UsageError: It is no SMILES, or holds an element or a bond that molecules here cannot have.
    """
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(text)
    if mol is None or not mol.GetNumAtoms():
        raise UsageError(f"core {quote(text)} is not a SMILES; write it as c1ccccc1 or C(=O)O")
    Chem.RemoveStereochemistry(mol)
    atoms = [atom for atom in mol.GetAtoms() if atom.GetAtomicNum()]
    foreign = sorted({atom.GetSymbol() for atom in atoms} - set(INDEX))
    odd = {bond.GetBondType() for bond in mol.GetBonds()} - set(_CLASSES)
    if foreign or odd or not atoms:
        what = ", ".join(foreign) or "a bond that is no single, double, triple or aromatic one"
        raise UsageError(f"core {quote(text)} holds {what if atoms else 'no atom'}; leave that out")
    number = {atom.GetIdx(): place for place, atom in enumerate(atoms)}
    open_atoms = {
        neighbour.GetIdx()
        for atom in mol.GetAtoms()
        if not atom.GetAtomicNum()
        for neighbour in atom.GetNeighbors()
    }
    has_points = len(atoms) < mol.GetNumAtoms()
    closed = np.array([has_points and atom.GetIdx() not in open_atoms for atom in atoms])
    return Core(
        element=np.array([INDEX[atom.GetSymbol()] for atom in atoms]),
        bonds=_bonds(mol, number),
        is_closed=closed,
        traversals=np.array([_traversal(mol, number, root) for root in (-1, *number)]),
        query=_query(mol, closed, number),
    )


def _traversal(mol: Chem.Mol, number: dict[int, int], root: int) -> list[int]:
    """Atoms of the core in the order of a SMILES that begins at one of them, or anywhere (-1)."""
    named = Chem.Mol(mol)
    Chem.MolToSmiles(named, rootedAtAtom=root)
    properties = named.GetPropsAsDict(includePrivate=True, includeComputed=True)
    return [number[atom] for atom in properties["_smilesAtomOutputOrder"] if atom in number]


def _bonds(mol: Chem.Mol, number: dict[int, int]) -> NDArray[np.int8]:
    bonds = np.full((len(number), len(number)), FREE, np.int8)
    for fragment in Chem.GetMolFrags(mol):
        inside = [number[atom] for atom in fragment if atom in number]
        bonds[np.ix_(inside, inside)] = 0
    for bond in mol.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if begin in number and end in number:
            one, other = number[begin], number[end]
            bonds[one, other] = bonds[other, one] = _CLASSES[bond.GetBondType()]
    return bonds


def _query(mol: Chem.Mol, closed: NDArray[np.bool_], number: dict[int, int]) -> Chem.Mol:
    """The core without its attachment points; closed atoms match only without further bonds."""
    query = Chem.RWMol(mol)
    for index, place in number.items():
        if closed[place]:
            atom = rdqueries.AtomNumEqualsQueryAtom(mol.GetAtomWithIdx(index).GetAtomicNum())
            degree = mol.GetAtomWithIdx(index).GetDegree()
            atom.ExpandQuery(rdqueries.ExplicitDegreeEqualsQueryAtom(degree))
            query.ReplaceAtom(index, atom)
    for index in sorted(set(range(mol.GetNumAtoms())) - set(number), reverse=True):
        query.RemoveAtom(index)
    return query.GetMol()


@lru_cache(maxsize=256)
def _pattern(text: str) -> Chem.Mol:
    """The pattern of a part of the catalogue, or of a SMARTS.

    Raises:
        UsageError: It is neither.
    """
    smarts = _named().get(text.strip().lower(), text)
    with rdBase.BlockLogs():
        query = Chem.MolFromSmarts(smarts)
    if query is None or not query.GetNumAtoms():
        raise UsageError(
            f"{quote(text)} is neither a SMARTS nor the name of a part, such as hexose or indole"
        )
    return query


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """SMARTS by name, lower case."""
    return {
        row["name"].lower(): row["smarts"].replace("[nH]", "n")
        if row["kind"] == RING_SYSTEM
        else row["smarts"]
        for row in catalogue()
    }
