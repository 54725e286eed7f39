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
from duallgd_cli.evaluate.intervals import means, share
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth, molecule
from duallgd_cli.runtime import available_cores, in_order

logger = logging.getLogger(__name__)

FORMULA_RANKS: Final = (1, 5)
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

    Raises:
        UsageError: MCES distances are asked for and cannot be computed here.
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
    nearest = mces.minima(truth.smiles, smiles, settings.top_k)
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
