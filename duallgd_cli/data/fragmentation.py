"""Fragments of a structure, what is left of it when up to three bonds are cut, as rows of numbers.

Every single cut and the cheapest pairs are tried, and some triples at random. Fragments with the
same counts of atoms are one row, described by the cheapest way to cut it out; the whole molecule is
a row too. The measured peaks that each of them explains are looked up here as well. Plain arrays
without a network, for processes that only assemble. N atoms, b bonds, X cut sets, C rows, K peaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME
from duallgd_cli.chem.elements import BOND_AROMATIC, HYDROGEN, LOWEST_VALENCES, N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.valence import MolecularGraph, pairs
from duallgd_cli.data.molecular_graph import (
    N_ATOM_TYPES,
    N_GROUP_FEATURES,
    atom_groups,
    atom_types,
    cutting_cost,
    to_hetero,
)
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.types import INSTRUMENTS

_VALENCE: Final = np.array(LOWEST_VALENCES[:N_HEAVY], np.float32)
_ORDER: Final = np.array([0, 1, 2, 3, 1.5], np.float32)
_SIZE_SCALE: Final = 30
# Pairs and triples of bonds that are cut.
_N_PAIRS, _N_TRIPLES = 500, 150
# The triples of all fragments that are scored, learned from for scores, or shown beside them.
SCORED_TRIPLES: Final = np.random.default_rng(0).random((_N_TRIPLES, 3))
# Any numbers whose sums and differences tell sets apart.
_KEY: Final = np.random.default_rng(0).integers(1, 1 << 54, 512)
_WORD: Final = 64
# The sum of the keys of the atoms in each byte of a bit mask, (bytes, 256).
_BYTE_KEY: Final = _KEY.reshape(-1, 8) @ (np.arange(256) >> np.arange(8)[:, None] & 1)
_TYPE_STEPS: Final = np.array([1.0, 3.0, 8.0], np.float32)
N_CUT_FEATURES: Final = 2 * N_GROUP_FEATURES + 10
N_ATOM_TYPE_FEATURES: Final = (2 * len(_TYPE_STEPS) + 4) * N_ATOM_TYPES
# Ions whose fragments are understood, and the hydrogens that carry their charge.
CARRIED: Final = {
    BY_NAME[name].index: hydrogens
    for name, hydrogens in (("[M+H]+", 1), ("[M-H]-", -1), ("[M]+", 0))
}
# Hydrogens of the fragment ion beyond those that its atoms had and those that carry the charge.
SHIFTS: Final = tuple(range(-5, 6))
# Counts as a ramp over thresholds, so that one linear layer can tell small counts apart.
_RAMP: Final = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0], np.float32)
_COUNT_SCALE: Final = 20
_N_ION_FEATURES: Final = len(ADDUCTS) + len(INSTRUMENTS) + 2
_N_ELECTRON_FEATURES: Final = 2
_N_COUNT_FEATURES: Final = 2 * N_ELEMENTS * (len(_RAMP) + 1)
N_INPUTS: Final = (
    _N_COUNT_FEATURES
    + N_CUT_FEATURES
    + _N_ELECTRON_FEATURES
    + _N_ION_FEATURES
    + N_ATOM_TYPE_FEATURES
)
# Columns of `fragment_features` that say where a fragment was cut out, and those that depend on its
# atoms and the ion alone.
OF_CUTS: Final = np.r_[
    _N_COUNT_FEATURES : _N_COUNT_FEATURES + N_CUT_FEATURES,
    N_INPUTS - N_ATOM_TYPE_FEATURES : N_INPUTS,
]
OF_ATOMS: Final = np.setdiff1d(np.arange(N_INPUTS), OF_CUTS)
# What log-likelihoods of fragments that are peaks count for in the score of a candidate, and of
# those that are not, as none is independent; and the log-probability of a peak without a fragment.
FOUND, MISSED, BY_CHANCE = 0.1, 0.3, -4.0
_UNSATURATION_SCALE: Final = 20
_ENERGY_SCALE_EV: Final = 50.0
_SHIFT_COST: Final = 0.4
# Any numbers that tell combinations of heavy atoms apart.
_SUBFORMULA_KEY: Final = np.random.default_rng(0).integers(1, 1 << 40, N_HEAVY)


@dataclass(frozen=True, eq=False)
class Fragments:
    """Rows of one molecule after the other, by ascending cost; the first of each is all of it."""

    counts: NDArray[np.float32]  # element counts as they stood in the molecule, (C, N_ELEMENTS)
    cost: NDArray[np.float32]  # summed over the bonds that were cut, (C,)
    inside: NDArray[np.bool_]  # which atoms are in each, (C, N)
    # What the cuts look like, (C, N_CUT_FEATURES): atoms at their inner and outer ends by group,
    # bonds by class, bonds to heteroatoms, cost, number, sizes, and how many fragments share a row.
    cuts: NDArray[np.float32]
    # Atom types kept and left behind, at the cuts and by them, (C, N_ATOM_TYPE_FEATURES).
    atom_types: NDArray[np.float32]
    molecule: NDArray[np.int64]  # which molecule each is of, ascending, (C,)


def fragments(
    graph: MolecularGraph,
    generator: np.random.Generator,
    n_pairs: int = _N_PAIRS,
    n_triples: int = _N_TRIPLES,
) -> Fragments:
    """Fragments by single cuts, the cheapest pairs of cuts, and triples, cheap ones more often."""
    draws = generator.random((n_triples if len(graph.pair) else 0, 3))
    return fragments_of_isomers([graph], draws, n_pairs)


def fragments_of_isomers(
    graphs: Sequence[MolecularGraph], draws: NDArray[np.float64], n_pairs: int = _N_PAIRS
) -> Fragments:
    """The fragments of molecules of one formula that have as many bonds, all made in arrays.

    Args:
        graphs: The molecules.
        draws: Which triples of bonds are cut in each, random numbers from 0 to 1, (X, 3).
        n_pairs: Of bonds that are cut in each, the cheapest.
    """
    element, pair, bond_class = (
        np.stack([getattr(graph, name) for graph in graphs])
        for name in ("element", "pair", "bond_class")
    )
    (m, n), b = element.shape, pair.shape[1]
    draws = draws if b else draws[:0]
    # All of them as one graph that falls apart.
    ends = (pair + n * np.arange(m)[:, None, None]).reshape(-1, 2)
    graph = MolecularGraph(element.ravel(), ends, bond_class.ravel(), graphs[0].hydrogens)
    bond_cost = cutting_cost(graph).reshape(m, b)
    under, closures = _spanning_trees(pair, ends, n)
    one, other = pairs(b)
    if n_pairs < one.size:
        cheapest = np.argsort(bond_cost[:, one] + bond_cost[:, other], kind="stable")[:, :n_pairs]
        one, other = one[cheapest], other[cheapest]
    first_bond = b * np.arange(m)[:, None]
    twice = (first_bond + one).ravel(), (first_bond + other).ravel()
    chance = np.exp(-bond_cost)
    # What generator.choice does, without its checks.
    below = np.cumsum((chance / chance.sum(1, keepdims=True)).astype(np.float64), 1)
    below /= below[:, -1:]
    drawn = np.stack([row.searchsorted(draws, "right") for row in below])
    thrice = (first_bond[..., None] + drawn).reshape(-1, 3)
    molecule, inside = _atom_sets(pair, n, twice, thrice, under, closures)
    within, of_each = inside.astype(np.float32), _bounds(molecule, m)
    atoms = np.zeros((m, n, N_ELEMENTS), np.float32)
    np.put_along_axis(atoms, element[..., None], 1, axis=2)
    atoms[..., HYDROGEN] = _hydrogens(graph, m)
    counts = np.rint(_times(within, of_each, atoms))
    crossing = np.empty((len(inside), b), np.float32)
    cost = np.empty(len(inside), np.float32)
    for mine, (low, high), of_bonds in zip(
        of_each, pair.transpose(0, 2, 1), bond_cost, strict=True
    ):
        atoms_in = inside[mine]
        cut = (atoms_in[:, low] != atoms_in[:, high]).astype(np.float32)
        # One product a molecule: the order of a sum decides which of two like costs is lower.
        crossing[mine], cost[mine] = cut, cut @ of_bonds
    order = np.lexsort((cost, molecule))
    key = composition_key(counts[order]) + _KEY[-1] * molecule[order]
    _, first, same = np.unique(key, return_index=True, return_counts=True)
    by_cost = np.argsort(first)
    rows = order[first[by_cost]]
    counts, cost, inside = counts[rows], cost[rows], inside[rows]
    crossing, molecule = crossing[rows], molecule[rows]
    looks, types = _described(graph, pair, inside, crossing, molecule, closures != 0)
    sizes = [crossing.sum(1), inside.sum(1) / n, np.full(len(rows), n / _SIZE_SCALE)]
    shared = np.log(same[by_cost])
    cuts = np.column_stack([*looks, cost, *sizes, shared]).astype(np.float32)
    return Fragments(counts, cost, inside, cuts, types, molecule)


def _bounds(molecule: NDArray[np.int64], m: int) -> list[slice]:
    """Rows of each of M molecules, which are ascending."""
    ends = np.searchsorted(molecule, np.arange(m + 1)).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def _times(
    rows: NDArray[np.float32], of_each: Sequence[slice], matrices: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rows of each molecule times its matrix, (C, J) and (M, J, K) giving (C, K)."""
    result = np.empty((len(rows), matrices.shape[2]), np.float32)
    for mine, matrix in zip(of_each, matrices, strict=True):
        np.matmul(rows[mine], matrix, out=result[mine])
    return result


