"""Minimum MCES distance between the truth and ranked candidates, as myopic-mces defines it.

A pair scores its lower bound where that exceeds the threshold, else its exact distance, else the
threshold. Only the minimum over candidates is reported, so a candidate is solved only where it can
still lower that minimum, and the solver need only look below it: distances are multiples of 0.5.
"""

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.bounds import MoleculeGraph, lower_bound, molecule_graph
from duallgd_cli.evaluate.mapping import search

_log = logging.getLogger(__name__)

THRESHOLD: Final = 15.0
CAP: Final = 100.0
_STEP: Final = 0.5
LIMIT_S: Final = 30.0


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
    answer = search(_graph(key[0]), _graph(key[1]), cutoff, limit_s)
    upper = float("inf") if answer.distance is None else answer.distance
    if not answer.is_final:
        _log.debug("no proven distance within %.0f s for %s and %s", limit_s, *key)
        return Interval(bound, upper, limit_s)
    if answer.distance is None:
        return Interval(max(bound, cutoff + _STEP), upper)
    return Interval(upper, upper)


def require() -> None:
    """Check that MCES can be computed here.

    Raises:
        UsageError: A package is missing.
    """
    for package in ("highspy", "scipy"):
        if find_spec(package) is None:
            raise UsageError(
                f"MCES needs the package {package}; install it with 'pip install "
                "duallgd[evaluate]', or leave MCES out with --no-mces"
            )


@functools.lru_cache(maxsize=20_000)
def _graph(smiles: str) -> MoleculeGraph:
    return molecule_graph(smiles)


def _bound(first: str, second: str) -> float:
    return lower_bound(_graph(first), _graph(second))
