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

# Parts of rules that an answer may break, such as aromatic bonds outside rings.
_TOLERANCE: Final = 0.9

# First columns of the three quantities in `_change_table`.
_COLUMNS: Final = range(0, 3 * N_BOND_CLASSES, N_BOND_CLASSES)

# Change of order sum and of aromatic bonds from an old class (rows) to a new one (columns).
ORDERS: Final = (0, 1, 2, 3, 1)
ORDER_CHANGE: Final = tuple(tuple(new - old for new in ORDERS) for old in ORDERS)
_IS_AROMATIC: Final = (0, 0, 0, 0, 1)
AROMATIC_CHANGE: Final = tuple(tuple(new - old for new in _IS_AROMATIC) for old in _IS_AROMATIC)

_MAX_SUM: Final = 32
_MAX_AROMATIC: Final = 6
# Atoms that are possible but seldom meant count as a part of a broken rule.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0
# An aromatic atom's share in the pi system.
NO_PI, ONE_PI, OPEN_PI = range(3)


def kind_of(element: int, order_sum: int, n_aromatic: int) -> int:
    """Row of an atom in the tables of atoms."""
    row = element * _MAX_SUM + min(order_sum, _MAX_SUM - 1)
    return row * _MAX_AROMATIC + min(n_aromatic, _MAX_AROMATIC - 1)


@cache
def atom_table(is_cation: bool) -> list[tuple[float, float, float]]:
    """Fault, and least and greatest hydrogens minus charge, of every kind of atom.

    The sum of hydrogens minus charge over all atoms is fixed by the formula, while a single N+ and
    its O- leave it as it is: so it can be judged before any charge is placed.

    Returns:
        Rows as `kind_of` numbers them: elements, then order sums, then aromatic bonds.
    """
    kinds = np.ndindex(N_HEAVY, _MAX_SUM, _MAX_AROMATIC)
    return [_entry(element, n, rings, is_cation) for element, n, rings in kinds]


@cache
def change_table(is_cation: bool, rule_nats: float) -> NDArray[np.float64]:
    """What a change of one bond changes at an atom, in nats.

    Returns:
        Fault, half the least and half the negative of the greatest contribution, each for all new
        classes: rows as of `atom_table`, for each of these all old classes, shape (rows x C, 3 C).
    """
    shape = (N_HEAVY, _MAX_SUM, _MAX_AROMATIC, 3)
    table = np.array(atom_table(is_cation)).reshape(shape) * (1, 0.5, -0.5) * rule_nats
    orders = np.arange(_MAX_SUM)[:, None, None, None] + np.array(ORDER_CHANGE)
    aromatic = np.arange(_MAX_AROMATIC)[:, None, None] + np.array(AROMATIC_CHANGE)
    after = table[:, np.clip(orders, 0, _MAX_SUM - 1), np.clip(aromatic, 0, _MAX_AROMATIC - 1)]
    change = after - table[:, :, :, None, None]  # (elements, sums, aromatic, C old, C new, 3)
    return np.ascontiguousarray(change.swapaxes(-1, -2)).reshape(-1, 3 * N_BOND_CLASSES)


@cache
def possible_kinds() -> NDArray[np.bool_]:
    """Whether an atom can have these bonds, rows as of `atom_table`."""
    kinds = np.ndindex(N_HEAVY, _MAX_SUM, _MAX_AROMATIC)
    return np.array([bool(plain_states(element, n, rings > 0)) for element, n, rings in kinds])


@cache
def pi_share(element: int, order_sum: int) -> int:
    """Whether an aromatic atom's share in the pi system is none, one, or open."""
    shares = {state.pi for state in plain_states(element, order_sum, aromatic=True)}
    if len(shares) != 1:
        return OPEN_PI
    return ONE_PI if shares == {1} else NO_PI


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


class _Attempt(NamedTuple):
    """How one search goes about it.

    Attributes:
        rule_nats: How many nats of log-probability mending a broken rule is worth.
        effort: How many bond matrices it may look at.
        pairs_per_atom: How many pairs it may change, as a multiple of N.
        lenient: Of so many of the first matrices, those that break more than is tolerated are
            answers too, after all others.
    """

    rule_nats: float
    effort: int
    pairs_per_atom: int
    lenient: int


# The first search finds likely molecules, the next ones find some molecule.
_ATTEMPTS: Final = (
    _Attempt(2.0, 40, 6, 0),
    _Attempt(8.0, 30, 6, 0),
    _Attempt(40.0, 60, 100, 40),
)


