"""Kekule forms: which aromatic bonds of a ring system are double.

Every atom that takes part in the pi system with one electron is paired with exactly one neighbour:
a perfect matching over those atoms.
"""

from collections.abc import Sequence
from typing import Final

# Ring systems of real molecules need a few dozen steps; the bound keeps absurd samples cheap.
_MAX_STEPS: Final = 2000


def match(
    required: int, neighbours: Sequence[int], optional: int = 0
) -> list[tuple[int, int]] | None:
    """Pair up atoms along bonds so that each is in exactly one pair.

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
