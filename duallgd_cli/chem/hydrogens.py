"""Hydrogens, charges and Kekule form of a skeleton, found from the molecule's formula.

A bond matrix over heavy atoms says nothing about hydrogens and charges, yet the whole molecule's
hydrogen count and charge are known. Atoms whose state is open, and aromatic ring systems as a
whole, are the unknowns of a small exact-sum problem; it is solved cheapest answer first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, combinations, islice, product
from operator import add
from typing import Final, NamedTuple, TypeAlias

from duallgd_cli.chem.elements import BOND_AROMATIC
from duallgd_cli.chem.valence import TIERS, Skeleton, State, components, match, states

# Bounds on enumeration: far above what molecules need, low enough for any sample to be cheap.
_MAX_MATCHINGS: Final = 256
_MAX_SELECTIONS: Final = 4096
_MAX_OPTIONS: Final = 96
_MAX_SOLUTIONS: Final = 24
# Answers costlier than the cheapest by more than this are not worth a candidate.
_COST_WINDOW: Final = 2
_IMPOSSIBLE: Final = 1 << 20


@dataclass(frozen=True)
class Completion:
    """Everything that a skeleton lacks.

    Attributes:
        cost: How unusual the answer is.
        charge: Formal charge of each atom.
        hydrogens: Hydrogens on each atom.
        double: Aromatic bonds that are double in the Kekule form, lower atom first.
    """

    cost: int
    charge: tuple[int, ...]
    hydrogens: tuple[int, ...]
    double: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Rejection:
    """Why a bond matrix is no molecule of the requested formula.

    Attributes:
        reason: disconnected; valence (an atom has more bonds than it can have); kekule (an
            aromatic ring system has no Kekule form); hydrogens (no choice gives the formula's
            hydrogen count and charge); radical (the formula has an odd number of electrons); or
            sanitisation (RDKit refuses the result).
    """

    reason: str


class _Option(NamedTuple):
    """One way to complete a unit: an open atom, or a whole aromatic ring system."""

    cost: int
    charge: int
    hydrogens: int
    states: tuple[State, ...]
    double: tuple[tuple[int, int], ...] = ()


class _Unit(NamedTuple):
    atoms: tuple[int, ...]
    options: tuple[_Option, ...]


class _Range(NamedTuple):
    """Least and greatest hydrogen count and charge that something can take."""

    least_hydrogens: int
    most_hydrogens: int
    least_charge: int
    most_charge: int

    def admits(self, hydrogens: int, charge: int) -> bool:
        return (
            self.least_hydrogens <= hydrogens <= self.most_hydrogens
            and self.least_charge <= charge <= self.most_charge
        )


# What a part of a molecule may take so that the rest can still make up the sums.
_Allow: TypeAlias = Callable[[_Range], _Range]


def complete(
    skeleton: Skeleton, hydrogens: int, charge: int, tiers: Sequence[int] = TIERS
) -> list[Completion] | Rejection:
    """Find the hydrogens, charges and Kekule forms that give a hydrogen count and net charge.

    Args:
        skeleton: Atoms and bonds, in any order; the order only breaks ties.
        hydrogens: Hydrogens of the molecule.
        charge: Net charge of the molecule.
        tiers: Kinds of states to try one after the other, the usual ones first.

    Returns:
        Answers, cheapest first, at least one; or why there is none.
    """
    if not skeleton.is_connected:
        return Rejection("disconnected")
    reason = ""
    for tier in tiers:
        atom_states = states(skeleton, tier)
        if not all(atom_states):
            continue
        total = _range_of(atom_states)
        if not total.admits(hydrogens, charge):
            reason = reason or "hydrogens"
            continue
        units = _units(skeleton, atom_states, partial(_allowed, total, hydrogens, charge))
        chosen = _ExactSumSearch(units).cheapest(hydrogens, charge) if units else []
        if chosen:
            return [_completion(len(atom_states), units, options) for options in chosen]
        # What stands in the way of a usual molecule tells more than what exotic atoms would need.
        reason = reason or ("hydrogens" if units else "kekule")
    return Rejection(reason or "valence")


def _allowed(total: _Range, hydrogens: int, charge: int, part: _Range) -> _Range:
    """What a part of the whole molecule may take; see `_Allow`."""
    return _Range(
        hydrogens - total.most_hydrogens + part.most_hydrogens,
        hydrogens - total.least_hydrogens + part.least_hydrogens,
        charge - total.most_charge + part.most_charge,
        charge - total.least_charge + part.least_charge,
    )


def _range_of(rows: Sequence[Sequence[State | _Option]]) -> _Range:
    """Of what has these alternatives each."""
    least_h = most_h = least_q = most_q = 0
    for row in rows:
        _, low_q, low_h, *_ = row[0]
        high_q, high_h = low_q, low_h
        for one in row[1:]:
            charge, hydrogens = one[1], one[2]
            low_h, high_h = min(low_h, hydrogens), max(high_h, hydrogens)
            low_q, high_q = min(low_q, charge), max(high_q, charge)
        least_h += low_h
        most_h += high_h
        least_q += low_q
        most_q += high_q
    return _Range(least_h, most_h, least_q, most_q)


def _units(skeleton: Skeleton, atom_states: list[tuple[State, ...]], allow: _Allow) -> list[_Unit]:
    """Split the atoms into independent units; empty where a ring system has no Kekule form."""
    settled: list[int] = []
    units: list[_Unit] = []
    for atom, row in enumerate(atom_states):
        if skeleton.n_aromatic[atom]:
            continue
        if len(row) == 1:
            settled.append(atom)
        else:
            units.append(_Unit((atom,), tuple(_option((state,)) for state in row)))
    if any(skeleton.n_aromatic):
        for atoms in _ring_systems(skeleton):
            options = _ring_options(skeleton, atoms, [atom_states[a] for a in atoms], allow)
            if not options:
                return []
            units.append(_Unit(tuple(atoms), options))
    rows = tuple(atom_states[atom][0] for atom in settled)
    return [_Unit(tuple(settled), (_option(rows),)), *units]


def _option(chosen: tuple[State, ...]) -> _Option:
    cost = charge = hydrogens = 0
    for state in chosen:
        cost += state[0]
        charge += state[1]
        hydrogens += state[2]
    return _Option(cost, charge, hydrogens, chosen)


def _ring_systems(skeleton: Skeleton) -> list[list[int]]:
    aromatic = [
        [(n, bond) for n, bond in row if bond == BOND_AROMATIC] for row in skeleton.neighbours
    ]
    return [sorted(atoms) for atoms in components(aromatic) if len(atoms) > 1]


def _ring_options(
    skeleton: Skeleton, atoms: list[int], rows: list[tuple[State, ...]], allow: _Allow
) -> tuple[_Option, ...]:
    """Feasible ways to complete an aromatic ring system, cheapest first."""
    place = {atom: index for index, atom in enumerate(atoms)}
    neighbours = [
        sum(1 << place[n] for n, bond in skeleton.neighbours[atom] if bond == BOND_AROMATIC)
        for atom in atoms
    ]
    matched = cache(lambda mask: match(mask, neighbours))
    found: list[_Option] = []
    for option, mask in islice(_selections(rows, allow(_range_of(rows))), _MAX_MATCHINGS):
        pairing = matched(mask)
        if pairing is not None:
            double = tuple((atoms[low], atoms[high]) for low, high in pairing)
            found.append(option._replace(double=double))
            if len(found) == _MAX_OPTIONS:
                break
    return tuple(sorted(found, key=lambda option: option.cost))


def _selections(rows: list[tuple[State, ...]], allowed: _Range) -> Iterator[tuple[_Option, int]]:
    """States for all atoms of a ring system, few departures from the cheapest first.

    Yields:
        The states with their sums, and the bit mask of the atoms with one electron in the pi
        system.
    """
    usual = _option(tuple(row[0] for row in rows))
    # Of each open atom its place, another state, and what that adds to the sums of the usual one.
    changes = [
        [
            (place, state, State(*(new - old for new, old in zip(state, row[0], strict=True))))
            for state in row[1:]
        ]
        for place, row in enumerate(rows)
        if len(row) > 1
    ]
    departures = chain.from_iterable(combinations(changes, n) for n in range(len(changes) + 1))
    selections = chain.from_iterable(product(*changed) for changed in departures)
    for changed in islice(selections, _MAX_SELECTIONS):
        # Most are not admitted: what each would change is added up, and no more.
        hydrogens, charge = usual.hydrogens, usual.charge
        for _, _, more in changed:
            hydrogens += more.hydrogens
            charge += more.charge
        if allowed.admits(hydrogens, charge):
            chosen = list(usual.states)
            for place, state, _ in changed:
                chosen[place] = state
            yield _option(tuple(chosen)), sum(s.pi << place for place, s in enumerate(chosen))


class _ExactSumSearch:
    """Exact-sum search over units, with the least cost to complete a tail of them remembered."""

    def __init__(self, units: list[_Unit]) -> None:
        self._units = units
        # What the units from an index on can take together: prunes hopeless branches at once.
        self._tails = [_Range(0, 0, 0, 0)]
        for unit in reversed(units):
            self._tails.append(_Range(*map(add, self._tails[-1], _range_of([unit.options]))))
        self._tails.reverse()
        self._known: dict[tuple[int, int, int], int] = {}

    def cheapest(self, hydrogens: int, charge: int) -> list[tuple[_Option, ...]]:
        """Choices of one option per unit that meet the sums, cheapest first."""
        best = self._least_cost(0, hydrogens, charge)
        if best >= _IMPOSSIBLE:
            return []
        found = list(islice(self._walk(0, hydrogens, charge, best), _MAX_SOLUTIONS))
        if len(found) < _MAX_SOLUTIONS:
            wider = self._walk(0, hydrogens, charge, best + _COST_WINDOW)
            found = list(islice(wider, _MAX_SOLUTIONS))
        return sorted(found, key=lambda chosen: sum(option.cost for option in chosen))

    def _least_cost(self, index: int, hydrogens: int, charge: int) -> int:
        if not self._tails[index].admits(hydrogens, charge):
            return _IMPOSSIBLE
        if index == len(self._units):
            return 0
        key = (index, hydrogens, charge)
        if key not in self._known:
            least = _IMPOSSIBLE
            for option in self._units[index].options:
                left = hydrogens - option.hydrogens, charge - option.charge
                least = min(least, option.cost + self._least_cost(index + 1, *left))
            self._known[key] = least
        return self._known[key]

    def _walk(
        self, index: int, hydrogens: int, charge: int, budget: int
    ) -> Iterator[tuple[_Option, ...]]:
        if index == len(self._units):
            yield ()
            return
        for option in self._units[index].options:
            left = (index + 1, hydrogens - option.hydrogens, charge - option.charge)
            if option.cost + self._least_cost(*left) <= budget:
                for tail in self._walk(*left, budget - option.cost):
                    yield (option, *tail)


def _completion(n: int, units: list[_Unit], chosen: tuple[_Option, ...]) -> Completion:
    charge, hydrogens = [0] * n, [0] * n
    for unit, option in zip(units, chosen, strict=True):
        for atom, state in zip(unit.atoms, option.states, strict=True):
            charge[atom], hydrogens[atom] = state.charge, state.hydrogens
    return Completion(
        sum(option.cost for option in chosen),
        tuple(charge),
        tuple(hydrogens),
        frozenset(pair for option in chosen for pair in option.double),
    )
