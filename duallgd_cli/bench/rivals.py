"""Rivals that need no training, scored beside ours on the same spectra."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from duallgd_cli.bench.suites.analogue import library, nearest
from duallgd_cli.bench.suites.suite import Suite
from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluation.random_graphs import HasHypothesis, random_graph
from duallgd_cli.evaluation.tables import Predicted, Truth, id_column, read_predictions
from duallgd_cli.inference.generation import Generated, LoadedModel
from duallgd_cli.inference.predict import predict
from duallgd_cli.inference.ranking import RankingModel
from duallgd_cli.inference.settings import PredictRequest

RANDOM_OUTPUT: Final = "rival_random.csv"


class RandomGraphs:
    """A generator that looks at the formula alone."""

    def generate(
        self, annotated: HasHypothesis, settings: SamplingSettings, seed: int
    ) -> Generated:
        """Draw random connected graphs with the formula's hydrogens; all equally likely."""
        formula = annotated.hypothesis.formula
        generator = np.random.default_rng(seed)
        graphs = [random_graph(formula, generator) for _ in range(settings.samples)]
        return Generated(
            bond_class=np.stack(graphs),
            log_likelihood=np.zeros(settings.samples, dtype=np.float32),
        )


def random_predictions(
    request: PredictRequest, folder: Path, ranking: RankingModel
) -> dict[str, Predicted]:
    """Random formula-exact connected graphs for the same spectra, through the same pipeline.

    Args:
        request: The prediction they are compared with; same input, samples and seed.
        folder: Where their predictions are kept.
        ranking: Ranks them as it ranks ours.
    """
    output = folder / RANDOM_OUTPUT
    model = LoadedModel(
        generator=RandomGraphs(), ranking=ranking, name="random graphs", sha256="random-graphs-1"
    )
    predict(replace(request, output=str(output)), model)
    return read_predictions(output)


def analogue_predictions(
    suite: Suite, truths: Sequence[Truth], n_candidates: int
) -> Mapping[str, Predicted]:
    """Training molecules with the most similar spectra; empty if the benchmark has no such fold.

    Args:
        suite: Its fold ``train`` is the library.
        truths: Spectra to predict.
        n_candidates: Molecules for each, at most.
    """
    known = library(suite.rows())
    if known is None:
        return {}
    wanted = {truth.spectrum_id for truth in truths}
    queries, name = [], ""
    for row in suite.rows():
        name = name or id_column([row], suite.title)
        if row[name] in wanted:
            queries.append(row)
    return nearest(queries, known, n_candidates)
