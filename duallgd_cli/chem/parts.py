"""Parts of molecules that chemists name: groups, building blocks, ring systems, fatty acyls.

The catalogue `parts.tsv` names patterns (SMARTS) and ring systems (canonical SMILES), each name
once. Ring systems and fatty acyls are read from the molecule itself, so those without a name are
found too. A ring system is every ring that shares an atom with another of it, with the atoms that
are bound to it by double bonds. Which of its aromatic nitrogens would have a hydrogen, were it
alone, makes no difference: theophylline and 9-methylxanthine both hold xanthine.

C molecules, P parts.
"""

import csv
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdfiltercatalog

from duallgd_cli.chem.identity import closed

RING_SYSTEM: Final = "ring system"
FATTY_ACYL: Final = "fatty acyl"
# Shorter acyls are groups with names of their own (acetyl, propionyl).
_SHORTEST_ACYL: Final = 4
_ACYL: Final = Chem.MolFromSmarts("[CX3;!R](=O)([O,N,S])[CH2,CH1;!R]")
_MOBILE: Final = Chem.MolFromSmarts("[nD2+0]")  # may have a hydrogen, or leave it to another


class Part(NamedTuple):
    """A part that a molecule may contain."""

    kind: str  # such as "sugar" or "ring system"
    name: str  # of the catalogue, the SMILES of a ring system without a name, or such as "C18:1"
    smarts: str  # pattern that finds it


