"""How probable it is that the best hit of a library is right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.sources.library import WEIGHTS, Hit, Match, best_hit, features_of, probability_of

SCORES = st.floats(0, 1)
PEAKS = st.integers(0, 300)
ASPIRIN, CAFFEIC_ACID = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)C=Cc1ccc(O)c(O)c1"
ETHANOL = "CCO"


@given(SCORES, PEAKS, PEAKS, st.none() | SCORES)
def test_it_is_a_probability_for_any_hit(similarity, matched, peaks, following):
    probability = probability_of(Hit(similarity, matched, peaks, following))

    assert 0 < probability < 1


@given(SCORES, SCORES, PEAKS, PEAKS, PEAKS, st.none() | SCORES)
def test_it_rises_with_similarity_and_with_matched_peaks(one, other, first, second, peaks, rival):
    lower, higher = sorted((one, other))
    few, many = sorted((first, second))

    assert probability_of(Hit(lower, few, peaks, rival)) <= probability_of(
        Hit(higher, few, peaks, rival)
    )
    assert probability_of(Hit(lower, few, peaks, rival)) <= probability_of(
        Hit(lower, many, peaks, rival)
    )


@given(SCORES, SCORES, SCORES, PEAKS, PEAKS)
def test_it_falls_as_another_structure_comes_near(similarity, one, other, matched, peaks):
    far, near = sorted((one, other))

    assert probability_of(Hit(similarity, matched, peaks, near)) <= probability_of(
        Hit(similarity, matched, peaks, far)
    )


def test_every_feature_has_a_weight():
    assert len(features_of(Hit(0.5, 4, 9, 0.4))) == len(WEIGHTS)


def match(score, smiles, peaks=9, is_same=True):
    return Match(score, peaks, smiles, "", "lib.mgf", is_same)


def test_the_best_of_the_formula_is_taken_and_other_structures_are_its_rivals():
    matches = [
        match(0.99, CAFFEIC_ACID, is_same=False),
        match(0.98, ETHANOL),
        match(0.9, ASPIRIN, peaks=7),
        match(0.85, "CC(=O)Oc1c(C(O)=O)cccc1"),  # the same
        match(0.8, CAFFEIC_ACID),
        match(0.7, r"O=C(O)/C=C/c1ccc(O)c(O)c1"),
    ]

    assert best_hit(matches, "C9H8O4", 12) == (matches[2], Hit(0.9, 7, 12, 0.8))
    assert best_hit(matches[:4], "C9H8O4", 12) == (matches[2], Hit(0.9, 7, 12, None))
    assert best_hit(matches, "C2H6O", 1) == (matches[1], Hit(0.98, 9, 1, None))
    assert best_hit(matches, "CH4", 12) is None
    assert best_hit([], "C9H8O4", 12) is None


@pytest.mark.parametrize("smiles", ["[Fe]CCO", "CC[Se]C"])
def test_structures_of_other_elements_have_no_formula_of_a_query(smiles):
    assert best_hit([match(0.9, smiles)], "C9H8O4", 3) is None


@pytest.mark.parametrize(
    ("hit", "probability"),
    [
        (Hit(0.95, 12, 15), 0.963),  # nothing else of the formula
        (Hit(0.95, 12, 15, 0.3), 0.934),
        (Hit(0.95, 12, 15, 0.93), 0.702),  # an isomer that is as similar
        (Hit(0.7, 4, 10), 0.827),
        (Hit(1.0, 1, 1), 0.868),
        (Hit(0.3, 1, 5, 0.3), 0.080),
    ],
)
def test_hits_as_they_come(hit, probability):
    assert round(probability_of(hit), 3) == probability
