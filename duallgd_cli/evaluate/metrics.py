"""Scores of ranked candidates against the truth, by MassSpecGym's rules.

Letters: B spectra. Candidates count as ranked: one that is no molecule or repeats an earlier one
keeps its rank, and a spectrum with none scores 0, 0 and the MCES ceiling.

MCES is the distance in bonds, as myopic-mces defines it: a pair scores its lower bound where that
exceeds the threshold, else its exact distance, else the threshold. Only the minimum over candidates
is reported, so a candidate is solved only where it can still lower that minimum, and the solver
need only look below it: distances are multiples of 0.5. Bounds and the integer program are those of
myopic-mces. HiGHS solves the program, and is asked here how it ended: myopic-mces takes what HiGHS
has when its time is over for the exact distance. RDKit's RASCAL is no substitute: it shares as many
bonds as possible, whatever they weigh, and bonds of other orders not at all or for nothing.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.intervals import means, share
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth, molecule
from duallgd_cli.runtime import available_cores, in_order

logger = logging.getLogger(__name__)

FORMULA_RANKS: Final = (1, 5)
MCES_LIMIT_S: Final = 30.0  # of one pair
_STEP: Final = 0.5
_WORTH_TELLING: Final = 50  # spectra; their MCES distances can take minutes


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of every spectrum."""

    truths: tuple[Truth, ...]  # what the spectra are, B of them
    columns: Mapping[str, NDArray[np.float64]]  # by name, such as ``accuracy@1``, float64 (B,)
    # for ``mces``, how many ``pairs`` of a spectrum and a candidate were solved, and ``timeouts``:
    # those out of time, each counted as the worst it may be
    mces_work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def molecule(self) -> list[str]:
        """Cluster of each spectrum, B names."""
        return [truth.molecule for truth in self.truths]

    def summary(self, seed: int = 0) -> dict[str, dict[str, float]]:
        """Mean of every column with its 95 % interval: Wilson's of right answers, else bootstrap's.

        The bootstrap starts from `seed`.
        """
        values = np.column_stack([*self.columns.values()])
        estimates = dict(zip(self.columns, means(values, self.molecule, seed=seed), strict=True))
        for name in self.columns:
            if "accuracy" in name:
                estimates[name] = share(self.columns[name], self.molecule)
        return {name: asdict(estimate) for name, estimate in estimates.items()}

    def subset(self, keep: NDArray[np.bool_]) -> "Scores":
        """Scores of some of the spectra."""
        kept = {name: column[keep] for name, column in self.columns.items()}
        return replace(self, truths=tuple(compress(self.truths, keep)), columns=kept)


def score(
    truths: Sequence[Truth], predicted: Sequence[Predicted], settings: EvaluateSettings
) -> Scores:
    """Score ranked candidates; of many spectra it is said how many are scored.

    Columns: ``accuracy@k`` (first block of the InChIKey), ``tanimoto@k`` (largest), ``mces@k``
    (smallest), ``oracle_accuracy`` and ``oracle_tanimoto`` (over all candidates given),
    ``candidates`` and ``valid`` (counts).
    """
    missing = [name for name in ("myopic_mces", "highspy") if find_spec(name) is None]
    if settings.mces and missing:
        raise UsageError(
            f"MCES needs {' and '.join(missing)}; pip install 'duallgd[evaluate]', or leave MCES "
            "out with --no-mces"
        )
    rows: list[dict[str, float]] = []
    work = {"pairs": 0, "timeouts": 0}
    each, pairs = partial(_score_one, settings=settings), zip(truths, predicted, strict=True)
    workers = settings.workers or available_cores()
    # A spectrum takes milliseconds or minutes, so processes take few of many at once.
    for row, solved, late in in_order(each, pairs, workers, 1 + len(truths) // (32 * workers)):
        rows.append(row)
        work["pairs"] += solved
        work["timeouts"] += late
        if len(truths) >= _WORTH_TELLING and len(rows) % (len(truths) // 10) == 0:
            logger.info("%d of %d spectra scored", len(rows), len(truths))
    return Scores(
        truths=tuple(truths),
        columns={name: np.array([row[name] for row in rows]) for name in (rows or [{}])[0]},
        mces_work={"mces": work} if settings.mces else {},
    )


def _score_one(
    given: tuple[Truth, Predicted], settings: EvaluateSettings
) -> tuple[dict[str, float], int, int]:
    """Scores of one spectrum, and of its MCES distances the pairs solved and those out of time."""
    spectrum, ranked = given
    truth = molecule(spectrum.smiles)
    assert truth is not None  # `tables.truths_of` refuses what is no molecule
    candidates = [molecule(smiles) for smiles in ranked.smiles]
    hits = [float(bool(other and truth.block == other.block != "")) for other in candidates]
    similar = [tanimoto(truth.bits, other.bits) if other else 0.0 for other in candidates]
    row = {f"accuracy@{k}": max(hits[:k], default=0.0) for k in settings.top_k}
    row |= {f"tanimoto@{k}": max(similar[:k], default=0.0) for k in settings.top_k}
    row |= {
        "oracle_accuracy": max(hits, default=0.0),
        "oracle_tanimoto": max(similar, default=0.0),
        "candidates": float(len(candidates)),
        "valid": float(sum(other is not None for other in candidates)),
    }
    if not settings.mces:
        return row, 0, 0
    smiles = [other.smiles if other else None for other in candidates]
    nearest = minima(truth.smiles, smiles, settings.top_k)
    row |= {f"mces@{k}": value for k, value in zip(settings.top_k, nearest.values, strict=True)}
    return row, nearest.pairs, nearest.timeouts


def formula_accuracy(
    truths: Sequence[Truth], formulas: Mapping[str, Sequence[str]]
) -> dict[str, NDArray[np.float64]]:
    """Whether the true formula is among the first of those predicted, best first, by column."""
    columns: dict[str, list[float]] = {f"formula_accuracy@{k}": [] for k in FORMULA_RANKS}
    for truth in truths:
        figures, ranked = molecule(truth.smiles), formulas.get(truth.spectrum_id, ())
        for k, column in zip(FORMULA_RANKS, columns.values(), strict=True):
            column.append(float(figures is not None and figures.formula in {*ranked[:k]} - {""}))
    return {name: np.array(column) for name, column in columns.items()}


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


@lru_cache(maxsize=100_000)
def search(
    first: str, second: str, cutoff: float, limit_s: float = MCES_LIMIT_S
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
