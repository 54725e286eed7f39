"""Known molecules cut into building blocks, and these put together.

Known molecules are cut at one or two single bonds outside rings. Two ends, or two ends on a linker,
that have a formula's atoms between them make a molecule of it. There may be millions: the Morgan
bits that a block keeps, whatever it is joined to, say which are likely before any is made.

K molecules, F fingerprint bits.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from duallgd_cli.chem.building_blocks import ATOM_KEY, BIT_KEY, OPEN, BuildingBlocks, KnownEnds
from duallgd_cli.chem.elements import ATOMIC_NUMBERS, FINGERPRINT_BITS, HYDROGEN, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import bits_away, surroundings

# Pairs of bonds are many in a long chain, and say little.
_MOST_BONDS: Final = 25
# Of molecules that are not all known, an end counts that so many have, and a linker.
_COMMON: Final = (3, 8)
_SAME_MASS_DA: Final = 1e-3
_ELEMENT_OF: Final = {number: index for index, number in enumerate(ATOMIC_NUMBERS)}
Parts: TypeAlias = tuple[set[str], set[str]]  # SMILES of a molecule's ends, and of its linkers
Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# Likeliest blocks of a kind, of the same atoms, that are tried; and how many molecules are compared
# by their bits, each counted once.
_OF_A_KIND: Final = 20
_COMPARED: Final = 20_000
_CODES: Final = 1 << 20  # that are told apart before they are looked up
_ROUNDING: Final = 1e-6

_STAR: Final = Chem.MolFromSmarts("[#0]")
_AS_IT_STANDS: Final = Chem.SmilesParserParams()
_AS_IT_STANDS.sanitize = False  # type: ignore[assignment]
_AS_IT_STANDS.removeHs = False  # type: ignore[assignment]


class BuildingBlock(NamedTuple):
    """Atoms, and which of them have an open single bond."""

    mol: Chem.Mol
    places: tuple[int, ...]


def cut(known: Iterable[Parts], others: Iterable[Parts] = ()) -> BuildingBlocks:
    """All building blocks of known molecules' parts, and those that several of the others have."""
    own, common = _counted(known), _counted(others)
    for found, more, least in zip(own, common, _COMMON, strict=True):
        found.update({text: n for text, n in more.items() if n >= least or text in found})
    smiles = [
        text for found in own for text in sorted(found, key=lambda text: (-found[text], text))
    ]
    mols = list(map(Chem.MolFromSmiles, smiles))
    bits = [bits_away(mol, open_ends(mol)) for mol in mols]
    return BuildingBlocks(
        tuple(smiles),
        np.array([atoms_of(mol).sum(0) for mol in mols], np.uint8).reshape(-1, N_ELEMENTS),
        np.array([own[text.count(OPEN) - 1][text] for text in smiles], np.int32),
        np.array(list(map(len, bits)), np.uint16),
        np.concatenate([np.zeros(0, np.uint16), *bits]),
    )


def parts_of(mol: Chem.Mol) -> Parts:
    """What a molecule is cut into."""
    bonds = _cuttable(mol)
    pairs = combinations(bonds, 2) if len(bonds) <= _MOST_BONDS else ()
    ends = {text for bond in bonds for text in _parts(mol, (bond,))}
    return ends, {text for pair in pairs for text in _parts(mol, pair)}


def _counted(molecules: Iterable[Parts]) -> tuple[Counter[str], Counter[str]]:
    """How many molecules have each end, and each linker."""
    ends, linkers = Counter[str](), Counter[str]()
    for parts in molecules:
        ends.update(parts[0])
        linkers.update(parts[1])
    return ends, linkers


def _cuttable(mol: Chem.Mol) -> list[int]:
    """Single bonds outside rings."""
    # Looked up one by one, as atoms are: RDKit's own iteration is several times slower.
    bonds = map(mol.GetBondWithIdx, range(mol.GetNumBonds()))
    single = (bond for bond in bonds if bond.GetBondType() == Chem.BondType.SINGLE)
    return [bond.GetIdx() for bond in single if not bond.IsInRing()]


def known_halves(mol: Chem.Mol, ends: KnownEnds) -> float:
    """How usual the two parts are that a molecule falls into.

    The log of how many molecules have each, summed, at the bond where that is most; 0 where no
    bond has two known parts.
    """
    best, bonds = 0.0, _cuttable(mol)
    # No more than the ends that look alike: few bonds have to be cut to see.
    sides = _sides(mol, bonds) if bonds else ()
    most = [sum(ends.most_seen.get(side, -np.inf) for side in both) for both in sides]
    for bound, bond in sorted(zip(most, bonds, strict=True), reverse=True):
        if bound <= best:
            break
        halves = [ends.log_seen.get(text) for text in _parts(mol, (bond,))]
        if None not in halves:
            best = max(best, sum(filter(None, halves)))
    return best


