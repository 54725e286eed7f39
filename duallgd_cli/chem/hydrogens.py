"""Hydrogens, charges and Kekule form of a skeleton, found from the molecule's formula.

A bond matrix over heavy atoms says nothing about hydrogens and charges, yet the whole molecule's
hydrogen count and charge are known. Atoms whose state is open, and aromatic ring systems as a
whole, are the unknowns of a small exact-sum problem; it is solved cheapest answer first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import chain, combinations, islice, product
from typing import Final, NamedTuple, TypeAlias

from duallgd_cli.chem.valence import TIERS, Skeleton, State, match, members, states

# Bounds on enumeration: far above what molecules need, low enough for any sample to be cheap.
_MAX_MATCHINGS: Final = 256
_MAX_SELECTIONS: Final = 4096
_MAX_OPTIONS: Final = 96
_MAX_SOLUTIONS: Final = 24
# Answers costlier than the cheapest by more than this are not worth a candidate.
_COST_WINDOW: Final = 2
_IMPOSSIBLE: Final = 1 << 20


class Completion(NamedTuple):
    """Everything that a skeleton lacks."""

    cost: int  # how unusual it is
    charge: list[int]  # of each atom
    hydrogens: list[int]  # on each atom
    double: frozenset[tuple[int, int]]  # aromatic bonds that the Kekule form has as double ones


@dataclass(frozen=True)
class Rejection:
    """Why a bond matrix is no molecule of the requested formula."""

    # disconnected; valence (an atom has more bonds than it can have); kekule (an aromatic ring
    # system has no Kekule form); hydrogens (no choice gives the formula's hydrogen count and
    # charge); radical (the formula has an odd number of electrons); or sanitisation (RDKit refuses
    # the result).
    reason: str


class _Option(NamedTuple):
    """One way to complete a unit: an open atom, or a whole aromatic ring system."""

    cost: int
    charge: int
    hydrogens: int
    states: tuple[State, ...]
    double: tuple[tuple[int, int], ...] = ()


_Unit: TypeAlias = tuple[Sequence[int], Sequence[_Option]]  # atoms, and ways to complete them


# Least and greatest hydrogen count, and least and greatest charge, of some atoms together.
_Spans: TypeAlias = tuple[tuple[int, int], ...]


def _spans(rows: Sequence[Sequence[State]]) -> _Spans:
    """Of atoms that have these states each."""
    hydrogens = [[state.hydrogens for state in row] for row in rows]
    charges = [[state.charge for state in row] for row in rows]
    return tuple((sum(map(min, each)), sum(map(max, each))) for each in (hydrogens, charges))


def _admit(spans: _Spans, hydrogens: int, charge: int) -> bool:
    (fewest, most), (least, greatest) = spans
    return fewest <= hydrogens <= most and least <= charge <= greatest


def complete(
    skeleton: Skeleton, hydrogens: int, charge: int, tiers: Sequence[int] = TIERS
) -> list[Completion] | Rejection:
    """Find the hydrogens, charges and Kekule forms that give a hydrogen count and net charge.

    Tiers are kinds of states to try one after the other, the usual ones first. The order of the
    skeleton's atoms only breaks ties.

    Returns:
        Answers, cheapest first, at least one; or why there is none.
    """
    if len(skeleton.fragments) != 1:
        return Rejection("disconnected")
    reason = ""
    for tier in tiers:
        atom_states = states(skeleton, tier)
        if not all(atom_states):
            continue
        if not _admit(_spans(atom_states), hydrogens, charge):
            reason = reason or "hydrogens"
            continue
        units = _units(skeleton, atom_states, hydrogens, charge)
        chosen = _cheapest(units, hydrogens, charge) if units else []
        if chosen:
            return [_completion(len(atom_states), units, options) for options in chosen]
        # What stands in the way of a usual molecule tells more than what exotic atoms would need.
        reason = reason or ("hydrogens" if units else "kekule")
    return Rejection(reason or "valence")


def _units(
    skeleton: Skeleton, atom_states: list[tuple[State, ...]], hydrogens: int, charge: int
) -> list[_Unit]:
    """Split the atoms into independent units; empty where a ring system has no Kekule form."""
    chain_atoms = [atom for atom, ring in enumerate(skeleton.ring) if not ring]
    settled = [atom for atom in chain_atoms if len(atom_states[atom]) == 1]
    units: list[_Unit] = [(settled, [_option([atom_states[atom][0] for atom in settled])])]
    units += [
        ((atom,), [_option([state]) for state in atom_states[atom]])
        for atom in chain_atoms
        if len(atom_states[atom]) > 1
    ]
    for system in skeleton.ring_systems:
        atoms = members(system)
        rows = [atom_states[atom] for atom in atoms]
        rest = _spans([row for atom, row in enumerate(atom_states) if not system >> atom & 1])
        selections = islice(_selections(rows, rest, hydrogens, charge), _MAX_MATCHINGS)
        options = _ring_options(skeleton, atoms, selections)
        if not options:
            return []
        units.append((atoms, options))
    return units


def _option(chosen: Sequence[State]) -> _Option:
    cost = charge = hydrogens = 0
    for state in chosen:
        cost += state[0]
        charge += state[1]
        hydrogens += state[2]
    return _Option(cost, charge, hydrogens, tuple(chosen))


def _ring_options(
    skeleton: Skeleton, atoms: list[int], selections: Iterable[_Option]
) -> list[_Option]:
    """Those states of a ring system's atoms that have a Kekule form, cheapest first."""
    matched = cache(lambda mask: match(mask, skeleton.ring))
    paired = (
        (option, matched(sum(s.pi << atom for atom, s in zip(atoms, option.states, strict=True))))
        for option in selections
    )
    options = (
        option._replace(double=tuple(pairs)) for option, pairs in paired if pairs is not None
    )
    return sorted(islice(options, _MAX_OPTIONS), key=lambda option: option.cost)


