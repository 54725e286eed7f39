"""Fitting what says whether the truth is in a user's database, on runs with known truth.

Every feature is seen in two worlds: with the database as it is, which holds the truth, and with the
truth taken out of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.evaluate.calibrate import logistic
from duallgd_cli.ranking.one_list import Membership, evidence
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import HypothesisResult, Results, Structure
from duallgd_cli.sources import DATABASE


def without_truth(results: Results, truth: str) -> list[HypothesisResult]:
    """The same with a database that lacks one molecule.

    Args:
        results: Of all hypotheses of a feature.
        truth: First block of its InChIKey.
    """
    return [
        replace(
            result,
            structures=tuple(filter(None, (_taken(one, truth) for one in result.structures))),
        )
        for result in results
    ]


def _taken(structure: Structure, truth: str) -> Structure | None:
    if structure.block != truth or DATABASE not in structure.sources:
        return structure
    others = tuple(name for name in structure.sources if name != DATABASE)
    return structure._replace(sources=others) if others else None


def both_worlds(
    features: Iterable[tuple[Results, str]], generated: RankingModel, database: RankingModel
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[str]]:
    """What the candidates of features say in each world, and whether the truth is in the database.

    Args:
        features: Results of each with the first block of the truth's InChIKey.
        generated: Ranking of generated molecules.
        database: Ranking of structures of a database.

    Returns:
        Evidence (X, 5), whether the truth is in the database (X,), the truth of each row.
    """
    rows, inside, names = [], [], []
    for results, truth in features:
        is_there = any(
            one.block == truth and DATABASE in one.sources
            for result in results
            for one in result.structures
        )
        worlds = [(results, is_there)]
        if is_there:
            worlds.append((without_truth(results, truth), False))
        for world, label in worlds:
            told = evidence(world, generated, database)
            if told is not None:
                rows.append(told)
                inside.append(label)
                names.append(truth)
    return np.array(rows).reshape(-1, 5), np.array(inside, np.bool_), names


def fit_membership(
    rows: NDArray[np.float64], inside: NDArray[np.bool_], chosen: Sequence[bool] | None = None
) -> Membership:
    """Weights of a logistic regression on rows of `both_worlds`, all or those that are chosen."""
    kept = np.ones(len(inside), np.bool_) if chosen is None else np.array(chosen, np.bool_)
    return Membership(*logistic(rows[kept], inside[kept]).tolist())
