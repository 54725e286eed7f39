"""Fragments of a structure, what is left of it when up to three bonds are cut, as rows of numbers.

Every single cut and the cheapest pairs are tried, and some triples at random. Fragments with the
same counts of atoms are one row, described by the cheapest way to cut it out; the whole molecule is
a row too. The measured peaks that each of them explains are looked up here as well. Plain arrays
without a network, for processes that only assemble. N atoms, b bonds, X cut sets, C rows, K peaks.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME
from duallgd_cli.chem.elements import BOND_AROMATIC, HYDROGEN, LOWEST_VALENCES, N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.valence import pairs
from duallgd_cli.data.molecular_graph import (
    N_ATOM_TYPES,
    N_GROUP_FEATURES,
    MolecularGraph,
    atom_groups,
    atom_types,
)
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.types import INSTRUMENTS

_VALENCE: Final = np.array(LOWEST_VALENCES[:N_HEAVY], np.float32)
_ORDER: Final = np.array([0, 1, 2, 3, 1.5], np.float32)
_SIZE_SCALE: Final = 30
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
    """Rows by ascending cost; the first is the whole molecule."""

    counts: NDArray[np.float32]  # element counts as they stood in the molecule, (C, N_ELEMENTS)
    cost: NDArray[np.float32]  # summed over the bonds that were cut, (C,)
    inside: NDArray[np.bool_]  # which atoms are in each, (C, N)
    # What the cuts look like, (C, N_CUT_FEATURES): atoms at their inner and outer ends by group,
    # bonds by class, bonds to heteroatoms, cost, number, sizes, and how many fragments share a row.
    cuts: NDArray[np.float32]
    # Atom types kept and left behind, at the cuts and by them, (C, N_ATOM_TYPE_FEATURES).
    atom_types: NDArray[np.float32]


def fragments(
    graph: MolecularGraph, generator: np.random.Generator, n_pairs: int = 500, n_triples: int = 150
) -> Fragments:
    """Fragments by single cuts, the cheapest pairs of cuts, and triples, cheap ones more often."""
    bond_cost = graph.cost
    under, closures = _spanning_tree(graph)
    one, other = pairs(bond_cost.size)
    if n_pairs < one.size:
        cheapest = np.argsort(bond_cost[one] + bond_cost[other], kind="stable")[:n_pairs]
        one, other = one[cheapest], other[cheapest]
    chance = np.exp(-bond_cost)
    # What generator.choice does, without its checks.
    below = np.cumsum((chance / chance.sum()).astype(np.float64))
    draws = generator.random((n_triples if bond_cost.size else 0, 3))
    thrice = np.searchsorted(below / below[-1:], draws, "right")
    inside = _atom_sets(graph, (one, other), thrice, under, closures)
    n = len(graph.element)
    atoms = np.zeros((n, N_ELEMENTS), np.float32)
    atoms[np.arange(n), graph.element] = 1
    atoms[:, HYDROGEN] = _hydrogens(graph)
    counts = np.rint(inside.astype(np.float32) @ atoms)
    low, high = graph.pair.T
    crossing = (inside[:, low] != inside[:, high]).astype(np.float32)
    cost = crossing @ bond_cost
    order = np.argsort(cost, kind="stable")
    key = counts[order].astype(np.int64) @ _KEY[:N_ELEMENTS]
    _, first, same = np.unique(key, return_index=True, return_counts=True)
    by_cost = np.argsort(first)
    rows = order[first[by_cost]]
    counts, cost, inside, crossing = counts[rows], cost[rows], inside[rows], crossing[rows]
    looks, types = _described(graph, inside, crossing, closures != 0)
    sizes = [crossing.sum(1), inside.sum(1) / n, np.full(len(rows), n / _SIZE_SCALE)]
    shared = np.log(same[by_cost])
    cuts = np.column_stack([*looks, cost, *sizes, shared]).astype(np.float32)
    return Fragments(counts, cost, inside, cuts, types)


def _atom_sets(
    graph: MolecularGraph,
    twice: tuple[NDArray[np.int64], NDArray[np.int64]],
    thrice: NDArray[np.int64],
    under: NDArray[np.uint64],
    closures: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Atoms of each distinct fragment, and of the whole molecule, bool (C, N).

    Bonds part a molecule only as bridges, pairs or triples that do so together. Which do is read
    off one spanning tree: every bond gets the set of ring closures that it lies under, as a random
    number, and bonds whose numbers add up to nothing (in the field of two) part it. The side of an
    atom is the parity of the cut bonds between it and the root.
    """
    n, words = len(graph.element), under.shape[1]
    everything = np.frombuffer(((1 << n) - 1).to_bytes(8 * words, "little"), np.uint64)
    bridge = closures == 0
    of_one = under[bridge]
    parted = closures[twice[0]] == closures[twice[1]]
    one, two = twice[0][parted], twice[1][parted]
    # What two bridges have between them is new, what is beyond each of them is not.
    of_two = under[one] ^ under[two]
    nested = (under[one] & under[two]).any(1)
    of_two[bridge[one] & ~nested] ^= everything
    of_ring = of_two[~bridge[one]]
    sides = [of_one, of_one ^ everything, of_two, of_ring ^ everything, everything[None]]
    packed = np.concatenate([*sides, _of_three(graph, thrice, under, closures) & everything])
    key = np.zeros(len(packed), np.int64)
    for place, column in enumerate(packed.view(np.uint8).T[: -(-n // 8)]):
        key += _BYTE_KEY[place, column]
    order = np.argsort(key)
    first = order[np.diff(key[order], prepend=-1) != 0]
    sets = np.unpackbits(packed[first].view(np.uint8), axis=1, count=n, bitorder="little")
    return sets.view(np.bool_)


def _of_three(
    graph: MolecularGraph,
    cut: NDArray[np.int64],
    under: NDArray[np.uint64],
    closures: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """Fragments that three bonds cut out, and some that fewer do, (F, W); higher bits are noise."""
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
    ends = graph.pair[cut].reshape(len(cut), 6)  # of all bonds of a set
    of_end = side[:, np.arange(len(cut))[:, None], ends // _WORD]  # (7, X, 6)
    beyond = (of_end >> (ends % _WORD).astype(np.uint64) & np.uint64(1)) - np.uint64(1)
    # A fragment is what is on the same side as an end, whichever way the molecule is parted.
    inside = np.bitwise_and.reduce(side[:, :, None] ^ beyond[..., None], axis=0)
    return np.asarray(inside.reshape(-1, under.shape[1]))


def _spanning_tree(graph: MolecularGraph) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Atoms below each bond, none for ring closures; and closures that it lies under, (b,).

    The atoms are bit masks of W words, (b, W). The closures are a random number: 0 for a bridge,
    and equal for two bonds that only together part the molecule.
    """
    n, b = len(graph.element), len(graph.pair)
    ends = graph.pair.tolist()
    bonded: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for bond, (low, high) in enumerate(ends):
        bonded[low].append((high, bond))
        bonded[high].append((low, bond))
    parent, order, closing = [(-1, -1)] * n, [0], set(range(b))
    seen = [True] + [False] * (n - 1)
    for atom in order:  # grows while it is walked
        for other, bond in bonded[atom]:
            if not seen[other]:
                seen[other], parent[other] = True, (atom, bond)
                order.append(other)
                closing.remove(bond)
    closures, over = [0] * b, [0] * n
    for bond, key in zip(closing, _KEY[: len(closing)].tolist(), strict=True):
        closures[bond] = key
        low, high = ends[bond]
        over[low] ^= key
        over[high] ^= key
    size = 8 * -(-n // _WORD)
    under, below = [bytes(size)] * b, [1 << atom for atom in range(n)]
    for atom in reversed(order[1:]):
        above, bond = parent[atom]
        under[bond], closures[bond] = below[atom].to_bytes(size, "little"), over[atom]
        below[above] |= below[atom]
        over[above] ^= over[atom]
    words = np.frombuffer(b"".join(under), np.uint64).reshape(b, size // 8)
    return words, np.array(closures, np.int64)


def _hydrogens(graph: MolecularGraph) -> NDArray[np.float32]:
    """Of each atom, (N,), by its valence; charges and [nH] are not visible here and are shared."""
    n, orders = len(graph.element), _ORDER[graph.bond_class].repeat(2)
    used = np.bincount(graph.pair.ravel(), orders, n).astype(np.float32)
    free = np.clip(np.floor(_VALENCE[graph.element] - used + 0.25), 0, None)
    if not free.any():
        free = np.ones_like(free)  # nothing says where they are
    scaled: NDArray[np.float32] = (free * (graph.hydrogens / float(free.sum()))).astype(np.float32)
    return scaled


def _described(
    graph: MolecularGraph,
    inside: NDArray[np.bool_],
    crossing: NDArray[np.float32],
    in_ring: NDArray[np.bool_],
) -> tuple[list[NDArray[Any]], NDArray[np.float32]]:
    """Columns of `Fragments.cuts` up to the cost, and the atom types; cut bonds are 1 in (C, b)."""
    within, bonded = inside.astype(np.float32), graph.adjacency
    to_inside = within @ bonded
    groups = atom_groups(graph)
    types = np.stack([*atom_types(graph, in_ring).values()], 1).astype(np.float32)
    atoms = np.concatenate([groups, types, bonded @ types], 1)
    # An atom counts once for each of its bonds that is cut.
    inner = within * (bonded.sum(0) - to_inside) @ atoms
    outer = (1 - within) * to_inside @ atoms
    classes = (graph.bond_class[:, None] == np.arange(1, BOND_AROMATIC + 1)).astype(np.float32)
    to_hetero = (graph.to_hetero & (graph.bond_class == 1)).astype(np.float32)
    kept = within @ types
    counts = np.stack([kept, types.sum(0) - kept], 1)  # (C, 2, N_ATOM_TYPES)
    ramps = np.minimum(counts[:, :, None] / _TYPE_STEPS[:, None], 1).reshape(len(kept), -1)
    (at_in, types_in), (at_out, types_out) = (
        np.split(ends, [N_GROUP_FEATURES], 1) for ends in (inner, outer)
    )
    types = np.concatenate([ramps, types_in, types_out], 1)
    return [at_in, at_out, crossing @ classes, crossing @ to_hetero], types


@dataclass(frozen=True, slots=True)
class Ion:
    """What is measured, apart from the structure."""

    adduct: int  # index into `ADDUCTS`, a key of `CARRIED`
    instrument: int  # index into `spectra.types.INSTRUMENTS`
    energy_ev: float  # collision energy, NaN if not known


def fragment_features(found: Fragments, ion: Ion) -> NDArray[np.float32]:
    """Rows for the fragment model, float32 (C, N_INPUTS)."""
    about = np.zeros((len(found.counts), _N_ION_FEATURES), np.float32)
    about[:, [ion.adduct, len(ADDUCTS) + ion.instrument]] = 1
    if not np.isnan(ion.energy_ev):
        about[:, -2:] = ion.energy_ev / _ENERGY_SCALE_EV, 1
    # Whether an electron of the fragment is unpaired, and its unsaturation, with the charge. Ions
    # with all electrons paired are by far the commoner ones; which numbers of hydrogens give them
    # cannot be told from the ramps.
    beyond = excess(found.counts) - CARRIED[ion.adduct]  # one less for each hydrogen
    electrons = np.stack([beyond % 2 == 0, beyond / _UNSATURATION_SCALE], 1).astype(np.float32)
    columns = []
    for counts in (found.counts, found.counts[:1] - found.counts):  # kept and lost
        ramps = np.minimum(counts[:, :, None] / _RAMP, 1).reshape(len(counts), -1)
        columns += [ramps, counts / _COUNT_SCALE]
    return np.concatenate([*columns, found.cuts, electrons, about, found.atom_types], 1)


def same_heavy_atoms(counts: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows (K, N_ELEMENTS) hold the heavy atoms of one of the others (C, N_ELEMENTS)."""
    return np.isin(_heavy_key(counts), _heavy_key(others))


def measured_intensity(
    found: Fragments, ion: Ion, subformula: NDArray[np.integer], intensity: NDArray[np.floating]
) -> NDArray[np.float32]:
    """Intensities of fragments in a measured spectrum, 0 where no peak is; (C, len(SHIFTS)).

    A sub-formula (K, N_ELEMENTS), of a peak of an intensity (K,), goes to the fragment that
    explains it best; one that fits no fragment is left out.
    """
    k, c, shift = explaining_fragments(found, CARRIED[ion.adduct], subformula)
    result = np.zeros((len(found.counts), len(SHIFTS)), np.float32)
    np.maximum.at(result, (c, shift - SHIFTS[0]), intensity[k].astype(np.float32))
    return result


def explaining_fragments(
    found: Fragments, carried: int, subformula: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which fragment of a structure explains each sub-formula, where one does.

    It is the one of those heavy atoms that is cheapest to cut out and to bring to the sub-formula's
    number of hydrogens, of which ``carried`` carry the ion's charge, see `CARRIED`.

    Returns:
        Rows of sub-formulas, of fragments, and hydrogens beyond those expected; all (E,), E at most
        the number of sub-formulas, by ascending row.
    """
    k, c = np.nonzero(_heavy_key(subformula)[:, None] == _heavy_key(found.counts))
    expected = found.counts[c, HYDROGEN] + carried
    shift = subformula[k, HYDROGEN].astype(np.int64) - expected.astype(np.int64)
    reached = (shift >= SHIFTS[0]) & (shift <= SHIFTS[-1])
    k, c, shift = k[reached], c[reached], shift[reached]
    by_cost = np.lexsort((found.cost[c] + _SHIFT_COST * np.abs(shift), k))
    _, first = np.unique(k[by_cost], return_index=True)
    chosen = by_cost[first]
    return k[chosen], c[chosen], shift[chosen]


def _heavy_key(counts: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each combination of heavy atoms."""
    return np.asarray(counts[:, :N_HEAVY].astype(np.int64) @ _SUBFORMULA_KEY)
