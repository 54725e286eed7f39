"""Repair of bond matrices that break a few rules.

A sampled bond matrix may ask too much of an atom, fall into fragments, leave a ring system without
a Kekule form or imply the wrong number of hydrogens. A best-first search changes single pairs,
those first that the model finds plausible and that mend a broken rule, until all rules hold. It
knows the formula and the model's output, nothing else.

N is the number of heavy atoms, M the number of their pairs, P the number of pairs that a search may
change, C the number of bond classes.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_NONE, INDEX, N_BOND_CLASSES, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection, complete
from duallgd_cli.chem.valence import ORDINARY, Skeleton, bonds_of, match, pairs, plain_states

_CHILDREN: Final = 10
_LEAST_LOG_PROB: Final = -30.0

# A nitrogen cation is at home in nitro groups, N-oxides, azides and the like: beside an oxygen or
# a nitrogen that lacks one bond. Elsewhere it counts as a part of a broken rule.
_UNCOMPENSATED_CATION: Final = 0.5
_CATION_SUM: Final = 4
_ANION_SUMS: Final = {INDEX["O"]: 1, INDEX["N"]: 2}

_ORDER: Final = np.array([0, 1, 2, 3, 1])
_IS_AROMATIC: Final = np.array([0, 0, 0, 0, 1])
# Change of order sum and of aromatic bonds from an old class (rows) to a new one (columns).
_ORDER_CHANGE: Final = _ORDER[None, :] - _ORDER[:, None]
_AROMATIC_CHANGE: Final = _IS_AROMATIC[None, :] - _IS_AROMATIC[:, None]


_MAX_SUM: Final = 32
_MAX_AROMATIC: Final = 6
# Atoms that are possible but seldom meant count as a part of a broken rule.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0

# An aromatic atom's share in the pi system.
_NO_PI, _ONE_PI, _OPEN_PI = range(3)


class _Attempt(NamedTuple):
    """How one search goes about it.

    Attributes:
        rule_nats: How many nats of log-probability mending a broken rule is worth.
        effort: How many bond matrices it may look at.
        pairs_per_atom: How many pairs it may change, as a multiple of N.
        tolerance: Parts of rules that an answer may break, such as aromatic bonds outside rings.
    """

    rule_nats: float
    effort: int
    pairs_per_atom: int
    tolerance: float


# The first search finds likely molecules, the next ones find some molecule.
_ATTEMPTS: Final = (
    _Attempt(2.0, 40, 6, 0.9),
    _Attempt(8.0, 30, 6, 0.9),
    _Attempt(40.0, 60, 100, 0.9),
    _Attempt(40.0, 40, 100, 100.0),
)


@dataclass(slots=True)
class _State:
    """A bond matrix on the way.

    Attributes:
        bond_class: Shape (M,).
        order_sum: Sum of bond orders of each atom, aromatic bonds as one, shape (N,).
        n_aromatic: Aromatic bonds of each atom, shape (N,).
        bonded: Bit mask of each atom's neighbours.
        ring: Bit mask of each atom's neighbours by aromatic bonds.
        nats: Negative log-probability.
        edits: Changed pairs and their new classes.
    """

    bond_class: NDArray[np.int64]
    order_sum: NDArray[np.int64]
    n_aromatic: NDArray[np.int64]
    bonded: list[int]
    ring: list[int]
    nats: float
    edits: dict[int, int]


@dataclass(slots=True)
class _Structure:
    """What of a state only a walk over its graph can tell, as bit masks of atoms.

    Attributes:
        fragments: The connected fragments.
        unpaired: Aromatic ring systems without a Kekule form.
        uncompensated_cations: Nitrogen cations without an anion beside them, beyond the net charge.
    """

    fragments: list[int]
    unpaired: list[int]
    uncompensated_cations: int

    @property
    def is_broken(self) -> bool:
        """Whether the graph is no molecule, whatever hydrogens and charges it is given."""
        return len(self.fragments) > 1 or bool(self.unpaired)

    @property
    def faults(self) -> float:
        """Rules broken by the graph as a whole."""
        broken = len(self.fragments) - 1 + len(self.unpaired)
        return broken + _UNCOMPENSATED_CATION * self.uncompensated_cations


def repair(
    formula: Formula,
    bond_class: NDArray[np.integer],
    bond_log_prob: NDArray[np.floating],
    tiers: Sequence[int] = ORDINARY,
) -> NDArray[np.int8] | None:
    """Find a likely bond matrix near a sampled one that is a molecule of the formula.

    Args:
        formula: Formula that the molecule must have; its atom order is that of the pairs.
        bond_class: Sampled bond classes, shape (M,).
        bond_log_prob: The model's log-probability of each class of each pair, any float type,
            shape (M, C).
        tiers: Atom types that an answer may have, see `chem.hydrogens.complete`.

    Returns:
        Bond classes, shape (M,), for which hydrogens, charges and a Kekule form exist; the sampled
        ones where they are a molecule already; None where the search finds nothing.
    """
    if _is_molecule(formula, bond_class, tiers):
        return bond_class.astype(np.int8)
    if not formula.has_even_electrons:
        return None
    start = bond_class.astype(np.int64)
    for attempt in _ATTEMPTS:
        search = _EditSearch(formula, start, bond_log_prob, attempt)
        for state, structure in islice(search.states(), attempt.effort):
            if search.is_possible(state, structure) and _is_molecule(
                formula, state.bond_class, tiers
            ):
                return state.bond_class.astype(np.int8)
    return None


def _is_molecule(formula: Formula, bond_class: NDArray[np.integer], tiers: Sequence[int]) -> bool:
    bonds = bonds_of(formula.n_heavy, bond_class)
    skeleton = Skeleton.of(formula.atom_class.tolist(), bonds)
    answer = complete(skeleton, formula.hydrogens, formula.charge, tiers)
    return not isinstance(answer, Rejection)


class _EditSearch:
    """Best-first search over single changes of a bond matrix."""

    def __init__(
        self,
        formula: Formula,
        start: NDArray[np.int64],
        bond_log_prob: NDArray[np.floating],
        attempt: _Attempt,
    ) -> None:
        self._element = formula.atom_class
        self._elements = self._element.tolist()
        self._nitrogens = np.flatnonzero(self._element == INDEX["N"]).tolist()
        self._charge = max(0, formula.charge)
        self._ends = pairs(formula.n_heavy)
        self._attempt = attempt
        self._start = start
        # A class that the model excludes stays within reach, at a finite cost.
        self._nats = -np.maximum(bond_log_prob.astype(np.float64), _LEAST_LOG_PROB)
        self._open = self._open_pairs(attempt.pairs_per_atom * formula.n_heavy)
        self._low, self._high = (end[self._open] for end in self._ends)
        self._tables = _atom_tables(formula.charge > 0)
        self._wanted = formula.hydrogens - formula.charge

    def states(self) -> Iterator[tuple[_State, _Structure]]:
        """States, most promising first: the lowest sum of improbability and broken rules."""
        start = self._first()
        # Energy, order of arrival, state, and the edit still to be made (or what is known of it).
        waiting: list[tuple[float, int, _State, tuple[int, int] | _Structure]] = [
            (0.0, 0, start, self._structure(start))
        ]
        seen: set[frozenset[tuple[int, int]]] = set()
        arrivals = 0
        while waiting:
            _, _, state, pending = heapq.heappop(waiting)
            if isinstance(pending, tuple):
                key = frozenset((state.edits | {pending[0]: pending[1]}).items())
                if key in seen:
                    continue
                seen.add(key)
                state = self._edited(state, *pending)
                pending = self._structure(state)
                fault, least, most = self._of_atoms(state).sum(axis=1)
                gap = max(0.0, least - self._wanted, self._wanted - most) / 2
                broken = self._attempt.rule_nats * (fault + gap + pending.faults)
                energy = float(state.nats + broken)
                if waiting and energy > waiting[0][0]:
                    arrivals += 1
                    heapq.heappush(waiting, (energy, arrivals, state, pending))
                    continue
            yield state, pending
            for estimate, edit in self._children(state, pending):
                arrivals += 1
                heapq.heappush(waiting, (estimate, arrivals, state, edit))

    def is_possible(self, state: _State, structure: _Structure) -> bool:
        """Whether the graph, every atom alone, and the hydrogen count are possible."""
        fault, least, most = self._of_atoms(state).sum(axis=1)
        if structure.is_broken or not least <= self._wanted <= most:
            return False
        if fault + structure.faults > self._attempt.tolerance:
            return False
        sums, aromatic = _clipped(state)
        return bool(_possible_atoms()[self._element, sums, aromatic].all())

    def _open_pairs(self, count: int) -> NDArray[np.int64]:
        """Pairs that may change: the bonded ones, and those with the cheapest changes."""
        every = np.arange(self._start.size)
        cost = self._nats - self._nats[every, self._start][:, None]
        cost[every, self._start] = np.inf
        cheapest = np.where(self._start == BOND_NONE, cost.min(axis=1), -np.inf)
        return np.sort(np.argsort(cheapest, kind="stable")[:count])

    def _first(self) -> _State:
        n = self._element.size
        ends = np.concatenate(self._ends)
        order = np.tile(_ORDER[self._start], 2)
        aromatic = np.tile(self._start == BOND_AROMATIC, 2)
        bonded, ring = [0] * n, [0] * n
        for low, high, kind in bonds_of(n, self._start):
            for masks in (bonded, ring) if kind == BOND_AROMATIC else (bonded,):
                masks[low] |= 1 << high
                masks[high] |= 1 << low
        return _State(
            self._start,
            np.bincount(ends, order, n).astype(np.int64),
            np.bincount(ends, aromatic, n).astype(np.int64),
            bonded,
            ring,
            float(self._nats[np.arange(self._start.size), self._start].sum()),
            {},
        )

    def _edited(self, state: _State, pair: int, new: int) -> _State:
        old = int(state.bond_class[pair])
        bond_class = state.bond_class.copy()
        bond_class[pair] = new
        low, high = int(self._ends[0][pair]), int(self._ends[1][pair])
        order_sum, n_aromatic = state.order_sum.copy(), state.n_aromatic.copy()
        bonded, ring = state.bonded, state.ring
        if BOND_NONE in (old, new):
            bonded = _toggled(bonded, low, high)
        if BOND_AROMATIC in (old, new):
            ring = _toggled(ring, low, high)
        for end in (low, high):
            order_sum[end] += _ORDER_CHANGE[old, new]
            n_aromatic[end] += _AROMATIC_CHANGE[old, new]
        nats = state.nats + float(self._nats[pair, new] - self._nats[pair, old])
        edits = state.edits | {pair: new}
        if new == self._start[pair]:
            del edits[pair]
        return _State(bond_class, order_sum, n_aromatic, bonded, ring, nats, edits)

    def _of_atoms(self, state: _State) -> NDArray[np.float64]:
        """Fault, least and most contribution of each atom, shape (3, N)."""
        sums, aromatic = _clipped(state)
        return self._tables[:, self._element, sums, aromatic]

    def _children(
        self, state: _State, structure: _Structure
    ) -> list[tuple[float, tuple[int, int]]]:
        """The most promising single changes, with a lower bound of their energies."""
        now = self._of_atoms(state)
        after = self._tables[
            :,
            self._element[:, None, None],
            np.clip(state.order_sum[:, None, None] + _ORDER_CHANGE, 0, _MAX_SUM - 1),
            np.clip(state.n_aromatic[:, None, None] + _AROMATIC_CHANGE, 0, _MAX_AROMATIC - 1),
        ]  # (3, N, C old, C new)
        change = after - now[:, :, None, None]
        old = state.bond_class[self._open]
        by_pair = change[:, self._low, old] + change[:, self._high, old]  # (3, P, C)
        fault, least, most = by_pair + now.sum(axis=1)[:, None, None]
        gap = np.maximum(np.maximum(least - self._wanted, self._wanted - most), 0.0) / 2
        broken = fault + gap + structure.faults
        self._credit(broken, old, structure)
        nats = self._nats[self._open]
        energy = nats + self._attempt.rule_nats * broken
        row = np.arange(old.size)
        energy += (state.nats - nats[row, old])[:, None]
        energy[row, old] = np.inf
        flat = energy.ravel()
        best = np.argsort(flat)[: min(_CHILDREN, flat.size - old.size)].tolist()
        return [
            (float(flat[b]), (int(self._open[b // N_BOND_CLASSES]), b % N_BOND_CLASSES))
            for b in best
        ]

    def _credit(
        self, broken: NDArray[np.float64], old: NDArray[np.int64], structure: _Structure
    ) -> None:
        """Take off the graph's faults that a change mends, or might mend, in place."""
        if len(structure.fragments) > 1:
            fragment = self._labels(structure.fragments)
            joins = (old == BOND_NONE) & (fragment[self._low] != fragment[self._high])
            broken[joins, 1:] -= 1
        if structure.unpaired:
            inside = self._labels(structure.unpaired) > 0
            broken[inside[self._low] | inside[self._high]] -= 1

    def _labels(self, groups: list[int]) -> NDArray[np.int64]:
        """Number of the group that each atom is in, from 1; 0 for none; shape (N,)."""
        label = np.zeros(self._element.size, dtype=np.int64)
        for number, group in enumerate(groups, start=1):
            label[_members(group)] = number
        return label

    def _structure(self, state: _State) -> _Structure:
        everything = (1 << len(self._elements)) - 1
        fragments = list(_groups(everything, state.bonded))
        sums = state.order_sum.tolist()
        uncompensated = self._uncompensated_cations(state, sums)
        rings = sum(1 << atom for atom, mask in enumerate(state.ring) if mask)
        required = optional = 0
        for atom in _members(rings):
            share = _pi_share(self._elements[atom], sums[atom])
            required |= (share == _ONE_PI) << atom
            optional |= (share == _OPEN_PI) << atom
        unpaired = [
            system
            for system in _groups(rings, state.ring)
            if match(required & system, state.ring, optional & system) is None
        ]
        return _Structure(fragments, unpaired, uncompensated)

    def _uncompensated_cations(self, state: _State, sums: list[int]) -> int:
        uncompensated = 0
        for atom in self._nitrogens:
            if sums[atom] == _CATION_SUM:
                uncompensated += not any(
                    sums[n] == _ANION_SUMS.get(self._elements[n])
                    for n in _members(state.bonded[atom])
                )
        return max(0, uncompensated - self._charge)


