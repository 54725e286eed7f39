"""Minimum MCES distance between the truth and ranked candidates, as myopic-mces defines it.

A pair scores its lower bound where that exceeds the threshold, else its exact distance, else the
threshold. Only the minimum over candidates is reported, so a candidate is solved only where it can
still lower that minimum, and the solver need only look below it: distances are multiples of 0.5.

Bounds and the integer program are those of myopic-mces. HiGHS solves the program, and is asked here
how it ended: myopic-mces takes what HiGHS has when its time is over for the exact distance.

RDKit's RASCAL is no substitute: it shares as many bonds as possible, whatever they weigh, and bonds
of other orders not at all or for nothing. Of 148 pairs of a candidate and the truth of fold val
that are up to 15 apart it has the same distance for 84, or 93 with bond orders left out.
"""

import logging
import os
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from duallgd_cli.errors import UsageError

_log = logging.getLogger(__name__)

THRESHOLD: Final = 15.0
CAP: Final = 100.0
LIMIT_S: Final = 30.0
_STEP: Final = 0.5
# Part of the table's name: answers of another kind would be taken for these.
_TABLE: Final = "pair_v2"
_WAIT_S: Final = 60.0

# Two canonical SMILES in alphabetical order.
Pair = tuple[str, str]


class Answer(NamedTuple):
    """What a search for the distance of one pair found.

    Attributes:
        distance: The smallest found up to the cutoff; None if there was none.
        limit_s: Time limit that ran out, so that another mapping may be better; 0 if none did.
    """

    distance: float | None
    limit_s: float = 0.0


class SolvedPairs:
    """Pairs solved so far: in a file, so that a second run need not solve them again, or in memory.

    The file is an SQLite database; several processes may use it at once.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Open a file, which is made if absent.

        Args:
            path: Of the file; None keeps pairs in memory alone.

        Raises:
            UsageError: The file is no such cache, or cannot be written.
        """
        self._path = path
        with self._asked() as where:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(where, timeout=_WAIT_S, isolation_level=None)
            weakref.finalize(self, self._file.close)
            self._file.execute(
                f"CREATE TABLE IF NOT EXISTS {_TABLE} (first TEXT, second TEXT, cutoff REAL, "
                "distance REAL, limit_s REAL, PRIMARY KEY (first, second, cutoff)) WITHOUT ROWID"
            )

    def known(self, pair: Pair, cutoff: float) -> Answer | None:
        """What a search for a pair up to a cutoff found; None if there was none."""
        row = f"SELECT distance, limit_s FROM {_TABLE} WHERE (first, second, cutoff) = (?, ?, ?)"
        with self._asked():
            found = self._file.execute(row, (*pair, cutoff)).fetchone()
        return found and Answer(*found)

    def add(self, pair: Pair, cutoff: float, found: Answer) -> None:
        """Keep what a search found, in place of what an earlier one did."""
        with self._asked():
            self._file.execute(
                f"REPLACE INTO {_TABLE} VALUES (?, ?, ?, ?, ?)", (*pair, cutoff, *found)
            )

    @contextmanager
    def _asked(self) -> Iterator[Path | str]:
        try:
            yield self._path or ":memory:"
        except (sqlite3.DatabaseError, OSError) as error:
            raise UsageError(
                f"{self._path} cannot be used as MCES cache ({error}); "
                "delete it or name another file with --mces-cache"
            ) from error


@dataclass(slots=True)
class Search:
    """Computes minimum distances, each pair once.

    Attributes:
        limit_s: Time limit of one pair, s.
        solved: Pairs solved before, to which new ones are added.
        needed: Pairs whose exact distance was asked for.
        timeouts: Those whose time limit ran out, each counted as the worst that it could score.
    """

    limit_s: float = LIMIT_S
    solved: SolvedPairs = field(default_factory=SolvedPairs)
    needed: set[Pair] = field(default_factory=set)
    timeouts: set[Pair] = field(default_factory=set)

    def minima(
        self,
        truth: str,
        candidates: Sequence[str | None],
        top_k: Sequence[int],
        *,
        threshold: float = THRESHOLD,
        ceiling: float = CAP,
    ) -> list[float]:
        """Smallest distance among the first k candidates, for each k.

        Args:
            truth: Canonical SMILES.
            candidates: Canonical SMILES, best first; None where a candidate is no molecule.
            top_k: Ascending.
            threshold: Distances above it are not computed.
            ceiling: Value without any candidate, and the largest value.
        """
        from myopic_mces import filter2  # only the `evaluate` extra brings it

        best, start, values = ceiling, 0, []
        for k in top_k:
            valid = dict.fromkeys(smiles for smiles in candidates[start:k] if smiles is not None)
            bounds = sorted((float(filter2(_graph(truth), _graph(one))), one) for one in valid)
            for bound, smiles in bounds:
                if bound >= best:  # so are all that follow
                    break
                if bound > threshold or smiles == truth:
                    best = bound
                    continue
                found = self._distance((truth, smiles), min(threshold, best - _STEP))
                best = min(best, threshold if found is None else found)
            values.append(best)
            start = max(start, k)
        return values

    def _distance(self, pair: Pair, cutoff: float) -> float | None:
        """Distance of a pair, or None if it is above the cutoff or was not found in time."""
        key = (min(pair), max(pair))
        self.needed.add(key)
        found = self.solved.known(key, cutoff)
        if found is None or 0 < found.limit_s < self.limit_s:
            found = search(*key, cutoff, self.limit_s)
            self.solved.add(key, cutoff, found)
        if found.limit_s:
            _log.debug("no proven distance within %.0f s for %s and %s", self.limit_s, *key)
            self.timeouts.add(key)
        return found.distance


def require() -> None:
    """Check that MCES can be computed here."""
    if missing := [name for name in ("myopic_mces", "highspy") if find_spec(name) is None]:
        raise UsageError(
            f"MCES needs {' and '.join(missing)}; pip install 'duallgd[evaluate]', or leave MCES "
            "out with --no-mces"
        )


def search(first: str, second: str, cutoff: float, limit_s: float) -> Answer:
    """Find the mapping of smallest distance up to a cutoff."""
    import highspy
    import pulp
    from myopic_mces.MCES_ILP import construct_ILP

    _hear_banner()
    program = construct_ILP(_graph(first), _graph(second), cutoff)
    program.solve(pulp.HiGHS(msg=False, threads=1, timeLimit=limit_s))
    solver, end = program.solverModel, highspy.HighsModelStatus  # not of PuLP: 4 speaks otherwise
    left = 0.0 if solver.getModelStatus() in (end.kOptimal, end.kInfeasible) else limit_s
    found = solver.getInfo()
    if found.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Answer(None, left)
    return Answer(round(found.objective_function_value / _STEP) * _STEP, left)


@lru_cache(maxsize=1_000)
def _graph(smiles: str) -> Any:  # noqa: ANN401 - a graph of networkx, which has no types
    """The atoms and bonds of a valid SMILES, as myopic-mces sees them."""
    from myopic_mces import construct_graph

    return construct_graph(smiles)


@cache
def _hear_banner() -> None:
    """Let HiGHS greet once where nobody reads it; it has no option to be silent from the start."""
    import highspy

    output = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        highspy.Highs()
    finally:
        os.dup2(output, 1)
        os.close(output)
