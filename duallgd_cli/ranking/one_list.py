r"""From what was proposed for a feature to its predictions: one list, one probability, one level.

Structures of the user's databases stand among generated molecules. The truth is in the databases or
it is not. If it is, it is one of their structures of the formula, and the ranking that was fitted
for these says which. If it is not, none of their structures is right, and the ranking of generated
molecules says which of the others is:

.. math:: P(c) = p\, q_d(c) \ \text{for structures of the databases}, \quad (1 - p)\, q_g(c)
    \ \text{for the others}

The probability p that the truth is in the databases is the user's belief (`database_share`, its
log-odds) moved by what the candidates say: see `evidence`.

The exact structure is seldom decidable; coarser answers often are. The level of a feature is the
finest one whose probability reaches what the user calls certain. C candidates.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.config import parse
from duallgd_cli.errors import ConfigError, Failure, UnreadableError, counted
from duallgd_cli.ranking.ranking import (
    FEATURES,
    LEAST,
    RankingModel,
    Scored,
    described,
    ranked,
    sigmoid,
    to_candidates,
)
from duallgd_cli.results import (
    OK,
    Candidate,
    FeatureResult,
    HypothesisResult,
    LikelyPart,
    Prediction,
    Results,
    SpectrumReference,
    Structure,
    sentences,
)
from duallgd_cli.sources import DATABASE, LIBRARY
from duallgd_cli.spectra.types import PREDICTED, Source

LEVELS: Final = ("structure", "family", "scaffold", "parts", "formula", "nothing")
# Features of a candidate that say how it came about and nothing of the molecule.
_OF_PROPOSALS: Final = ("log_share", "repaired_share")
_MOST_DIFFERENCE: Final = 20.0
_NO_OTHER_FITS: Final = 0.95  # probability of a structure from which on it is of level 2b
_MOST_NAMED: Final = 50  # spectra of one feature that each of them names


@dataclass(frozen=True, slots=True)
class Membership:
    """Weights of what says whether the truth is in the databases; see `evidence`."""

    constant: float = 0.0  # log-odds but for what follows and the user's belief
    # weight of the best score among structures of the databases less the best of the other
    # generated molecules
    advantage: float = 0.0
    # weight of the confidence of the first structure of the databases among them
    leader: float = 0.0
    peaks: float = 0.0  # weight of the same difference as `advantage` of the score ``peaks_found``
    environments: float = 0.0  # weight of that of ``known_environments``


# For the weights that come with this version, on 332 molecules of fold val; the command is in
# examples/studies/one_list.py.
FITTED: Final = Membership(-0.3, 0.2, 1.51, 0.26, -0.15)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranks the candidates of a run."""

    generated: RankingModel  # weights and calibration for generated molecules
    # the same for structures of databases; None where the run has none
    database: RankingModel | None = None
    membership: Membership = Membership()  # says whether the truth is in the databases
    share: float = 1.0  # the user's belief that it is, above 0; at 1 nothing is generated

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
        """Candidates for a feature, and the probability that the first ten hold the right one."""
        proposed = [  # without a structure that a library alone proposed
            _with(result, [one for one in result.structures if one.sources != (LIBRARY,)])
            for result in results
        ]
        if self.database is None:
            molecules, confidence = ranked(proposed, self.generated)
        elif self.share == 1:
            molecules, confidence = ranked(of_databases(proposed), self.database)
        else:
            molecules, confidence = self._in_one_list(proposed, self.database)
        return to_candidates(*with_library(molecules, confidence, results), most)

    def _in_one_list(
        self, results: Results, database: RankingModel
    ) -> tuple[list[Scored], list[float]]:
        """Molecules of both kinds, best first, and their probabilities."""
        apart = all(result.formula_source == PREDICTED for result in results)
        pairs = list[tuple[Scored, float]]()
        for together in [[result] for result in results] if apart else [results]:
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
                pairs += [
                    (one, weight * value) for one, value in zip(molecules, conditional, strict=True)
                ]
        return _best_first(pairs)

    def chance(self, results: Results) -> float:
        """The probability that the truth is in the databases, given one of these hypotheses."""
        if self.database is None:
            return 0.0
        told = evidence(results, self.generated, self.database)
        if told is None:
            return 0.0
        odds = math.log(self.share / (1 - self.share)) + told @ np.array(astuple(self.membership))
        return float(sigmoid(np.array(odds)))


