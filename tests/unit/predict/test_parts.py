"""Parts: probabilities from samples and formula, and what is said of them."""

import pytest

from duallgd_cli.chem.parts import FATTY_ACYL, catalogue
from duallgd_cli.predict.parts import (
    FEWEST_SAMPLES,
    IMPLIED,
    LEAST,
    _row_of,
    bond_certainty,
    is_enough,
    likely_parts,
    sentence,
    telling,
)
from duallgd_cli.ranking.ranking import RankingModel, rank
from duallgd_cli.results import HypothesisResult, LikelyPart, Structure

FLAVONE = "O=c1cc(-c2ccccc2)oc2ccccc12"


def case(*smiles, formula="C15H10O2", samples=None, sampled=100):
    """Structures that were drawn equally often, or as often as it is said."""
    counts = samples or [20] * len(smiles)
    structures = tuple(
        Structure(text, text, f"{place:014d}-UHFFFAOYSA-N", count, 0, 0, -10.0)
        for place, (text, count) in enumerate(zip(smiles, counts, strict=True))
    )
    outcome = HypothesisResult("ok", formula=formula, structures=structures, sampled=sampled)
    return (outcome,)


def found_in(case):
    return likely_parts(case, rank(case, RankingModel())[0])


def part(name="hexose", kind="sugar", smarts="C", probability=0.9, prior=0.1):
    return LikelyPart(kind, name, smarts, probability, prior, probability)


def probability_of(name, found):
    return next((one.probability for one in found if one.name == name), 0.0)


def test_what_more_of_the_samples_have_is_likelier():
    other = "O=C(C#Cc1ccccc1)c1ccccc1O"
    many = found_in(case(FLAVONE, other, samples=[80, 10]))
    few = found_in(case(FLAVONE, other, samples=[10, 80]))

    assert probability_of("flavone core", many) > probability_of("flavone core", few)


def test_parts_come_likeliest_first_and_those_of_the_formula_stay_out():
    found = found_in(case(FLAVONE))

    assert [one.probability for one in found] == sorted(
        (one.probability for one in found), reverse=True
    )
    assert found
    assert all(LEAST <= one.probability < 1 and one.prior < IMPLIED for one in found)


def test_the_fitted_numbers_are_of_the_parts_of_the_catalogue():
    fitted = {name for name in _row_of() if name[0] != FATTY_ACYL}

    assert fitted == {(row["kind"], row["name"]) for row in catalogue()}


def test_of_hardly_any_samples_nothing_is_said():
    """The probabilities were fitted to draws of ten and more."""
    other = "O=C(C#Cc1ccccc1)c1ccccc1O"

    for sampled in (1, 2, 5, FEWEST_SAMPLES - 1):
        assert found_in(case(FLAVONE, other, samples=[1, 1], sampled=sampled)) == ()
    assert found_in(case(FLAVONE, other, samples=[5, 5], sampled=FEWEST_SAMPLES))
    assert is_enough(case(FLAVONE, sampled=FEWEST_SAMPLES))
    halves = [case(FLAVONE, sampled=FEWEST_SAMPLES // 2)[0]] * 2  # of two formulas
    assert is_enough(halves)


def test_bonds_that_all_candidates_share_are_certain():
    candidates, _ = rank(case("CCCCO", "CCCOC", formula="C4H10O"), RankingModel())
    first, second = bond_certainty(candidates, 2)

    assert max(first) == 1.0  # the methyl group at a chain
    assert min(first) == pytest.approx(0.5)
    assert len(second) == 4


def test_a_part_within_a_more_telling_one_is_not_repeated():
    flavone = part("flavone", "phenolic", "O=c1cc(-c2ccccc2)oc2ccccc12", 0.8, 0.01)
    phenyl = part("phenyl group", "aromatic pattern", "c1ccccc1", 0.9, 0.6)
    methyl = part("isolated methyl", "functional group", "[CH3]", 0.7, 0.2)

    chosen = telling([phenyl, flavone, methyl], [FLAVONE])

    assert [one.name for one in chosen] == ["flavone", "isolated methyl"]


def test_the_sentence_names_what_is_said_with_its_probability():
    found = [part(probability=0.94), part("indole", "ring system", probability=0.71)]

    assert sentence(found) == "contains a hexose (0.94) and an indole ring system (0.71)"
    assert sentence(found[:1]) == "contains a hexose (0.94)"
    assert sentence([part("N-methyl group")]) == "contains an N-methyl group (0.90)"
