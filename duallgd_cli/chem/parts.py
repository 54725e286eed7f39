"""Parts of molecules that chemists name: groups, building blocks, ring systems, fatty acyls.

The catalogue `parts.tsv` names patterns (SMARTS) and ring systems (canonical SMILES), each name
once. Ring systems and fatty acyls are read from the molecule itself, so those without a name are
found too. A ring system is every ring that shares an atom with another of it, with the atoms that
are bound to it by double bonds. Which of its aromatic nitrogens would have a hydrogen, were it
alone, makes no difference: theophylline and 9-methylxanthine both hold xanthine.

C molecules, P parts.
"""

import csv
from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.screening import Screen, Sketch, sketch_of

RING_SYSTEM: Final = "ring system"
FATTY_ACYL: Final = "fatty acyl"
# Shorter acyls are groups with names of their own (acetyl, propionyl).
_SHORTEST_ACYL: Final = 4
_PLAIN: Final = {"B", "C", "N", "O", "P", "S"}
_ACYL: Final = Chem.MolFromSmarts("[CX3;!R](=O)([O,N,S])[CH2,CH1;!R]")
_DOUBLE: Final = int(Chem.BondType.DOUBLE)
_MOST_WRITTEN: Final = 20_000
_written: dict[bytes, str] = {}  # SMILES of ring systems by their atoms and bonds


class Part(NamedTuple):
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

    Returns:
        Every part that is in at least one, in a fixed order, and which molecule has it, (P, C). A
        SMILES that cannot be read has no part.
    """
    with_part: dict[Part, list[int]] = {}
    patterns = _patterns()
    read = [(number, own) for number, own in enumerate(map(_sketch, smiles)) if own is not None]
    possible = _screen().possible(own for _, own in read)
    for (number, own), rows in zip(read, possible, strict=True):
        asked = (patterns[row] for row in np.flatnonzero(rows).tolist())
        named = (part for part, query in asked if own.mol.HasSubstructMatch(query))
        for part in (*_ring_systems(own), *fatty_acyls(own.mol), *named):
            with_part.setdefault(part, []).append(number)
    parts = sorted(with_part)
    present = np.zeros((len(parts), len(smiles)), bool)
    for row, part in enumerate(parts):
        present[row, with_part[part]] = True
    return parts, present


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

    Returns:
        For each molecule a number for each of its bonds, in the order of their pairs of atoms.
    """
    return [[] if own is None else _environments(own) for own in map(_sketch, smiles)]


def _environments(sketch: Sketch) -> list[int]:
    """What each bond of a molecule joins; see `bond_environments`."""
    near: list[list[tuple[int, int]]] = [[] for _ in sketch.atoms]
    for one, other, order, _ in sketch.bonds:
        near[one].append((order, sketch.atoms[other][0]))
        near[other].append((order, sketch.atoms[one][0]))
    # Element, hydrogens and charge of an atom, and all around it, this bond included.
    ends = [
        hash((kind[:3], *sorted(around))) for kind, around in zip(sketch.atoms, near, strict=True)
    ]
    return [
        hash((order, *sorted((ends[one], ends[other]))))
        for one, other, order, _ in sorted(sketch.bonds)
    ]


def ring_system(smiles: str) -> Part:
    """The part that a ring system of this canonical SMILES is."""
    text = _first_tautomer(smiles)
    # A substituted nitrogen has no hydrogen, so that the pattern asks for none.
    return Part(RING_SYSTEM, _ring_names().get(text, text), text.replace("[nH]", "n"))


@lru_cache(maxsize=10_000)
def _first_tautomer(smiles: str) -> str:
    """Canonical SMILES of a ring system with its hydrogens at other aromatic nitrogens.

    Of all places that they can be at, those whose SMILES is first in the alphabet.
    """
    mol = Chem.MolFromSmiles(smiles) if "[nH]" in smiles else None
    if mol is None:
        return smiles
    nitrogens = [
        atom.GetIdx()
        for atom in mol.GetAromaticAtoms()
        if atom.GetSymbol() == "N" and atom.GetDegree() == 2 and not atom.GetFormalCharge()
    ]
    hydrogens = sum(mol.GetAtomWithIdx(number).GetTotalNumHs() for number in nitrogens)
    texts = [smiles]
    for chosen in combinations(nitrogens, hydrogens):
        moved = Chem.RWMol(mol)
        for number in nitrogens:
            moved.GetAtomWithIdx(number).SetNumExplicitHs(int(number in chosen))
        with Chem.rdBase.BlockLogs():
            is_sound = not Chem.SanitizeMol(moved, catchErrors=True)
        # Some leave an aromatic bond single; no pattern of aromatic bonds would find the others.
        if is_sound and _aromatic_bonds(moved) == _aromatic_bonds(mol):
            texts.append(Chem.MolToSmiles(moved))
    return min(texts)


