"""Rivals scored beside ours on the same spectra: two without a network, and other weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from duallgd_cli.config import SamplingSettings
from duallgd_cli.evaluate.random_graphs import HasHypothesis, random_graph
from duallgd_cli.evaluate.suites.analogue import LIBRARY_FOLD, library, nearest
from duallgd_cli.evaluate.suites.suite import Suite
from duallgd_cli.evaluate.tables import Predicted, Truth, id_column, read_predictions
from duallgd_cli.predict.generation import Generated, LoadedModel
from duallgd_cli.predict.ranking import RankingModel
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest

RANDOM: Final = "random formula-exact graphs"
ANALOGUE: Final = "nearest training analogue"
_OUTPUT: Final = "rival_{name}.csv"
_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9.-]+")


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
    model = LoadedModel(
        generator=RandomGraphs(), ranking=ranking, name="random graphs", sha256="random-graphs-1"
    )
    return model_predictions(request, folder, "random", model)


def model_predictions(
    request: PredictRequest, folder: Path, name: str, model: LoadedModel
) -> dict[str, Predicted]:
    """Predictions of other weights for the same spectra; ranked as those weights were fitted to.

    Args:
        request: The prediction they are compared with; same input, settings and seed.
        folder: Where their predictions are kept.
        name: Of the rival.
        model: Predicts.
    """
    output = folder / _OUTPUT.format(name=_NOT_IN_FILE_NAMES.sub("_", name))
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
    wanted = {truth.spectrum_id for truth in truths}
    kept, name = [], ""
    for row in suite.rows():
        name = name or id_column([row], suite.title)
        if row[name] in wanted or row.get("fold") == LIBRARY_FOLD:
            kept.append(row)
    known = library(kept)
    if known is None:
        return {}
    return nearest([row for row in kept if row[name] in wanted], known, n_candidates)