def _best_first(pairs: list[tuple[Scored, float]]) -> tuple[list[Scored], list[float]]:
    """Molecules by their probability, the logarithm of which is now their score."""
    pairs.sort(key=lambda pair: (-pair[1], pair[0].structure.inchikey))
    rows = [one._replace(score=math.log(max(value, LEAST))) for one, value in pairs]
    return rows, [value for _, value in pairs]


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
    first = hit
    if at is not None:
        sources = hit.structure.sources
        first = scored[at]._replace(structure=scored[at].structure._replace(sources=sources))
    return _best_first([(first, after), *((one, left * value) for one, value in rest)])


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
    hit = Scored(0.0, structure, result, features)
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
    return replace(result, structures=tuple(structures), sampled=sampled)


def evidence(
    results: Results, generated: RankingModel, database: RankingModel
) -> NDArray[np.float64] | None:
    """What says whether the truth is in the databases, in the order of `Membership`, (5,).

    Scores of `generated` compare their structures with the others; `database` says which of them is
    right. None where the databases have no structure.
    """
    weights = np.where([name in _OF_PROPOSALS for name in FEATURES], 0.0, generated.weights)
    comparable = [
        _with(result, [one._replace(samples=1) for one in result.structures], count_all=True)
        for result in results
    ]
    scores = [(one, float(features @ weights)) for one, _, features in described(comparable)]
    if not any(DATABASE in one.sources for one, _ in scores):
        return None
    _, confidence = ranked(of_databases(results), database)
    peaks, environments = (
        _lead([(one, one.scores[name]) for one, _ in scores if name in one.scores], 0.0)
        for name in ("peaks_found", "known_environments")
    )
    advantage = _lead(scores, _MOST_DIFFERENCE)
    return np.array([1.0, advantage, confidence[0], peaks, environments])


def _lead(scores: Sequence[tuple[Structure, float]], otherwise: float) -> float:
    """The best score of structures of databases less the best of the others, within bounds."""
    inside = [value for one, value in scores if DATABASE in one.sources]
    others = [value for one, value in scores if DATABASE not in one.sources]
    difference = max(inside) - max(others) if inside and others else otherwise
    return min(max(difference, -_MOST_DIFFERENCE), _MOST_DIFFERENCE)


