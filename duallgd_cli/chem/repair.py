"""Repair of bond matrices that break a few rules.

A sampled bond matrix may ask too much of an atom, fall into fragments, leave a ring system without
a Kekule form or imply the wrong number of hydrogens. A best-first search changes single pairs,
those first that the model finds plausible and that mend a broken rule, until all rules hold. It
knows the formula and the model's output, nothing else.

N is the number of heavy atoms, M the number of their pairs, C the number of bond classes.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, INDEX, N_BOND_CLASSES, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection, complete
from duallgd_cli.chem.kekule import match
from duallgd_cli.chem.skeleton import Skeleton, bonds_of, components, pairs
from duallgd_cli.chem.valence import plain_states

# How many nats of log-probability a search pays to mend one broken rule, and how many bond
# matrices it may look at. The first search finds likely molecules, the later ones find some.
_ATTEMPTS: Final = ((2.0, 40), (6.0, 30), (40.0, 100))
_CHILDREN: Final = 10
_MAX_SUM: Final = 32
_MAX_AROMATIC: Final = 6
_LEAST_LOG_PROB: Final = -30.0
# Faults of atoms that are possible but seldom meant.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0

_ORDER: Final = np.array([0, 1, 2, 3, 1])
_IS_AROMATIC: Final = np.array([0, 0, 0, 0, 1])
# Change of order sum and of aromatic bonds from an old class (rows) to a new one (columns).
_ORDER_CHANGE: Final = _ORDER[None, :] - _ORDER[:, None]
_AROMATIC_CHANGE: Final = _IS_AROMATIC[None, :] - _IS_AROMATIC[:, None]


@dataclass(slots=True)
class _State:
    """A bond matrix on the way.

    Attributes:
        bond_class: Shape (M,).
        order_sum: Sum of bond orders of each atom, aromatic bonds as one, shape (N,).
        n_aromatic: Aromatic bonds of each atom, shape (N,).
        nats: Negative log-probability.
        edits: Changed pairs and their new classes.
    """

    bond_class: NDArray[np.int64]
    order_sum: NDArray[np.int64]
    n_aromatic: NDArray[np.int64]
    nats: float
    edits: dict[int, int]


@dataclass(slots=True)
class _Structure:
    """What of a state only a walk over its graph can tell.

    Attributes:
        fragment: Number of the fragment of each atom, shape (N,).
        n_fragments: How many fragments there are.
        unpaired: 1 for atoms of ring systems without a Kekule form, else 0, shape (N,).
        n_unpaired: How many such ring systems there are.
    """

    fragment: NDArray[np.int64]
    n_fragments: int
    unpaired: NDArray[np.int64]
    n_unpaired: int

    @property
    def faults(self) -> int:
        """Rules broken by the graph as a whole."""
        return self.n_fragments - 1 + self.n_unpaired


def repair(
    formula: Formula, bond_class: NDArray[np.integer], bond_log_prob: NDArray[np.float32]
) -> NDArray[np.int8] | None:
    """Find a likely bond matrix near a sampled one that is a molecule of the formula.

    Args:
        formula: Formula that the molecule must have; its atom order is that of the pairs.
        bond_class: Sampled bond classes, shape (M,).
        bond_log_prob: The model's log-probability of each class of each pair, shape (M, C).

    Returns:
        Bond classes, shape (M,), for which hydrogens, charges and a Kekule form exist; the sampled
        ones where they are a molecule already; None where the search finds nothing.
    """
    if _is_molecule(formula, bond_class):
        return bond_class.astype(np.int8)
    for rule_nats, effort in _ATTEMPTS:
        search = _Search(formula, bond_log_prob, rule_nats)
        for state, structure in islice(search.states(bond_class.astype(np.int64)), effort):
            possible = structure.faults == 0 and search.is_possible(state)
            if possible and _is_molecule(formula, state.bond_class):
                return state.bond_class.astype(np.int8)
    return None


def _is_molecule(formula: Formula, bond_class: NDArray[np.integer]) -> bool:
    bonds = bonds_of(formula.n_heavy, bond_class)
    skeleton = Skeleton.of(formula.atom_class.tolist(), bonds)
    return not isinstance(complete(skeleton, formula.hydrogens, formula.charge), Rejection)


class _Search:
    """Best-first search over single changes of a bond matrix."""

    def __init__(
        self, formula: Formula, bond_log_prob: NDArray[np.float32], rule_nats: float
    ) -> None:
        self._rule_nats = rule_nats
        self._element = formula.atom_class
        self._low, self._high = pairs(formula.n_heavy)
        self._every_pair = np.arange(self._low.size)
        # A class that the model excludes stays within reach, at a finite price.
        self._nats = -np.maximum(bond_log_prob.astype(np.float64), _LEAST_LOG_PROB)
        self._tables = _tables(formula.charge > 0)
        self._possible = _possible()
        self._wanted = formula.hydrogens - formula.charge

    def states(self, bond_class: NDArray[np.int64]) -> Iterator[tuple[_State, _Structure]]:
        """States, most promising first: the lowest sum of improbability and broken rules."""
        start = self._start(bond_class)
        # Energy, order of arrival, state, and the edit still to be made (or what is known of it).
        waiting: list[tuple[float, int, _State, tuple[int, int] | _Structure]] = [
            (0.0, 0, start, self._structure(start))
        ]
        seen: set[frozenset[tuple[int, int]]] = set()
        arrivals = 0
        while waiting:
            energy, _, state, pending = heapq.heappop(waiting)
            if isinstance(pending, tuple):
                state = self._edited(state, *pending)
                key = frozenset(state.edits.items())
                if key in seen:
                    continue
                seen.add(key)
                pending = self._structure(state)
                energy = self._energy(state, pending)
                if waiting and energy > waiting[0][0]:
                    arrivals += 1
                    heapq.heappush(waiting, (energy, arrivals, state, pending))
                    continue
            yield state, pending
            for estimate, edit in self._children(state, pending):
                arrivals += 1
                heapq.heappush(waiting, (estimate, arrivals, state, edit))

    def is_possible(self, state: _State) -> bool:
        """Whether every atom alone, and the hydrogen count, are possible."""
        fault, least, most = self._tables[:, self._element, state.order_sum, state.n_aromatic].sum(
            axis=1
        )
        return bool(fault < 1 and least <= self._wanted <= most)

    def _start(self, bond_class: NDArray[np.int64]) -> _State:
        n = self._element.size
        ends = np.concatenate([self._low, self._high])
        order = np.tile(_ORDER[bond_class], 2)
        aromatic = np.tile(bond_class == BOND_AROMATIC, 2)
        return _State(
            bond_class,
            np.bincount(ends, order, n).astype(np.int64),
            np.bincount(ends, aromatic, n).astype(np.int64),
            float(self._nats[self._every_pair, bond_class].sum()),
            {},
        )

    def _edited(self, state: _State, pair: int, new: int) -> _State:
        old = int(state.bond_class[pair])
        bond_class = state.bond_class.copy()
        bond_class[pair] = new
        order_sum, n_aromatic = state.order_sum.copy(), state.n_aromatic.copy()
        ends = [self._low[pair], self._high[pair]]
        order_sum[ends] += _ORDER_CHANGE[old, new]
        n_aromatic[ends] += _AROMATIC_CHANGE[old, new]
        nats = state.nats + self._nats[pair, new] - self._nats[pair, old]
        return _State(bond_class, order_sum, n_aromatic, nats, {**state.edits, pair: new})

    def _of_atoms(self, state: _State) -> NDArray[np.float64]:
        """Fault, least and most contribution of each atom, shape (3, N)."""
        sums, aromatic = self._clipped(state)
        return self._tables[:, self._element, sums, aromatic]

    def _clipped(self, state: _State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column of each atom in the tables."""
        return (
            np.minimum(state.order_sum, _MAX_SUM - 1),
            np.minimum(state.n_aromatic, _MAX_AROMATIC - 1),
        )

    def _energy(self, state: _State, structure: _Structure) -> float:
        fault, least, most = self._of_atoms(state).sum(axis=1)
        gap = max(0.0, least - self._wanted, self._wanted - most) / 2
        return float(state.nats + self._rule_nats * (fault + gap + structure.faults))

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
        old = state.bond_class
        by_pair = change[:, self._low, old] + change[:, self._high, old]  # (3, M, C)
        fault, least, most = by_pair + now.sum(axis=1)[:, None, None]
        gap = np.maximum(np.maximum(least - self._wanted, self._wanted - most), 0.0) / 2
        broken = fault + gap + structure.faults
        if structure.n_fragments > 1:
            joins = (old == 0) & (structure.fragment[self._low] != structure.fragment[self._high])
            broken[joins, 1:] -= 1
        if structure.n_unpaired:
            mends = structure.unpaired[self._low] | structure.unpaired[self._high]
            broken -= mends[:, None]
        nats = state.nats + self._nats - self._nats[self._every_pair, old][:, None]
        energy = nats + self._rule_nats * broken
        energy[self._every_pair, old] = np.inf
        flat = energy.ravel()
        best = np.argsort(flat)[: min(_CHILDREN, flat.size - old.size)]
        return [(float(flat[b]), divmod(int(b), N_BOND_CLASSES)) for b in best]

    def _structure(self, state: _State) -> _Structure:
        skeleton = Skeleton.of(
            self._element.tolist(), bonds_of(self._element.size, state.bond_class)
        )
        fragments = components(skeleton.neighbours)
        fragment = np.zeros(self._element.size, dtype=np.int64)
        for number, members in enumerate(fragments):
            fragment[members] = number
        unpaired = np.zeros(self._element.size, dtype=np.int64)
        broken = _unpaired_systems(skeleton)
        for members in broken:
            unpaired[members] = 1
        return _Structure(fragment, len(fragments), unpaired, len(broken))


