r"""Generated molecules and structures of the user's databases in one list, with one probability.

The truth is in the databases or it is not. If it is, it is one of their structures of the formula,
and the ranking that was fitted for these says which. If it is not, none of their structures is
right, and the ranking of generated molecules says which of the others is:

.. math:: P(c) = p\, q_d(c) \ \text{for structures of the databases}, \quad (1 - p)\, q_g(c)
    \ \text{for the others}

The probability p that the truth is in the databases is the user's belief (`database_share`, its
log-odds) moved by what the candidates say: see `evidence`.

The exact structure is seldom decidable; coarser answers often are. The level of a feature is the
finest one whose probability reaches what the user calls certain. C candidates.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import parse
from duallgd_cli.errors import ConfigError, UnreadableError
from duallgd_cli.ranking.ranking import (
    FEATURES,
    RankingModel,
    Scored,
    described,
    ranked,
    sigmoid,
    to_candidates,
)
from duallgd_cli.results import (
    Candidate,
    HypothesisResult,
    LikelyPart,
    Prediction,
    Results,
    Structure,
)
from duallgd_cli.sources import DATABASE, LIBRARY
from duallgd_cli.spectra.types import PREDICTED

# Features of a candidate that say how it came about and nothing of the molecule.
_OF_PROPOSALS: Final = ("log_share", "repaired_share")
_MOST_DIFFERENCE: Final = 20.0
_LEAST: Final = 1e-300  # a probability that has a logarithm
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


@dataclass(frozen=True, slots=True)
class Membership:
    """Weights of what says whether the truth is in the databases; see `evidence`.

    Attributes:
        constant: Log-odds but for what follows and the user's belief.
        advantage: Weight of the best score among structures of the databases less the best of the
            other generated molecules.
        leader: Weight of the confidence of the best structure of the databases, if the truth is one
            of them.
        peaks: Weight of how much more the peaks speak for the structure of the databases that
            they speak for most than for any of the others (score ``peaks_found``).
        environments: Weight of the same difference of ``known_environments``.
    """

    constant: float = 0.0
    advantage: float = 0.0
    leader: float = 0.0
    peaks: float = 0.0
    environments: float = 0.0

    @property
    def weights(self) -> NDArray[np.float64]:
        """In the order of `evidence`."""
        return np.array([self.constant, self.advantage, self.leader, self.peaks, self.environments])


# For the weights that come with this version, on 332 molecules of fold val; the command is in
# examples/studies/one_list.py.
FITTED: Final = Membership(
    constant=-0.3, advantage=0.2, leader=1.51, peaks=0.26, environments=-0.15
)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranks the candidates of a run.

    Attributes:
        generated: Weights and calibration for generated molecules.
        database: The same for structures of databases; None where the run has none.
        membership: Says whether the truth is in the databases.
        share: The user's belief that it is, above 0; at 1 nothing is generated.
    """

    generated: RankingModel
    database: RankingModel | None = None
    membership: Membership = Membership()
    share: float = 1.0

    @classmethod
    def recorded(
        cls, model: Mapping[str, Any], settings: Mapping[str, Any], name: object
    ) -> "Ranking":
        """The ranking of a finished run.

        Args:
            model: As the header of its journal has it.
            settings: Likewise.
            name: Of the run, for the message.

        Raises:
            UnreadableError: They are those of another version.
        """
        try:
            generated = parse(RankingModel, model["ranking"])
            if "database" not in model:
                return cls(generated)
            return cls(
                generated,
                parse(RankingModel, model["database"]),
                parse(Membership, model["membership"]),
                float(settings["sampling"]["database_share"]),
            )
        except (ConfigError, KeyError, TypeError, ValueError):
            raise UnreadableError(
                f"{name} was ranked by another version of duallgd; use that version, or predict "
                "again"
            ) from None

    def rank(
        self, results: Results, most: int | None = None
    ) -> tuple[tuple[Candidate, ...], float]:
        """Rank what was proposed for a feature.

        Returns:
            Candidates, best first, and the probability that the first ten hold the right one.
        """
        proposed = _proposed(results)
        if self.database is None:
            found = ranked(proposed, self.generated)
        elif self.share == 1:
            found = ranked(of_databases(proposed), self.database)
        else:
            found = self._in_one_list(proposed, self.database)
        return to_candidates(*with_library(*found, results), most)

    def _in_one_list(
        self, results: Results, database: RankingModel
    ) -> tuple[list[Scored], list[float]]:
        """Molecules of both kinds, best first, and their probabilities."""
        apart = all(result.formula_source == PREDICTED for result in results)
        each = [[result] for result in results] if apart else [results]
        found, confidence = [], []
        for together in each:
            chance = self.chance(together)
            for part, model, weight in (
                (of_databases(together), database, chance),
                (without_databases(together), self.generated, 1 - chance),
            ):
                molecules, conditional = ranked(part, model)
                found += molecules
                confidence += [weight * value for value in conditional]
        order = sorted(
            range(len(found)), key=lambda row: (-confidence[row], found[row].structure.inchikey)
        )
        rows = [found[n]._replace(score=math.log(max(confidence[n], _LEAST))) for n in order]
        return rows, [confidence[n] for n in order]

    def chance(self, results: Results) -> float:
        """The probability that the truth is in the databases, given one of these hypotheses."""
        if self.database is None:
            return 0.0
        told = evidence(results, self.generated, self.database)
        if told is None:
            return 0.0
        odds = math.log(self.share / (1 - self.share)) + float(told @ self.membership.weights)
        return float(sigmoid(np.array(odds)))


