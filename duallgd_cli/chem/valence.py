"""The skeleton of a bond matrix, and which charges and hydrogen counts its atoms may have.

Rules of valence propose an atom's states; each has a tier (usual, proton moved, exotic) and a
cost, costlier the more unusual it is. Both only order the answers: the hydrogen count and the
charge of the whole molecule decide which combination is possible. Ring systems have Kekule forms.

N is the number of heavy atoms, M = N (N - 1) / 2 the number of their pairs, in row-major order of
the strict upper triangle: (0, 1), (0, 2), ..., (0, N - 1), (1, 2), ...
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_TRIPLE, INDEX

I = TypeVar("I", int, NDArray[np.int64])  # noqa: E741
# Ring systems of real molecules need a few dozen steps; the bound keeps absurd samples cheap.
_MAX_STEPS: Final = 2000
CARBON: Final = INDEX["C"]
NITROGEN: Final = INDEX["N"]
OXYGEN: Final = INDEX["O"]
PHOSPHORUS: Final = INDEX["P"]
SULFUR: Final = INDEX["S"]
SELENIUM: Final = INDEX["Se"]

USUAL: Final = 1
PROTON_MOVED: Final = 2
EXOTIC: Final = 3
ORDINARY: Final = (USUAL, PROTON_MOVED)
TIERS: Final = (*ORDINARY, EXOTIC)

# Total valence by element and charge; what RDKit accepts, so that no answer is refused later.
_VALENCES: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    "C": {0: (4,), 1: (3,), -1: (3,)},
    "N": {0: (3,), 1: (4,), -1: (2,)},
    "O": {0: (2,), 1: (3,), -1: (1,)},
    "P": {0: (3, 5), 1: (4,), -1: (2, 6)},
    "S": {0: (2, 4, 6), 1: (3, 5), -1: (1,)},
    "F": {0: (1,)},
    "Cl": {0: (1,), 1: (2,), 2: (3,), 3: (4,)},
    "Br": {0: (1,), 1: (2,), 2: (3,), 3: (4,)},
    "I": {0: (1, 3, 5), 1: (2,), 2: (3,), 3: (4,)},
    "B": {0: (3,), -1: (4,)},
    "Si": {0: (4,), -1: (5,), -2: (6,)},
    "Se": {0: (2, 4, 6), 1: (3, 5), -1: (1,)},
}
_BY_ELEMENT: Final = {INDEX[symbol]: table for symbol, table in _VALENCES.items()}

# Order sum from which an atom that is bonded this way carries a positive charge.
_CATION_SUMS: Final = {
    NITROGEN: (4,),
    OXYGEN: (3,),
    PHOSPHORUS: (4,),
    SULFUR: (3, 5),
    SELENIUM: (3, 5),
    INDEX["Cl"]: (2, 3, 4),
    INDEX["Br"]: (2, 3, 4),
    INDEX["I"]: (2, 4),
}


@lru_cache(maxsize=256)
def pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and second atom of every pair of n atoms, each int64 of shape (M,)."""
    low, high = np.triu_indices(n, k=1)
    low.setflags(write=False)
    high.setflags(write=False)
    return low, high


def pair_index(low: I, high: I, n: int) -> I:
    """Index of pairs low < high of n atoms among all M, of one pair or of arrays of them."""
    return low * (2 * n - low - 1) // 2 + high - low - 1


