"""The skeleton of a bond matrix, and which charges and hydrogen counts its atoms may have.

Rules of valence propose an atom's states; each has a tier (usual, proton moved, exotic) and a
cost, costlier the more unusual it is. Both only order the answers: the hydrogen count and the
charge of the whole molecule decide which combination is possible. Ring systems have Kekule forms.

N is the number of heavy atoms, M = N (N - 1) / 2 the number of their pairs, in row-major order of
the strict upper triangle: (0, 1), (0, 2), ..., (0, N - 1), (1, 2), ...
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_TRIPLE, INDEX, N_HEAVY

I = TypeVar("I", int, NDArray[np.int64])  # noqa: E741
# Ring systems of real molecules need a few dozen steps; the bound keeps absurd samples cheap.
_MAX_STEPS: Final = 2000
CARBON, NITROGEN, OXYGEN, PHOSPHORUS, SULFUR = (INDEX[symbol] for symbol in "CNOPS")
SELENIUM: Final = INDEX["Se"]
_CHALCOGENS: Final = (OXYGEN, SULFUR, SELENIUM)

USUAL, PROTON_MOVED, EXOTIC = 1, 2, 3
ORDINARY: Final = (USUAL, PROTON_MOVED)
TIERS: Final = (*ORDINARY, EXOTIC)

# Of each bond class, aromatic bonds counted as one.
ORDERS: Final = (0, 1, 2, 3, 1)

# Total valences by charge, in the order of `elements.HEAVY`; what RDKit accepts, so that no answer
# is refused later.
_VALENCES: Final[tuple[dict[int, tuple[int, ...]], ...]] = (
    {0: (4,), 1: (3,), -1: (3,)},  # C
    {0: (3,), 1: (4,), -1: (2,)},  # N
    {0: (2,), 1: (3,), -1: (1,)},  # O
    {0: (3, 5), 1: (4,), -1: (2, 6)},  # P
    {0: (2, 4, 6), 1: (3, 5), -1: (1,)},  # S
    {0: (1,)},  # F
    {0: (1,), 1: (2,), 2: (3,), 3: (4,)},  # Cl
    {0: (1,), 1: (2,), 2: (3,), 3: (4,)},  # Br
    {0: (1, 3, 5), 1: (2,), 2: (3,), 3: (4,)},  # I
    {0: (3,), -1: (4,)},  # B
    {0: (4,), -1: (5,), -2: (6,)},  # Si
    {0: (2, 4, 6), 1: (3, 5), -1: (1,)},  # Se
)
# Order sums of atoms that are cations by their bonds: those that no neutral atom has. A carbon of
# three bonds has a hydrogen.
_CATION_SUMS: Final = tuple(
    {n for charge, sums in table.items() if charge > 0 for n in sums} - {*table[0]}
    if element != CARBON
    else set[int]()
    for element, table in enumerate(_VALENCES)
)


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


@dataclass(frozen=True, eq=False)
class MolecularGraph:
    """Heavy atoms, sorted by element, their bonds and the number of hydrogens."""

    element: NDArray[np.int64]  # index of each atom's element, (N,)
    pair: NDArray[np.int64]  # atoms of each bond, ascending, (b, 2)
    bond_class: NDArray[np.int64]  # of each bond, 1 to 4, (b,)
    hydrogens: int  # in the whole molecule


@dataclass(frozen=True)
class Skeleton:
    """Heavy atoms and the bonds between them; hydrogens and charges not yet known."""

    element: tuple[int, ...]
    bonds: tuple[tuple[int, int, int], ...]  # first atom, second atom, bond class
    neighbours: tuple[tuple[tuple[int, int], ...], ...]  # of each atom, with the bond class
    order_sum: tuple[int, ...]  # of each atom, its aromatic bonds counted as one
    bonded: tuple[int, ...]  # of each atom, the bit mask of its neighbours
    ring: tuple[int, ...]  # of each atom, the bit mask of its neighbours by aromatic bonds

    @classmethod
    def of(cls, element: Sequence[int], bonds: Sequence[tuple[int, int, int]]) -> "Skeleton":
        """Build the neighbour lists of atoms with the given elements and bonds, these sorted."""
        n = len(element)
        neighbours: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        order_sum, bonded, ring = [0] * n, [0] * n, [0] * n
        for low, high, kind in bonds:
            for end, other in ((low, high), (high, low)):
                neighbours[end].append((other, kind))
                bonded[end] |= 1 << other
                order_sum[end] += ORDERS[kind]
                if kind == BOND_AROMATIC:
                    ring[end] |= 1 << other
        rows = tuple(map(tuple, neighbours))
        masks = tuple(bonded), tuple(ring)
        return cls(tuple(element), tuple(bonds), rows, tuple(order_sum), *masks)

    @property
    def fragments(self) -> list[int]:
        """Connected sets of atoms, as bit masks."""
        return list(groups((1 << len(self.element)) - 1, self.bonded))

    def relabelled(self, rank: Sequence[int]) -> "Skeleton":
        """The same skeleton with atom i called rank[i]."""
        element = [0] * len(self.element)
        for atom, new in enumerate(rank):
            element[new] = self.element[atom]
        renamed = ((rank[a], rank[b], bond) for a, b, bond in self.bonds)
        return Skeleton.of(element, sorted((min(a, b), max(a, b), bond) for a, b, bond in renamed))


def members(mask: int) -> list[int]:
    """Atoms of a bit mask, ascending."""
    atoms = []
    while mask:
        low = mask & -mask
        atoms.append(low.bit_length() - 1)
        mask ^= low
    return atoms


def groups(atoms: int, neighbours: Sequence[int]) -> Iterator[int]:
    """Connected groups of some atoms, all as bit masks, by their lowest atom."""
    while atoms:
        group = frontier = atoms & -atoms
        while frontier:
            low = frontier & -frontier
            new = neighbours[low.bit_length() - 1] & ~group
            group |= new
            frontier = (frontier ^ low) | new
        yield group
        atoms &= ~group


def ring_systems(ring: Sequence[int]) -> Iterator[int]:
    """Sets of atoms that aromatic bonds connect, as bit masks; `Skeleton.ring` is given."""
    return groups(sum(1 << atom for atom, mask in enumerate(ring) if mask), ring)


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
    untried: list[tuple[int, int, int, int]] = []  # atoms free, number of pairs, atom, partners
    pairs: list[tuple[int, int]] = []
    free = required | optional
    for _ in range(_MAX_STEPS):
        waiting = members(free & required)
        if not waiting:
            return pairs
        # The atom with the fewest free neighbours leaves the least choice.
        _, atom = min(((neighbours[one] & free).bit_count(), one) for one in waiting)
        partners = neighbours[atom] & free
        while not partners:
            if not untried:
                return None
            free, n_pairs, atom, partners = untried.pop()
            del pairs[n_pairs:]
        partner = partners & -partners
        if partners ^ partner:
            untried.append((free, len(pairs), atom, partners ^ partner))
        other = partner.bit_length() - 1
        pairs.append((min(atom, other), max(atom, other)))
        free &= ~(partner | 1 << atom)
    return None


class State(NamedTuple):
    """One way to complete an atom."""

    cost: int  # how unusual it is, 0 for the rule
    charge: int
    hydrogens: int
    pi: int  # 1 where one of the atom's aromatic bonds is double in the Kekule form, else 0


class _Atom(NamedTuple):
    element: int
    order_sum: int
    aromatic: bool
    site: str  # what in its surroundings makes one of its states likelier, "" if nothing


def states(skeleton: Skeleton, tier: int) -> list[tuple[State, ...]]:
    """Possible states of every atom, cheapest first; empty where the bonds are too many."""
    cations, of_each = [], []
    for atom, element in enumerate(skeleton.element):
        is_ylide = element == PHOSPHORUS and _has_double(skeleton, atom)
        cations.append(skeleton.order_sum[atom] in _CATION_SUMS[element] and not is_ylide)
    atoms = range(len(cations))
    has_cations = any(cations) or any(_is_substituted_ring_nitrogen(skeleton, a) for a in atoms)
    for atom, element in enumerate(skeleton.element):
        site = _site(skeleton, atom, cations, has_cations)
        seen = _Atom(element, skeleton.order_sum[atom], skeleton.ring[atom] > 0, site)
        of_each.append(_states(seen, tier))
    return of_each


def plain_states(element: int, order_sum: int, aromatic: bool) -> tuple[State, ...]:
    """Usual states of an atom whatever its surroundings; empty where the bonds do not fit it."""
    return _states(_Atom(element, order_sum, aromatic, ""), USUAL)


@lru_cache(maxsize=8192)
def _states(atom: _Atom, tier: int) -> tuple[State, ...]:
    possible = []
    for pi in (0, 1) if atom.aromatic else (0,):
        for charge, valences in _VALENCES[atom.element].items():
            fitting = [v - atom.order_sum - pi for v in valences if v >= atom.order_sum + pi]
            for rank, hydrogens in enumerate(fitting):
                needed, cost = _tier_and_cost(atom, charge, hydrogens, pi)
                if (EXOTIC if rank else needed) <= tier:
                    possible.append(State(15 * rank + cost, charge, hydrogens, pi))
    return tuple(sorted(possible))


def _tier_and_cost(atom: _Atom, charge: int, hydrogens: int, pi: int) -> tuple[int, int]:
    """Tier that a state belongs to, and its cost."""
    if atom.aromatic:
        # An sp3 centre in an aromatic ring (CH2, NH2+) is no aromatic atom.
        is_tetrahedral = atom.order_sum + hydrogens > 3 and hydrogens > 0
        lacks_pi = pi == 0 and charge > 0 and atom.element == NITROGEN
        if is_tetrahedral or hydrogens > 1 or (lacks_pi and atom.order_sum < 4):
            return EXOTIC + 1, 0  # never
    if charge:
        return (
            _cost_of_cation(atom, hydrogens, pi) if charge > 0 else _cost_of_anion(atom, hydrogens)
        )
    if atom.aromatic:
        if atom.element in (SULFUR, SELENIUM) and (pi or hydrogens):
            return (EXOTIC, 10) if hydrogens else (USUAL, 5)
        if atom.element == CARBON or pi or not hydrogens:
            return USUAL, 0
        return USUAL, {"five-ring": 1, "beside a bridgehead": 3}.get(atom.site, 2)
    if atom.order_sum in _CATION_SUMS[atom.element] and atom.element != PHOSPHORUS:
        return EXOTIC, 6
    is_crowded = atom.element == PHOSPHORUS and atom.order_sum == 4 and atom.site != "double bond"
    if is_crowded or _anion_is_the_rule(atom):
        return PROTON_MOVED, 3
    return USUAL, int(atom.element == OXYGEN and atom.site == "beside a ring nitrogen")


def _cost_of_cation(atom: _Atom, hydrogens: int, pi: int) -> tuple[int, int]:
    if atom.element == CARBON:
        return EXOTIC, 12
    if hydrogens and atom.element != NITROGEN:
        return EXOTIC, 14
    if hydrogens:
        is_basic = atom.aromatic or atom.site == "imine"
        return PROTON_MOVED, 4 if is_basic else 8 if atom.site == "amide" else 5
    if not (atom.aromatic and pi):
        return USUAL, 6 if atom.site == "double bond" else 0
    if atom.element != NITROGEN:
        return USUAL, 4
    return USUAL, 1 if atom.site == "oxygen" else 2


def _cost_of_anion(atom: _Atom, hydrogens: int) -> tuple[int, int]:
    if _anion_is_the_rule(atom):
        return USUAL, 0
    is_beside = atom.site in ("beside a cation", "beside a ring nitrogen")
    if atom.element in _CHALCOGENS:
        acidity = {"strong acid": 3, "acid": 4}.get(atom.site, 6)
        return (USUAL, 0) if is_beside else (PROTON_MOVED, acidity)
    if atom.element == NITROGEN and hydrogens == 0:
        return (USUAL, 2) if is_beside else (PROTON_MOVED, 7)
    if atom.element == CARBON:
        return (PROTON_MOVED, 8) if is_beside else (EXOTIC, 12)
    return (USUAL, 0) if hydrogens == 0 else (EXOTIC, 12)


def _anion_is_the_rule(atom: _Atom) -> bool:
    if atom.site == "beside a cation":
        return atom.element in _CHALCOGENS and atom.order_sum == 1
    return (atom.site, atom.element, atom.order_sum) in (
        ("double to a cation", NITROGEN, 2),
        ("triple to a cation", CARBON, 3),
    )


def _is_substituted_ring_nitrogen(skeleton: Skeleton, atom: int) -> bool:
    is_nitrogen = skeleton.element[atom] == NITROGEN
    return is_nitrogen and skeleton.ring[atom] > 0 and skeleton.order_sum[atom] == 3


def _has_double(skeleton: Skeleton, atom: int, elements: Sequence[int] = range(N_HEAVY)) -> bool:
    """Whether an atom has a double bond to one of these elements."""
    return any(
        bond == BOND_DOUBLE and skeleton.element[neighbour] in elements
        for neighbour, bond in skeleton.neighbours[atom]
    )


_BESIDE: Final = {BOND_DOUBLE: "double to a cation", BOND_TRIPLE: "triple to a cation"}


def _site(skeleton: Skeleton, atom: int, cations: list[bool], has_cations: bool) -> str:
    element, row = skeleton.element[atom], skeleton.neighbours[atom]
    if element == CARBON and (skeleton.order_sum[atom] == 4 or not has_cations):
        return ""
    for neighbour, bond in row if has_cations else ():
        if cations[neighbour]:
            return _BESIDE.get(bond, "beside a cation")
    for neighbour, bond in row if has_cations else ():
        if bond != BOND_AROMATIC and _is_substituted_ring_nitrogen(skeleton, neighbour):
            return "beside a ring nitrogen"
    if element == NITROGEN:
        return _site_of_nitrogen(skeleton, atom)
    if element == PHOSPHORUS:
        return "double bond" if _has_double(skeleton, atom) else ""
    if element not in _CHALCOGENS or skeleton.order_sum[atom] != 1:
        return ""
    neighbour, _ = row[0]
    acid = "acid" if skeleton.element[neighbour] == CARBON else "strong acid"
    return acid if _has_double(skeleton, neighbour, (OXYGEN, SULFUR)) else ""


def _site_of_nitrogen(skeleton: Skeleton, atom: int) -> str:
    row, ring = skeleton.neighbours[atom], skeleton.ring
    if not ring[atom]:
        if _has_double(skeleton, atom):
            return "imine"
        for neighbour, _ in row:
            if _has_double(skeleton, neighbour, (OXYGEN, SULFUR)):
                return "amide"
        return ""
    for neighbour, bond in row:
        element = skeleton.element[neighbour]
        if bond == BOND_AROMATIC and element == NITROGEN and ring[neighbour].bit_count() == 3:
            return "beside a bridgehead"
        if bond != BOND_AROMATIC and element == OXYGEN and skeleton.order_sum[neighbour] == 1:
            return "oxygen"
    beyond = [members(ring[neighbour] & ~(1 << atom)) for neighbour in members(ring[atom])]
    is_five_ring = len(beyond) == 2 and any(ring[a] >> b & 1 for a in beyond[0] for b in beyond[1])
    return "five-ring" if is_five_ring else ""
