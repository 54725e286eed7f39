"""What one list of generated molecules and structures of a database is worth, in both worlds.

    duallgd evaluate --benchmark TABLE --fold val --database STRUCTURES --no-mces -o RUN
    python examples/studies/one_list.py RUN

STRUCTURES hold the truth of every spectrum, as a database may. The study prints the weights of
`ranking.one_list.Membership`, fitted on all molecules, and for each world what is first and among
ten and how far the stated probability is from what is right, by five-fold cross-validation:

* truth in the database: one list, beside the structures of the database alone;
* truth not in it: one list, beside the list without a database.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from duallgd_cli.config import SamplingSettings, dump
from duallgd_cli.evaluate.calibrate import truths_of
from duallgd_cli.evaluate.membership import both_worlds, weights_of_membership, without_truth
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.one_list import Ranking
from duallgd_cli.results import Candidate, HypothesisResult, Results

_FOLDS: Final = 5
_FIRST: Final = 10
_SHARE: Final = SamplingSettings().database_share
# What a list is, by fold of the molecule: ranked candidates.
Lists = Callable[[Results, int], tuple[Candidate, ...]]


def fold_of(truth: str) -> int:
    """Fold of a molecule, from its InChIKey."""
    return int.from_bytes(hashlib.blake2b(truth.encode(), digest_size=8).digest()) % _FOLDS


def generated_of(results: Results) -> list[HypothesisResult]:
    """The same with generated molecules alone, in the databases or not."""
    kept = [tuple(one for one in result.structures if one.samples) for result in results]
    return [replace(result, structures=own) for result, own in zip(results, kept, strict=True)]


def main(folder: Path) -> None:
    """Print the weights and the table."""
    run = read([folder / "predictions.csv"], partial=True)
    truths = truths_of(folder / "truth.tsv")
    features = [
        (feature.hypotheses, truths[feature.spectra[0].spectrum_id]["inchikey"][:14])
        for feature in run.features()
    ]
    ranking = Ranking.recorded(run.header.model, run.header.settings, folder)
    rows, inside, names = both_worlds(
        features, ranking.generated, ranking.database or ranking.generated
    )
    folds = np.array([fold_of(name) for name in names])
    fitted = [weights_of_membership(rows[folds != k], inside[folds != k]) for k in range(_FOLDS)]
    print(f"{len(features)} molecules; all: {dump(weights_of_membership(rows, inside))}")
    alone, generated = replace(ranking, share=1.0), Ranking(ranking.generated)

    def together(results: Results, fold: int) -> tuple[Candidate, ...]:
        return replace(ranking, membership=fitted[fold], share=_SHARE).rank(results)[0]

    outside = [(without_truth(results, truth), truth) for results, truth in features]
    drawn = [(generated_of(results), truth) for results, truth in features]
    print("world\tlist\tfirst %\tamong ten %\tstated first\tstated ten")
    for world, name, cases, lists in (
        ("in", "one list", features, together),
        ("in", "database alone", features, lambda results, _: alone.rank(results)[0]),
        ("out", "one list", outside, together),
        ("out", "no database", drawn, lambda results, _: generated.rank(results)[0]),
    ):
        shown(world, name, cases, lists)


def shown(world: str, name: str, cases: list[tuple[Results, str]], lists: Lists) -> None:
    """Print one row."""
    right, stated = [], []
    for results, truth in cases:
        candidates = lists(results, fold_of(truth))
        hits = [one.inchikey14 == truth for one in candidates]
        confidence = [one.confidence for one in candidates]
        right.append((any(hits[:1]), any(hits[:_FIRST])))
        stated.append((sum(confidence[:1]), sum(confidence[:_FIRST])))
    first, ten = 100 * np.mean(right, axis=0)
    told, told_ten = np.mean(stated, axis=0)
    print(f"{world}\t{name}\t{first:.1f}\t{ten:.1f}\t{told:.3f}\t{told_ten:.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
