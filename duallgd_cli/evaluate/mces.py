"""Minimum MCES distance between the truth and ranked candidates, as myopic-mces defines it.

A pair scores its lower bound where that exceeds the threshold, else its exact distance, else the
threshold. Only the minimum over candidates is reported, so a candidate is solved only where it can
still lower that minimum, and the solver need only look below it: distances are multiples of 0.5.

Bounds and the integer program are those of myopic-mces. HiGHS solves the program, and is asked here
how it ended: myopic-mces takes what HiGHS has when its time is over for the exact distance.

RDKit's RASCAL is no substitute: it shares as many bonds as possible, whatever they weigh, and bonds
of other orders not at all or for nothing.
"""

import os
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from duallgd_cli.errors import UsageError

LIMIT_S: Final = 30.0  # of one pair
_STEP: Final = 0.5


class Minima(NamedTuple):
    """Smallest distances of one spectrum."""

    values: tuple[float, ...]  # among the first k candidates, for each k
    pairs: int = 0  # how many exact distances were looked for
    # how many of these were not proven in time, each counted as the worst it may be
    timeouts: int = 0


def minima(
    truth: str,
    candidates: Sequence[str | None],
    top_k: Sequence[int],
    *,
    threshold: float = 15.0,
    ceiling: float = 100.0,
) -> Minima:
    """Smallest distance among the first k candidates, for each k, ascending.

    Truth and candidates (best first, None for what is no molecule) are canonical SMILES. Distances
    above the threshold are not computed; the ceiling is the value without any candidate.
    """
    from myopic_mces import filter2  # only the `evaluate` extra brings it

    best, start, values, pairs, timeouts = ceiling, 0, [], 0, 0
    for k in top_k:
        valid = dict.fromkeys(smiles for smiles in candidates[start:k] if smiles is not None)
        bounds = sorted((float(filter2(_graph(truth), _graph(other))), other) for other in valid)
        for bound, smiles in bounds:
            if bound >= best:  # so are all that follow
                break
            if bound > threshold or smiles == truth:
                best = bound
                continue
            # In alphabetical order, so that a pair has one answer whichever is the truth.
            pair = sorted((truth, smiles))
            distance, is_late = search(*pair, min(threshold, best - _STEP))
            pairs, timeouts = pairs + 1, timeouts + is_late
            best = min(best, threshold if distance is None else distance)
        values.append(best)
        start = max(start, k)
    return Minima(tuple(values), pairs, timeouts)


def require() -> None:
    """Check that MCES can be computed here."""
    if missing := [name for name in ("myopic_mces", "highspy") if find_spec(name) is None]:
        raise UsageError(
            f"MCES needs {' and '.join(missing)}; pip install 'duallgd[evaluate]', or leave MCES "
            "out with --no-mces"
        )


@lru_cache(maxsize=100_000)
def search(
    first: str, second: str, cutoff: float, limit_s: float = LIMIT_S
) -> tuple[float | None, bool]:
    """The smallest distance up to a cutoff, None if there is none, and whether time ran out."""
    import highspy
    import pulp
    from myopic_mces.MCES_ILP import construct_ILP

    _hear_banner()
    program = construct_ILP(_graph(first), _graph(second), cutoff)
    program.solve(pulp.HiGHS(msg=False, threads=1, timeLimit=limit_s))
    solver, end = program.solverModel, highspy.HighsModelStatus  # not of PuLP: 4 speaks otherwise
    is_late = solver.getModelStatus() not in (end.kOptimal, end.kInfeasible)
    info = solver.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None, is_late
    return round(info.objective_function_value / _STEP) * _STEP, is_late


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
