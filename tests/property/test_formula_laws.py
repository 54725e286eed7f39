"""Laws of the enumeration of molecular formulas by mass."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import HYDROGEN, INDEX, MASSES_DA, N_ELEMENTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import ConfigError
from duallgd_cli.formulas import FormulaSettings
from duallgd_cli.formulas.composition import (
    LARGEST,
    RARER,
    FormulaSpace,
    are_possible,
    codes,
    decoded,
    parse_elements,
)

MASSES = np.array(MASSES_DA)
# Any P S F Cl Br of at most three atoms together.
RARER_PARTS = np.array(
    [
        (p, s, f, cl, br, 0, 0, 0, 0)
        for p, s, f, cl, br in itertools.product(range(4), repeat=5)
        if p + s + f + cl + br <= 3
    ]
)
SPACE = FormulaSpace(RARER_PARTS)


@st.composite
def molecules(draw):
    """Counts of closed-shell molecules of C, H, N, O and at most three rarer atoms."""
    counts = np.zeros(N_ELEMENTS, dtype=np.int16)
    counts[0] = draw(st.integers(1, 40))
    counts[INDEX["N"]], counts[INDEX["O"]] = draw(st.integers(0, 6)), draw(st.integers(0, 9))
    counts[RARER] = RARER_PARTS[draw(st.integers(0, len(RARER_PARTS) - 1))]
    trivalent = int(counts[INDEX["N"]] + counts[INDEX["P"]])
    monovalent = int(counts[[INDEX["F"], INDEX["Cl"], INDEX["Br"]]].sum())
    most = 2 * int(counts[0]) + 2 + trivalent - monovalent
    counts[HYDROGEN] = max(most - 2 * draw(st.integers(0, 20)), 0)
    return counts


def text(counts):
    return str(Formula(tuple(int(n) for n in counts)))


@given(molecules(), st.floats(-1, 1))
def test_a_molecule_the_rules_allow_is_found_by_its_mass(counts, error):
    mass = float(counts @ MASSES)
    tolerance = 5e-6 * mass

    found = SPACE.find(mass + error * tolerance * 0.999, tolerance)

    assert (found == counts).all(axis=1).any() == are_possible(counts[None], 0)[0]


@given(st.floats(30, 900), st.floats(1e-4, 5e-3), st.sampled_from((0, 1)))
def test_what_is_found_has_the_mass_obeys_the_rules_and_comes_once(mass, tolerance, charge):
    found = SPACE.find(mass, tolerance, charge)

    assert (np.abs(found @ MASSES - mass) <= tolerance + 1e-9).all()
    assert are_possible(found, charge).all()
    assert np.unique(codes(found)).size == len(found)
    for counts in found[:20]:
        formula = Formula(tuple(int(n) for n in counts), charge)
        assert formula.has_even_electrons
        assert formula.unsaturation >= 0


@given(molecules(), st.sampled_from(("CHNO", "CHNOS", "CHNOPS", "CHNOCl2", "C, H, O")))
def test_elements_restrict_what_is_found_and_nothing_else(counts, elements):
    largest = np.array(parse_elements(elements))
    mass = float(counts @ MASSES)

    found = FormulaSpace(RARER_PARTS, largest.tolist()).find(mass, 2e-3)

    everything = SPACE.find(mass, 2e-3)
    expected = everything[(everything <= largest).all(axis=1)]
    assert (found == expected).all()


@given(st.tuples(*(st.integers(0, largest) for largest in LARGEST)))
def test_a_code_names_one_formula(counts):
    array = np.array([counts])

    assert (decoded(codes(array)) == array).all()


def test_a_count_too_large_for_a_code_has_none():
    counts = np.zeros((2, N_ELEMENTS), dtype=np.int64)
    counts[0, 0], counts[1, 1] = LARGEST[0] + 1, -1

    assert codes(counts).tolist() == [-1, -1]


@pytest.mark.parametrize(
    "text",
    [
        *("", "HNO", "CHX", "CHNO!", "12", "CC'", "C H N O Uuo"),
        *("CHNOPt", "CH-N", "chno", "C0H4"),
    ],
)
def test_elements_that_make_no_molecule_are_refused_in_a_sentence(text):
    with pytest.raises(ConfigError, match="elements must be symbols with C among them"):
        FormulaSettings(elements=text)
