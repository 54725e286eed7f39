r"""Generated molecules and structures of the user's databases in one list, with one probability.

The truth is in the databases or it is not. If it is, it is one of their structures of the formula,
and the ranking that was fitted for these says which. If it is not, none of their structures is
right, and the ranking of generated molecules says which of the others is:

.. math:: P(c) = p\, q_d(c) \ \text{for structures of the databases}, \quad (1 - p)\, q_g(c)
    \ \text{for the others}

The probability p that the truth is in the databases is the user's belief (`database_share`, its
log-odds) moved by what the candidates say: see `evidence`. C candidates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import parse
from duallgd_cli.errors import ConfigError, UnreadableError
from duallgd_cli.ranking.ranking import (
    FEATURES,
    LEAST,
    RankingModel,
    Scored,
    described,
    ranked,
    scored_alone,
    sigmoid,
    to_candidates,
)
from duallgd_cli.results import (
    Candidate,
    HypothesisResult,
    Results,
    Structure,
)
from duallgd_cli.sources import DATABASE, LIBRARY
from duallgd_cli.spectra.types import PREDICTED

# Features of a candidate that say how it came about and nothing of the molecule.
_OF_PROPOSALS: Final = ("log_share", "repaired_share")
_MOST_DIFFERENCE: Final = 20.0


@dataclass(frozen=True, slots=True)
class Membership:
    """Weights of what says whether the truth is in the databases; see `evidence`.

    Attributes:
        constant: Log-odds but for what follows and the user's belief.
        advantage: Weight of the best score among structures of the databases less the best of the
            other generated molecules.
        leader: Weight of the confidence of the first structure of the databases among them.
        peaks: Weight of the same difference as `advantage` of the score ``peaks_found``.
        environments: Weight of that of ``known_environments``.
    """

    constant: float = 0.0
    advantage: float = 0.0
    leader: float = 0.0
    peaks: float = 0.0
    environments: float = 0.0


# For the weights that come with this version, on 332 molecules of fold val; the command is in
# examples/studies/one_list.py.
FITTED: Final = Membership(-0.3, 0.2, 1.51, 0.26, -0.15)


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
        """The ranking of a finished run, of a name, by the header of its journal.

        Raises:
            UnreadableError: It is that of another version.
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
        proposed = [  # without a structure that a library alone proposed
            _with(result, [one for one in result.structures if one.sources != (LIBRARY,)])
            if any(one.sources == (LIBRARY,) for one in result.structures)
            else result
            for result in results
        ]
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
            others = [
                _with(result, [one for one in result.structures if DATABASE not in one.sources])
                for result in together
            ]
            for part, model, weight in (
                (of_databases(together), database, chance),
                (others, self.generated, 1 - chance),
            ):
                molecules, conditional = ranked(part, model)
                found += molecules
                confidence += [weight * value for value in conditional]
        order = sorted(
            range(len(found)), key=lambda row: (-confidence[row], found[row].structure.inchikey)
        )
        rows = [found[n]._replace(score=math.log(max(confidence[n], LEAST))) for n in order]
        return rows, [confidence[n] for n in order]

    def chance(self, results: Results) -> float:
        """The probability that the truth is in the databases, given one of these hypotheses."""
        if self.database is None:
            return 0.0
        told = evidence(results, self.generated, self.database)
        if told is None:
            return 0.0
        odds = math.log(self.share / (1 - self.share)) + float(
            told @ np.array(astuple(self.membership))
        )
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
    hit, probability = max(hits, key=itemgetter(1))
    blocks = [one.structure.block for one in scored]
    at = blocks.index(hit.structure.block) if hit.structure.block in blocks else None
    before = 0.0 if at is None else confidence[at]
    after = max(before, probability)
    left = (1 - after) / max(1 - before, LEAST)
    rest = [pair for row, pair in enumerate(zip(scored, confidence, strict=True)) if row != at]
    first = hit if at is None else scored[at]._replace(sources=hit.sources)
    pairs = [(first, after), *((one, left * value) for one, value in rest)]
    pairs.sort(key=lambda pair: (-pair[1], pair[0].structure.inchikey))
    rows = [one._replace(score=math.log(max(value, LEAST))) for one, value in pairs]
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
    chance = math.exp(result.log_prior) if result.formula_source == PREDICTED else 1.0
    hit = scored_alone(0.0, structure, result, features)
    return hit, chance * float(match.get("probability", 0.0))


def of_databases(results: Results) -> list[HypothesisResult]:
    """The same with the structures of databases alone, each proposed once."""
    return [
        _with(
            result,
            [s._replace(samples=1, repaired=0) for s in result.structures if DATABASE in s.sources],
            count_all=True,
        )
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
    """What says whether the truth is in the databases, in the order of `Membership`, (5,).

    Scores of `generated` compare their structures with the others; `database` says which of them is
    right. None where the databases have no structure.
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
