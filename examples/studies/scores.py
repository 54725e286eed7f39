"""What each score of a candidate adds to the ranking, on a run of known truth.

    duallgd evaluate --benchmark TABLE --fold val --spectra-per-molecule 1 --no-mces -o RUN
    python examples/studies/scores.py RUN

The ranking is fitted as `duallgd calibrate` fits it, on four fifths of the molecules, and judged on
the others; with all scores, and without one or a few of them. Printed is what leaving these out
changes, paired by molecule, with standard errors: the mean log-probability of the right molecule
among the candidates, of the molecules that have it there, and how many are first and among ten. The
candidates stay as they are, although some of these scores also chose them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.evaluate.calibrate import (
    ScoredCase,
    fit,
    folds,
    known_blocks,
    scored_cases,
    truths_of,
)
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.ranking import FEATURES, RankingModel

GROUPS: Final = {
    **{name: (name,) for name in FEATURES if name != "log_prior"},
    "both of the fingerprint": ("fingerprint_log_likelihood", "fingerprint_tanimoto"),
    "both of samples": ("log_share", "repaired_share"),
    "both of peaks": ("peaks_found", "peaks_missed"),
    "both of usual substructures": ("known_halves", "familiarity"),
    "all three of usual substructures": ("known_halves", "familiarity", "known_environments"),
    "the four that cost least alone": (
        *("log_share", "repaired_share", "fingerprint_tanimoto", "familiarity"),
    ),
}
_FIRST: Final = 10


def without(case: ScoredCase, names: Sequence[str]) -> ScoredCase:
    """A case whose candidates all have the same of some scores."""
    features = case.features.copy()
    features[:, [FEATURES.index(name) for name in names]] = 0.0
    return replace(case, features=features)


def judged(cases: Sequence[ScoredCase]) -> Iterator[tuple[str, float, bool, bool]]:
    """How well each case is ranked by a fit on the cases of other molecules.

    That is its molecule, the log-probability of the right candidate (NaN where there is none),
    whether it is first, and whether it is among the first ten.
    """
    for rest, fold in folds(cases):
        model = fit(rest)
        for case in fold:
            scores = model.sharpness * (case.features @ model.weights)
            order = sorted(range(len(case.keys)), key=lambda row: (-scores[row], case.keys[row]))
            hits = case.is_right[order]
            right = scores[case.is_right]
            log_probability = (
                float(right[0] - np.logaddexp.reduce(scores)) if len(right) else np.nan
            )
            yield case.molecule, log_probability, bool(hits[:1].any()), bool(hits[:_FIRST].any())


def table(cases: Sequence[ScoredCase]) -> Iterator[str]:
    """A row for all scores, then one for each that is left out."""
    whole = _sorted(cases)
    n, there = len(whole), int((~np.isnan(whole[:, 0])).sum())
    yield "| left out | log-probability | first, % | among ten, % |"
    yield "|---|---|---|---|"
    log_probability, first, ten = np.nanmean(whole, axis=0)
    yield (
        f"| nothing ({n} molecules, {there} with the right one) | {log_probability:.3f} "
        f"| {100 * first:.1f} | {100 * ten:.1f} |"
    )
    for title, names in GROUPS.items():
        change = _sorted([without(case, names) for case in cases]) - whole
        mean, count = np.nanmean(change, axis=0), (~np.isnan(change)).sum(0)
        error = np.nanstd(change, axis=0, ddof=1) / np.sqrt(count)
        scale = np.array([1, 100, 100])
        cells = (
            f"{value:+.{digits}f} ± {spread:.{digits}f}"
            for value, spread, digits in zip(mean * scale, error * scale, (3, 1, 1), strict=True)
        )
        yield f"| {title} | {' | '.join(cells)} |"


def _sorted(cases: Sequence[ScoredCase]) -> NDArray[np.float64]:
    return np.array([row[1:] for row in sorted(judged(cases), key=lambda row: row[0])], np.float64)


def main(folder: Path) -> None:
    """Print the table."""
    run = read([folder / "predictions.csv"], partial=True)
    known = known_blocks(load(resolve_weights(None)))
    cases = scored_cases(run, truths_of(folder / "truth.tsv"), RankingModel(), known)
    for line in table([case for case in cases if len(case.keys)]):
        print(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
