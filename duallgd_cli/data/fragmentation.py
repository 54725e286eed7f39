"""Fragments of a structure, what is left of it when up to three bonds are cut, as rows of numbers.

Every single cut and the cheapest pairs are tried, and some triples at random. Fragments with the
same counts of atoms are one row, described by the cheapest way to cut it out; the whole molecule is
a row too. The measured peaks that each of them explains are looked up here as well. Plain arrays
without a network, for processes that only assemble. N atoms, b bonds, X cut sets, C rows, K peaks.
"""

from dataclasses import dataclass
from functools import cached_property
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
    neighbours,
)
from duallgd_cli.spectra.annotation import excess
from duallgd_cli.spectra.types import INSTRUMENTS

_VALENCE: Final = np.array(LOWEST_VALENCES[:N_HEAVY], np.float32)
_ORDER: Final = np.array([0, 1, 2, 3, 1.5], np.float32)
_SIZE_SCALE: Final = 30
# Bonds of a cut set that may part a molecule together.
_SUBSETS: Final = ([0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2])
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
_UNSATURATION_SCALE: Final = 20
_ENERGY_SCALE_EV: Final = 50.0
_SHIFT_COST: Final = 0.4
# Any numbers that tell combinations of heavy atoms apart.
_SUBFORMULA_KEY: Final = np.random.default_rng(0).integers(1, 1 << 40, N_HEAVY)


@dataclass(frozen=True, eq=False)
class Fragments:
    """Rows by ascending cost; the first is the whole molecule.

    Attributes:
        counts: Element counts, as they stood in the molecule, float32 (C, N_ELEMENTS).
        cost: Summed over the bonds that were cut, float32 (C,).
        cuts: What the cuts look like, float32 (C, N_CUT_FEATURES): atoms at their inner and outer
            ends by group, bonds by class, bonds to heteroatoms, cost, number, sizes, and how many
            fragments share the row.
        graph: The molecule.
        inside: Which of its atoms are in each, bool (C, N).
        in_ring: Which of its bonds are part of a ring, bool (b,).
    """

    counts: NDArray[np.float32]
    cost: NDArray[np.float32]
    cuts: NDArray[np.float32]
    graph: MolecularGraph
    inside: NDArray[np.bool_]
    in_ring: NDArray[np.bool_]

    @cached_property  # asked for at each collision energy
    def atom_types(self) -> NDArray[np.float32]:
        """Atom types kept and left behind, at the cuts and by them, (C, N_ATOM_TYPE_FEATURES)."""
        types = atom_types(self.graph, self.in_ring)
        kept = self.inside.astype(np.float32) @ types
        counts = np.stack([kept, types.sum(0) - kept], 1)  # (C, 2, N_ATOM_TYPES)
        ramps = np.minimum(counts[:, :, None] / _TYPE_STEPS[:, None], 1)
        about = np.concatenate([types, neighbours(self.graph.pair, types)], 1)
        _, inner, outer = _ends(self.graph, self.inside, about)
        return np.concatenate([ramps.reshape(len(kept), -1), inner, outer], 1)


def fragments(
    graph: MolecularGraph,
    generator: np.random.Generator,
    n_pairs: int = 500,
    n_triples: int = 150,
) -> Fragments:
    """Fragments of one molecule.

    Args:
        graph: The molecule.
        generator: Draws the triples.
        n_pairs: Most pairs of cuts, cheapest first.
        n_triples: Triples of cuts, cheap ones more often.
    """
    under, closures = _spanning_tree(graph)
    inside = _atom_sets(graph, _cut_sets(graph, generator, n_pairs, n_triples), under, closures)
    hydrogens = _hydrogens(graph)
    atoms = np.zeros((len(graph.element), N_ELEMENTS), np.float32)
    atoms[np.arange(len(atoms)), graph.element] = 1
    atoms[:, HYDROGEN] = hydrogens
    counts = np.rint(inside.astype(np.float32) @ atoms)
    low, high = graph.pair.T
    cost = (inside[:, low] != inside[:, high]).astype(np.float32) @ graph.cost
    order = np.argsort(cost, kind="stable")
    key = counts[order].astype(np.int64) @ _KEY[:N_ELEMENTS]
    _, first, same = np.unique(key, return_index=True, return_counts=True)
    by_cost = np.argsort(first)
    rows = order[first[by_cost]]
    cost, shared = cost[rows], np.log(same[by_cost])
    return Fragments(
        counts[rows],
        cost,
        np.column_stack([*_described(graph, inside[rows], cost), shared]).astype(np.float32),
        graph,
        inside[rows],
        in_ring=closures != 0,
    )


