"""Known molecules cut into building blocks, and these put together.

Known molecules are cut at one or two single bonds outside rings.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from duallgd_cli.chem.building_blocks import (
    ATOM_KEY,
    BIT_KEY,
    OPEN,
    BuildingBlocks,
    Counts,
    KnownEnds,
)
from duallgd_cli.chem.combining import likeliest, open_ends, unsanitised
from duallgd_cli.chem.elements import ATOMIC_NUMBERS, HYDROGEN, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import bits_away, surroundings

# Pairs of bonds are many in a long chain, and say little.
_MOST_BONDS: Final = 25
# Of molecules that are not all known, an end counts that so many have, and a linker.
_COMMON: Final = (3, 8)
_SAME_MASS_DA: Final = 1e-3
_ELEMENT_OF: Final = {number: index for index, number in enumerate(ATOMIC_NUMBERS)}


class BuildingBlock(NamedTuple):
    """Atoms, and which of them have an open single bond."""

    mol: Chem.Mol
    places: tuple[int, ...]


def cut(known: Iterable[Chem.Mol], others: Iterable[Chem.Mol] = ()) -> BuildingBlocks:
    """All building blocks of known molecules, each once.

    Args:
        known: Molecules.
        others: Molecules of which only such blocks are taken that several of them have.
    """
    own, common = _counted(known), _counted(others)
    for found, more, least in zip(own, common, _COMMON, strict=True):
        found.update({text: n for text, n in more.items() if n >= least or text in found})
    smiles = [
        text for found in own for text in sorted(found, key=lambda text: (-found[text], text))
    ]
    read = list(map(_described, smiles))
    return BuildingBlocks(
        tuple(smiles),
        np.array([counts for counts, _ in read], np.uint8).reshape(-1, N_ELEMENTS),
        np.array([own[text.count(OPEN) - 1][text] for text in smiles], np.int32),
        np.array([len(bits) for _, bits in read], np.uint16),
        np.concatenate([np.zeros(0, np.uint16), *(bits for _, bits in read)]),
    )


def _counted(mols: Iterable[Chem.Mol]) -> tuple[Counter[str], Counter[str]]:
    """How many molecules have each end, and each linker."""
    ends: Counter[str] = Counter()
    linkers: Counter[str] = Counter()
    for mol in mols:
        bonds = _cuttable(mol)
        pairs = combinations(bonds, 2) if len(bonds) <= _MOST_BONDS else ()
        ends.update({text for bond in bonds for text in _parts(mol, (bond,))})
        linkers.update({text for pair in pairs for text in _parts(mol, pair)})
    return ends, linkers


def _cuttable(mol: Chem.Mol) -> list[int]:
    """Single bonds outside rings."""
    single = Chem.BondType.SINGLE
    bonds = (bond for bond in _bonds(mol) if bond.GetBondType() == single)
    return [bond.GetIdx() for bond in bonds if not bond.IsInRing()]


def _bonds(mol: Chem.Mol) -> list[Chem.Bond]:
    # Looked up one by one, as atoms are: RDKit's own iteration is several times slower.
    return [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]


def known_halves(mol: Chem.Mol, ends: KnownEnds) -> float:
    """How usual the two parts are that a molecule falls into.

    The log of how many molecules have each, summed, at the bond where that is most; 0 where no
    bond has two known parts.
    """
    best, bonds = 0.0, _cuttable(mol)
    # No more than the ends that look alike: few bonds have to be cut to see.
    most = [sum(map(ends.most_of, sides)) for sides in _sides(mol, bonds)]
    for bound, bond in sorted(zip(most, bonds, strict=True), reverse=True):
        if bound <= best:
            break
        halves = [ends.of(text) for text in _parts(mol, (bond,))]
        if None not in halves:
            best = max(best, sum(filter(None, halves)))
    return best


def _sides(mol: Chem.Mol, bonds: Sequence[int]) -> list[list[int]]:
    """Keys of what lies on either side of some bonds outside rings; see `KnownEnds.most_seen`."""
    if not bonds:
        return []
    both = [mol.GetBondWithIdx(index) for index in bonds]
    ends = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in both])
    far = Chem.GetDistanceMatrix(mol)[ends]  # (b, 2, N)
    beside = far < far[:, ::-1]
    bit, atom, radius = surroundings(mol)
    away = beside[..., atom] & (far[..., atom] >= radius)
    bits, first = np.unique(bit, return_index=True)
    keys = beside @ (atoms_of(mol) @ ATOM_KEY)
    keys += np.logical_or.reduceat(away, first, axis=-1) @ BIT_KEY[bits]
    sides: list[list[int]] = keys.tolist()
    return sides


def together(
    blocks: BuildingBlocks, formula: Formula, bit_scores: NDArray[np.float64], most: int
) -> Iterator[tuple[Chem.Mol, float]]:
    """The likeliest molecules of a formula, the likeliest first, some more than once.

    Args:
        blocks: That they are made of.
        formula: Of the unknown.
        bit_scores: What each Morgan bit speaks for a molecule, (F,).
        most: That are made.

    Yields:
        A sanitised molecule, and what its blocks add to the scores of its bits.
    """
    with rdBase.BlockLogs():
        for rows in likeliest(blocks, formula, bit_scores, most):
            worth = float(blocks.worth[rows[rows >= 0]].sum())
            linker, *ends = rows.tolist()
            first, second = (_read(blocks.smiles[end]) for end in ends)
            made = _joined(None if linker < 0 else _read(blocks.smiles[linker]), first, second)
            if not Chem.SanitizeMol(made, catchErrors=True) and is_of(made, formula):
                yield made.GetMol(), worth


def groups(blocks: BuildingBlocks, counts: Counts) -> Iterator[BuildingBlock]:
    """Small ends that have exactly these atoms, the most frequent."""
    return map(_read, blocks.groups(counts))


def is_of(mol: Chem.Mol, formula: Formula) -> bool:
    """Whether a molecule with the heavy atoms of a formula has its hydrogens and charge too."""
    wrong = rdMolDescriptors.CalcExactMolWt(mol) - formula.atoms_mass
    return abs(wrong) < _SAME_MASS_DA and Chem.GetFormalCharge(mol) == formula.charge


def atoms_of(mol: Chem.Mol) -> NDArray[np.int64]:
    """Each heavy atom with its hydrogens, (N, N_ELEMENTS); an open end counts as nothing."""
    n = mol.GetNumAtoms()
    each = [mol.GetAtomWithIdx(index) for index in range(n)]
    element = [_ELEMENT_OF.get(atom.GetAtomicNum(), HYDROGEN) for atom in each]
    atoms = np.zeros((n, N_ELEMENTS), np.int64)
    atoms[np.arange(n), element] = 1
    atoms[:, HYDROGEN] = [atom.GetAtomicNum() and atom.GetTotalNumHs() for atom in each]
    return atoms


def drop_aromaticity(mol: Chem.RWMol) -> None:
    """Make all bonds single, double or triple and all hydrogens implicit, in place."""
    Chem.Kekulize(mol, clearAromaticFlags=True)
    for index in range(mol.GetNumAtoms()):
        atom = mol.GetAtomWithIdx(index)
        atom.SetNoImplicit(False)
        atom.SetNumExplicitHs(0)


def joined(one: Chem.Mol, place: int, other: BuildingBlock) -> Chem.RWMol:
    """Two molecules, an atom of one bonded to the first open end of a block."""
    made = Chem.RWMol(Chem.CombineMols(one, other.mol))
    made.AddBond(place, one.GetNumAtoms() + other.places[0], Chem.BondType.SINGLE)
    return made


def _parts(mol: Chem.Mol, bonds: tuple[int, ...]) -> Iterator[str]:
    """What is left when all these bonds are cut, and touches all of them."""
    cut = Chem.FragmentOnBonds(mol, bonds, dummyLabels=[(0, 0)] * len(bonds))
    for part in Chem.GetMolFrags(cut, asMols=True, sanitizeFrags=False):
        if len(open_ends(part)) == len(bonds):
            yield Chem.MolToSmiles(part)


def _described(smiles: str) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Atoms of a block, and the bits that lie away from its open bonds."""
    mol = Chem.MolFromSmiles(smiles)
    return atoms_of(mol).sum(0), bits_away(mol, open_ends(mol))


@lru_cache(maxsize=5_000)
def _read(smiles: str) -> BuildingBlock:
    """A block with single, double and triple bonds only, without what stands for its open bonds."""
    whole = Chem.RWMol(unsanitised(smiles))
    is_open = open_ends(whole)
    drop_aromaticity(whole)
    places = [whole.GetAtomWithIdx(star).GetNeighbors()[0].GetIdx() for star in is_open]
    for star in reversed(is_open):
        whole.RemoveAtom(star)
    whole.UpdatePropertyCache(strict=False)
    kept = tuple(p - sum(star < p for star in is_open) for p in places)
    return BuildingBlock(whole.GetMol(), kept)


def _joined(
    linker: BuildingBlock | None, first: BuildingBlock, second: BuildingBlock
) -> Chem.RWMol:
    """A molecule of two ends, or of a linker and the ends at its two open bonds."""
    if linker is None:
        return joined(first.mol, first.places[0], second)
    half = joined(linker.mol, linker.places[0], first)
    return joined(half, linker.places[1], second)
