"""What the samples of many spectra came to, in numbers alone, for the test of their confidence.

Scores of candidates, best first, which of them is right, and what the samples say besides are kept;
no structure, formula or name is.

    python recipes/recorded_draws.py duallgd.safetensors --run val/predictions.csv \
        --truth val/truth.tsv -o tests/unit/evaluate/recorded_draws.npz
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from duallgd_cli.checkpoint.format import load
from duallgd_cli.evaluate.calibrate import ScoredCase, known_blocks, scored_cases, truths_of
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.ranking import RankingModel


def record(
    weights: Annotated[Path, typer.Argument(help="Weights whose ranking scores the candidates.")],
    run: Annotated[list[Path], typer.Option(help="Output of a run, its journal beside it.")],
    truth: Annotated[Path, typer.Option(help="Table with identifier and inchikey.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .npz file to write.")],
) -> None:
    """Record the draws of runs of known truth."""
    checkpoint = load(weights)
    model, known = RankingModel.stored(checkpoint.ranking), known_blocks(checkpoint)
    truths = truths_of(truth)
    cases = [
        case
        for one in run
        for case in scored_cases(read([one], partial=True), truths, model, known)
    ]
    molecules = {name: number for number, name in enumerate(sorted({c.molecule for c in cases}))}
    scores = [np.sort(case.features @ model.weights)[::-1] for case in cases]
    np.savez_compressed(
        output,
        n_candidates=np.array([len(one) for one in scores], np.int16),
        best=np.array([one[0] if len(one) else 0.0 for one in scores], np.float32),
        below_best=np.concatenate([one[:1] - one for one in scores]).astype(np.float16),
        right=np.array([_place_of_truth(case, model) for case in cases], np.int16),
        statistics=np.array([tuple(case.statistics) for case in cases], np.float32),
        molecule=np.array([molecules[case.molecule] for case in cases], np.int16),
    )
    typer.echo(f"{len(cases)} draws of {len(molecules)} molecules in {output}", err=True)


def _place_of_truth(case: ScoredCase, model: RankingModel) -> int:
    """Index of the right candidate, best first, or -1."""
    scores = case.features @ model.weights
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], case.keys[i]))
    return next((place for place, i in enumerate(order) if case.is_right[i]), -1)


if __name__ == "__main__":
    typer.run(record)