def _cut_sets(
    graph: MolecularGraph, generator: np.random.Generator, n_pairs: int, n_triples: int
) -> NDArray[np.int64]:
    """Bonds of each cut set, (X, 3); smaller sets repeat a bond."""
    b, cost = len(graph.pair), graph.cost
    one, other = pairs(b)
    cheapest = np.argsort(cost[one] + cost[other], kind="stable")[:n_pairs]
    one, other = one[cheapest], other[cheapest]
    chance = np.exp(-cost)
    # What generator.choice does, without its checks.
    below = np.cumsum((chance / chance.sum()).astype(np.float64))
    draws = generator.random((n_triples if b else 0, 3))
    drawn = np.searchsorted(below / below[-1:], draws, "right")
    single = np.arange(b)
    sets = [np.column_stack([single] * 3), np.column_stack([one, other, other]), drawn]
    return np.concatenate(sets)


def _atom_sets(
    graph: MolecularGraph,
    cut: NDArray[np.int64],
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
    cut = np.sort(cut, 1)
    one, two, three = closures[cut].T
    fewer, more = np.diff(cut).T > 0  # sets of less than three bonds repeat one
    ways = np.stack([one, two, three, one ^ two, two ^ three, one ^ three, one ^ two ^ three]) == 0
    ways[3:] &= np.stack([fewer, more, fewer | more, fewer & more])  # (7, X)
    parting = ways.any(0)
    cut, ways = cut[parting], ways[:, parting]
    # The atoms on one side of each way to part the molecule, (7, X, W).
    side = np.stack([np.bitwise_xor.reduce(under[cut[:, of]], axis=1) for of in _SUBSETS])
    side[~ways] = 0
    ends = graph.pair[cut].reshape(len(cut), 6)  # of all bonds of a set
    of_end = side[:, np.arange(len(cut))[:, None], ends // _WORD]  # (7, X, 6)
    beyond = (of_end >> (ends % _WORD).astype(np.uint64) & np.uint64(1)) - np.uint64(1)
    # A fragment is what is on the same side as an end, whichever way the molecule is parted.
    inside = np.bitwise_and.reduce(side[:, :, None] ^ beyond[..., None], axis=0)
    everything = np.frombuffer(((1 << n) - 1).to_bytes(8 * words, "little"), np.uint64)
    packed = np.vstack([inside.reshape(-1, words) & everything, everything]).view(np.uint8)
    key = sum(_BYTE_KEY[place, packed[:, place]] for place in range(-(-n // 8)))
    _, first = np.unique(key, return_index=True)
    return np.unpackbits(packed[first], axis=1, count=n, bitorder="little").view(np.bool_)


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
    graph: MolecularGraph, inside: NDArray[np.bool_], cost: NDArray[np.float32]
) -> list[NDArray[Any]]:
    """What the cuts of each fragment look like, but for the last column: columns and (C, ...)."""
    n = len(graph.element)
    crossing, inner, outer = _ends(graph, inside, atom_groups(graph))
    classes = (graph.bond_class[:, None] == np.arange(1, BOND_AROMATIC + 1)).astype(np.float32)
    to_hetero = (graph.to_hetero & (graph.bond_class == 1)).astype(np.float32)
    sizes = [inside.sum(1) / n, np.full(len(inside), n / _SIZE_SCALE)]
    between = [crossing @ classes, crossing @ to_hetero, cost, crossing.sum(1)]
    return [inner, outer, *between, *sizes]


def _ends(
    graph: MolecularGraph, inside: NDArray[np.bool_], atoms: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Bonds cut, 0 or 1 (C, b), and features (N, F) summed over their inner and outer ends."""
    low, high = graph.pair.T
    low_in, high_in = inside[:, low], inside[:, high]
    from_low = (low_in & ~high_in).astype(np.float32)
    from_high = (high_in & ~low_in).astype(np.float32)
    inner = from_low @ atoms[low] + from_high @ atoms[high]
    outer = from_low @ atoms[high] + from_high @ atoms[low]
    return from_low + from_high, inner, outer


@dataclass(frozen=True, slots=True)
class Ion:
    """What is measured, apart from the structure.

    Attributes:
        adduct: Index into `ADDUCTS`, a key of `CARRIED`.
        instrument: Index into `spectra.types.INSTRUMENTS`.
        energy_ev: Collision energy, NaN if not known.
    """

    adduct: int
    instrument: int
    energy_ev: float


def fragment_features(found: Fragments, ion: Ion) -> NDArray[np.float32]:
    """Rows for the fragment model, float32 (C, N_INPUTS)."""
    about = np.zeros(_N_ION_FEATURES, np.float32)
    about[ion.adduct] = about[len(ADDUCTS) + ion.instrument] = 1
    if not np.isnan(ion.energy_ev):
        about[-2:] = ion.energy_ev / _ENERGY_SCALE_EV, 1
    lost = found.counts[:1] - found.counts
    about = np.broadcast_to(about, (len(lost), _N_ION_FEATURES))
    # Whether an electron of the fragment is unpaired, and its unsaturation, with the charge. Ions
    # with all electrons paired are by far the commoner ones; which numbers of hydrogens give them
    # cannot be told from the ramps.
    beyond = excess(found.counts) - CARRIED[ion.adduct]  # one less for each hydrogen
    electrons = np.stack([beyond % 2 == 0, beyond / _UNSATURATION_SCALE], 1).astype(np.float32)
    parts = [_ramps(found.counts), _ramps(lost), found.cuts, electrons, about, found.atom_types]
    return np.concatenate(parts, 1)


def same_heavy_atoms(counts: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows (K, N_ELEMENTS) hold the heavy atoms of one of the others (C, N_ELEMENTS)."""
    return np.isin(_heavy_key(counts), _heavy_key(others))


def measured_intensity(
    found: Fragments,
    ion: Ion,
    subformula: NDArray[np.integer],
    intensity: NDArray[np.floating],
) -> NDArray[np.float32]:
    """Intensities of fragments in a measured spectrum, 0 where no peak is; (C, len(SHIFTS)).

    A sub-formula goes to the fragment that explains it best; one that fits no fragment is left out.

    Args:
        found: Fragments of a structure.
        ion: As measured.
        subformula: Element counts of the peak rows, (K, N_ELEMENTS).
        intensity: Intensities of the peak rows, (K,).
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
    number of hydrogens.

    Args:
        found: Fragments of a structure.
        carried: Hydrogens that carry the ion's charge, see `CARRIED`.
        subformula: Element counts of the peak rows, (K, N_ELEMENTS).

    Returns:
        Rows of sub-formulas, of fragments, and hydrogens beyond those expected; all (E,), E at most
        K, by ascending row.
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
    key: NDArray[np.int64] = counts[:, :N_HEAVY].astype(np.int64) @ _SUBFORMULA_KEY
    return key


def _ramps(counts: NDArray[np.float32]) -> NDArray[np.float32]:
    ramps = np.minimum(counts[:, :, None] / _RAMP, 1).reshape(len(counts), -1)
    return np.concatenate([ramps, counts / _COUNT_SCALE], 1)