@dataclass(frozen=True)
class Skeleton:
    """Heavy atoms and the bonds between them; hydrogens and charges not yet known.

    Attributes:
        element: Element index of each atom.
        bonds: First atom, second atom and bond class of every bond.
        neighbours: For each atom, its (neighbour, bond class) pairs.
        order_sum: For each atom, the sum of its bond orders, aromatic bonds counted as one.
        n_aromatic: For each atom, how many of its bonds are aromatic.
    """

    element: tuple[int, ...]
    bonds: tuple[tuple[int, int, int], ...]
    neighbours: tuple[tuple[tuple[int, int], ...], ...]
    order_sum: tuple[int, ...]
    n_aromatic: tuple[int, ...]

    @classmethod
    def of(cls, element: Sequence[int], bonds: Sequence[tuple[int, int, int]]) -> "Skeleton":
        """Build the neighbour lists of atoms with the given elements and bonds, these sorted."""
        n = len(element)
        neighbours: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        order_sum, n_aromatic = [0] * n, [0] * n
        for a, b, kind in bonds:
            neighbours[a].append((b, kind))
            neighbours[b].append((a, kind))
            order = kind
            if kind == BOND_AROMATIC:
                n_aromatic[a] += 1
                n_aromatic[b] += 1
                order = 1
            order_sum[a] += order
            order_sum[b] += order
        return cls(
            tuple(element),
            tuple(bonds),
            tuple(tuple(row) for row in neighbours),
            tuple(order_sum),
            tuple(n_aromatic),
        )

    @property
    def is_connected(self) -> bool:
        """Whether all atoms form a single fragment."""
        return len(components(self.neighbours)[0]) == len(self.element)

    def relabelled(self, rank: Sequence[int]) -> "Skeleton":
        """The same skeleton with atom i called rank[i]."""
        element = [0] * len(self.element)
        for atom, new in enumerate(rank):
            element[new] = self.element[atom]
        renamed = ((rank[a], rank[b], bond) for a, b, bond in self.bonds)
        return Skeleton.of(element, sorted((min(a, b), max(a, b), bond) for a, b, bond in renamed))


def components(neighbours: Sequence[Sequence[tuple[int, int]]]) -> list[list[int]]:
    """Connected sets of atoms, each in order of discovery."""
    seen = [False] * len(neighbours)
    found: list[list[int]] = []
    for start in range(len(neighbours)):
        if seen[start]:
            continue
        seen[start] = True
        members = [start]
        for atom in members:
            for neighbour, _ in neighbours[atom]:
                if not seen[neighbour]:
                    seen[neighbour] = True
                    members.append(neighbour)
        found.append(members)
    return found


def bonds_of(n: int, bond_class: NDArray[np.integer]) -> list[tuple[int, int, int]]:
    """First atom, second atom and class of every bond among M pair classes, shape (M,)."""
    low, high = pairs(n)
    bonded = np.flatnonzero(bond_class)
    return list(
        zip(low[bonded].tolist(), high[bonded].tolist(), bond_class[bonded].tolist(), strict=True)
    )


def match(
    required: int, neighbours: Sequence[int], optional: int = 0
) -> list[tuple[int, int]] | None:
    """Pair up atoms along bonds so that each is in exactly one pair: a Kekule form.

    Every atom that takes part in the pi system with one electron is paired with one neighbour.

    Args:
        required: Bit mask of the atoms to pair.
        neighbours: For each atom, the bit mask of the atoms it may be paired with.
        optional: Bit mask of further atoms that may, but need not, be a partner.

    Returns:
        The pairs, lower atom first, or None where there is no such pairing.
    """
    if not optional and required.bit_count() % 2:
        return None
    steps = _MAX_STEPS
    untried: list[tuple[int, int, int, int]] = []  # atoms free, number of pairs, atom, partners
    pairs: list[tuple[int, int]] = []
    free = required | optional
    while free & required:
        atom, partners = _most_constrained(free & required, free, neighbours)
        steps -= 1
        while not partners:
            if not untried or steps <= 0:
                return None
            free, n_pairs, atom, partners = untried.pop()
            del pairs[n_pairs:]
        partner = partners & -partners
        if partners ^ partner:
            untried.append((free, len(pairs), atom, partners ^ partner))
        other = partner.bit_length() - 1
        pairs.append((min(atom, other), max(atom, other)))
        free &= ~(partner | 1 << atom)
    return pairs