def _unpaired_systems(skeleton: Skeleton) -> list[list[int]]:
    """Aromatic ring systems that have no Kekule form, whatever hydrogens they are given."""
    if not any(skeleton.n_aromatic):
        return []
    aromatic = [
        [(n, bond) for n, bond in row if bond == BOND_AROMATIC] for row in skeleton.neighbours
    ]
    broken = []
    for members in components(aromatic):
        if len(members) < 2:
            continue
        place = {atom: index for index, atom in enumerate(members)}
        neighbours = [sum(1 << place[n] for n, _ in aromatic[atom]) for atom in members]
        required = optional = 0
        for index, atom in enumerate(members):
            choices = _pi_choices(skeleton.element[atom], skeleton.order_sum[atom])
            required |= (choices == _ONE) << index
            optional |= (choices == _EITHER) << index
        if match(required, neighbours, optional) is None:
            broken.append(members)
    return broken


_ZERO, _ONE, _EITHER = range(3)


@cache
def _pi_choices(element: int, order_sum: int) -> int:
    """Whether an aromatic atom's share in the pi system is none, one, or open."""
    shares = {state.pi for state in plain_states(element, order_sum, aromatic=True)}
    if shares == {0, 1} or not shares:
        return _EITHER
    return _ONE if shares == {1} else _ZERO


