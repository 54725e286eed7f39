"""Minimum MCES distance between the truth and ranked candidates, as myopic-mces defines it.

A pair scores its lower bound where that exceeds the threshold, else its exact distance, else the
threshold. Only the minimum over candidates is reported, so a candidate is solved only where it can
still lower that minimum, and the solver need only look below it: distances are multiples of 0.5.
"""

import functools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluation.bounds import MoleculeGraph, lower_bound, molecule_graph

if TYPE_CHECKING:
    import pulp
    from networkx import Graph

_log = logging.getLogger(__name__)

THRESHOLD: Final = 15.0
CAP: Final = 100.0
_STEP: Final = 0.5
LIMIT_S: Final = 30.0
# HiGHS comes first: it runs in this process and was the fastest tried (0.20 s a pair of isomers of
# 30 heavy atoms against 0.23 s with CBC).
_SOLVERS: Final = ("HiGHS", "COIN_CMD", "PULP_CBC_CMD")
_CHOSEN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of the exact distance of one pair.

    Attributes:
        lower: The distance is at least this.
        upper: The distance is at most this; infinity if no mapping was found.
        limit_s: Longest time limit of a search that ran out, 0 if none did.
    """

    lower: float
    upper: float
    limit_s: float = 0.0

    def __and__(self, other: "Interval") -> "Interval":
        """What two searches together know."""
        return Interval(
            max(self.lower, other.lower),
            min(self.upper, other.upper),
            max(self.limit_s, other.limit_s),
        )

    def settles(self, cutoff: float) -> bool:
        """Whether it is proven that the distance is above the cutoff, or which one it is."""
        return self.lower == self.upper or self.lower > cutoff


@dataclass(frozen=True, slots=True)
class Convention:
    """How a distance becomes a metric.

    Attributes:
        threshold: Distances above it are not computed.
        ceiling: Value without any candidate, and the largest value.
    """

    threshold: float = THRESHOLD
    ceiling: float = CAP


@dataclass(slots=True)
class Search:
    """Computes minimum distances; remembers every pair that it solved.

    Attributes:
        limit_s: Time limit of one pair, s.
        known: Pairs solved before, by their two canonical SMILES in alphabetical order.
        solved: Pairs solved by this object.
        needed: Pairs whose exact distance was asked for.
        timeouts: Those whose time limit ran out, each counted as the worst that it could score.
    """

    limit_s: float = LIMIT_S
    known: dict[tuple[str, str], Interval] = field(default_factory=dict)
    solved: dict[tuple[str, str], Interval] = field(default_factory=dict)
    needed: set[tuple[str, str]] = field(default_factory=set)
    timeouts: set[tuple[str, str]] = field(default_factory=set)

    def minima(
        self,
        truth: str,
        candidates: Sequence[str | None],
        top_k: Sequence[int],
        convention: Convention,
    ) -> list[float]:
        """Smallest distance among the first k candidates, for each k.

        Args:
            truth: Canonical SMILES.
            candidates: Canonical SMILES, best first; None where a candidate is no molecule.
            top_k: Ascending.
            convention: Threshold and ceiling.
        """
        best, start, values = convention.ceiling, 0, []
        for k in top_k:
            valid = dict.fromkeys(smiles for smiles in candidates[start:k] if smiles is not None)
            bounds = sorted((_bound(truth, smiles), smiles) for smiles in valid)
            for bound, smiles in bounds:
                best = self._lowered(best, bound, (truth, smiles), convention.threshold)
            values.append(best)
            start = max(start, k)
        return values

    def _lowered(self, best: float, bound: float, pair: tuple[str, str], threshold: float) -> float:
        if bound >= best:
            return best
        if bound > threshold or pair[0] == pair[1]:
            return bound
        distance = self._distance(pair, bound, cutoff=min(threshold, best - _STEP))
        return min(best, threshold if distance is None else distance)

    def _distance(self, pair: tuple[str, str], bound: float, cutoff: float) -> float | None:
        """Distance of a pair, or None if it is above the cutoff or was not found in time."""
        first, second = sorted(pair)
        key = (first, second)
        self.needed.add(key)
        found = self.solved.get(key) or self.known.get(key) or Interval(bound, float("inf"))
        if not found.settles(cutoff) and found.limit_s < self.limit_s:
            found &= _solve(key, bound, cutoff, self.limit_s)
            self.solved[key] = found
        if not found.settles(cutoff):
            self.timeouts.add(key)
        return found.upper if found.upper <= cutoff else None


def _solve(key: tuple[str, str], bound: float, cutoff: float, limit_s: float) -> Interval:
    import pulp
    from myopic_mces.graph import construct_graph
    from myopic_mces.MCES_ILP import construct_ILP

    graphs = [construct_graph(smiles) for smiles in key]
    program = construct_ILP(*graphs, cutoff)
    for variable in _variables(program, "edgepairs"):
        # Once every atom is mapped, each bond has at most one partner, and taking it is cheaper
        # than leaving both bonds out: bonds need no integrality of their own.
        variable.cat = pulp.LpContinuous
    solver = pulp.getSolver(_solver_name(), msg=False, threads=1, timeLimit=limit_s)
    program.solve(solver)
    if program.status == pulp.LpStatusInfeasible:
        return Interval(max(bound, cutoff + _STEP), float("inf"))
    value = _distance_of(_mapping(program), *graphs)
    if program.status == pulp.LpStatusOptimal and program.sol_status == pulp.LpSolutionOptimal:
        return Interval(value, value)
    _log.debug("no proven distance within %.0f s for %s and %s", limit_s, *key)
    return Interval(bound, value, limit_s)


def _mapping(program: "pulp.LpProblem") -> dict[int, int]:
    """Atoms of the first molecule and their partners, as far as a solver came.

    Stopped early, it may leave anything behind; whatever is read is a mapping of distinct atoms.
    """
    mapping: dict[int, int] = {}
    for variable in _variables(program, "nodepairs"):
        if variable.varValue is not None and variable.varValue > _CHOSEN:
            first, second = map(int, re.findall(r"\d+", variable.name))
            if first not in mapping and second not in mapping.values():
                mapping[first] = second
    return mapping


def _distance_of(mapping: dict[int, int], first: "Graph", second: "Graph") -> float:
    """Sum of the bond orders that a mapping leaves without a partner, exact and rounding-free."""
    total = second.size(weight="weight")
    for a, b, order in first.edges(data="weight"):
        ends = mapping.get(a), mapping.get(b)
        if second.has_edge(*ends):
            partner = second.edges[ends]["weight"]
            total += abs(order - partner) - partner
        else:
            total += order
    return float(total)


def _variables(program: "pulp.LpProblem", kind: str) -> "list[pulp.LpVariable]":
    return [variable for variable in program.variables() if variable.name.startswith(kind)]


@functools.cache
def _solver_name() -> str:
    import pulp

    available = set(pulp.listSolvers(onlyAvailable=True))
    for name in _SOLVERS:
        if name in available:
            return name
    raise UsageError(
        "no integer programming solver was found for MCES; install one with "
        "'pip install highspy', or leave MCES out with --no-mces"
    )


def require() -> None:
    """Check that MCES can be computed here.

    Raises:
        UsageError: myopic-mces or a solver is missing.
    """
    if find_spec("myopic_mces") is None:
        raise UsageError(
            "MCES needs the package myopic-mces; install it with 'pip install duallgd[evaluate]', "
            "or leave MCES out with --no-mces"
        )
    _solver_name()


@functools.lru_cache(maxsize=20_000)
def _graph(smiles: str) -> MoleculeGraph:
    return molecule_graph(smiles)


def _bound(first: str, second: str) -> float:
    return lower_bound(_graph(first), _graph(second))