def _most_constrained(waiting: int, free: int, neighbours: Sequence[int]) -> tuple[int, int]:
    """The waiting atom with the fewest free neighbours, and the mask of these."""
    best_atom, best_partners, fewest = -1, 0, len(neighbours) + 1
    while waiting:
        low = waiting & -waiting
        waiting ^= low
        atom = low.bit_length() - 1
        partners = neighbours[atom] & free
        count = partners.bit_count()
        if count < fewest:
            best_atom, best_partners, fewest = atom, partners, count
            if count <= 1:
                break
    return best_atom, best_partners


class Site(IntEnum):
    """What about an atom's surroundings makes one of its states likelier."""

    PLAIN = 0
    BESIDE_CATION = 1
    DOUBLE_TO_CATION = 2
    TRIPLE_TO_CATION = 3
    BESIDE_AROMATIC_NITROGEN = 4
    STRONG_ACID = 5
    ACID = 6
    IMINE = 7
    AMIDE = 8
    FIVE_RING = 9
    HAS_DOUBLE = 10
    BESIDE_BRIDGEHEAD = 11
    HAS_OXYGEN = 12


class State(NamedTuple):
    """One way to complete an atom.

    Attributes:
        cost: How unusual it is, 0 for the rule.
        charge: Formal charge.
        hydrogens: Hydrogens on the atom.
        pi: 1 where one of the atom's aromatic bonds is double in the Kekule form, else 0.
    """

    cost: int
    charge: int
    hydrogens: int
    pi: int


class _Atom(NamedTuple):
    element: int
    order_sum: int
    aromatic: bool
    site: Site


def states(skeleton: Skeleton, tier: int) -> list[tuple[State, ...]]:
    """Possible states of every atom, cheapest first; empty where the bonds are too many."""
    atoms = range(len(skeleton.element))
    cations = [_is_cation(skeleton, atom) for atom in atoms]
    has_cations = any(cations) or any(
        _is_substituted_aromatic_nitrogen(skeleton, atom) for atom in atoms
    )
    return [
        _states(
            _Atom(
                skeleton.element[atom],
                skeleton.order_sum[atom],
                skeleton.n_aromatic[atom] > 0,
                _site(skeleton, atom, cations, has_cations),
            ),
            tier,
        )
        for atom in atoms
    ]


def plain_states(element: int, order_sum: int, aromatic: bool) -> tuple[State, ...]:
    """Usual states of an atom whatever its surroundings; empty where the bonds do not fit it."""
    return _states(_Atom(element, order_sum, aromatic, Site.PLAIN), USUAL)


@lru_cache(maxsize=8192)
def _states(atom: _Atom, tier: int) -> tuple[State, ...]:
    found = []
    for pi in (0, 1) if atom.aromatic else (0,):
        for charge, valences in _BY_ELEMENT[atom.element].items():
            fitting = [v - atom.order_sum - pi for v in valences if v >= atom.order_sum + pi]
            for rank, hydrogens in enumerate(fitting):
                state = State(15 * rank, charge, hydrogens, pi)
                needed, cost = _tier_and_cost(atom, state)
                if (EXOTIC if rank else needed) <= tier:
                    found.append(state._replace(cost=state.cost + cost))
    return tuple(sorted(found))


_NEVER: Final = (EXOTIC + 1, 0)


def _tier_and_cost(atom: _Atom, state: State) -> tuple[int, int]:
    """Tier that a state belongs to, and its cost."""
    if atom.aromatic:
        # An sp3 centre in an aromatic ring (CH2, NH2+) is no aromatic atom.
        is_tetrahedral = atom.order_sum + state.hydrogens > 3 and state.hydrogens > 0
        lacks_pi = state.pi == 0 and state.charge > 0 and atom.element == NITROGEN
        if is_tetrahedral or state.hydrogens > 1 or (lacks_pi and atom.order_sum < 4):
            return _NEVER
    if state.charge > 0:
        return _cost_of_cation(atom, state)
    if state.charge < 0:
        return _cost_of_anion(atom, state)
    return _cost_of_neutral(atom, state)


