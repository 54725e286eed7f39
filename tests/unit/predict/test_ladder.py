"""The finest level whose probability reaches what the user calls certain."""

import math
from dataclasses import replace

import pytest

from duallgd_cli.ranking.ladder import LEVELS, level_of, with_level
from duallgd_cli.ranking.ranking import RankingModel, rank
from duallgd_cli.results import (
    Candidate,
    HypothesisResult,
    LikelyPart,
    SpectrumReference,
    predictions_of,
)
from duallgd_cli.spectra.types import Source
from tests.unit.predict.test_ranking import outcome, structure


def candidate(confidence, of_family=0.0, of_scaffold=0.0):
    return Candidate(
        1, "C", "InChI", "K" * 27, "CH4", "[M+H]+", 1, None, 0.0, confidence,
        family="C", family_confidence=max(confidence, of_family), scaffold="acyclic",
        scaffold_confidence=max(confidence, of_family, of_scaffold),
    )  # fmt: skip


PART = LikelyPart("sugar", "hexose", "O", 0.8, 0.1, 0.9)


@pytest.mark.parametrize(
    ("candidates", "formula", "parts", "expected"),
    [
        ([candidate(0.96)], 1.0, None, ("structure", "2b")),
        ([candidate(0.75)], 1.0, None, ("structure", "3")),
        ([candidate(0.5, 0.71)], 1.0, None, ("family", "3")),
        ([candidate(0.1, 0.2, 0.7)], 1.0, None, ("scaffold", "3")),
        ([candidate(0.1, 0.2, 0.3)], 1.0, [PART], ("parts", "3")),
        ([candidate(0.1, 0.2, 0.3)], 0.9, [], ("formula", "4")),
        ([candidate(0.1, 0.2, 0.3)], 0.69, None, ("nothing", "5")),
        ([], 0.9, None, ("formula", "4")),
        ([], 0.0, None, ("nothing", "5")),
    ],
)
def test_the_finest_that_is_certain(candidates, formula, parts, expected):
    assert level_of(candidates, formula, 0.7, parts) == expected


def test_a_match_of_a_library_is_2a_whatever_is_certain():
    assert level_of([candidate(0.1)], 0.2, 0.7, in_library=True) == ("nothing", "2a")


@pytest.mark.parametrize("certain", [0.05, 0.3, 0.5, 0.7, 0.95, 1.0])
def test_who_asks_for_more_certainty_gets_no_finer_level(certain):
    candidates = [candidate(0.4, 0.6, 0.8)]

    strict, mild = (level_of(candidates, 0.99, value) for value in (certain, certain / 2))

    assert LEVELS.index(strict.name) >= LEVELS.index(mild.name)


def test_confidence_of_a_family_is_the_sum_of_its_candidates_written_or_not():
    structures = [
        structure("A", 5, family="x", scaffold="s"),
        structure("B", 4, family="x", scaffold="s"),
        structure("C", 3, family="y", scaffold="s"),
    ]

    every, _ = rank((outcome(*structures, sampled=12),), RankingModel())
    (first,), _ = rank((outcome(*structures, sampled=12),), RankingModel(), 1)

    by_name = {one.smiles: one for one in every}
    both = by_name["A"].confidence + by_name["B"].confidence
    assert by_name["A"].family_confidence == by_name["B"].family_confidence == pytest.approx(both)
    assert by_name["C"].family_confidence == pytest.approx(by_name["C"].confidence)
    assert by_name["C"].scaffold_confidence == pytest.approx(both + by_name["C"].confidence)
    assert first.family_confidence == pytest.approx(both)


def test_a_predicted_formula_is_as_certain_as_it_is_probable():
    reference = SpectrumReference(Source("a.mgf", 0), "a")
    result = HypothesisResult(
        "no_candidate", formula="CH4", adduct="[M+H]+", spectra=(reference,),
        log_prior=math.log(0.8), formula_source="predicted",
    )  # fmt: skip

    (said,) = with_level(predictions_of((result,), (), 0.0, 10), 0.7)
    (unsaid,) = with_level(
        predictions_of((replace(result, log_prior=math.log(0.6)),), (), 0.0, 10), 0.7
    )

    assert (said.level, unsaid.level) == ("formula", "nothing")


def test_a_spectrum_that_was_not_predicted_has_no_level():
    reference = SpectrumReference(Source("a.mgf", 0), "a", status="unreadable", message="broken")
    result = HypothesisResult("unreadable", "broken", spectra=(reference,))

    (one,) = with_level(predictions_of((result,), (), 0.0, 10), 0.7)

    assert (one.level, one.schymanski) == ("", "")