def _atom_sets(
    pair: NDArray[np.int64],
    n: int,
    twice: tuple[NDArray[np.int64], NDArray[np.int64]],
    thrice: NDArray[np.int64],
    under: NDArray[np.uint64],
    closures: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Molecule and atoms of each distinct fragment, and of each whole molecule, (C,) and (C, N).

    Bonds part a molecule only as bridges, pairs or triples that do so together. Which do is read
    off one spanning tree: every bond gets the set of ring closures that it lies under, as a random
    number, and bonds whose numbers add up to nothing (in the field of two) part it. The side of an
    atom is the parity of the cut bonds between it and the root.
    """
    m, b, words = *pair.shape[:2], under.shape[1]
    everything = np.frombuffer(((1 << n) - 1).to_bytes(8 * words, "little"), np.uint64)
    of_bond, bridge = np.repeat(np.arange(m), b), closures == 0
    of_one = under[bridge]
    parted = closures[twice[0]] == closures[twice[1]]
    one, two = twice[0][parted], twice[1][parted]
    # What two bridges have between them is new, what is beyond each of them is not.
    of_two = under[one] ^ under[two]
    nested = (under[one] & under[two]).any(1)
    of_two[bridge[one] & ~nested] ^= everything
    in_ring = ~bridge[one]
    three, of_three = _of_three(pair.reshape(-1, 2), thrice, under, closures)
    sides = [of_one, of_one ^ everything, of_two, of_two[in_ring] ^ everything, of_three]
    packed = np.concatenate([*sides, np.broadcast_to(everything, (m, words))]) & everything
    bonds = [of_bond[bridge], of_bond[bridge], of_bond[one], of_bond[one[in_ring]], of_bond[three]]
    molecule = np.concatenate([*bonds, np.arange(m)])
    key = np.zeros(len(packed), np.int64)
    for place, column in enumerate(packed.view(np.uint8).T[: -(-n // 8)]):
        key += _BYTE_KEY[place, column]
    order = np.argsort(molecule, kind="stable")
    for mine in _bounds(molecule[order], m):  # faster than all of them at once
        order[mine] = order[mine][np.argsort(key[order[mine]])]
    key, molecule = key[order], molecule[order]
    new = (np.diff(key, prepend=-1) != 0) | (np.diff(molecule, prepend=-1) != 0)
    first = packed[order[new]].view(np.uint8)
    sets = np.unpackbits(first, axis=1, count=n, bitorder="little")
    return molecule[new], sets.view(np.bool_)


def _of_three(
    pair: NDArray[np.int64],
    cut: NDArray[np.int64],
    under: NDArray[np.uint64],
    closures: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Fragments that three bonds cut out, and some that fewer do, and one of the bonds of each.

    (F,) and (F, W); higher bits are noise.
    """
    cut = np.sort(cut, 1)
    one, two, three = closures[cut].T
    fewer, more = np.diff(cut).T > 0  # some are drawn twice
    together = np.stack([one ^ two, two ^ three, one ^ three, one ^ two ^ three]) == 0
    together &= np.stack([fewer, more, fewer | more, fewer & more])
    new = together.any(0)  # what a single bridge parts is known
    cut = cut[new]
    ways = np.concatenate([closures[cut].T == 0, together[:, new]])  # (7, X)
    # The atoms on one side of each way to part the molecule, (7, X, W).
    one, two, three = (under[column] for column in cut.T)
    side = np.stack([one, two, three, one ^ two, two ^ three, one ^ three, one ^ two ^ three])
    side[~ways] = 0
    ends = pair[cut].reshape(len(cut), 6)  # of all bonds of a set
    of_end = side[:, np.arange(len(cut))[:, None], ends // _WORD]  # (7, X, 6)
    beyond = (of_end >> (ends % _WORD).astype(np.uint64) & np.uint64(1)) - np.uint64(1)
    # A fragment is what is on the same side as an end, whichever way the molecule is parted.
    inside = np.bitwise_and.reduce(side[:, :, None] ^ beyond[..., None], axis=0)
    return np.repeat(cut[:, 0], 6), np.asarray(inside.reshape(-1, under.shape[1]))


def _spanning_trees(
    pair: NDArray[np.int64], ends: NDArray[np.int64], n: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Atoms below each bond, none for ring closures; and closures that it lies under, (M b,).

    The atoms are bit masks of W words, (M b, W). The closures are a random number: 0 for a bridge,
    and equal for two bonds that only together part the molecule.
    """
    m, b = pair.shape[:2]
    start, stop = np.concatenate([ends, ends[:, ::-1]]).T  # either way along each bond
    # Of each atom: the next one towards the first atom of its molecule, which is its own, and the
    # bond that leads there.
    above, via = np.arange(m * n), np.full(m * n, -1)
    is_seen = np.arange(m * n) % n == 0
    is_new = is_seen
    while (step := np.flatnonzero(is_new[start] & ~is_seen[stop])).size:
        above[stop[step]], via[stop[step]] = start[step], step % (m * b)
        is_new = np.zeros_like(is_seen)
        is_new[stop[step]] = True
        is_seen |= is_new
    child = np.flatnonzero(via >= 0)
    # Which atoms lie below each, itself among them, (M N, N).
    below, atom = np.zeros((m * n, 8 * 8 * -(-n // _WORD)), np.bool_), np.arange(m * n)
    place = atom
    for _ in range(n):
        below[place, atom % n] = True
        if not (via[place] >= 0).any():
            break
        place = above[place]
    under = np.zeros((m * b, below.shape[1] // _WORD), np.uint64)
    under[via[child]] = np.packbits(below[child], axis=1, bitorder="little").view(np.uint64)
    closing = np.ones(m * b, np.bool_)
    closing[via[child]] = False
    # Of a molecule's closures each that one end of lies below an atom, and the other not.
    across = pair.reshape(-1, 2)[closing].reshape(m, -1, 2).transpose(0, 2, 1)
    keys = _KEY[: across.shape[2]]
    sides = np.take_along_axis(below.reshape(m, 1, n, -1), across[:, :, None], axis=3)
    over = np.bitwise_xor.reduce(np.where(sides[:, 0] ^ sides[:, 1], keys, 0), axis=2).ravel()
    closures = np.zeros(m * b, np.int64)
    closures[via[child]] = over[child]
    closures[closing] = np.tile(keys, m)
    return under, closures


def _hydrogens(graph: MolecularGraph, m: int) -> NDArray[np.float32]:
    """Of each atom of M isomers, (M, N), by its valence; what charges and [nH] hide is shared."""
    orders = _ORDER[graph.bond_class].repeat(2)
    used = np.bincount(graph.pair.ravel(), orders, len(graph.element)).astype(np.float32)
    free = np.clip(np.floor(_VALENCE[graph.element] - used + 0.25), 0, None)
    free = free.reshape(m, -1)
    free[~free.any(1)] = 1  # nothing says where they are
    return np.asarray(
        free * (graph.hydrogens / free.sum(1, keepdims=True, dtype=np.float64)).astype(np.float32)
    )


def _described(
    graph: MolecularGraph,
    pair: NDArray[np.int64],
    inside: NDArray[np.bool_],
    crossing: NDArray[np.float32],
    molecule: NDArray[np.int64],
    in_ring: NDArray[np.bool_],
) -> tuple[list[NDArray[Any]], NDArray[np.float32]]:
    """Columns of `Fragments.cuts` up to the cost, and the atom types; cut bonds are 1 in (C, b)."""
    m, n = len(pair), inside.shape[1]
    bonded = np.zeros((m, n, n), np.float32)
    (low, high), each = pair.transpose(2, 0, 1), np.arange(m)[:, None]
    bonded[each, low, high] = bonded[each, high, low] = 1
    of_each, within = _bounds(molecule, m), inside.astype(np.float32)
    to_inside = _times(within, of_each, bonded)
    groups = atom_groups(graph).reshape(m, n, -1)
    types = np.stack([*atom_types(graph, in_ring).values()], 1).astype(np.float32)
    types = types.reshape(m, n, -1)
    atoms = np.concatenate([groups, types, bonded @ types], 2)
    # An atom counts once for each of its bonds that is cut.
    inner = _times(within * (bonded.sum(1)[molecule] - to_inside), of_each, atoms)
    outer = _times((1 - within) * to_inside, of_each, atoms)
    classes = graph.bond_class[:, None] == np.arange(1, BOND_AROMATIC + 1)
    has_hetero = to_hetero(graph) & (graph.bond_class == 1)
    bonds = np.column_stack([classes, has_hetero]).astype(np.float32).reshape(m, -1, 5)
    kept = _times(within, of_each, types)
    counts = np.stack([kept, types.sum(1)[molecule] - kept], 1)  # (C, 2, N_ATOM_TYPES)
    ramps = np.minimum(counts[:, :, None] / _TYPE_STEPS[:, None], 1).reshape(len(kept), -1)
    (at_in, types_in), (at_out, types_out) = (
        np.split(ends, [N_GROUP_FEATURES], 1) for ends in (inner, outer)
    )
    described = np.concatenate([ramps, types_in, types_out], 1)
    return [at_in, at_out, _times(crossing, of_each, bonds)], described


@dataclass(frozen=True, slots=True)
class Ion:
    """What is measured, apart from the structure."""

    adduct: int  # index into `ADDUCTS`, a key of `CARRIED`
    instrument: int  # index into `spectra.types.INSTRUMENTS`
    energy_ev: float  # collision energy, NaN if not known


def fragment_features(found: Fragments, ion: Ion) -> NDArray[np.float32]:
    """Rows for the fragment model, float32 (C, N_INPUTS), of one molecule or of isomers."""
    of_atoms = atom_features(found.counts, found.counts[0], ion)
    counts, others = np.split(of_atoms, [_N_COUNT_FEATURES], axis=1)
    return np.concatenate([counts, found.cuts, others, found.atom_types], 1)


def atom_features(
    counts: NDArray[np.float32], whole: NDArray[np.float32], ion: Ion
) -> NDArray[np.float32]:
    """The columns `OF_ATOMS` of fragments with these counts, of a molecule with those."""
    about = np.zeros((len(counts), _N_ION_FEATURES), np.float32)
    about[:, [ion.adduct, len(ADDUCTS) + ion.instrument]] = 1
    if not np.isnan(ion.energy_ev):
        about[:, -2:] = ion.energy_ev / _ENERGY_SCALE_EV, 1
    # Whether an electron of the fragment is unpaired, and its unsaturation, with the charge. Ions
    # with all electrons paired are by far the commoner ones; which numbers of hydrogens give them
    # cannot be told from the ramps.
    beyond = excess(counts) - CARRIED[ion.adduct]  # one less for each hydrogen
    electrons = np.stack([beyond % 2 == 0, beyond / _UNSATURATION_SCALE], 1).astype(np.float32)
    columns = []
    for side in (counts, whole - counts):  # kept and lost
        ramps = np.minimum(side[:, :, None] / _RAMP, 1).reshape(len(side), -1)
        columns += [ramps, side / _COUNT_SCALE]
    return np.concatenate([*columns, electrons, about], 1)


def cut_features(found: Fragments) -> NDArray[np.float32]:
    """The columns `OF_CUTS` of fragments, (C, J)."""
    return np.concatenate([found.cuts, found.atom_types], 1)


def same_heavy_atoms(counts: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows (K, N_ELEMENTS) hold the heavy atoms of one of the others (C, N_ELEMENTS)."""
    return np.isin(_heavy_key(counts), _heavy_key(others))


def measured_intensity(
    found: Fragments, ion: Ion, subformula: NDArray[np.integer], intensity: NDArray[np.floating]
) -> NDArray[np.float32]:
    """Intensities of fragments in a measured spectrum, 0 where no peak is; (C, len(SHIFTS)).

    A sub-formula (K, N_ELEMENTS), of a peak of an intensity (K,), goes to the fragment of each
    molecule that explains it best; one that fits no fragment is left out.
    """
    k, c, shift = explaining_fragments(found, CARRIED[ion.adduct], subformula)
    result = np.zeros((len(found.counts), len(SHIFTS)), np.float32)
    np.maximum.at(result, (c, shift - SHIFTS[0]), intensity[k].astype(np.float32))
    return result


def explaining_fragments(
    found: Fragments, carried: int, subformula: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which fragment of each structure explains each sub-formula, where one does.

    It is the one of those heavy atoms that is cheapest to cut out and to bring to the sub-formula's
    number of hydrogens, of which ``carried`` carry the ion's charge, see `CARRIED`.

    Returns:
        Rows of sub-formulas, of fragments, and hydrogens beyond those expected; all (E,), by
        structure, and by ascending row of the sub-formulas in each.
    """
    peak_key, row_key = _heavy_key(subformula), _heavy_key(found.counts)
    hit = np.flatnonzero(np.isin(row_key, peak_key))  # few of them: all pairs would be many
    k, c = np.nonzero(peak_key[:, None] == row_key[hit])
    c = hit[c]
    expected = found.counts[c, HYDROGEN] + carried
    shift = subformula[k, HYDROGEN].astype(np.int64) - expected.astype(np.int64)
    reached = (shift >= SHIFTS[0]) & (shift <= SHIFTS[-1])
    k, c, shift = k[reached], c[reached], shift[reached]
    # Each peak once in each molecule.
    of_one = found.molecule[c] * len(subformula) + k
    by_cost = np.lexsort((found.cost[c] + _SHIFT_COST * np.abs(shift), of_one))
    _, first = np.unique(of_one[by_cost], return_index=True)
    chosen = by_cost[first]
    return k[chosen], c[chosen], shift[chosen]


def composition_key(counts: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each combination of atoms, (C,)."""
    return np.asarray(counts.astype(np.int64) @ _KEY[:N_ELEMENTS])


def _heavy_key(counts: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each combination of heavy atoms."""
    return np.asarray(counts[:, :N_HEAVY].astype(np.int64) @ _SUBFORMULA_KEY)