# Where an aromatic N-H is likelier: in a five-membered ring, but not beside a bridgehead nitrogen.
_RING_HYDROGEN: Final = {Site.FIVE_RING: 1, Site.BESIDE_BRIDGEHEAD: 3}


def _cost_of_neutral(atom: _Atom, state: State) -> tuple[int, int]:
    if atom.aromatic:
        if atom.element in (SULFUR, SELENIUM) and (state.pi or state.hydrogens):
            return (EXOTIC, 10) if state.hydrogens else (USUAL, 5)
        if atom.element == CARBON or state.pi or not state.hydrogens:
            return USUAL, 0
        return USUAL, _RING_HYDROGEN.get(atom.site, 2)
    if atom.order_sum in _CATION_SUMS.get(atom.element, ()) and atom.element != PHOSPHORUS:
        return EXOTIC, 6
    if atom.element == PHOSPHORUS and atom.order_sum == 4 and atom.site != Site.HAS_DOUBLE:
        return PROTON_MOVED, 3
    if _anion_is_the_rule(atom):
        return PROTON_MOVED, 3
    is_likely_oxide = atom.element == OXYGEN and atom.site == Site.BESIDE_AROMATIC_NITROGEN
    return USUAL, int(is_likely_oxide)


def _anion_is_the_rule(atom: _Atom) -> bool:
    if atom.site == Site.BESIDE_CATION:
        return atom.element in (OXYGEN, SULFUR, SELENIUM) and atom.order_sum == 1
    if atom.site == Site.DOUBLE_TO_CATION:
        return atom.element == NITROGEN and atom.order_sum == 2
    return atom.site == Site.TRIPLE_TO_CATION and atom.element == CARBON and atom.order_sum == 3


def _cost_of_cation(atom: _Atom, state: State) -> tuple[int, int]:
    if atom.element == CARBON:
        return EXOTIC, 12
    if state.hydrogens and atom.element != NITROGEN:
        return EXOTIC, 14
    if state.hydrogens:
        is_basic = atom.aromatic or atom.site == Site.IMINE
        return PROTON_MOVED, 4 if is_basic else 8 if atom.site == Site.AMIDE else 5
    if not (atom.aromatic and state.pi):
        return USUAL, 6 if atom.site == Site.HAS_DOUBLE else 0
    if atom.element != NITROGEN:
        return USUAL, 4
    return USUAL, 1 if atom.site == Site.HAS_OXYGEN else 2


_ACIDITY: Final = {
    Site.BESIDE_CATION: (USUAL, 0),
    Site.BESIDE_AROMATIC_NITROGEN: (USUAL, 0),
    Site.STRONG_ACID: (PROTON_MOVED, 3),
    Site.ACID: (PROTON_MOVED, 4),
}


def _cost_of_anion(atom: _Atom, state: State) -> tuple[int, int]:
    if _anion_is_the_rule(atom):
        return USUAL, 0
    if atom.element in (OXYGEN, SULFUR, SELENIUM):
        return _ACIDITY.get(atom.site, (PROTON_MOVED, 6))
    if atom.element == NITROGEN and state.hydrogens == 0:
        beside = atom.site in (Site.BESIDE_CATION, Site.BESIDE_AROMATIC_NITROGEN)
        return (USUAL, 2) if beside else (PROTON_MOVED, 7)
    if atom.element == CARBON:
        beside = atom.site in (Site.BESIDE_CATION, Site.BESIDE_AROMATIC_NITROGEN)
        return (PROTON_MOVED, 8) if beside else (EXOTIC, 12)
    return (USUAL, 0) if state.hydrogens == 0 else (EXOTIC, 12)


def _is_cation(skeleton: Skeleton, atom: int) -> bool:
    element = skeleton.element[atom]
    if skeleton.order_sum[atom] not in _CATION_SUMS.get(element, ()):
        return False
    has_double = any(bond == BOND_DOUBLE for _, bond in skeleton.neighbours[atom])
    return not (element == PHOSPHORUS and has_double)


