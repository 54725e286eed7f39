"""Scores of ranked candidates against the truth, by MassSpecGym's rules.

Letters: B spectra. Candidates count as ranked: one that is no molecule or repeats an earlier one
keeps its rank, and a spectrum with none scores 0, 0 and the MCES ceiling.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import tanimoto
from duallgd_cli.evaluate import mces
from duallgd_cli.evaluate.intervals import Estimate, means, share
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
        mces_work: For ``mces``, how many ``pairs`` of a spectrum and a candidate were solved, and
            ``timeouts``: those out of time, each counted as the worst it may be.
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
        """Means with 95 % intervals: Wilson's of right answers, else the bootstrap's."""
        values = np.column_stack([self.columns[name] for name in names])
        estimates = dict(zip(names, means(values, self.molecule, seed=seed), strict=True))
        right = (name for name in names if "accuracy" in name)
        return estimates | {name: share(self.columns[name], self.molecule) for name in right}

    def summary(self, seed: int = 0) -> dict[str, dict[str, float]]:
        """Mean of every column with its interval, as plain values."""
        return {n: asdict(mean) for n, mean in self.means(list(self.columns), seed).items()}

    def subset(self, keep: NDArray[np.bool_]) -> "Scores":
        """Scores of some of the spectra."""
        kept = {name: column[keep] for name, column in self.columns.items()}
        return replace(self, truths=tuple(compress(self.truths, keep)), columns=kept)


def score(
    truths: Sequence[Truth], predicted: Sequence[Predicted], settings: EvaluateSettings
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
    hits = [_same(truth.block, other.block) if other else 0.0 for other in candidates]
    similar = [tanimoto(truth.bits, other.bits) if other else 0.0 for other in candidates]
    valid = [other for other in candidates if other is not None]
    row = {f"accuracy@{k}": max(hits[:k], default=0.0) for k in settings.top_k}
    row |= {f"tanimoto@{k}": max(similar[:k], default=0.0) for k in settings.top_k}
    row |= {
        "oracle_accuracy": max(hits, default=0.0),
        "oracle_tanimoto": max(similar, default=0.0),
        "candidates": float(len(candidates)),
        "valid": float(len(valid)),
        "formula_exact": sum(_same(truth.formula, other.formula) for other in valid),
        "distinct": float(len({other.block or other.smiles for other in valid})),
    }
    if not settings.mces:
        return row, 0, 0
    smiles = [other.smiles if other else None for other in candidates]
    nearest = mces.minima(truth.smiles, smiles, settings.top_k, settings.mces_limit)
    row |= {f"mces@{k}": value for k, value in zip(settings.top_k, nearest.values, strict=True)}
    return row, nearest.pairs, nearest.timeouts


def _same(first: str, second: str) -> float:
    return float(first == second and first != "")
