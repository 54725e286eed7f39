"""Parts of molecules that chemists name: groups, building blocks, ring systems, fatty acyls.

The catalogue `parts.tsv` names patterns (SMARTS) and ring systems (canonical SMILES). Ring systems
and fatty acyls are read from the molecule itself, so those without a name are found too. A ring
system is every ring that shares an atom with another of it, with the atoms that are bound to it by
double bonds. C molecules, P parts.
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
from rdkit.Chem import rdSubstructLibrary

RING_SYSTEM: Final = "ring system"
FATTY_ACYL: Final = "fatty acyl"
# Shorter acyls are groups with names of their own (acetyl, propionyl).
_SHORTEST_ACYL: Final = 4
_PLAIN: Final = {"B", "C", "N", "O", "P", "S"}
_ACYL: Final = Chem.MolFromSmarts("[CX3;!R](=O)([O,N,S])[CH2,CH1;!R]")
_ALL: Final = 2**31 - 1


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


@dataclass(frozen=True, slots=True)
class _Pattern:
    part: Part
    query: Chem.Mol
    elements: Counter[int]  # atoms that every match has, by atomic number


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
    with_part: dict[Part, set[int]] = {}
    library = rdSubstructLibrary.SubstructLibrary(rdSubstructLibrary.MolHolder())
    index: list[int] = []
    elements: Counter[int] = Counter()
    for number, text in enumerate(smiles):
        mol = Chem.MolFromSmiles(text)
        if mol is None:
            continue
        library.AddMol(mol)
        index.append(number)
        elements |= Counter(atom.GetAtomicNum() for atom in mol.GetAtoms())
        for part in (*ring_systems(mol), *fatty_acyls(mol)):
            with_part.setdefault(part, set()).add(number)
    for pattern in _patterns() if index else ():  # an empty library refuses to be searched
        if pattern.elements <= elements:
            matches = library.GetMatches(pattern.query, numThreads=1, maxResults=_ALL)
            if matches:
                with_part[pattern.part] = {index[match] for match in matches}
    parts = sorted(with_part)
    present = np.zeros((len(parts), len(smiles)), bool)
    for row, part in enumerate(parts):
        present[row, list(with_part[part])] = True
    return parts, present


def overlap(smarts: str, other: str, smiles: Sequence[str]) -> float:
    """Share of a part's atoms that lie in another part, most of all matches.

    Args:
        smarts: Pattern of the part.
        other: Pattern of the other part.
        smiles: Molecules; the first that has both is looked at. 0 if there is none.
    """
    for text in smiles:
        inside, within = _matches(smarts, text), _matches(other, text)
        if inside and within:
            return max(len(one & two) / len(one) for one in inside for two in within)
    return 0.0


def bond_environments(smiles: str) -> list[tuple[Any, ...]]:
    """What each bond of a molecule joins, in RDKit's order: equal for what is alike.

    Both atoms count with their hydrogens and charge, and with the atoms and bonds around them.
    """
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        return []
    atoms = [(a.GetSymbol(), a.GetTotalNumHs(), a.GetFormalCharge()) for a in mol.GetAtoms()]
    bonds = [
        (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), int(bond.GetBondType()))
        for bond in mol.GetBonds()
    ]
    around: list[list[tuple[int, str]]] = [[] for _ in atoms]
    for one, other, order in bonds:
        around[one].append((order, atoms[other][0]))
        around[other].append((order, atoms[one][0]))

    def end(atom: int, partner: int, order: int) -> tuple[Any, ...]:
        others = sorted(around[atom])
        others.remove((order, atoms[partner][0]))
        return *atoms[atom], tuple(others)

    return [
        (order, *sorted((end(one, other, order), end(other, one, order))))
        for one, other, order in bonds
    ]


def ring_systems(mol: Chem.Mol) -> list[Part]:
    """The distinct ring systems of a molecule, each named or by its SMILES."""
    texts = {_system_smiles(mol, atoms) for atoms in _systems(mol)}
    return [ring_system(text) for text in sorted(texts)]


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
def _matches(smarts: str, smiles: str) -> list[set[int]]:
    mol = Chem.MolFromSmiles(smiles)
    matches = mol.GetSubstructMatches(Chem.MolFromSmarts(smarts)) if mol is not None else ()
    return [set(match) for match in matches]


@cache
def _patterns() -> tuple[_Pattern, ...]:
    return tuple(
        _Pattern(Part(row["kind"], row["name"], row["smarts"]), query, _elements(query))
        for row in catalogue()
        if row["kind"] != RING_SYSTEM
        for query in (Chem.MolFromSmarts(row["smarts"]),)
    )


def _elements(query: Chem.Mol) -> Counter[int]:
    """Elements of the query atoms that leave no choice of element."""
    certain = (atom for atom in query.GetAtoms() if "AtomOr" not in atom.DescribeQuery())
    numbers = Counter(atom.GetAtomicNum() for atom in certain)
    del numbers[0], numbers[1]
    return numbers


@cache
def _ring_names() -> dict[str, str]:
    return {row["smarts"]: row["name"] for row in catalogue() if row["kind"] == RING_SYSTEM}


def _systems(mol: Chem.Mol) -> list[set[int]]:
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


def _system_smiles(mol: Chem.Mol, ring_atoms: set[int]) -> str:
    """Canonical SMILES of a ring system, cut bonds replaced by hydrogens."""
    doubly_bound = {
        bond.GetOtherAtomIdx(number)
        for number in ring_atoms
        for bond in mol.GetAtomWithIdx(number).GetBonds()
        if bond.GetBondType() == Chem.BondType.DOUBLE
    }
    atoms = ring_atoms | doubly_bound
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    for number in ring_atoms:
        symbols[number] = _symbol(mol.GetAtomWithIdx(number), atoms)
    text = Chem.MolFragmentToSmiles(mol, sorted(atoms), atomSymbols=symbols)
    return _canonical(text)


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


@lru_cache(maxsize=100_000)
def _canonical(text: str) -> str:
    with Chem.rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(text)
    return text if mol is None else Chem.MolToSmiles(mol)


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