def _selections(
    rows: list[tuple[State, ...]], rest: _Spans, hydrogens: int, charge: int
) -> Iterator[_Option]:
    """States for all atoms of a ring system, few departures from the cheapest first.

    All other atoms can make up for what is left of the hydrogens and the charge.
    """
    usual = _option([row[0] for row in rows])
    # Of each open atom its place, another state, and what that adds to the sums of the usual one.
    changes = [
        [
            (place, state, state.hydrogens - row[0].hydrogens, state.charge - row[0].charge)
            for state in row[1:]
        ]
        for place, row in enumerate(rows)
        if len(row) > 1
    ]
    departures = chain.from_iterable(combinations(changes, n) for n in range(len(changes) + 1))
    selections = chain.from_iterable(product(*changed) for changed in departures)
    for changed in islice(selections, _MAX_SELECTIONS):
        # Most are not admitted: what each would change is added up, and no more.
        left_hydrogens, left_charge = hydrogens - usual.hydrogens, charge - usual.charge
        for _, _, more_hydrogens, more_charge in changed:
            left_hydrogens -= more_hydrogens
            left_charge -= more_charge
        if _admit(rest, left_hydrogens, left_charge):
            chosen = list(usual.states)
            for place, state, *_ in changed:
                chosen[place] = state
            yield _option(chosen)


def _cheapest(units: list[_Unit], hydrogens: int, charge: int) -> list[list[_Option]]:
    """Choices of one option per unit that meet the sums, cheapest first."""
    # Of the units from an index on, the least cost of all hydrogens and charges that they can take.
    least: list[dict[tuple[int, int], int]] = [{(0, 0): 0}]
    for _, options in reversed(units):
        costs: dict[tuple[int, int], int] = {}
        for (more, rest), cost in least[-1].items():
            for option in options:
                sums = more + option.hydrogens, rest + option.charge
                if sums[0] <= hydrogens and cost + option.cost < costs.get(sums, _IMPOSSIBLE):
                    costs[sums] = cost + option.cost
        least.append(costs)
    least.reverse()

    most = least[0].get((hydrogens, charge), _IMPOSSIBLE) + _COST_WINDOW
    # Of choices begun the cost with all that must follow, which option of each unit, its cost so
    # far, and the sums that are left.
    begun: list[tuple[int, tuple[int, ...], int, int, int]] = [(0, (), 0, hydrogens, charge)]
    answers: list[list[_Option]] = []
    while begun and most < _IMPOSSIBLE and len(answers) < _MAX_SOLUTIONS:
        _, chosen, cost, more, rest = heappop(begun)
        n = len(chosen)
        if n == len(units):
            answers.append([units[at][1][number] for at, number in enumerate(chosen)])
            continue
        for number, option in enumerate(units[n][1]):
            left, spent = (more - option.hydrogens, rest - option.charge), cost + option.cost
            total = spent + least[n + 1].get(left, _IMPOSSIBLE)
            if total <= most:
                heappush(begun, (total, (*chosen, number), spent, *left))
    return answers


def _completion(n: int, units: list[_Unit], chosen: list[_Option]) -> Completion:
    charge, hydrogens = [0] * n, [0] * n
    for (atoms, _), option in zip(units, chosen, strict=True):
        for atom, state in zip(atoms, option.states, strict=True):
            charge[atom], hydrogens[atom] = state.charge, state.hydrogens
    double = frozenset(pair for option in chosen for pair in option.double)
    return Completion(sum(option.cost for option in chosen), charge, hydrogens, double)
