"""What is certain of a feature.

The exact structure is seldom decidable; coarser answers often are. The level of a feature is the
finest one whose probability reaches what the user calls certain.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from duallgd_cli.results import Candidate, LikelyPart, Prediction
from duallgd_cli.sources import LIBRARY

LEVELS: Final = ("structure", "family", "scaffold", "parts", "formula", "nothing")
# Confidence levels of Schymanski et al. 2014 (doi 10.1021/es5002105): 2a library match, 2b no other
# structure fits, 3 tentative candidates, 4 formula, 5 mass. A prediction alone is 2b at most.
_SCHYMANSKI: Final = {
    "structure": "3",
    "family": "3",
    "scaffold": "3",
    "parts": "3",
    "formula": "4",
}
_NO_OTHER_FITS: Final = 0.95


class Level(NamedTuple):
    """What is certain of a feature: one of `LEVELS`, and the level of Schymanski et al. of that."""

    name: str
    schymanski: str


def level_of(
    candidates: Sequence[Candidate],
    formula_probability: float,
    certain: float,
    parts: Sequence[LikelyPart] | None = None,
    in_library: bool = False,
) -> Level:
    """The finest level whose probability is at least `certain`.

    Args:
        candidates: Of the feature, best first.
        formula_probability: Of the formula of the first; 1 for one that was given.
        certain: Above 0, at most 1.
        parts: What the structure contains; None if nobody asked.
        in_library: Whether a library has a spectrum that matches.
    """
    reached = chances(candidates, formula_probability, parts)
    name = next((name for name, value in reached.items() if value >= certain), "nothing")
    if in_library:
        return Level(name, "2a")
    if reached["structure"] >= max(certain, _NO_OTHER_FITS):
        return Level(name, "2b")
    return Level(name, _SCHYMANSKI.get(name, "5"))


def chances(
    candidates: Sequence[Candidate],
    formula_probability: float,
    parts: Sequence[LikelyPart] | None = None,
) -> dict[str, float]:
    """How probable the best answer of each level is, finest first; arguments as of `level_of`."""
    return {
        "structure": max((one.confidence for one in candidates), default=0.0),
        "family": max((one.family_confidence for one in candidates), default=0.0),
        "scaffold": max((one.scaffold_confidence for one in candidates), default=0.0),
        "parts": max((part.probability for part in parts or ()), default=0.0),
        "formula": formula_probability,
    }


def formula_chance(prediction: Prediction) -> float:
    """How probable the formula of a prediction is; 1 for one that was given, 0 without any."""
    named = (prediction.formula, prediction.adduct)
    hypotheses = ((one.formula, one.adduct, one.log_prior) for one in prediction.hypotheses)
    return next(
        (math.exp(prior) for *names, prior in hypotheses if names[0] and tuple(names) == named), 0.0
    )


def with_level(predictions: Iterable[Prediction], certain: float) -> Iterator[Prediction]:
    """Ranked predictions with their levels; one is certain from this probability on."""
    for prediction in predictions:
        if not prediction.hypotheses:
            yield prediction
            continue
        first = prediction.candidates[:1]
        level = level_of(
            prediction.candidates,
            formula_chance(prediction),
            certain,
            prediction.parts,
            in_library=bool(first)
            and LIBRARY in first[0].sources
            and bool(prediction.library_match.get("found")),
        )
        yield replace(prediction, level=level.name, schymanski=level.schymanski)
