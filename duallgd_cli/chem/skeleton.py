"""A bond matrix as neighbour lists, and Kekule forms of its ring systems.

N is the number of heavy atoms, M = N (N - 1) / 2 the number of their pairs, in row-major order of
the strict upper triangle: (0, 1), (0, 2), ..., (0, N - 1), (1, 2), ...
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC

I = TypeVar("I", int, NDArray[np.int64])  # noqa: E741
# Ring systems of real molecules need a few dozen steps; the bound keeps absurd samples cheap.
_MAX_STEPS: Final = 2000


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
