"""What says whether the truth is in a database, in one list with generated molecules.

Fitted on features whose truths a database holds, each twice: with the truth in it and without.
X observations.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.checkpoint.format import load, save
from duallgd_cli.chem.identity import BLOCK_LENGTH
from duallgd_cli.config import dump
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibrate import DATABASES, logistic, truth_of, truths_of
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.one_list import Membership, evidence
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.results import HypothesisResult, Results, Structure
from duallgd_cli.sources import DATABASE


def fit_membership(weights: Path, run: Path, truth: Path, out: Path) -> Membership:
    """Fit what says whether the truth is in a database, into another weights file.

    The run, by its output or journal, was made with a database that holds the truths, in one list
    with generated molecules.

    Raises:
        UsageError: The run had no database, or the database none of the truths; or one is missing.
        MissingInputError: A file does not exist.
    """
    checkpoint, truths, finished = load(weights), truths_of(truth), read([run], partial=True)
    if not checkpoint.database or DATABASES not in finished.header.settings:
        raise UsageError(f"{run} had no database, or {weights} no ranking of its structures")
    features = (
        (feature.hypotheses, truth_of(truths, feature)["inchikey"][:BLOCK_LENGTH])
        for feature in finished.features()
    )
    models = (RankingModel.stored(one) for one in (checkpoint.ranking, checkpoint.database))
    rows, inside, _ = both_worlds(features, *models)
    if not inside.any():
        raise UsageError(f"the database of {run} holds none of the truths; add them to it")
    membership = weights_of_membership(rows, inside)
    changed = replace(checkpoint, membership=dump(membership))
    save(out, changed, torch.float16, short_codes=True)
    return membership


def without_truth(results: Results, truth: str) -> list[HypothesisResult]:
    """The same with a database that lacks one molecule, of this first block of an InChIKey."""

    def taken(structure: Structure) -> Structure | None:
        if structure.block != truth or DATABASE not in structure.sources:
            return structure
        others = tuple(name for name in structure.sources if name != DATABASE)
        return structure._replace(sources=others) if others else None

    left = [tuple(filter(None, map(taken, result.structures))) for result in results]
    return [replace(result, structures=own) for result, own in zip(results, left, strict=True)]


def both_worlds(
    features: Iterable[tuple[Results, str]], generated: RankingModel, database: RankingModel
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[str]]:
    """What candidates say where a database has the truth and where it lacks it.

    Given are results with the first block of the truth's InChIKey, and the rankings of generated
    molecules and of structures of a database.

    Returns:
        Evidence (X, 5), whether the truth is in the database (X,), the truth of each row.
    """
    rows, inside, names = [], [], []
    for results, truth in features:
        listed = (structure for result in results for structure in result.structures)
        is_there = any(one.block == truth and DATABASE in one.sources for one in listed)
        worlds = [(results, is_there)]
        worlds += [(without_truth(results, truth), False)] if is_there else []
        for world, label in worlds:
            told = evidence(world, generated, database)
            if told is not None:
                rows.append(told)
                inside.append(label)
                names.append(truth)
    return np.array(rows).reshape(-1, 5), np.array(inside, np.bool_), names


def weights_of_membership(rows: NDArray[np.float64], inside: NDArray[np.bool_]) -> Membership:
    """Weights of a logistic regression on rows of `both_worlds`."""
    return Membership(*logistic(rows, inside).tolist())