@cache
def catalogue() -> tuple[dict[str, str], ...]:
    """The rows of ``parts.tsv``: name, kind, smarts, example and counterexample.

    Example and counterexample are SMILES of a molecule with and one without the part; ring systems
    have none, since each is its own.
    """
    text = resources.files("duallgd_cli.chem").joinpath("parts.tsv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines(), delimiter="\t"))


@cache
def _patterns() -> tuple[list[Part], rdfiltercatalog.FilterCatalog]:
    """Parts that have a pattern, and these patterns, by the numbers of the parts."""
    parts = [Part(row["kind"], row["name"], row["smarts"]) for row in catalogue()]
    parts = [part for part in parts if part.kind != RING_SYSTEM]
    patterns = rdfiltercatalog.FilterCatalog()
    for number, part in enumerate(parts):
        matcher = rdfiltercatalog.SmartsMatcher(part.name, Chem.MolFromSmarts(part.smarts), 1)
        patterns.AddEntry(rdfiltercatalog.FilterCatalogEntry(str(number), matcher))
    return parts, patterns


def find(smiles: Sequence[str]) -> tuple[list[Part], NDArray[np.bool_]]:
    """The parts of some molecules.

    Returns:
        Every part that is in at least one, in a fixed order, and which molecule has it, (P, C). A
        SMILES that cannot be read has no part.
    """
    named, patterns = _patterns()
    with_part: dict[Part, list[int]] = {}
    for number, mol in enumerate(map(_read, smiles)):
        if mol is None:
            continue
        matched = (named[int(entry.GetDescription())] for entry in patterns.GetMatches(mol))
        for part in (*_ring_systems(mol), *_fatty_acyls(mol), *matched):
            with_part.setdefault(part, []).append(number)
    parts = sorted(with_part)
    present = np.zeros((len(parts), len(smiles)), bool)
    for row, part in enumerate(parts):
        present[row, with_part[part]] = True
    return parts, present


def overlap(smarts: str, other: str, smiles: Sequence[str]) -> float:
    """Share of a part's atoms that lie in another part, most of all matches.

    Of some molecules the first that has both patterns is looked at; 0 if there is none.
    """
    for text in smiles:
        inside, within = matches(smarts, text), matches(other, text)
        if inside and within:
            return max(len(one & two) / len(one) for one in inside for two in within)
    return 0.0


def bond_environments(smiles: Sequence[str]) -> list[list[int]]:
    """What each bond of some molecules joins: a number that is equal for what is alike.

    Both atoms count with their hydrogens and charge, and with the atoms and bonds around them. The
    bonds of a molecule come in the order of their pairs of atoms.
    """
    environments = []
    for mol in map(_read, smiles):
        ends = [] if mol is None else [_environment(atom) for atom in mol.GetAtoms()]
        bonds = [] if mol is None else sorted(_bonds(mol))
        environments.append([hash((kind, *sorted((ends[a], ends[b])))) for a, b, kind in bonds])
    return environments


def _environment(atom: Chem.Atom) -> int:
    """A number of an atom with its hydrogens and charge, and the atoms and bonds around it."""
    near = [
        (int(bond.GetBondType()), bond.GetOtherAtom(atom).GetAtomicNum())
        for bond in atom.GetBonds()
    ]
    own = atom.GetAtomicNum(), atom.GetTotalNumHs(), atom.GetFormalCharge()
    return hash((*own, *sorted(near)))


def _bonds(mol: Chem.Mol) -> list[tuple[int, int, int]]:
    """Both atoms of each bond, the lower first, and RDKit's number of its kind."""
    ends = ((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bond) for bond in mol.GetBonds())
    return [(min(a, b), max(a, b), int(bond.GetBondType())) for a, b, bond in ends]


def ring_system(smiles: str) -> Part:
    """The part that a ring system of this canonical SMILES is."""
    text = _first_tautomer(smiles)
    # A substituted nitrogen has no hydrogen, so that the pattern asks for none.
    smarts = re.sub(r"H\d?\+\]", "+]", text.replace("[nH]", "n"))
    return Part(RING_SYSTEM, _ring_names().get(text, text), smarts)


@cache
def _ring_names() -> dict[str, str]:
    rows = (row for row in catalogue() if row["kind"] == RING_SYSTEM)
    return {_first_tautomer(row["smarts"]): row["name"] for row in rows}


@lru_cache(maxsize=10_000)
def _first_tautomer(smiles: str) -> str:
    """Canonical SMILES of a ring system with its hydrogens at other aromatic nitrogens.

    Of all places that they can be at, those whose SMILES is first in the alphabet.
    """
    with Chem.rdBase.BlockLogs():  # a ring system alone may have no Kekule structure
        mol = Chem.MolFromSmiles(smiles) if "[nH]" in smiles else None
    if mol is None:
        return smiles
    nitrogens = [number for (number,) in mol.GetSubstructMatches(_MOBILE)]
    hydrogens = sum(mol.GetAtomWithIdx(number).GetTotalNumHs() for number in nitrogens)
    n_aromatic = sum(bond.GetIsAromatic() for bond in mol.GetBonds())
    texts = [smiles]
    for chosen in combinations(nitrogens, hydrogens):
        moved = Chem.RWMol(mol)
        for number in nitrogens:
            moved.GetAtomWithIdx(number).SetNumExplicitHs(int(number in chosen))
        with Chem.rdBase.BlockLogs():
            is_sound = not Chem.SanitizeMol(moved, catchErrors=True)
        # Some leave an aromatic bond single; no pattern of aromatic bonds would find the others.
        if is_sound and sum(bond.GetIsAromatic() for bond in moved.GetBonds()) == n_aromatic:
            texts.append(Chem.MolToSmiles(moved))
    return min(texts)


def ring_atoms(mol: Chem.Mol) -> list[set[int]]:
    """Atoms of each ring system, those at its double bonds not yet included."""
    systems: list[set[int]] = []
    for ring in map(set, mol.GetRingInfo().AtomRings()):
        touched = [system for system in systems if ring & system]
        systems = [system for system in systems if not ring & system]
        systems.append(ring.union(*touched))
    return systems


def _ring_systems(mol: Chem.Mol) -> list[Part]:
    """The ring systems of a molecule, cut bonds replaced by hydrogens."""
    bonds, texts = _bonds(mol), set()
    for ring in ring_atoms(mol):
        doubles = (ends for *ends, kind in bonds if kind == Chem.BondType.DOUBLE)
        atoms = ring.union(*(ends for ends in doubles if ring.intersection(ends)))
        outer = [number for number, (*ends, _) in enumerate(bonds) if len(atoms & {*ends}) == 1]
        whole = (
            Chem.FragmentOnBonds(mol, outer, dummyLabels=[(0, 0)] * len(outer)) if outer else mol
        )
        alone = next(piece for piece in Chem.GetMolFrags(whole) if min(ring) in piece)
        texts.add(closed(Chem.MolFragmentToSmiles(whole, alone)))
    return [ring_system(text) for text in sorted(texts)]


def fatty_acyl(carbons: int, double_bonds: int) -> Part:
    """The part that an unbranched acyl chain is; its pattern does not count double bonds."""
    middle = "[CH2]" if not double_bonds else "~[CH1,CH2]"
    smarts = f"[CX3](=O)([O,N,S]){middle * (carbons - 2)}[CH3]"
    return Part(FATTY_ACYL, f"C{carbons}:{double_bonds}", smarts)


def _fatty_acyls(mol: Chem.Mol) -> list[Part]:
    """The unbranched acyl chains of a molecule that are plain to their end."""
    counts = set()
    for before, _, _, here in mol.GetSubstructMatches(_ACYL):
        carbons, double_bonds = 2, 0
        while True:
            atom = mol.GetAtomWithIdx(here)
            onward = [bond for bond in atom.GetBonds() if bond.GetOtherAtomIdx(here) != before]
            if not onward:
                if atom.GetTotalNumHs() == 3 and carbons >= _SHORTEST_ACYL:
                    counts.add((carbons, double_bonds))
                break
            following = onward[0].GetOtherAtom(atom)
            is_plain = following.GetAtomicNum() == 6 and not following.IsInRing()
            if len(onward) > 1 or not is_plain or onward[0].GetBondTypeAsDouble() > 2:
                break
            carbons += 1
            double_bonds += onward[0].GetBondType() == Chem.BondType.DOUBLE
            before, here = here, following.GetIdx()
    return [fatty_acyl(*numbers) for numbers in sorted(counts)]


def molecule(smiles: str) -> Chem.Mol | None:
    """A molecule that may be changed, None where the SMILES cannot be read or has no atom.

    One whose parts were asked for is not read again.
    """
    mol = _read(smiles)
    return Chem.Mol(mol) if mol is not None and mol.GetNumAtoms() else None


@lru_cache(maxsize=10_000)
def matches(smarts: str, smiles: str) -> list[set[int]]:
    """The atoms of every place in a molecule where a part is."""
    mol = _read(smiles)
    return [] if mol is None else list(map(set, mol.GetSubstructMatches(_query(smarts))))


@lru_cache(maxsize=1000)  # one feature's candidates are asked for their parts and for their bonds
def _read(smiles: str) -> Chem.Mol | None:
    with Chem.rdBase.BlockLogs():
        return Chem.MolFromSmiles(smiles)


@lru_cache(maxsize=1000)
def _query(smarts: str) -> Chem.Mol:
    return Chem.MolFromSmarts(smarts)