def _clipped(state: _State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of each atom in the tables."""
    return np.minimum(state.order_sum, _MAX_SUM - 1), np.minimum(
        state.n_aromatic, _MAX_AROMATIC - 1
    )


def _toggled(masks: list[int], low: int, high: int) -> list[int]:
    """The masks with the bond between two atoms made where absent, cut where present."""
    changed = masks.copy()
    changed[low] ^= 1 << high
    changed[high] ^= 1 << low
    return changed


def _members(mask: int) -> list[int]:
    """Atoms of a bit mask, ascending."""
    atoms = []
    while mask:
        low = mask & -mask
        atoms.append(low.bit_length() - 1)
        mask ^= low
    return atoms


def _groups(atoms: int, neighbours: list[int]) -> Iterator[int]:
    """Connected groups of atoms, as bit masks."""
    while atoms:
        group = frontier = atoms & -atoms
        while frontier:
            low = frontier & -frontier
            new = neighbours[low.bit_length() - 1] & ~group
            group |= new
            frontier = (frontier ^ low) | new
        yield group
        atoms &= ~group


@cache
def _atom_tables(is_cation: bool) -> NDArray[np.float64]:
    """Faults, and least and greatest hydrogens minus charge, of every kind of atom.

    The sum of hydrogens minus charge over all atoms is fixed by the formula, while a single N+ and
    its O- leave it as it is: so it can be judged before any charge is placed.

    Args:
        is_cation: Whether the molecule has a net positive charge.

    Returns:
        Shape (3, elements, _MAX_SUM order sums, _MAX_AROMATIC aromatic bonds).
    """
    table = np.zeros((3, N_HEAVY, _MAX_SUM, _MAX_AROMATIC))
    for element, order_sum, n_aromatic in np.ndindex(table.shape[1:]):
        table[:, element, order_sum, n_aromatic] = _entry(element, order_sum, n_aromatic, is_cation)
    return table


@cache
def _possible_atoms() -> NDArray[np.bool_]:
    """Whether an atom can have these bonds, shape (elements, _MAX_SUM, _MAX_AROMATIC)."""
    table = np.zeros((N_HEAVY, _MAX_SUM, _MAX_AROMATIC), dtype=np.bool_)
    for element, order_sum, n_aromatic in np.ndindex(table.shape):
        table[element, order_sum, n_aromatic] = bool(
            plain_states(element, order_sum, n_aromatic > 0)
        )
    return table


@cache
def _pi_share(element: int, order_sum: int) -> int:
    """Whether an aromatic atom's share in the pi system is none, one, or open."""
    shares = {state.pi for state in plain_states(element, order_sum, aromatic=True)}
    if len(shares) != 1:
        return _OPEN_PI
    return _ONE_PI if shares == {1} else _NO_PI


def _entry(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    states = plain_states(element, order_sum, n_aromatic > 0)
    if not states:
        return _impossible(element, order_sum, n_aromatic, is_cation)
    if not is_cation:
        # A neutral molecule seldom has a charge where the atom can do without one.
        states = tuple(s for s in states if s.charge == 0) or states
    cost = _CHARGE if is_cation else _UNUSUAL_CHARGE
    if element == INDEX["N"]:
        cost = 0.0  # judged by its neighbours, see `_EditSearch`
    fault = cost * min(abs(state.charge) for state in states)
    if n_aromatic == 1:
        fault += _LONE_AROMATIC_BOND
    contributions = [state.hydrogens - state.charge for state in states]
    return fault, min(contributions), max(contributions)


def _impossible(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    """Entry of an atom whose bonds do not fit it: judged by the nearest order sum that does."""
    # No halogen is aromatic at all: judge it as if its bonds were single.
    for kind in (n_aromatic, 0):
        nearest = [
            (abs(order_sum - n), n) for n in range(_MAX_SUM) if plain_states(element, n, kind > 0)
        ]
        if nearest:
            break
    distance, possible = min(nearest)
    fault, _, most = _entry(element, possible, kind, is_cation)
    # Bonds beyond the valence count as hydrogens that others lack: mending restores the count.
    contribution = most + possible - order_sum
    return fault + max(distance, 1), contribution, contribution
