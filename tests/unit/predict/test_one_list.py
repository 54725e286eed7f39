"""Generated molecules and structures of databases in one list, by the law of total probability.

And the finest level whose probability reaches what the user calls certain.
"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli import config
from duallgd_cli.errors import UnreadableError
from duallgd_cli.ranking.one_list import (
    Membership,
    Ranking,
    of_databases,
    predictions_of,
    with_level,
)
from duallgd_cli.ranking.ranking import RankingModel, rank
from duallgd_cli.results import (
    Candidate,
    HypothesisResult,
    LikelyPart,
    Prediction,
    SpectrumReference,
)
from duallgd_cli.spectra.types import Source
from tests.unit.predict.test_ranking import outcome, structure

GENERATED = RankingModel(n_spectra=9, present=0.0)
OF_DATABASE = RankingModel(n_spectra=9, present=2.0)


def in_database(name, **values):
    return structure(name, 0, sources=("database",), log_likelihood=None, **values)


def both(name, samples, **values):
    return structure(name, samples, sources=("database", "noise"), **values)


def ranking(share=0.5, **membership):
    return Ranking(GENERATED, OF_DATABASE, Membership(**membership), share)


def confidences(candidates):
    return {one.smiles: one.confidence for one in candidates}


MIXED = (structure("A", 5, fingerprint_tanimoto=0.5), in_database("D", fingerprint_tanimoto=0.4),
         both("E", 3, fingerprint_tanimoto=0.7), structure("B", 1))  # fmt: skip


def test_each_is_its_confidence_in_its_world_times_the_probability_of_that_world():
    result = (outcome(*MIXED, sampled=9),)
    model = ranking(0.3)

    candidates, first_ten = model.rank(result)

    inside = confidences(rank(of_databases(result), OF_DATABASE)[0])
    outside = (replace(result[0], structures=(MIXED[0], MIXED[3])),)
    others = confidences(rank(outside, GENERATED)[0])
    expected = {name: 0.3 * value for name, value in inside.items()}
    expected |= {name: 0.7 * value for name, value in others.items()}
    assert confidences(candidates) == pytest.approx(expected)
    assert first_ten == pytest.approx(sum(expected.values()))
    assert [one.confidence for one in candidates] == pytest.approx(
        sorted(expected.values(), reverse=True)
    )


def test_who_is_certain_gets_the_structures_of_the_database_alone():
    candidates, _ = ranking(1.0).rank((outcome(*MIXED, sampled=9),))

    assert {one.smiles for one in candidates} == {"D", "E"}
    assert all(one.log_likelihood is None or one.smiles == "E" for one in candidates)


@given(
    share=st.floats(0.01, 0.99),
    samples=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    membership=st.tuples(*[st.floats(-3, 3)] * 4),
)
def test_all_confidences_are_probabilities_whatever_the_weights(share, samples, membership):
    structures = [
        both(f"{n}", count) if count % 3 else in_database(f"{n}") if n % 2 else structure(f"{n}", 1)
        for n, count in enumerate(samples)
    ]
    model = Ranking(GENERATED, OF_DATABASE, Membership(*membership), share)

    candidates, first_ten = model.rank((outcome(*structures, sampled=99),))

    values = [one.confidence for one in candidates]
    assert len({one.inchikey14 for one in candidates}) == len(candidates) == len(structures)
    assert all(0 <= value <= 1 for value in values)
    assert math.fsum(values) <= 1 + 1e-9
    assert first_ten == pytest.approx(math.fsum(values[:10]))


def test_under_predicted_formulas_each_formula_has_its_own_list_times_its_probability():
    alone = outcome(*MIXED, sampled=9)
    predicted = replace(alone, formula_source="predicted", log_prior=math.log(0.25))

    given_formula = confidences(ranking().rank((alone,))[0])
    found = confidences(ranking().rank((predicted,))[0])

    assert found == pytest.approx({name: 0.25 * value for name, value in given_formula.items()})


def test_without_weights_the_probability_is_what_the_user_believes():
    assert ranking(0.2).chance((outcome(*MIXED, sampled=9),)) == pytest.approx(0.2)
    assert ranking(0.2).chance((outcome(structure("A", 5), sampled=9),)) == 0
    alone = (outcome(in_database("D", fingerprint_tanimoto=0.9), sampled=0),)
    better = ranking(advantage=0.5, leader=0.5)
    assert 0.5 < better.chance((outcome(*MIXED, sampled=9),)) < better.chance(alone) < 1


def test_a_header_brings_the_ranking_back_and_another_versions_is_refused():
    model = {
        "ranking": config.dump(GENERATED),
        "database": config.dump(OF_DATABASE),
        "membership": config.dump(Membership(advantage=0.5)),
    }
    settings = {"sampling": {"database_share": 0.4}}

    assert Ranking.recorded(model, settings, "x.csv") == ranking(0.4, advantage=0.5)
    with pytest.raises(UnreadableError, match="another version"):
        Ranking.recorded({**model, "membership": {"rivalry": 1.0}}, settings, "x.csv")
    with pytest.raises(UnreadableError, match="another version"):
        Ranking.recorded(model, {}, "x.csv")


def matched(*structures, probability, block="L", offered=True, **values):
    """A hypothesis with the best match of a library."""
    match = {
        "inchikey": structure(block).inchikey, "offered": offered, "probability": probability,
    }  # fmt: skip
    return outcome(*structures, known={"library_match": match}, **values)


IN_LIBRARY = structure("L", 0, sources=("library",), log_likelihood=None, fingerprint_tanimoto=0.2)
DRAWN = (structure("A", 5, fingerprint_tanimoto=0.6), structure("B", 3, fingerprint_tanimoto=0.5))


def test_the_structure_of_a_matching_spectrum_is_as_probable_as_such_matches_are_right():
    plain = confidences(Ranking(GENERATED).rank((outcome(*DRAWN),))[0])

    ranked, ten = Ranking(GENERATED).rank((matched(*DRAWN, IN_LIBRARY, probability=0.9),))

    first, *others = ranked
    assert (first.smiles, first.rank, first.samples) == ("L", 1, 0)
    assert first.confidence == pytest.approx(0.9)
    assert first.sources == ("library",)
    assert math.exp(first.score) == pytest.approx(0.9)
    shares = {one.smiles: one.confidence for one in others}
    assert shares == pytest.approx({name: 0.1 * value for name, value in plain.items()})
    assert ten == pytest.approx(0.9 + 0.1 * sum(plain.values()))


def test_a_match_that_was_generated_too_keeps_the_higher_probability():
    both = structure("A", 5, sources=("library", "noise"), fingerprint_tanimoto=0.6)
    plain = confidences(Ranking(GENERATED).rank((outcome(*DRAWN),))[0])

    low, high = (
        confidences(
            Ranking(GENERATED).rank((matched(both, DRAWN[1], block="A", probability=probability),))[
                0
            ]
        )
        for probability in (plain["A"] / 2, 0.95)
    )

    assert low == pytest.approx(plain)
    assert high["A"] == pytest.approx(0.95)
    assert high["B"] == pytest.approx(plain["B"] * 0.05 / (1 - plain["A"]))


def test_under_a_predicted_formula_a_match_is_as_probable_as_the_formula_lets_it():
    likely, unlikely = (
        matched(
            *DRAWN, IN_LIBRARY,
            probability=0.9, formula_source="predicted", log_prior=math.log(chance),
            formula=formula,
        )
        for chance, formula in ((0.6, "C9H8O4"), (0.4, "C8H4O5"))
    )  # fmt: skip

    ranked, _ = Ranking(GENERATED).rank((likely, unlikely))

    assert confidences(ranked)["L"] == pytest.approx(0.54)
    assert sum(confidences(ranked).values()) <= 1


@given(
    probability=st.floats(0, 1),
    share=st.floats(0.01, 0.99),
    block=st.sampled_from(["A", "D", "E", "L"]),
)
def test_with_a_database_and_a_library_all_probabilities_sum_to_one_at_most(
    probability, share, block
):
    structures = MIXED if block != "L" else (*MIXED, IN_LIBRARY)

    ranked, _ = ranking(share).rank(
        (matched(*structures, block=block, probability=probability, sampled=9),)
    )

    values = [one.confidence for one in ranked]
    assert values == sorted(values, reverse=True)
    assert sum(values) <= 1 + 1e-9
    assert confidences(ranked)[block] >= probability - 1e-9
    assert len(ranked) == len(structures)


PART = LikelyPart("sugar", "hexose", "O", 0.8, 0.1, 0.9)


def level_of(*confidences, certain=0.7, formula=1.0, parts=None, **match):
    """Level of a feature whose first candidate, its family and its scaffold are so probable."""
    tried = HypothesisResult(
        *("ok", "", "CH4", "[M+H]+"), log_prior=math.log(formula), known={"library_match": match}
    )
    structure, family, scaffold = [*confidences, *confidences[-1:] * 2][:3] or (0.0, 0.0, 0.0)
    first = Candidate(
        1, "C", "InChI", "K" * 27, "CH4", "[M+H]+", 1, None, 0.0, structure, sources=("library",),
        family="C", family_confidence=family, scaffold="acyclic", scaffold_confidence=scaffold,
    )  # fmt: skip
    one = Prediction(
        Source("a.mgf", 0), "a", formula="CH4", adduct="[M+H]+", hypotheses=(tried,),
        candidates=(first,) if confidences else (), parts=parts,
    )  # fmt: skip
    leveled = with_level(one, certain)
    return leveled.level, leveled.schymanski


@pytest.mark.parametrize(
    ("confidences", "others", "expected"),
    [
        ([0.96], {}, ("structure", "2b")),
        ([0.75], {}, ("structure", "3")),
        ([0.7], {}, ("structure", "3")),
        ([0.5, 0.71], {}, ("family", "3")),
        ([0.1, 0.2, 0.7], {}, ("scaffold", "3")),
        ([0.1, 0.2, 0.3], {"parts": [PART]}, ("parts", "3")),
        ([0.1, 0.2, 0.3], {"parts": [], "formula": 0.9}, ("formula", "4")),
        ([0.1, 0.2, 0.3], {"formula": 0.69}, ("nothing", "5")),
        ([], {"formula": 0.9}, ("formula", "4")),
        ([], {"formula": 0.6}, ("nothing", "5")),
        ([0.1], {"formula": 0.2, "found": True}, ("nothing", "2a")),
    ],
)
def test_the_finest_that_is_certain(confidences, others, expected):
    assert level_of(*confidences, **others) == expected


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


@pytest.mark.parametrize(
    ("status", "chance", "level"),
    [("no_candidate", 0.8, "formula"), ("no_candidate", 0.6, "nothing"), ("unreadable", 1.0, "")],
)
def test_a_predicted_formula_is_as_certain_as_it_is_probable(status, chance, level):
    """A spectrum that was not predicted has no level."""
    spectrum = "unreadable" if status == "unreadable" else "ok"
    reference = SpectrumReference(Source("a.mgf", 0), "a", status=spectrum)
    result = HypothesisResult(
        status, formula="CH4", adduct="[M+H]+", spectra=(reference,),
        log_prior=math.log(chance), formula_source="predicted",
    )  # fmt: skip

    (one,) = predictions_of((result,), (), 0.0, 10, 0.7)

    assert (one.level, bool(one.schymanski)) == (level, bool(level))