def _site(skeleton: Skeleton, atom: int, cations: list[bool], has_cations: bool) -> Site:
    element = skeleton.element[atom]
    if element == CARBON and (skeleton.order_sum[atom] == 4 or not has_cations):
        return Site.PLAIN
    if has_cations:
        beside = _site_beside_cation(skeleton, atom, cations)
        if beside != Site.PLAIN:
            return beside
    if element == NITROGEN:
        return _site_of_nitrogen(skeleton, atom)
    if element in (OXYGEN, SULFUR, SELENIUM) and skeleton.order_sum[atom] == 1:
        neighbour = skeleton.neighbours[atom][0][0]
        acid = Site.ACID if skeleton.element[neighbour] == CARBON else Site.STRONG_ACID
        return acid if _has_oxo(skeleton, neighbour) else Site.PLAIN
    if element != PHOSPHORUS:
        return Site.PLAIN
    has_double = any(bond == BOND_DOUBLE for _, bond in skeleton.neighbours[atom])
    return Site.HAS_DOUBLE if has_double else Site.PLAIN


_BESIDE: Final = {BOND_DOUBLE: Site.DOUBLE_TO_CATION, BOND_TRIPLE: Site.TRIPLE_TO_CATION}


def _site_beside_cation(skeleton: Skeleton, atom: int, cations: list[bool]) -> Site:
    for neighbour, bond in skeleton.neighbours[atom]:
        if cations[neighbour]:
            return _BESIDE.get(bond, Site.BESIDE_CATION)
    for neighbour, bond in skeleton.neighbours[atom]:
        if bond != BOND_AROMATIC and _is_substituted_aromatic_nitrogen(skeleton, neighbour):
            return Site.BESIDE_AROMATIC_NITROGEN
    return Site.PLAIN


def _is_substituted_aromatic_nitrogen(skeleton: Skeleton, atom: int) -> bool:
    return (
        skeleton.element[atom] == NITROGEN
        and skeleton.n_aromatic[atom] > 0
        and skeleton.order_sum[atom] == 3
    )


def _site_of_nitrogen(skeleton: Skeleton, atom: int) -> Site:
    if not skeleton.n_aromatic[atom]:
        if any(bond == BOND_DOUBLE for _, bond in skeleton.neighbours[atom]):
            return Site.IMINE
        beside_oxo = any(_has_oxo(skeleton, other) for other, _ in skeleton.neighbours[atom])
        return Site.AMIDE if beside_oxo else Site.PLAIN
    for neighbour, bond in skeleton.neighbours[atom]:
        if bond == BOND_AROMATIC:
            if skeleton.element[neighbour] == NITROGEN and skeleton.n_aromatic[neighbour] == 3:
                return Site.BESIDE_BRIDGEHEAD
        elif skeleton.element[neighbour] == OXYGEN and skeleton.order_sum[neighbour] == 1:
            return Site.HAS_OXYGEN
    return Site.FIVE_RING if _in_aromatic_five_ring(skeleton, atom) else Site.PLAIN


def _has_oxo(skeleton: Skeleton, atom: int) -> bool:
    return any(
        bond == BOND_DOUBLE and skeleton.element[neighbour] in (OXYGEN, SULFUR)
        for neighbour, bond in skeleton.neighbours[atom]
    )


def _in_aromatic_five_ring(skeleton: Skeleton, atom: int) -> bool:
    ring = [n for n, bond in skeleton.neighbours[atom] if bond == BOND_AROMATIC]
    if len(ring) != 2:
        return False
    beyond = [
        {n for n, bond in skeleton.neighbours[start] if bond == BOND_AROMATIC and n != atom}
        for start in ring
    ]
    return any(
        other in beyond[1]
        for one in beyond[0]
        for other, bond in skeleton.neighbours[one]
        if bond == BOND_AROMATIC
    )