def with_library(
    scored: Sequence[Scored], confidence: Sequence[float], results: Results
) -> tuple[list[Scored], list[float]]:
    """Ranked molecules with the structure of the spectrum of a library that matches.

    It is right with the probability that such a match is; the others share what is left as they
    would share all.
    """
    hits = [hit for hit in map(_hit, results) if hit is not None]
    if not hits:
        return [*scored], [*confidence]
    own, probability = max(hits, key=itemgetter(1))
    blocks = [one.structure.block for one in scored]
    at = blocks.index(own.structure.block) if own.structure.block in blocks else None
    before = 0.0 if at is None else confidence[at]
    after = max(before, probability)
    left = (1 - after) / max(1 - before, _LEAST)
    rest = [pair for row, pair in enumerate(zip(scored, confidence, strict=True)) if row != at]
    first = own if at is None else scored[at]._replace(sources=own.sources)
    pairs = [(first, after), *((one, left * value) for one, value in rest)]
    pairs.sort(key=lambda pair: (-pair[1], pair[0].structure.inchikey))
    rows = [one._replace(score=math.log(max(value, _LEAST))) for one, value in pairs]
    return rows, [value for _, value in pairs]


def _hit(result: HypothesisResult) -> tuple[Scored, float] | None:
    """The structure that a library offers for a hypothesis, and how probably it is right."""
    match = result.known.get("library_match", {})
    block = match.get("inchikey", "")[:14] if match.get("offered") else ""
    structure = next((one for one in result.structures if one.block == block), None)
    if structure is None:
        return None
    alone = _with(result, [structure._replace(samples=max(structure.samples, 1))], count_all=True)
    ((_, _, features),) = described([alone])
    own = Scored(
        score=0.0,
        structure=structure,
        result=result,
        features=features,
        samples=structure.samples,
        log_likelihood=structure.log_likelihood,
        sources=structure.sources,
    )
    chance = math.exp(result.log_prior) if result.formula_source == PREDICTED else 1.0
    return own, chance * float(match.get("probability", 0.0))


def _proposed(results: Results) -> Results:
    """The same without a structure that a library alone proposed."""
    alone = (LIBRARY,)
    if not any(one.sources == alone for result in results for one in result.structures):
        return results
    return [
        _with(result, [s for s in result.structures if s.sources != alone]) for result in results
    ]


def of_databases(results: Results) -> list[HypothesisResult]:
    """The same with the structures of databases alone, each proposed once."""
    return [
        _with(
            result,
            [
                one._replace(samples=1, repaired=0)
                for one in result.structures
                if DATABASE in one.sources
            ],
            count_all=True,
        )
        for result in results
    ]


def without_databases(results: Results) -> list[HypothesisResult]:
    """The same without any structure of the databases."""
    return [
        _with(result, [one for one in result.structures if DATABASE not in one.sources])
        for result in results
    ]


def _with(
    result: HypothesisResult, structures: Sequence[Structure], *, count_all: bool = False
) -> HypothesisResult:
    sampled = len(structures) if count_all else result.sampled
    return replace(result, structures=tuple(structures), sampled=sampled, distinct=len(structures))


def evidence(
    results: Results, generated: RankingModel, database: RankingModel
) -> NDArray[np.float64] | None:
    """What says whether the truth is in the databases, in the order of `Membership`.

    Args:
        results: Of hypotheses of a feature.
        generated: Its scores compare structures of the databases with the others.
        database: Says which of the structures of the databases is right.

    Returns:
        (5,), or None where the databases have no structure.
    """
    inside, others = list[float](), list[float]()
    weights = np.where([name in _OF_PROPOSALS for name in FEATURES], 0.0, generated.weights)
    comparable = [
        _with(result, [one._replace(samples=1) for one in result.structures], count_all=True)
        for result in results
    ]
    for structure, _, features in described(comparable):
        (inside if DATABASE in structure.sources else others).append(float(features @ weights))
    if not inside:
        return None
    advantage = max(inside) - max(others) if others else _MOST_DIFFERENCE
    _, confidence = ranked(of_databases(results), database)
    return np.array(
        [
            1.0,
            min(max(advantage, -_MOST_DIFFERENCE), _MOST_DIFFERENCE),
            confidence[0],
            _best_difference(results, "peaks_found"),
            _best_difference(results, "known_environments"),
        ]
    )


def _best_difference(results: Results, score: str) -> float:
    """The best of a score among structures of databases, less the best among the others."""
    structures = [one for result in results for one in result.structures if score in one.scores]
    inside, others = (
        [one.scores[score] for one in structures if (DATABASE in one.sources) == is_inside]
        for is_inside in (True, False)
    )
    difference = max(inside) - max(others) if inside and others else 0.0
    return min(max(difference, -_MOST_DIFFERENCE), _MOST_DIFFERENCE)


class Level(NamedTuple):
    """What is certain of a feature.

    Attributes:
        name: One of `LEVELS`.
        schymanski: The level of Schymanski et al. that it corresponds to: 2a, 2b, 3, 4 or 5.
    """

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
    """The predictions with their levels.

    Args:
        predictions: Ranked, with parts if anybody asked.
        certain: Probability from which on a level is certain.
    """
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
