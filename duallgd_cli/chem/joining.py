"""Known molecules cut into building blocks, and these put together.

Known molecules are cut at one or two single bonds outside rings. Two ends, or two ends on a linker,
that have a formula's atoms between them make a molecule of it. There may be millions: the Morgan
bits that a block keeps, whatever it is joined to, say which are likely before any is made.

K molecules, F fingerprint bits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors

from duallgd_cli.chem.building_blocks import (
    ATOM_KEY,
    BIT_KEY,
    OPEN,
    BuildingBlocks,
    KnownEnds,
    counted_to,
)
from duallgd_cli.chem.elements import FINGERPRINT_BITS, HYDROGEN, INDEX_OF_NUMBER, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import bits_away, surroundings

# Pairs of bonds are many in a long chain, and say little.
_MOST_BONDS: Final = 25
# Of molecules that are not all known, an end counts that so many have, and a linker.
_COMMON: Final = (3, 8)
_SAME_MASS_DA: Final = 1e-3
Parts: TypeAlias = tuple[set[str], set[str]]  # SMILES of a molecule's ends, and of its linkers
Rows: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# Likeliest blocks of a kind, of the same atoms, that are tried; and how many molecules are compared
# by their bits, each counted once.
_OF_A_KIND: Final = 20
_COMPARED: Final = 20_000
_CODES: Final = 1 << 20  # that are told apart before they are looked up
_ROUNDING: Final = 1e-6
# Linkers for which pairs of ends are looked up together.
_LINKERS_AT_ONCE: Final = 64
# Kinds of which blocks are chosen together, at most; and so many times what is compared is at
# hand before the best of it are chosen.
_AT_ONCE: Final = 256
_SURPLUS: Final = 1.25

_STAR: Final = Chem.MolFromSmarts("[#0]")
_SINGLE_BOND: Final = Chem.MolFromSmarts("*-;!@*")
_AS_IT_STANDS: Final = Chem.SmilesParserParams()
_AS_IT_STANDS.sanitize = False  # type: ignore[assignment]
_AS_IT_STANDS.removeHs = False  # type: ignore[assignment]


class BuildingBlock(NamedTuple):
    """Atoms, and which of them have an open single bond."""

    mol: Chem.Mol
    places: tuple[int, ...]


def cut(known: Iterable[Parts], others: Iterable[Parts] = ()) -> BuildingBlocks:
    """All building blocks of known molecules' parts, and those that several of the others have."""
    blocks: list[tuple[str, int]] = []
    for kind, common, least in zip(_counted(known), _counted(others), _COMMON, strict=True):
        kind.update({text: n for text, n in common.items() if n >= least or text in kind})
        blocks += sorted(kind.items(), key=lambda block: (-block[1], block[0]))
    mols = [Chem.MolFromSmiles(text) for text, _ in blocks]
    bits = [bits_away(mol, open_ends(mol)) for mol in mols]
    return BuildingBlocks(
        tuple(text for text, _ in blocks),
        np.array([atoms_of(mol).sum(0) for mol in mols], np.uint8).reshape(-1, N_ELEMENTS),
        np.array([n for _, n in blocks], np.int32),
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
    ends = mol.GetSubstructMatches(_SINGLE_BOND, maxMatches=mol.GetNumBonds() + 1)
    return sorted(mol.GetBondBetweenAtoms(*pair).GetIdx() for pair in ends)


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
    rows = likeliest(blocks, formula, bit_scores, most)
    worth = np.where(rows < 0, 0, blocks.worth[rows]).sum(1) if len(rows) else np.zeros(0)
    with rdBase.BlockLogs():
        for (linker, *ends), value in zip(rows.tolist(), worth.tolist(), strict=True):
            first, second = (_read(blocks.smiles[end]) for end in ends)
            if linker < 0:
                made = joined(first.mol, first.places, [second])
            else:
                middle = _read(blocks.smiles[linker])
                made = joined(middle.mol, middle.places, [first, second])
            if is_of(made, formula):
                yield made, value


def groups(blocks: BuildingBlocks, counts: NDArray[np.int64]) -> list[BuildingBlock]:
    """Small ends that have exactly these atoms, the most frequent."""
    return list(map(_read, blocks.groups.get(tuple(counts.tolist()), ())))


def is_of(mol: Chem.Mol, formula: Formula) -> bool:
    """Whether a molecule with the heavy atoms of a formula has its hydrogens and charge too."""
    wrong = rdMolDescriptors.CalcExactMolWt(mol) - formula.atoms_mass
    return abs(wrong) < _SAME_MASS_DA and Chem.GetFormalCharge(mol) == formula.charge


def atoms_of(mol: Chem.Mol) -> NDArray[np.int64]:
    """Each heavy atom with its hydrogens, (N, N_ELEMENTS); an open end counts as nothing."""
    n = mol.GetNumAtoms()
    each = [mol.GetAtomWithIdx(index) for index in range(n)]
    numbers = [atom.GetAtomicNum() for atom in each]
    atoms = np.zeros((n, N_ELEMENTS), np.int64)
    atoms[np.arange(n), [INDEX_OF_NUMBER.get(number, HYDROGEN) for number in numbers]] = 1
    hydrogens = [atom.GetTotalNumHs() for atom in each]
    atoms[:, HYDROGEN] = np.where(numbers, hydrogens, 0)
    return atoms


def joined(one: Chem.Mol, places: Sequence[int], others: Sequence[BuildingBlock]) -> Chem.RWMol:
    """A molecule and blocks, some of its atoms bonded to the first open end of a block each.

    Single bonds between them leave the aromaticity of all as it was: the molecule is not
    sanitised, which takes longer than all else. Hydrogens, valences and what is in a ring are
    there, as its fingerprint needs them.
    """
    made = Chem.RWMol(one)
    for place, other in zip(places, others, strict=True):
        n = made.GetNumAtoms()
        made.InsertMol(other.mol)
        made.AddBond(place, n + other.places[0], Chem.BondType.SINGLE)
    made.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(made)
    return made


def _parts(mol: Chem.Mol, bonds: tuple[int, ...]) -> list[str]:
    """What is left when all these bonds are cut, and touches all of them."""
    apart = Chem.FragmentOnBonds(mol, bonds, dummyLabels=[(0, 0)] * len(bonds))
    return [text for text in Chem.MolToSmiles(apart).split(".") if text.count(OPEN) == len(bonds)]


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


class _Kinds(NamedTuple):
    """Blocks by kind, those of a kind having the same atoms; the likeliest kinds first."""

    code: Rows  # of the atoms of each
    # Of the blocks that are tried, the likeliest first: their rows, and the summed scores of the
    # bits of each, -inf beyond the last; (kinds, `_OF_A_KIND`).
    row: Rows
    value: Floats


# In place of a linker, where there is none.
_NO_LINKER: Final = _Kinds(
    np.zeros(1, np.int64),
    np.full((1, _OF_A_KIND), -1),
    np.where(np.arange(_OF_A_KIND) == 0, 0.0, -np.inf)[None],
)


def likeliest(blocks: BuildingBlocks, formula: Formula, bit_scores: Floats, most: int) -> Rows:
    """A linker, -1 for none, and the ends at its first and second open bond, best first, (K, 3).

    They have the formula's atoms between them; bit scores are what each Morgan bit speaks for a
    molecule, (F,). K is ``most`` at most, of 20,000. Of like ones those of frequent blocks come
    first.
    """
    # Sums of three codes are equal only where the atoms are.
    radix = np.cumprod(np.concatenate([[1], 3 * formula.array[:-1] + 1]))
    n_ends = blocks.n_ends
    ends = _fitting(blocks, slice(0, n_ends), formula, radix, bit_scores)
    linkers = _fitting(blocks, slice(n_ends, None), formula, radix, bit_scores)
    rows = _listed(linkers, ends, int(formula.array @ radix))
    if not len(rows):
        return rows
    rows = rows[np.lexsort(rows.T[::-1])]
    # Each by its blocks and by their bits, each bit once.
    owner, of_block = np.nonzero(rows >= 0)
    block = rows[owner, of_block]
    own, length = blocks.bits_of(block)
    # Sorted here, since numpy's own `unique` hashes first, ten times as long.
    bits = np.sort(np.repeat(owner.astype(np.int32), length) * np.int32(FINGERPRINT_BITS) + own)
    once = bits[np.diff(bits, prepend=-1) != 0]
    score = np.bincount(once // FINGERPRINT_BITS, bit_scores[once % FINGERPRINT_BITS], len(rows))
    score += np.bincount(owner, blocks.worth[block], len(rows))
    rows = rows[np.argsort(-score, kind="stable")[:most]]
    listed: list[tuple[int, int, int]] = []
    for linker, first, second in rows.tolist():
        listed.append((linker, first, second))
        if linker >= 0 and first != second and not is_even(blocks.smiles[linker]):
            listed.append((linker, second, first))  # the other way round
        if len(listed) >= most:  # whether a linker is even takes long to see
            break
    return np.array(listed[:most], np.int64).reshape(-1, 3)


def _fitting(
    blocks: BuildingBlocks, part: slice, formula: Formula, radix: Rows, bit_scores: Floats
) -> _Kinds:
    """Blocks that fit into a formula."""
    # Element by element, which is five times as fast.
    fewer = map(np.less_equal, blocks.counts[part].T, formula.array)
    fits = np.flatnonzero(reduce(np.logical_and, fewer)) + (part.start or 0)
    code = blocks.counts[fits].astype(np.int64) @ radix
    bits, length = blocks.bits_of(fits)
    value = np.add.reduceat(bit_scores[bits], np.cumsum(length) - length) + blocks.worth[fits]
    order = np.lexsort((-value, code))
    fits, code, value = fits[order], code[order], value[order]
    is_new = np.diff(code, prepend=-1) != 0
    start, kind = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    place = np.arange(len(code)) - start[kind]
    tried = place < _OF_A_KIND
    rows = np.full((len(start), _OF_A_KIND), -1)
    values = np.full(rows.shape, -np.inf)
    at = kind[tried], place[tried]
    rows[at], values[at] = fits[tried], value[tried]
    best = np.argsort(-values[:, 0], kind="stable")
    return _Kinds(code[start[best]], rows[best], values[best])


def _pairs(ends: _Kinds) -> Callable[[_Kinds, int, float], tuple[Rows, Floats]]:
    """What looks up pairs of kinds of ends, by the atoms that they have between them."""
    code, value = ends.code, ends.value[:, 0]
    by_code = np.argsort(code)
    ascending = code[by_code]
    # To look an end up takes longer than to see that there is none.
    may_be = np.zeros(_CODES, np.bool_)
    may_be[code & (_CODES - 1)] = True

    def beside(linkers: _Kinds, whole: int, least: float) -> tuple[Rows, Floats]:
        """Kinds of linkers and two ends whose codes sum up to the whole, (Q, 3), and their values.

        The values, (Q,), are no smaller than the least, the best first.
        """
        own, rest = linkers.value[:, 0], whole - linkers.code
        # The likelier of two ends has half of what is left at least.
        n = np.searchsorted(-value, (own - least) / 2 + _ROUNDING, "right")
        number, first = np.repeat(np.arange(len(n)), n), counted_to(n)
        wanted = rest[number] - code[first]
        likely = np.flatnonzero(may_be[wanted & (_CODES - 1)])
        number, first, wanted = number[likely], first[likely], wanted[likely]
        place = ascending.searchsorted(wanted)
        second = by_code.take(place, mode="clip")
        total = own[number] + value[first] + value[second]
        fits = (code[second] == wanted) & (second >= first) & (total >= least)
        kinds, total = np.stack([number, first, second], 1)[fits], total[fits]
        kinds[:, 1:] = np.take_along_axis(kinds[:, 1:], np.argsort(code[kinds[:, 1:]], 1), 1)
        order = np.argsort(-total, kind="stable")
        return kinds[order], total[order]

    return beside


def _listed(linkers: _Kinds, ends: _Kinds, whole: int) -> Rows:
    """Rows of the likeliest of all by their own bits, as many as are compared, (K, 3)."""
    value, row, least = np.zeros(0), np.zeros((0, 3), np.int64), np.finfo(np.float64).min
    if not len(ends.code):
        return row
    pairs_beside = _pairs(ends)
    starts = range(0, len(linkers.code), _LINKERS_AT_ONCE)
    parts = [slice(start, start + _LINKERS_AT_ONCE) for start in starts]
    in_turn = (_Kinds._make(column[part] for column in linkers) for part in parts)
    for some in (_NO_LINKER, *in_turn):
        if some.value[0, 0] + 2 * ends.value[0, 0] < least:
            break
        kinds, bound = pairs_beside(some, whole, least)
        sides = some, ends, ends
        while len(kinds) and bound[0] >= least:
            here, now = kinds[:_AT_ONCE].T, bound[:_AT_ONCE, None]
            each = [side.value[kind] for side, kind in zip(sides, here, strict=True)]
            # Blocks that are too far behind the first are of no use, whatever they are joined to.
            n = np.stack([(now - v[:, :1] + v >= least - _ROUNDING).sum(1) for v in each], 1)
            done = max(1, int(np.searchsorted(n.prod(1).cumsum(), _COMPARED)))
            kinds, bound = kinds[done:], bound[done:]
            owner, places = _combinations(n[:done])
            total = sum(v[owner, place] for v, place in zip(each, places, strict=True))
            chosen = np.flatnonzero(total >= least)
            rows = [
                side.row[kind[owner[chosen]], place[chosen]]
                for side, kind, place in zip(sides, here, places, strict=True)
            ]
            value = np.concatenate([value, total[chosen]])
            row = np.concatenate([row, np.stack(rows, 1)])
            if len(value) > _SURPLUS * _COMPARED:
                value, row = _best(value, row)
                least = value.min()
    return _best(value, row)[1]


def _best(value: Floats, row: Rows) -> tuple[Floats, Rows]:
    """As many of the largest values as are compared, and their rows."""
    if len(value) <= _COMPARED:
        return value, row
    best = np.argpartition(-value, _COMPARED)[:_COMPARED]
    return value[best], row[best]


def _combinations(n: Rows) -> tuple[Rows, list[Rows]]:
    """Every choice of one of n[q, 0], one of n[q, 1] and one of n[q, 2]; and q of each."""
    total = n.prod(1)
    owner, rest = np.repeat(np.arange(len(n)), total), counted_to(total)
    places = []
    for column in n.T[::-1]:
        rest, place = np.divmod(rest, column[owner])
        places.append(place)
    return owner, places[::-1]


def open_ends(mol: Chem.Mol) -> list[int]:
    """Indices of what stands for the open bonds of a block."""
    return [index for (index,) in mol.GetSubstructMatches(_STAR)]


@lru_cache(maxsize=20_000)
def is_even(linker: str) -> bool:
    """Whether a linker is the same from either side."""
    mol = Chem.MolFromSmiles(linker)
    rank = Chem.CanonicalRankAtoms(mol, breakTies=False)
    return len({rank[star] for star in open_ends(mol)}) == 1
