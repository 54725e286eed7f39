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

FLAVONE, OTHER = "O=c1cc(-c2ccccc2)oc2ccccc12", "O=C(C#Cc1ccccc1)c1ccccc1O"


def case(*smiles, samples=(20, 20), sampled=100, formula="C15H10O2"):
    """A hypothesis whose structures were drawn so often."""
    structures = tuple(
        Structure(text, text, f"{place:014d}-UHFFFAOYSA-N", samples[place], 0, 0, -10.0)
        for place, text in enumerate(smiles)
    )
    return HypothesisResult("ok", formula=formula, structures=structures, sampled=sampled)


def ranked(*tried):
    return rank(tried, RankingModel())[0]


def found_in(tried):
    return likely_parts((tried,), ranked(tried))


def part(name="hexose", kind="sugar", smarts="C", probability=0.9, prior=0.1):
    return LikelyPart(kind, name, smarts, probability, prior, probability)


def test_parts_that_more_of_the_samples_have_are_likelier_and_those_of_the_formula_stay_out():
    many, few = (
        found_in(case(FLAVONE, OTHER, samples=samples)) for samples in ((80, 10), (10, 80))
    )

    cores = [[one for one in found if one.name == "flavone core"] for found in (many, few)]
    likely, unlikely = (core[0].probability if core else 0 for core in cores)
    assert likely > unlikely
    assert cores[0][0].share > 0.5
    assert many == tuple(sorted(many, key=lambda one: -one.probability))
    assert all(LEAST <= one.probability < 1 and one.prior < IMPLIED for one in many)


def test_the_fitted_numbers_are_of_the_parts_of_the_catalogue():
    fitted = {name for name in _row_of() if name[0] != FATTY_ACYL}

    assert fitted == {(row["kind"], row["name"]) for row in catalogue()}


@pytest.mark.parametrize("sampled", [1, 5, FEWEST_SAMPLES - 1, FEWEST_SAMPLES])
def test_of_hardly_any_samples_nothing_is_said(sampled):
    """The probabilities were fitted to draws of ten and more."""
    found = found_in(case(FLAVONE, OTHER, samples=[1, 1], sampled=sampled))

    assert bool(found) == (sampled == FEWEST_SAMPLES)
    assert is_enough([case(FLAVONE, sampled=FEWEST_SAMPLES // 2)] * 2)  # of two formulas


def test_bonds_that_all_candidates_share_are_certain():
    candidates = ranked(case("CCCCO", "CCCOC", formula="C4H10O"))

    first, second = bond_certainty(candidates, 2)

    assert max(first) == 1.0  # the methyl group at a chain
    assert min(first) == pytest.approx(0.5)
    assert (len(second), len(bond_certainty(candidates, 1))) == (4, 1)


def test_a_part_within_a_more_telling_one_is_not_repeated():
    flavone = part("flavone", "phenolic", "O=c1cc(-c2ccccc2)oc2ccccc12", 0.8, 0.01)
    phenyl = part("phenyl group", "aromatic pattern", "c1ccccc1", 0.9, 0.6)
    methyl = part("isolated methyl", "functional group", "[CH3]", 0.7, 0.2)
    unlikely = part("furan", "ring system", "c1ccoc1", 0.4, 0.01)

    chosen = telling([phenyl, flavone, methyl, unlikely], [FLAVONE])

    assert [one.name for one in chosen] == ["flavone", "isolated methyl"]
    # A part tells the more the further it moves from its prior.
    rare, usual = (
        part("rare", probability=0.5, prior=0.05),
        part("usual", smarts="O", probability=0.95, prior=0.3),
    )
    assert [one.name for one in telling([rare, usual], [], 1)] == ["usual"]


def test_the_sentence_names_what_is_said_with_its_probability():
    found = [part(probability=0.94), part("indole", "ring system", probability=0.71)]

    assert sentence(found) == "contains a hexose (0.94) and an indole ring system (0.71)"
    assert sentence(found[:1]) == "contains a hexose (0.94)"
    assert sentence([part("N-methyl group")] * 3) == (
        "contains an N-methyl group (0.90), an N-methyl group (0.90) and an N-methyl group (0.90)"
    )


@pytest.mark.parametrize(
    "spoken",
    ["a urea", "a uracil ring system", "an unsaturated acid", "an ester", "an N,N-dimethylamide"],
)
def test_the_article_is_as_names_are_spoken(spoken):
    name, is_ring = spoken.partition(" ")[2].removesuffix(" ring system"), "ring" in spoken
    kind = "ring system" if is_ring else "functional group"

    assert sentence([part(name, kind)]) == f"contains {spoken} (0.90)"
