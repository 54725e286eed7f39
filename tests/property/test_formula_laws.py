"""Laws of formulas by mass: of molecules, and of fragments within an ion."""

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
from duallgd_cli.spectra.annotation import SubformulaTable

MASSES = np.array(MASSES_DA)
# Any P S F Cl Br of at most three atoms together.
RARER_PARTS = np.array(
    [(*few, 0, 0, 0, 0) for few in itertools.product(range(4), repeat=5) if sum(few) <= 3]
)
SPACE = FormulaSpace(RARER_PARTS)


@st.composite
def molecules(draw):
    """Counts of closed-shell molecules of C, H, N, O and at most three rarer atoms."""
    counts = np.zeros(N_ELEMENTS, dtype=np.int16)
    for symbol, span in (("C", (1, 40)), ("N", (0, 6)), ("O", (0, 9))):
        counts[INDEX[symbol]] = draw(st.integers(*span))
    counts[RARER] = RARER_PARTS[draw(st.integers(0, len(RARER_PARTS) - 1))]
    formula = Formula(tuple(counts.tolist()))
    counts[HYDROGEN] = max(int(2 * formula.unsaturation) - 2 * draw(st.integers(0, 20)), 0)
    return counts


@given(molecules(), st.floats(-1, 1), st.sampled_from(("CHNO", "CHNOPS", "CHNOCl2", "C, H, O")))
def test_a_molecule_the_rules_allow_is_found_by_its_mass_if_it_has_no_other_elements(
    counts, error, elements
):
    mass, largest = float(counts @ MASSES), np.array(parse_elements(elements))
    tolerance = 5e-6 * mass
    asked = mass + error * tolerance * 0.999, tolerance

    found = SPACE.find(*asked)
    few = FormulaSpace(RARER_PARTS, largest.tolist()).find(*asked)

    assert (found == counts).all(axis=1).any() == are_possible(counts[None], 0)[0]
    assert few.tolist() == found[(found <= largest).all(axis=1)].tolist()


@given(st.floats(30, 900), st.floats(1e-4, 5e-3), st.sampled_from((0, 1)))
def test_what_is_found_has_the_mass_obeys_the_rules_and_comes_once(mass, tolerance, charge):
    found = SPACE.find(mass, tolerance, charge)

    assert (np.abs(found @ MASSES - mass) <= tolerance + 1e-9).all()
    assert are_possible(found, charge).all()
    assert np.unique(codes(found)).size == len(found)
    for counts in found[:20].tolist():
        formula = Formula(tuple(counts), charge)
        assert formula.has_even_electrons
        assert formula.unsaturation >= 0


@given(st.tuples(*(st.integers(0, largest) for largest in LARGEST)))
def test_a_code_names_one_formula_and_too_large_a_count_has_none(counts):
    large, negative = [LARGEST[0] + 1, *counts[1:]], [counts[0], -1, *counts[2:]]

    code = codes(np.array([counts, large, negative]))

    assert decoded(code[:1]).tolist() == [[*counts]]
    assert code[1:].tolist() == [-1, -1]


@pytest.mark.parametrize(
    "text",
    ["", "HNO", "CHX", "CHNO!", "12", "CC'", "C H N O Uuo", "CHNOPt", "CH-N", "chno", "C0H4"],
)
def test_elements_that_make_no_molecule_are_refused_in_a_sentence(text):
    with pytest.raises(ConfigError, match="elements must be symbols with C among them"):
        FormulaSettings(elements=text)


# Twice the rings and double bonds, less 2, of an atom; by lowest valences, written out again.
EXCESS = np.array([2, 1, 0, 1, 0, -1, -1, -1, -1, 1, 2, 0, -1])  # C N O P S F Cl Br I B Si Se H
SMALL_IONS = st.tuples(
    st.integers(0, 6),
    *(st.integers(0, 2) for _ in range(4)),
    *(st.integers(0, 1) for _ in range(N_ELEMENTS - 6)),
    st.integers(0, 14),
).filter(lambda counts: 0 < sum(map(bool, counts)) <= 6)


@given(SMALL_IONS, st.data(), st.sampled_from([2e-4, 0.02, 0.6]))
def test_the_search_of_fragments_equals_brute_force(ion, data, tolerance_da):
    mass = float(np.array([data.draw(st.integers(0, n)) for n in ion]) @ MASSES) + 1e-4
    every = np.array(list(itertools.product(*(range(n + 1) for n in ion))))
    fits = (np.abs(mass - every @ MASSES) <= tolerance_da) & (every @ EXCESS >= -3)

    matches = SubformulaTable(ion, float(ion @ MASSES)).find(
        np.array([mass]), np.array([tolerance_da])
    )

    found = matches.counts.astype(int)
    assert sorted(found.tolist()) == sorted(every[fits].tolist())
    assert matches.excess.tolist() == (found @ EXCESS).tolist()


@given(
    st.tuples(*(st.integers(0, 12) for _ in range(N_ELEMENTS - 1)), st.integers(0, 60)),
    st.lists(st.floats(1, 600), min_size=1, max_size=4),
    st.floats(1e-5, 2e-3),
)
def test_every_fragment_lies_within_the_ion_and_the_tolerance(ion, masses, tolerance_da):
    wanted = np.array(masses)

    table = SubformulaTable(ion, min(float(ion @ MASSES), 200.0))
    matches = table.find(wanted, np.full(wanted.size, tolerance_da))

    error_da = wanted[matches.owner] - matches.counts @ MASSES
    assert (matches.counts >= 0).all()
    assert (matches.counts <= np.array(ion)).all()
    np.testing.assert_allclose(matches.error_da, error_da, atol=1e-9)
    assert (np.abs(error_da) <= tolerance_da + 1e-9).all()
    assert (np.diff(matches.owner) >= 0).all()
