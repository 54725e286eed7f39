"""Repair of bond matrices that break a few rules.

A sampled bond matrix may ask too much of an atom, fall into fragments, leave a ring system without
a Kekule form or imply the wrong number of hydrogens. A best-first search changes single pairs,
those first that the model finds plausible and that mend a broken rule, until all rules hold. It
knows the formula and the model's output, nothing else.

N heavy atoms, M pairs of them, P pairs that a search may change, C bond classes.
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
from duallgd_cli.chem.molecule import complete
from duallgd_cli.chem.valence import (
    NITROGEN,
    ORDERS,
    ORDINARY,
    Skeleton,
    bonds_of,
    groups,
    match,
    members,
    pairs,
    plain_states,
    ring_systems,
)

_CHILDREN: Final = 10
_LEAST_LOG_PROB: Final = -30.0

# A nitrogen cation is at home in nitro groups, N-oxides, azides and the like: beside an oxygen or
# a nitrogen that lacks one bond. Elsewhere it counts as a part of a broken rule.
_UNCOMPENSATED_CATION: Final = 0.5
_CATION_SUM: Final = 4
_ANION_SUMS: Final = {INDEX["O"]: 1, NITROGEN: 2}
# Parts of rules that an answer may break, such as aromatic bonds outside rings.
_TOLERANCE: Final = 0.9
# Atoms that are possible but seldom meant count as a part of a broken rule.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0

# Tables of atoms have a row for each element, order sum and number of aromatic bonds.
_ROWS: Final = (N_HEAVY, 32, 6)
# First columns of the three quantities in `_change_table`.
_COLUMNS: Final = range(0, 3 * N_BOND_CLASSES, N_BOND_CLASSES)


@cache
def _atom_table(is_cation: bool) -> NDArray[np.float64]:
    """Of every kind of atom its fault, least and most hydrogens minus charge, and 1 if possible.

    Shape (rows, 4).

    The sum of hydrogens minus charge over all atoms is fixed by the formula, while a single N+ and
    its O- leave it as it is: so it can be judged before any charge is placed.
    """
    kinds = np.ndindex(_ROWS)
    return np.array([_entry(element, n, rings, is_cation) for element, n, rings in kinds])


@cache
def _change_table(is_cation: bool, rule_nats: float) -> NDArray[np.float64]:
    """What a change of one bond changes at an atom, in nats.

    Returns:
        Fault, half the least and half the negative of the greatest contribution, each for all new
        classes: rows as of `_atom_table`, for each of these all old classes, shape (rows x C, 3 C).
    """
    table = _atom_table(is_cation)[:, :3].reshape(*_ROWS, 3) * (1, 0.5, -0.5) * rule_nats
    order, is_aromatic = np.array(ORDERS), np.arange(N_BOND_CLASSES) == BOND_AROMATIC
    orders = np.arange(_ROWS[1])[:, None, None, None] + (order - order[:, None])
    aromatic = np.arange(_ROWS[2])[:, None, None] + (is_aromatic * 1 - is_aromatic[:, None])
    after = table[:, orders.clip(0, _ROWS[1] - 1), aromatic.clip(0, _ROWS[2] - 1)]
    change = after - table[:, :, :, None, None]  # (elements, sums, aromatic, C old, C new, 3)
    return np.ascontiguousarray(change.swapaxes(-1, -2)).reshape(-1, 3 * N_BOND_CLASSES)


@cache
def _sums(element: int, is_aromatic: bool) -> list[int]:
    """Order sums that an element can have."""
    return [n for n in range(_ROWS[1]) if plain_states(element, n, is_aromatic)]


def _entry(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float, int]:
    """Row of `_atom_table`; bonds that do not fit are judged by the nearest order sum that does."""
    states = plain_states(element, order_sum, n_aromatic > 0)
    if not states:
        # No halogen is aromatic at all: judge it as if its bonds were single.
        kind = n_aromatic if _sums(element, n_aromatic > 0) else 0
        distance, possible = min((abs(order_sum - n), n) for n in _sums(element, kind > 0))
        fault, _, most, _ = _entry(element, possible, kind, is_cation)
        # Bonds beyond the valence count as hydrogens that others lack: mending restores the count.
        contribution = most + possible - order_sum
        return fault + max(distance, 1), contribution, contribution, 0
    if not is_cation:
        # A neutral molecule seldom has a charge where the atom can do without one.
        states = tuple(s for s in states if s.charge == 0) or states
    cost = _CHARGE if is_cation else _UNUSUAL_CHARGE
    if element == NITROGEN:
        cost = 0.0  # judged by its neighbours, see `_EditSearch`
    fault = cost * min(abs(state.charge) for state in states)
    if n_aromatic == 1:
        fault += _LONE_AROMATIC_BOND
    contributions = [state.hydrogens - state.charge for state in states]
    return fault, min(contributions), max(contributions), 1


@cache
def _pi_shares(element: int, order_sum: int) -> set[int]:
    """How many electrons an aromatic atom may give to a double bond of the pi system."""
    return {state.pi for state in plain_states(element, order_sum, aromatic=True)}


class _Attempt(NamedTuple):
    """How one search goes about it."""

    rule_nats: float  # how many nats of log-probability mending a broken rule is worth
    effort: int  # how many bond matrices it may look at
    pairs_per_atom: int  # how many pairs it may change, as a multiple of N
    # Of so many of the first matrices, those that break more than is tolerated are answers too,
    # after all others.
    lenient: int


# The first search finds likely molecules, the next ones find some molecule.
_ATTEMPTS: Final = (_Attempt(2.0, 40, 6, 0), _Attempt(8.0, 30, 6, 0), _Attempt(40.0, 60, 100, 40))


class _Bonds(NamedTuple):
    """What a `Skeleton` says of the bonds of each atom, (N,); quicker to change than to make."""

    order_sum: list[int]
    bonded: list[int]
    ring: list[int]


@dataclass(slots=True)
class _State:
    """A bond matrix on the way."""

    bond_class: NDArray[np.int64]  # of the pairs that may change, (P,)
    bonds: _Bonds
    kind: NDArray[np.int64]  # row of each atom in the tables of atoms, (N,)
    nats: float  # negative log-probability
    edits: dict[int, int]  # changed pairs and their new classes
    fragments: list[int]  # connected ones, as bit masks of atoms
    unpaired: list[int]  # aromatic ring systems without a Kekule form, as bit masks of atoms
    faults: float = 0.0  # rules broken by the atoms, each on its own, and by the graph as a whole
    least: float = 0.0  # contributions of all atoms, see `_atom_table`
    most: float = 0.0


def repair(
    formula: Formula,
    bond_class: NDArray[np.integer],
    bond_log_prob: NDArray[np.floating],
    tiers: Sequence[int] = ORDINARY,
) -> NDArray[np.int8] | None:
    """Find a likely bond matrix near a sampled one that is a molecule of the formula.

    The order of the formula's atoms is that of the M pairs; the model's log-probabilities are of
    each class of each pair, (M, C). Tiers are as of `chem.molecule.complete`.

    Returns:
        Bond classes, shape (M,), for which hydrogens, charges and a Kekule form exist; the sampled
        ones where they are a molecule already; None where the search finds nothing.
    """
    if _is_molecule(formula, bond_class, tiers):
        return bond_class.astype(np.int8)
    if not formula.has_even_electrons:
        return None
    # A class that the model excludes stays within reach, at a finite cost.
    nats = -np.maximum(bond_log_prob.astype(np.float64), _LEAST_LOG_PROB)
    refused = {frozenset[tuple[int, int]]()}  # the sampled one
    for attempt in _ATTEMPTS:
        search = _EditSearch(formula, bond_class.astype(np.int64), nats, attempt)
        for edits in search.answers():
            key = frozenset(edits.items())
            if key in refused:
                continue
            mended = bond_class.astype(np.int8)
            mended[list(edits)] = list(edits.values())
            if _is_molecule(formula, mended, tiers):
                return mended
            refused.add(key)
    return None


def _is_molecule(formula: Formula, bond_class: NDArray[np.integer], tiers: Sequence[int]) -> bool:
    bonds = bonds_of(formula.n_heavy, bond_class)
    skeleton = Skeleton.of(formula.atom_class.tolist(), bonds)
    answer = complete(skeleton, formula.hydrogens, formula.charge, tiers)
    return not isinstance(answer, str)


class _EditSearch:
    """Best-first search over single changes of a bond matrix."""

    def __init__(
        self,
        formula: Formula,
        start: NDArray[np.int64],
        nats: NDArray[np.float64],
        attempt: _Attempt,
    ) -> None:
        self._elements: list[int] = formula.atom_class.tolist()
        self._nitrogens = [n for n, element in enumerate(self._elements) if element == NITROGEN]
        self._charge = max(0, formula.charge)
        self._wanted = formula.hydrogens - formula.charge
        self._attempt = attempt
        # Quarters of rules: sums of them are exact, whatever their order.
        self._of_atoms = _atom_table(formula.charge > 0)
        self._table = _change_table(formula.charge > 0, attempt.rule_nats)
        self._start = start
        # Pairs that may change: the bonded ones, and those with the cheapest changes.
        every = np.arange(start.size)
        cost = nats - nats[every, start][:, None]
        cost[every, start] = np.inf
        cheapest = np.where(start == BOND_NONE, cost.min(axis=1), -np.inf)
        most = min(attempt.pairs_per_atom * formula.n_heavy, start.size)
        self._open = np.sort(_smallest(cheapest, most))
        self._low, self._high = (end[self._open] for end in pairs(formula.n_heavy))
        self._nats = nats[self._open]
        self._row = N_BOND_CLASSES * np.arange(self._open.size)
        self._start_nats = float(nats[every, start].sum())

    def answers(self) -> Iterator[dict[int, int]]:
        """Edits that make what may be a molecule, by their promise."""
        doubtful = []
        for number, state in enumerate(islice(self._states(), self._attempt.effort)):
            if len(state.fragments) > 1 or state.unpaired or self._gap(state) > 0:
                continue
            if not self._of_atoms[state.kind, -1].all():
                continue
            if state.faults <= _TOLERANCE:
                yield state.edits
            elif number < self._attempt.lenient:
                doubtful.append(state.edits)
        yield from doubtful

    def _states(self) -> Iterator[_State]:
        """States, most promising first: the lowest sum of improbability and broken rules."""
        # Energy, order of arrival, state, and the pair still to be changed, if any, to which class.
        first = self._first()
        waiting: list[tuple[float, int, _State, tuple[int, int] | None]] = [(0.0, 0, first, None)]
        seen: set[frozenset[tuple[int, int]]] = set()
        arrivals = 0
        while waiting:
            _, _, state, edit = heapq.heappop(waiting)
            if edit is not None:
                place, new = edit
                pair = int(self._open[place])
                edits = state.edits | {pair: new}
                key = frozenset(edits.items())
                if key in seen:
                    continue
                seen.add(key)
                if new == self._start[pair]:
                    del edits[pair]
                state = self._changed(state, place, new, edits)
                broken = state.faults + self._gap(state)
                energy = state.nats + self._attempt.rule_nats * broken
                if waiting and energy > waiting[0][0]:
                    arrivals += 1
                    heapq.heappush(waiting, (energy, arrivals, state, None))
                    continue
            yield state
            for estimate, further in self._children(state):
                arrivals += 1
                heapq.heappush(waiting, (estimate, arrivals, state, further))

    def _gap(self, state: _State) -> float:
        """By how much the atoms miss the formula's hydrogens and charge, in bonds."""
        return max(0.0, state.least - self._wanted, self._wanted - state.most) / 2

    def _first(self) -> _State:
        """The bond matrix as it was sampled."""
        skeleton = Skeleton.of(self._elements, bonds_of(len(self._elements), self._start))
        bonds = _Bonds(*map(list, (skeleton.order_sum, skeleton.bonded, skeleton.ring)))
        kind = np.array([self._kind(atom, bonds) for atom in range(len(self._elements))])
        start, unpaired = self._start[self._open], self._unpaired(bonds)
        return self._judged(
            _State(start, bonds, kind, self._start_nats, {}, skeleton.fragments, unpaired)
        )

    def _changed(self, state: _State, place: int, new: int, edits: dict[int, int]) -> _State:
        """A bond matrix with one more pair changed, which makes all of these edits."""
        old, low, high = (int(row[place]) for row in (state.bond_class, self._low, self._high))
        bond_class, kind = state.bond_class.copy(), state.kind.copy()
        bond_class[place] = new
        bonds = _Bonds(*(column.copy() for column in state.bonds))
        for end, other in ((low, high), (high, low)):
            bonds.order_sum[end] += ORDERS[new] - ORDERS[old]
            if BOND_NONE in (old, new):
                bonds.bonded[end] ^= 1 << other
            if BOND_AROMATIC in (old, new):
                bonds.ring[end] ^= 1 << other
        kind[low], kind[high] = self._kind(low, bonds), self._kind(high, bonds)
        fragments, unpaired = state.fragments, state.unpaired
        if BOND_NONE in (old, new):
            fragments = list(groups((1 << len(kind)) - 1, bonds.bonded))
        if BOND_AROMATIC in (old, new) or bonds.ring[low] or bonds.ring[high]:
            unpaired = self._unpaired(bonds)
        nats = state.nats + float(self._nats[place, new] - self._nats[place, old])
        return self._judged(_State(bond_class, bonds, kind, nats, edits, fragments, unpaired))

    def _kind(self, atom: int, bonds: _Bonds) -> int:
        """Row of an atom in the tables of atoms."""
        _, most_order, most_aromatic = _ROWS
        order = min(bonds.order_sum[atom], most_order - 1)
        aromatic = min(bonds.ring[atom].bit_count(), most_aromatic - 1)
        return (self._elements[atom] * most_order + order) * most_aromatic + aromatic

    def _judged(self, state: _State) -> _State:
        """The same with the rules that it breaks."""
        faults, state.least, state.most, _ = self._of_atoms[state.kind].sum(0).tolist()
        uncompensated, order_sum = -self._charge, state.bonds.order_sum
        for atom in self._nitrogens:
            if order_sum[atom] == _CATION_SUM:
                uncompensated += not any(
                    order_sum[near] == _ANION_SUMS.get(self._elements[near])
                    for near in members(state.bonds.bonded[atom])
                )
        faults += len(state.fragments) - 1 + len(state.unpaired)
        state.faults = faults + _UNCOMPENSATED_CATION * max(0, uncompensated)
        return state

    def _unpaired(self, bonds: _Bonds) -> list[int]:
        """Aromatic ring systems without a Kekule form."""
        unpaired = []
        for system in ring_systems(bonds.ring):
            required = optional = 0
            for atom in members(system):
                shares = _pi_shares(self._elements[atom], bonds.order_sum[atom])
                required |= (shares == {1}) << atom
                optional |= (len(shares) != 1) << atom
            if match(required, bonds.ring, optional) is None:
                unpaired.append(system)
        return unpaired

    def _children(self, state: _State) -> list[tuple[float, tuple[int, int]]]:
        """The most promising single changes, with a lower bound of their energies."""
        old, rule_nats = state.bond_class, self._attempt.rule_nats
        change = self._table.take(state.kind[self._low] * N_BOND_CLASSES + old, axis=0)
        change += self._table.take(state.kind[self._high] * N_BOND_CLASSES + old, axis=0)
        faults = state.faults
        gaps = (state.least - self._wanted) / 2 + faults, (self._wanted - state.most) / 2 + faults
        change[:, N_BOND_CLASSES:] += np.repeat(gaps, N_BOND_CLASSES) * rule_nats
        fault, gap, lack = (change[:, at : at + N_BOND_CLASSES] for at in _COLUMNS)  # (P, C) each
        energy = np.maximum(gap, lack)
        np.maximum(energy, rule_nats * faults, out=energy)
        energy += fault
        # Faults of the graph that a change mends, or might mend.
        if len(state.fragments) > 1:
            fragment = self._labels(state.fragments)
            joins = (old == BOND_NONE) & (fragment[self._low] != fragment[self._high])
            energy[:, 1:] -= rule_nats * joins[:, None]
        if state.unpaired:
            inside = self._labels(state.unpaired) > 0
            energy -= rule_nats * (inside[self._low] | inside[self._high])[:, None]
        energy += self._nats
        flat, unchanged = energy.ravel(), self._row + old
        energy += (state.nats - self._nats.ravel()[unchanged])[:, None]
        flat[unchanged] = np.inf
        best = _smallest(flat, min(_CHILDREN, flat.size - old.size))
        return [
            (energy, divmod(place, N_BOND_CLASSES))
            for energy, place in zip(flat[best].tolist(), best.tolist(), strict=True)
        ]

    def _labels(self, groups: list[int]) -> NDArray[np.int64]:
        """Number of the group that each atom is in, from 1; 0 for none; shape (N,)."""
        label = np.zeros(len(self._elements), dtype=np.int64)
        for number, group in enumerate(groups, start=1):
            label[members(group)] = number
        return label


def _smallest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the smallest values, ascending; of equal ones the first."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    most = np.partition(values, count - 1)[count - 1]
    places = np.flatnonzero(values <= most)
    return places[np.argsort(values[places], kind="stable")[:count]]