def predictions_of(
    feature: FeatureResult,
    candidates: tuple[Candidate, ...],
    confidence_top10: float,
    top_k: int,
    certain: float,
    parts: tuple[LikelyPart, ...] | None = None,
) -> list[Prediction]:
    """The predictions of a feature's spectra, in their order.

    Spectra read together share their candidates, those of `Ranking.rank`, of which ``top_k`` are
    kept; one that could not be used has its own status and none. From a probability of ``certain``
    on an answer counts. Parts are what the structure contains, None if nobody asked.
    """
    results, predictions = feature.hypotheses, []
    first = results[0]
    # What is read together; likewise what cannot be used for one reason, such as a whole feature.
    alike: defaultdict[object, tuple[Source, ...]] = defaultdict(tuple)
    for one in feature.spectra:
        alike[one.status, one.status == OK or one.remarks] += (one.source,)
    together = alike[OK, True]
    # What accompanies candidates is a warning; hypotheses share many of them.
    failed = [one for one in results if one.status != OK or not candidates]
    odd = [text for one in results if one not in failed for text in one.message.split("; ")]
    said = [one.message for one in failed]
    if len(results) > 1:
        said = [f"{one.formula} {one.adduct}: {one.message}" for one in failed if one.message]
    for spectrum in feature.spectra:
        adduct = parse_adduct(spectrum.adduct_text)
        written = spectrum.adduct_text if isinstance(adduct, Failure) else adduct.name
        values = {own.name: getattr(spectrum, own.name) for own in fields(SpectrumReference)}
        if first.adduct:
            values["adduct_source"] = first.adduct_source
        prediction = Prediction(
            **values,
            formula=first.formula or spectrum.formula_text,
            adduct=first.adduct or written,
            group=alike[spectrum.status, spectrum.status == OK or spectrum.remarks],
            seconds=sum(result.seconds for result in results),
        )
        if spectrum.status == OK:
            prediction = replace(prediction, hypotheses=results, parts=parts)
            others = [str(source.index) for source in together if source != spectrum.source]
            if spectrum.source != together[0] and len(others) > _MOST_NAMED:
                others = [others[0], f"{len(others) - 1} more"]  # the first alone says all of them
            read = f"read together with index {', '.join(others)}" if others else ""
            refused = (result.status for result in results if result.status != OK)
            told, guessed = (*spectrum.warnings.split("; "), *odd), spectrum.assumptions.split("; ")
            prediction = with_level(
                replace(
                    prediction,
                    status=OK if candidates else next(refused, "no_candidate"),
                    message=sentences(*said, read, _in_library(prediction.library_match)),
                    candidates=candidates[:top_k],
                    confidence_top10=confidence_top10,
                    warnings=sentences(*(text for text in told if text not in guessed)),
                ),
                certain,
            )
        elif parts is not None:
            prediction = replace(prediction, parts=())
        predictions.append(prediction)
    return predictions


def _in_library(match: Mapping[str, Any]) -> str:
    """What a spectral library says of a feature, "" if nothing."""
    if not match:
        return ""
    found = "found in" if match.get("found") else "nearest of its mass in"
    matched = f"cosine {match['score']:.2f}, {counted(match['matched_peaks'], 'peak')}"
    return f"{found} {match['library']}: {match['name'] or match['smiles']} ({matched})"


def chances(prediction: Prediction) -> dict[str, float]:
    """How probable the best answer of each level is, finest first."""
    candidates, parts = prediction.candidates, prediction.parts or ()
    # 1 for a formula that was given, 0 without any.
    named = prediction.formula, prediction.adduct
    prior = (
        one.log_prior
        for one in prediction.hypotheses
        if one.formula and (one.formula, one.adduct) == named
    )
    return {
        "structure": max((one.confidence for one in candidates), default=0.0),
        "family": max((one.family_confidence for one in candidates), default=0.0),
        "scaffold": max((one.scaffold_confidence for one in candidates), default=0.0),
        "parts": max((part.probability for part in parts), default=0.0),
        "formula": math.exp(next(prior, -math.inf)),
    }


def without_parts(prediction: Prediction, certain: float) -> Prediction:
    """The prediction as it is where nobody asked for parts; they may have said the level."""
    if prediction.parts is None:
        return prediction
    plain = replace(prediction, parts=None)
    return with_level(plain, certain) if plain.level else plain


def with_level(prediction: Prediction, certain: float) -> Prediction:
    """The prediction with the finest level whose probability is at least `certain`.

    Beside it stands the level of Schymanski et al. 2014 (doi 10.1021/es5002105): 2a library match,
    2b no other structure fits, 3 tentative candidates, 4 formula, 5 mass.
    """
    reached, first = chances(prediction), prediction.candidates[:1]
    level = next((name for name, value in reached.items() if value >= certain), "nothing")
    if first and LIBRARY in first[0].sources and prediction.library_match.get("found"):
        schymanski = "2a"
    elif reached["structure"] >= max(certain, _NO_OTHER_FITS):
        schymanski = "2b"
    else:
        schymanski = {"formula": "4", "nothing": "5"}.get(level, "3")
    return replace(prediction, level=level, schymanski=schymanski)