def _aromatic_bonds(mol: Chem.Mol) -> int:
    return sum(bond.GetIsAromatic() for bond in mol.GetBonds())


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


def molecule(smiles: str) -> Chem.Mol | None:
    """A molecule that may be changed, None where the SMILES cannot be read or has no atom.

    One whose parts were asked for is not read again.
    """
    sketch = _sketch(smiles)
    return Chem.Mol(sketch.mol) if sketch is not None and sketch.atoms else None


@lru_cache(maxsize=10_000)
def matches(smarts: str, smiles: str) -> list[set[int]]:
    """The atoms of every place in a molecule where a part is."""
    sketch = _sketch(smiles)
    found = () if sketch is None else sketch.mol.GetSubstructMatches(_query(smarts))
    return [set(match) for match in found]


@lru_cache(maxsize=1000)  # one feature's candidates are asked for their parts and for their bonds
def _sketch(smiles: str) -> Sketch | None:
    """A molecule, None where the SMILES cannot be read."""
    mol = Chem.MolFromSmiles(smiles)
    return None if mol is None else sketch_of(mol)


@lru_cache(maxsize=1000)
def _query(smarts: str) -> Chem.Mol:
    return Chem.MolFromSmarts(smarts)


@cache
def _screen() -> Screen:
    return Screen([query for _, query in _patterns()])


@cache
def _patterns() -> list[tuple[Part, Chem.Mol]]:
    """Parts that have a pattern, with it."""
    rows = [row for row in catalogue() if row["kind"] != RING_SYSTEM]
    parts = [Part(row["kind"], row["name"], row["smarts"]) for row in rows]
    return [(part, Chem.MolFromSmarts(part.smarts)) for part in parts]


@cache
def _ring_names() -> dict[str, str]:
    rows = (row for row in catalogue() if row["kind"] == RING_SYSTEM)
    return {_first_tautomer(row["smarts"]): row["name"] for row in rows}


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


def _ring_systems(sketch: Sketch) -> list[Part]:
    """The ring systems of a molecule."""
    texts = set()
    for ring in ring_atoms(sketch.mol):
        doubles = [(one, other) for one, other, kind, _ in sketch.bonds if kind == _DOUBLE]
        atoms = sorted(ring.union(*(ends for ends in doubles if ring.intersection(ends))))
        # Alike ring systems of alike numbering need to be written once.
        place = {atom: number for number, atom in enumerate(atoms)}
        key = array("i", [len(atoms)])
        for atom in atoms:
            key.extend((*sketch.atoms[atom], atom in ring))
        for one, other, kind, _ in sketch.bonds:
            if one in place and other in place:
                key.extend((place[one], place[other], kind))
        written = key.tobytes()
        if written not in _written:
            if len(_written) >= _MOST_WRITTEN:
                _written.clear()
            _written[written] = _system_smiles(sketch.mol, ring, set(atoms))
        texts.add(_written[written])
    return [ring_system(text) for text in sorted(texts)]


def _system_smiles(mol: Chem.Mol, ring_atoms: set[int], atoms: set[int]) -> str:
    """Canonical SMILES of a ring system, cut bonds replaced by hydrogens."""
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    for number in ring_atoms:
        symbols[number] = _symbol(mol.GetAtomWithIdx(number), atoms)
    return _canonical(Chem.MolFragmentToSmiles(mol, sorted(atoms), atomSymbols=symbols))


@lru_cache(maxsize=10_000)
def _canonical(fragment: str) -> str:
    """Canonical SMILES of a fragment; itself where it is no molecule alone."""
    with Chem.rdBase.BlockLogs():
        alone = Chem.MolFromSmiles(fragment)
    return fragment if alone is None else Chem.MolToSmiles(alone)


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
