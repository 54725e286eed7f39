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
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_NONE, INDEX, N_BOND_CLASSES
from duallgd_cli.chem.faults import (
    AROMATIC_CHANGE,
    ONE_PI,
    OPEN_PI,
    ORDER_CHANGE,
    ORDERS,
    atom_table,
    change_table,
    kind_of,
    pi_share,
    possible_kinds,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection, complete
from duallgd_cli.chem.valence import ORDINARY, Skeleton, bonds_of, match, pairs

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

    What only a walk over its graph can tell is found anew only where a change can matter to it.

    Attributes:
        bond_class: Of the pairs that may change, shape (P,).
        kind: Row of each atom in the tables of atoms, shape (N,).
        order_sum: Sum of bond orders of each atom, aromatic bonds as one.
        n_aromatic: Aromatic bonds of each atom.
        bonded: Bit mask of each atom's neighbours.
        ring: Bit mask of each atom's neighbours by aromatic bonds.
        of_atoms: Sums of the faults, least and most contributions of all atoms, three numbers.
        nats: Negative log-probability.
        edits: Changed pairs and their new classes.
        fragments: The connected fragments, as bit masks of atoms.
        unpaired: Aromatic ring systems without a Kekule form, as bit masks of atoms.
        uncompensated_cations: Nitrogen cations without an anion beside them, beyond the net charge.
    """

    bond_class: NDArray[np.int64]
    kind: NDArray[np.int64]
    order_sum: list[int]
    n_aromatic: list[int]
    bonded: list[int]
    ring: list[int]
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
            (0.0, 0, self._first(), None)
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

    def _first(self) -> _State:
        n = len(self._elements)
        order_sum, n_aromatic, bonded, ring = [0] * n, [0] * n, [0] * n, [0] * n
        for low, high, bond in bonds_of(n, self._start):
            for end, other in ((low, high), (high, low)):
                bonded[end] |= 1 << other
                order_sum[end] += ORDERS[bond]
                if bond == BOND_AROMATIC:
                    ring[end] |= 1 << other
                    n_aromatic[end] += 1
        kind = [kind_of(*atom) for atom in zip(self._elements, order_sum, n_aromatic, strict=True)]
        table = atom_table(self._is_cation)
        of_atoms = [table[k] for k in kind] or [(0.0, 0.0, 0.0)]
        fault, least, most = (sum(column) for column in zip(*of_atoms, strict=True))
        return _State(
            bond_class=self._start[self._open],
            kind=np.array(kind, dtype=np.int64),
            order_sum=order_sum,
            n_aromatic=n_aromatic,
            bonded=bonded,
            ring=ring,
            of_atoms=(fault, least, most),
            nats=self._start_nats,
            edits={},
            fragments=_fragments(bonded),
            unpaired=self._unpaired(ring, order_sum),
            uncompensated_cations=self._uncompensated_cations(bonded, order_sum),
        )

    def _edited(self, state: _State, place: int, new: int) -> _State:
        """The state with one of the pairs that may change in another class."""
        old, pair = int(state.bond_class[place]), self._pairs[place]
        low, high = int(self._low[place]), int(self._high[place])
        bond_class = state.bond_class.copy()
        bond_class[place] = new
        edits = state.edits | {pair: new}
        if new == self._start[pair]:
            del edits[pair]
        bonded, ring, fragments = state.bonded, state.ring, state.fragments
        if BOND_NONE in (old, new):
            bonded = _toggled(bonded, low, high)
            fragments = _fragments(bonded)
        if BOND_AROMATIC in (old, new):
            ring = _toggled(ring, low, high)
        order_sum, n_aromatic = state.order_sum.copy(), state.n_aromatic.copy()
        kind = state.kind.copy()
        table, of_atoms = atom_table(self._is_cation), state.of_atoms
        for end in (low, high):
            order_sum[end] += ORDER_CHANGE[old][new]
            n_aromatic[end] += AROMATIC_CHANGE[old][new]
            before = table[kind[end]]
            kind[end] = kind_of(self._elements[end], order_sum[end], n_aromatic[end])
            each = zip(of_atoms, before, table[kind[end]], strict=True)
            of_atoms = tuple(total - gone + come for total, gone, come in each)
        unpaired = state.unpaired
        if any(masks[end] for masks in (state.ring, ring) for end in (low, high)):
            unpaired = self._unpaired(ring, order_sum)
        return _State(
            bond_class=bond_class,
            kind=kind,
            order_sum=order_sum,
            n_aromatic=n_aromatic,
            bonded=bonded,
            ring=ring,
            of_atoms=of_atoms,
            nats=state.nats + float(self._nats[place, new] - self._nats[place, old]),
            edits=edits,
            fragments=fragments,
            unpaired=unpaired,
            uncompensated_cations=self._uncompensated_cations(bonded, order_sum),
        )

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


def _fragments(bonded: list[int]) -> list[int]:
    """Connected fragments of all atoms, as bit masks."""
    return list(_groups((1 << len(bonded)) - 1, bonded))


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
