"""Scores of ranked candidates against the truth, by MassSpecGym's rules.

Letters: B spectra. Candidates count as ranked: one that is no molecule or repeats an earlier one
keeps its rank, and a spectrum with none scores 0, 0 and the MCES ceiling.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.evaluate import mces
from duallgd_cli.evaluate.intervals import Estimate, means, share
from duallgd_cli.evaluate.mces import Pair, Search, SolvedPairs
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth, molecule
from duallgd_cli.runtime import available_cores, in_order

logger = logging.getLogger(__name__)

_WORTH_TELLING: Final = 50  # spectra; their MCES distances can take minutes


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of every spectrum.

    Attributes:
        truths: What the spectra are, B of them.
        columns: By name, such as ``accuracy@1``, float64 (B,).
        mces_work: For ``mces``, how many ``pairs`` had to be solved, and ``timeouts``: those whose
            time limit ran out, each counted as the worst that it could score.
    """

    truths: tuple[Truth, ...]
    columns: Mapping[str, NDArray[np.float64]]
    mces_work: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.truths)

    @property
    def molecule(self) -> list[str]:
        """Cluster of each spectrum, B names."""
        return [truth.molecule for truth in self.truths]

    def means(self, names: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
        """Means over spectra with 95 % intervals for spectra clustered by molecule.

        Those of shares of right answers are Wilson's, others the bootstrap's.
        """
        values = np.column_stack([self.columns[name] for name in names])
        estimates = dict(zip(names, means(values, self.molecule, seed=seed), strict=True))
        shares = {n: share(self.columns[n], self.molecule) for n in names if is_share(n)}
        return estimates | shares

    def summary(self, seed: int = 0) -> dict[str, dict[str, float]]:
        """Mean of every column with its interval, as plain values."""
        return {n: asdict(mean) for n, mean in self.means(list(self.columns), seed).items()}

    def subset(self, keep: NDArray[np.bool_]) -> "Scores":
        """Scores of some of the spectra."""
        rows = np.flatnonzero(keep)
        return replace(
            self,
            truths=tuple(self.truths[row] for row in rows),
            columns={name: column[rows] for name, column in self.columns.items()},
        )


def is_share(column: str) -> bool:
    """Whether a column holds right (1) and wrong (0) answers."""
    return "accuracy" in column


def score(
    truths: Sequence[Truth],
    predicted: Sequence[Predicted],
    settings: EvaluateSettings,
) -> Scores:
    """Score ranked candidates; of many spectra it is said now and then how many are scored.

    Columns: ``accuracy@k`` (first block of the InChIKey), ``tanimoto@k`` (largest), ``mces@k``
    (smallest), ``oracle_accuracy`` and ``oracle_tanimoto`` (over all candidates given),
    ``candidates``, ``valid``, ``formula_exact`` and ``distinct`` (counts).

    Args:
        truths: What the spectra are, B of them; those of one molecule are one cluster.
        predicted: Ranked structures of the same spectra.
        settings: Ranks, MCES distances and processes.

    Raises:
        UsageError: MCES was asked for and cannot be computed here.
    """
    if settings.mces:
        mces.require()
    rows: list[dict[str, float]] = []
    needed: set[Pair] = set()
    timeouts: set[Pair] = set()
    one, pairs = partial(_score_one, settings=settings), zip(truths, predicted, strict=True)
    workers = settings.workers or available_cores()
    # A spectrum takes milliseconds or minutes, so processes take few of many at once.
    for row, asked, late in in_order(one, pairs, workers, 1 + len(truths) // (32 * workers)):
        rows.append(row)
        needed |= asked
        timeouts |= late
        if len(truths) >= _WORTH_TELLING and len(rows) % (len(truths) // 10) == 0:
            logger.info("%d of %d spectra scored", len(rows), len(truths))
    work = {"pairs": len(needed), "timeouts": len(timeouts)}
    return Scores(
        truths=tuple(truths),
        columns={name: np.array([row[name] for row in rows]) for name in (rows or [{}])[0]},
        mces_work={"mces": work} if settings.mces else {},
    )


def _score_one(
    given: tuple[Truth, Predicted], settings: EvaluateSettings
) -> tuple[dict[str, float], set[Pair], set[Pair]]:
    """Scores of one spectrum, pairs whose MCES distance was needed, and those out of time."""
    spectrum, ranked = given
    truth = molecule(spectrum.smiles)
    assert truth is not None  # `tables.truths_of` refuses what is no molecule
    top_k = settings.top_k
    candidates = [molecule(smiles) for smiles in ranked.smiles]
    hits = [_same(truth.block, found.block) if found else 0.0 for found in candidates]
    similar = [tanimoto(truth.bits, found.bits) if found else 0.0 for found in candidates]
    row = _at_ranks("accuracy", hits, top_k) | _at_ranks("tanimoto", similar, top_k)
    row["oracle_accuracy"] = max(hits, default=0.0)
    row["oracle_tanimoto"] = max(similar, default=0.0)
    valid = [found for found in candidates if found is not None]
    row |= {
        "candidates": float(len(candidates)),
        "valid": float(len(valid)),
        "formula_exact": sum(_same(truth.formula, found.formula) for found in valid),
        "distinct": float(len({found.block or found.smiles for found in valid})),
    }
    search = Search(settings.mces_limit)
    if settings.mces:
        search.solved = _solved(settings.mces_cache)
        smiles = [found.smiles if found else None for found in candidates]
        minima = search.minima(truth.smiles, smiles, top_k)
        row |= {f"mces@{k}": value for k, value in zip(top_k, minima, strict=True)}
    return row, search.needed, search.timeouts


_solved = lru_cache(maxsize=1)(SolvedPairs)  # one connection a process


def _at_ranks(name: str, values: Sequence[float], top_k: Sequence[int]) -> dict[str, float]:
    """The best of the first k, for each k."""
    return {f"{name}@{k}": max(values[:k], default=0.0) for k in top_k}


def _same(first: str, second: str) -> float:
    return float(first == second and first != "")