@cache
def _tables(is_cation: bool) -> NDArray[np.float64]:
    """Faults, and least and greatest hydrogens minus charge, of every kind of atom.

    Returns:
        Shape (3, elements, _MAX_SUM order sums, _MAX_AROMATIC aromatic bonds).
    """
    table = np.zeros((3, N_HEAVY, _MAX_SUM, _MAX_AROMATIC))
    for element in range(N_HEAVY):
        for n_aromatic in range(_MAX_AROMATIC):
            for order_sum in range(_MAX_SUM):
                table[:, element, order_sum, n_aromatic] = _entry(
                    element, order_sum, n_aromatic, is_cation
                )
    return table


@cache
def _possible() -> NDArray[np.bool_]:
    """Whether an atom can have these bonds, shape (elements, _MAX_SUM, _MAX_AROMATIC)."""
    return np.array(
        [
            [
                [bool(plain_states(element, n, k > 0)) for k in range(_MAX_AROMATIC)]
                for n in range(_MAX_SUM)
            ]
            for element in range(N_HEAVY)
        ]
    )


def _entry(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    states = plain_states(element, order_sum, n_aromatic > 0)
    if not states:
        return _impossible(element, order_sum, n_aromatic, is_cation)
    if not is_cation:
        # A neutral molecule seldom has a charge where the atom can do without one.
        states = tuple(s for s in states if s.charge == 0) or states
    price = _CHARGE if is_cation or element == INDEX["N"] else _UNUSUAL_CHARGE
    fault = price * min(abs(state.charge) for state in states)
    if n_aromatic == 1:
        fault += _LONE_AROMATIC_BOND
    contributions = [state.hydrogens - state.charge for state in states]
    return fault, min(contributions), max(contributions)


def _impossible(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    """Entry of an atom whose bonds do not fit it: judged by the nearest order sum that does."""
    # No halogen is aromatic at all: judge it as if its bonds were single.
    kinds = [n_aromatic, 0] if n_aromatic else [0]
    for kind in kinds:
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
