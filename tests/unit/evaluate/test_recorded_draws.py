"""Confidence holds for any number of samples: judged on draws for molecules of known structure.

The numbers were recorded by ``recipes/recorded_draws.py`` on molecules that no network was
trained on; they hold scores and counts, no structures.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.evaluate.calibrate import fit, folds, judge
from duallgd_cli.ranking.ranking import FEATURES, RankingModel, SampleStatistics
from tests.unit.evaluate.test_calibrate import case_of

RECORDED = Path(__file__).with_name("recorded_draws.npz")
LARGEST_ERROR = 0.02  # beyond what as many outcomes of true probabilities would show


def beyond_chance(table):
    """The calibration error, less what it would be on average if all that is stated were true."""
    total = sum(part.count for part in table.bins)
    spread = (np.sqrt(2 / np.pi * b.count * b.stated * (1 - b.stated)) for b in table.bins)
    return table.expected_error - sum(spread) / total


def recorded_cases():
    """Each spectrum's candidates, their recorded scores as one feature."""
    recorded = dict(np.load(RECORDED))
    below = np.split(recorded["below_best"].astype(float), recorded["n_candidates"].cumsum()[:-1])
    names = ("best", "molecule", "right", "statistics")
    for below_best, *rows in zip(below, *(recorded[name] for name in names), strict=True):
        best, molecule, right, (n_heavy, *rest) = rows
        features = np.zeros((len(below_best), len(FEATURES)))
        features[:, FEATURES.index("log_share")] = best - below_best
        statistics = SampleStatistics(round(float(n_heavy)), *map(float, rest))
        yield case_of(features, right, f"{molecule:014d}", statistics=statistics)


def test_confidence_is_true_for_every_number_of_samples():
    shipped = RankingModel.stored(load(resolve_weights(None)).ranking)
    model = replace(shipped, **dict.fromkeys(FEATURES, 0.0) | {"log_share": 1.0})
    cases = list(recorded_cases())
    # By the weights, and by fits that lack the molecule.
    fits = [
        (held_out, [fit(rest, model, keep_ranking=True)] * len(held_out))
        for rest, held_out in folds(cases)
    ]
    lacking = [[*chain(*parts)] for parts in zip(*fits, strict=True)]

    for judged, models in ((cases, [model] * len(cases)), lacking):
        by_samples = defaultdict(list)
        for pair in zip(judged, models, strict=True):
            by_samples[round(np.exp(pair[0].statistics.log_samples))].append(pair)
        tables = {n: judge(*zip(*pairs, strict=True)).first for n, pairs in by_samples.items()}
        errors = {n: beyond_chance(table) for n, table in tables.items()}
        assert errors.keys() == {1, 5, 10, 30, 60, 100, 300}
        assert max(errors.values()) < LARGEST_ERROR, errors

    # One sample taken for a hundred is found out.
    single = [case for case in cases if case.statistics.log_samples < 0.1]
    taken = [
        replace(case, statistics=case.statistics._replace(log_samples=np.log(100.0), log_share=0.0))
        for case in single
    ]
    assert beyond_chance(judge(taken, [model] * len(taken)).first) > LARGEST_ERROR