@dataclass(slots=True)
class _State:
    """A bond matrix on the way.

    Attributes:
        bond_class: Of the pairs that may change, shape (P,).
        kind: Row of each atom in the tables of atoms, shape (N,).
        of_atoms: Sums of the faults, least and most contributions of all atoms, three numbers.
        nats: Negative log-probability.
        edits: Changed pairs and their new classes.
        fragments: The connected fragments, as bit masks of atoms.
        unpaired: Aromatic ring systems without a Kekule form, as bit masks of atoms.
        uncompensated_cations: Nitrogen cations without an anion beside them, beyond the net charge.
    """

    bond_class: NDArray[np.int64]
    kind: NDArray[np.int64]
    of_atoms: tuple[float, ...]
    nats: float
    edits: dict[int, int]
    fragments: list[int]
    unpaired: list[int]
    uncompensated_cations: int

    @property
    def is_broken(self) -> bool:
        """Whether the graph is no molecule, whatever hydrogens and charges it is given."""
        return len(self.fragments) > 1 or bool(self.unpaired)

    @property
    def faults(self) -> float:
        """Rules broken by the atoms, each on its own, and by the graph as a whole."""
        broken = len(self.fragments) - 1 + len(self.unpaired)
        return self.of_atoms[0] + broken + _UNCOMPENSATED_CATION * self.uncompensated_cations


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
    # A class that the model excludes stays within reach, at a finite cost.
    nats = -np.maximum(bond_log_prob.astype(np.float64), _LEAST_LOG_PROB)
    refused = {frozenset[tuple[int, int]]()}  # the sampled one
    for attempt in _ATTEMPTS:
        search = _EditSearch(formula, bond_class.astype(np.int64), nats, attempt)
        for edits in search.answers():
            key = frozenset(edits.items())
            if key in refused:
                continue
            found = bond_class.astype(np.int8)
            found[list(edits)] = list(edits.values())
            if _is_molecule(formula, found, tiers):
                return found
            refused.add(key)
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
        nats: NDArray[np.float64],
        attempt: _Attempt,
    ) -> None:
        self._elements = formula.atom_class.tolist()
        self._nitrogens = np.flatnonzero(formula.atom_class == INDEX["N"]).tolist()
        self._is_cation = formula.charge > 0
        self._charge = max(0, formula.charge)
        self._wanted = formula.hydrogens - formula.charge
        self._attempt = attempt
        # Quarters of rules: sums of them are exact, whatever their order.
        self._table = change_table(self._is_cation, attempt.rule_nats)
        self._start = start
        self._open = _open_pairs(start, nats, attempt.pairs_per_atom * formula.n_heavy)
        self._pairs: list[int] = self._open.tolist()
        self._low, self._high = (end[self._open] for end in pairs(formula.n_heavy))
        self._nats = nats[self._open]
        self._row = N_BOND_CLASSES * np.arange(self._open.size)
        self._start_nats = float(nats[np.arange(start.size), start].sum())

    def answers(self) -> Iterator[dict[int, int]]:
        """Edits that make what may be a molecule, by their promise."""
        doubtful = []
        for number, state in enumerate(islice(self._states(), self._attempt.effort)):
            if state.is_broken or self._gap(state) > 0:
                continue
            if not possible_kinds()[state.kind].all():
                continue
            if state.faults <= _TOLERANCE:
                yield state.edits
            elif number < self._attempt.lenient:
                doubtful.append(state.edits)
        yield from doubtful

    def _states(self) -> Iterator[_State]:
        """States, most promising first: the lowest sum of improbability and broken rules."""
        # Energy, order of arrival, state, and the edit still to be made, if there is one.
        waiting: list[tuple[float, int, _State, tuple[int, int] | None]] = [
            (0.0, 0, self._state({}, self._start_nats), None)
        ]
        seen: set[frozenset[tuple[int, int]]] = set()
        arrivals = 0
        while waiting:
            _, _, state, edit = heapq.heappop(waiting)
            if edit is not None:
                key = frozenset((state.edits | {self._pairs[edit[0]]: edit[1]}).items())
                if key in seen:
                    continue
                seen.add(key)
                state = self._edited(state, *edit)
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
        _, least, most = state.of_atoms
        return max(0.0, least - self._wanted, self._wanted - most) / 2

    def _state(self, edits: dict[int, int], nats: float) -> _State:
        """The bond matrix with these pairs changed, and all that is to be known of it."""
        bond_class, n = self._start.copy(), len(self._elements)
        bond_class[list(edits)] = list(edits.values())
        # Of each atom: its bonds' orders, aromatic bonds, and bit masks of neighbours by either.
        order_sum, n_aromatic, bonded, ring = [0] * n, [0] * n, [0] * n, [0] * n
        for low, high, bond in bonds_of(n, bond_class):
            for end, other in ((low, high), (high, low)):
                bonded[end] |= 1 << other
                order_sum[end] += ORDERS[bond]
                if bond == BOND_AROMATIC:
                    ring[end] |= 1 << other
                    n_aromatic[end] += 1
        kind = [kind_of(*atom) for atom in zip(self._elements, order_sum, n_aromatic, strict=True)]
        table = atom_table(self._is_cation)
        of_atoms = [table[k] for k in kind] or [(0.0, 0.0, 0.0)]
        return _State(
            bond_class=bond_class[self._open],
            kind=np.array(kind, dtype=np.int64),
            of_atoms=tuple(sum(column) for column in zip(*of_atoms, strict=True)),
            nats=nats,
            edits=edits,
            fragments=list(_groups((1 << n) - 1, bonded)),
            unpaired=self._unpaired(ring, order_sum),
            uncompensated_cations=self._uncompensated_cations(bonded, order_sum),
        )

    def _edited(self, state: _State, place: int, new: int) -> _State:
        """The state with one of the pairs that may change in another class."""
        old, pair = int(state.bond_class[place]), self._pairs[place]
        edits = state.edits | {pair: new}
        if new == self._start[pair]:
            del edits[pair]
        nats = state.nats + float(self._nats[place, new] - self._nats[place, old])
        return self._state(edits, nats)

    def _children(self, state: _State) -> list[tuple[float, tuple[int, int]]]:
        """The most promising single changes, with a lower bound of their energies."""
        old = state.bond_class
        change = self._table.take(state.kind[self._low] * N_BOND_CLASSES + old, axis=0)
        change += self._table.take(state.kind[self._high] * N_BOND_CLASSES + old, axis=0)
        faults, (_, least, most) = state.faults, state.of_atoms
        gaps = (least - self._wanted) / 2 + faults, (self._wanted - most) / 2 + faults
        change[:, N_BOND_CLASSES:] += np.repeat(gaps, N_BOND_CLASSES) * self._attempt.rule_nats
        fault, gap, lack = (change[:, at : at + N_BOND_CLASSES] for at in _COLUMNS)  # (P, C) each
        energy = np.maximum(gap, lack)
        np.maximum(energy, self._attempt.rule_nats * faults, out=energy)
        energy += fault
        self._credit(energy, state)
        energy += self._nats
        flat, unchanged = energy.ravel(), self._row + old
        energy += (state.nats - self._nats.ravel()[unchanged])[:, None]
        flat[unchanged] = np.inf
        best = _smallest(flat, min(_CHILDREN, flat.size - old.size))
        return [
            (energy, divmod(place, N_BOND_CLASSES))
            for energy, place in zip(flat[best].tolist(), best.tolist(), strict=True)
        ]

    def _credit(self, energy: NDArray[np.float64], state: _State) -> None:
        """Take off the graph's faults that a change mends, or might mend, in place."""
        if len(state.fragments) > 1:
            fragment = self._labels(state.fragments)
            joins = (state.bond_class == BOND_NONE) & (fragment[self._low] != fragment[self._high])
            energy[:, 1:] -= self._attempt.rule_nats * joins[:, None]
        if state.unpaired:
            inside = self._labels(state.unpaired) > 0
            mended = inside[self._low] | inside[self._high]
            energy -= self._attempt.rule_nats * mended[:, None]

    def _labels(self, groups: list[int]) -> NDArray[np.int64]:
        """Number of the group that each atom is in, from 1; 0 for none; shape (N,)."""
        label = np.zeros(len(self._elements), dtype=np.int64)
        for number, group in enumerate(groups, start=1):
            label[_members(group)] = number
        return label

    def _unpaired(self, ring: list[int], order_sum: list[int]) -> list[int]:
        """Aromatic ring systems without a Kekule form."""
        unpaired = []
        for system in _groups(sum(1 << atom for atom, mask in enumerate(ring) if mask), ring):
            required = optional = 0
            for atom in _members(system):
                share = pi_share(self._elements[atom], order_sum[atom])
                required |= (share == ONE_PI) << atom
                optional |= (share == OPEN_PI) << atom
            if match(required, ring, optional) is None:
                unpaired.append(system)
        return unpaired

    def _uncompensated_cations(self, bonded: list[int], order_sum: list[int]) -> int:
        uncompensated = 0
        for atom in self._nitrogens:
            if order_sum[atom] == _CATION_SUM:
                uncompensated += not any(
                    order_sum[n] == _ANION_SUMS.get(self._elements[n])
                    for n in _members(bonded[atom])
                )
        return max(0, uncompensated - self._charge)


def _open_pairs(
    start: NDArray[np.int64], nats: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Pairs that may change: the bonded ones, and those with the cheapest changes."""
    every = np.arange(start.size)
    cost = nats - nats[every, start][:, None]
    cost[every, start] = np.inf
    cheapest = np.where(start == BOND_NONE, cost.min(axis=1), -np.inf)
    return np.sort(_smallest(cheapest, min(count, start.size)))


def _smallest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the smallest values, ascending; of equal ones the first."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    most = np.partition(values, count - 1)[count - 1]
    places = np.flatnonzero(values <= most)
    return places[np.argsort(values[places], kind="stable")[:count]]


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