def _sides(mol: Chem.Mol, bonds: Sequence[int]) -> list[list[int]]:
    """Keys of what lies on either side of some bonds outside rings; see `KnownEnds.most_seen`."""
    both = map(mol.GetBondWithIdx, bonds)
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

    Yields:
        A molecule as `joined` makes it, and what its blocks add to the scores of its bits.
    """
    with rdBase.BlockLogs():
        for rows in likeliest(blocks, formula, bit_scores, most):
            worth = float(blocks.worth[rows[rows >= 0]].sum())
            linker, *ends = rows.tolist()
            first, second = (_read(blocks.smiles[end]) for end in ends)
            if linker >= 0:
                middle = _read(blocks.smiles[linker])
                half = joined(middle.mol, middle.places[0], first)
                first = BuildingBlock(half, middle.places[1:])
            made = joined(first.mol, first.places[0], second)
            if is_of(made, formula):
                yield made, worth


def groups(blocks: BuildingBlocks, counts: NDArray[np.int64]) -> list[BuildingBlock]:
    """Small ends that have exactly these atoms, the most frequent."""
    return list(map(_read, blocks.groups(tuple(counts.tolist()))))


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


def joined(one: Chem.Mol, place: int, other: BuildingBlock) -> Chem.RWMol:
    """Two molecules, an atom of one bonded to the first open end of a block.

    A single bond between them leaves the aromaticity of both as it was: the molecule is not
    sanitised, which takes longer than all else. Hydrogens, valences and what is in a ring are
    there, as its fingerprint needs them.
    """
    made = Chem.RWMol(one)
    made.InsertMol(other.mol)
    made.AddBond(place, one.GetNumAtoms() + other.places[0], Chem.BondType.SINGLE)
    made.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(made)
    return made


def _parts(mol: Chem.Mol, bonds: tuple[int, ...]) -> Iterator[str]:
    """What is left when all these bonds are cut, and touches all of them."""
    cut = Chem.FragmentOnBonds(mol, bonds, dummyLabels=[(0, 0)] * len(bonds))
    for part in Chem.GetMolFrags(cut, asMols=True, sanitizeFrags=False):
        if len(open_ends(part)) == len(bonds):
            yield Chem.MolToSmiles(part)


@lru_cache(maxsize=5_000)
def _read(smiles: str) -> BuildingBlock:
    """A block without what stands for its open bonds."""
    # The SMILES says already what is aromatic, so that nothing has to be sanitised.
    whole = Chem.RWMol(Chem.MolFromSmiles(smiles, _AS_IT_STANDS))
    whole.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(whole)
    is_open = open_ends(whole)
    places = [whole.GetAtomWithIdx(star).GetNeighbors()[0].GetIdx() for star in is_open]
    for star in reversed(is_open):
        whole.RemoveAtom(star)
    kept = tuple(p - sum(star < p for star in is_open) for p in places)
    return BuildingBlock(whole.GetMol(), kept)


class _Kind(NamedTuple):
    """Blocks of the same atoms."""

    code: int  # of the atoms
    row: Rows  # of the blocks that are tried, the likeliest first
    value: Floats  # summed scores of the bits of each
    behind: list[float]  # how much less that is than of the first


def likeliest(blocks: BuildingBlocks, formula: Formula, bit_scores: Floats, most: int) -> Rows:
    """A linker, -1 for none, and the ends at its first and second open bond, best first, (K, 3).

    They have the formula's atoms between them; bit scores are what each Morgan bit speaks for a
    molecule, (F,). K is ``most`` at most, of 20,000.
    """
    # Sums of three codes are equal only where the atoms are.
    radix = np.cumprod(np.concatenate([[1], 3 * formula.array[:-1] + 1]))
    parts = slice(0, blocks.n_ends), slice(blocks.n_ends, None)
    ends, linkers = (_fitting(blocks, part, formula, radix, bit_scores) for part in parts)
    if not ends:
        return np.zeros((0, 3), np.int64)
    linkers.insert(0, _Kind(0, np.array([-1]), np.zeros(1), [0.0]))  # none
    rows = _listed(linkers, ends, int(formula.array @ radix))
    if not len(rows):
        return rows
    # Each by its blocks and by their bits, each bit once.
    owner, of_block = np.nonzero(rows >= 0)
    block = rows[owner, of_block]
    own, number = blocks.bits_of(block)
    # Sorted here, since numpy's own `unique` hashes first, ten times as long.
    bits = np.sort((owner[number] * FINGERPRINT_BITS + own).astype(np.int32))
    once = bits[np.diff(bits, prepend=-1) != 0]
    score = np.bincount(once // FINGERPRINT_BITS, bit_scores[once % FINGERPRINT_BITS], len(rows))
    score += np.bincount(owner, blocks.worth[block], len(rows))
    rows = rows[np.argsort(-score, kind="stable")[:most]]
    uneven = [linker >= 0 and not is_even(blocks.smiles[linker]) for linker in rows[:, 0].tolist()]
    both = np.stack([rows, rows[:, [0, 2, 1]]], 1)  # either way round, one after the other
    differ = np.array(uneven) & (rows[:, 1] != rows[:, 2])
    return np.asarray(both[np.stack([np.ones_like(differ), differ], 1)][:most])


def _fitting(
    blocks: BuildingBlocks, part: slice, formula: Formula, radix: Rows, bit_scores: Floats
) -> list[_Kind]:
    """Blocks that fit into a formula, by ascending codes."""
    fits = np.flatnonzero((blocks.counts[part] <= formula.array).all(1)) + (part.start or 0)
    code = blocks.counts[fits].astype(np.int64) @ radix
    bits, own = blocks.bits_of(fits)
    value = np.bincount(own, bit_scores[bits], len(fits)) + blocks.worth[fits]
    order = np.lexsort((-value, code))
    code, row, value = code[order], fits[order], value[order]
    start = np.flatnonzero(np.diff(code, prepend=-1))
    end = np.minimum(start + _OF_A_KIND, np.append(start[1:], len(code)))
    behind = (np.repeat(value[start], np.diff(start, append=len(code))) - value).tolist()
    return [
        _Kind(own, row[at:to], value[at:to], behind[at:to])
        for own, at, to in zip(code[start].tolist(), start.tolist(), end.tolist(), strict=True)
    ]


def _kinds(linkers: Sequence[_Kind], ends: Sequence[_Kind], whole: int) -> Rows:
    """A linker and two ends by their numbers, whose codes sum up to the whole, (Q, 3)."""
    firsts, others, codes = [], [], np.array([kind.code for kind in ends])
    # To look an end up takes longer than to see that there is none.
    may_be = np.zeros(_CODES, np.bool_)
    may_be[codes & (_CODES - 1)] = True
    for linker in linkers:
        rest = whole - linker.code
        lower = codes[: codes.searchsorted(rest // 2, "right")]  # the other end is no smaller
        first = may_be[(rest - lower) & (_CODES - 1)].nonzero()[0]
        wanted = rest - lower[first]
        other = codes.searchsorted(wanted)
        is_end = codes.take(other, mode="clip") == wanted
        firsts.append(first[is_end])
        others.append(other[is_end])
    number = np.repeat(np.arange(len(linkers)), [len(first) for first in firsts])
    return np.stack([number, np.concatenate(firsts), np.concatenate(others)], 1)


def _listed(linkers: Sequence[_Kind], ends: Sequence[_Kind], whole: int) -> Rows:
    """Rows of the likeliest of all kinds by their own bits, as many as are compared, (K, 3)."""
    kinds = _kinds(linkers, ends, whole)
    of_linkers, of_ends = (np.array([one.value[0] for one in own]) for own in (linkers, ends))
    bound = of_linkers[kinds[:, 0]] + of_ends[kinds[:, 1]] + of_ends[kinds[:, 2]]
    if len(kinds) > _COMPARED:  # each has a molecule at least
        best = np.sort(np.argpartition(-bound, _COMPARED)[:_COMPARED])
        kinds, bound = kinds[best], bound[best]
    values, rows, least = [np.zeros(0)], [np.zeros((3, 0), np.int64)], -np.inf
    n_listed = 0
    order = np.argsort(-bound, kind="stable")
    for most, numbers in zip(bound[order].tolist(), kinds[order].tolist(), strict=True):
        if most <= least:
            break
        sides = linkers[numbers[0]], ends[numbers[1]], ends[numbers[2]]
        # Blocks that are too far behind the first are of no use, whatever they are joined to.
        far = most - least + _ROUNDING
        first, second, third = (side.value[: bisect(side.behind, far)] for side in sides)
        total = first[:, None, None] + second[:, None] + third
        chosen = (total > least).nonzero()
        values.append(total[chosen])
        rows.append(np.array([side.row[at] for side, at in zip(sides, chosen, strict=True)]))
        n_listed += len(values[-1])
        if n_listed > 2 * _COMPARED:
            both = _best(values, rows)
            values, rows, least, n_listed = [both[0]], [both[1]], both[0].min(), len(both[0])
    return np.ascontiguousarray(_best(values, rows)[1].T)


def _best(values: list[Floats], rows: list[Rows]) -> tuple[Floats, Rows]:
    """Of what was listed, as many as are compared; rows are columns here."""
    value, row = np.concatenate(values), np.concatenate(rows, 1)
    if len(value) <= _COMPARED:
        return value, row
    best = np.argpartition(-value, _COMPARED)[:_COMPARED]
    return value[best], row[:, best]


def open_ends(mol: Chem.Mol) -> list[int]:
    """Indices of what stands for the open bonds of a block."""
    return [index for (index,) in mol.GetSubstructMatches(_STAR)]


@lru_cache(maxsize=20_000)
def is_even(linker: str) -> bool:
    """Whether a linker is the same from either side."""
    mol = Chem.MolFromSmiles(linker)
    rank = Chem.CanonicalRankAtoms(mol, breakTies=False)
    return len({rank[star] for star in open_ends(mol)}) == 1
