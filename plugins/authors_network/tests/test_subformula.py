"""Peaks and sub-formulas as the reference encoder wants them."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duallgd_authors_network import encoder as reference
from duallgd_authors_network.encoder import assign, process_peaks, reference_peaks, reordered
from duallgd_cli.chem.adduct import BY_NAME, parse_adduct
from duallgd_cli.chem.formula import Formula

PROTON_DA = 1.00782503223 - 0.00054858


def counts(formula):
    return reordered(Formula.parse(formula).array).tolist()


def peaks_of(adduct, mz=(44.0,)):
    return reference_peaks(Formula.parse("C9H8O4"), adduct, np.array(mz), np.ones(len(mz)))


@given(
    st.lists(st.floats(20, 200), min_size=1, max_size=8),
    st.sampled_from(["C3H7NO2", "C4H4N2O2", "C2H6OS", "C6H5Cl", "CH4"]),
)
@example([16.5], "CH4")  # no other element
def test_each_peak_gets_the_nearest_of_all_sub_multisets(peaks, formula):
    whole, mz = Formula.parse(formula), np.array(peaks)
    every = [Formula(part) for part in product(*(range(n + 1) for n in whole.counts))]
    possible = [p for p in every if reordered(p.array) @ reference._UNSATURATION >= -2]
    masses = np.array([part.atoms_mass for part in possible]) + PROTON_DA

    peak, found = assign(whole, BY_NAME["[M+H]+"], mz, tolerance_ppm=2000.0)

    nearest = np.abs(masses - mz[:, None]).argmin(1)
    deviation = np.abs(masses[nearest] - mz) / np.maximum(mz, 200) * 1e6
    inside = np.flatnonzero(deviation < 2000.0)
    assert peak.tolist() == inside.tolist()
    assert found.tolist() == [reordered(possible[row].array).tolist() for row in nearest[inside]]


def test_the_adduct_goes_to_every_fragment():
    sodium = np.array([Formula.parse("C2H4").atoms_mass + 22.98976928 - 0.00054858])

    _, found = assign(Formula.parse("C2H6O"), BY_NAME["[M+Na]+"], sodium)

    assert found.tolist() == [counts("C2H4")]


def test_peaks_are_merged_cut_scaled_and_ordered_at_most_sixty():
    mz = np.array([50.00001, 50.00002, 80.0, 101.5, 60.0])
    merged = process_peaks(mz, np.array([1.0, 4.0, 16.0, 99.0, 1e-9]), precursor_mz=100.0)
    many, _ = process_peaks(np.linspace(50, 150, 80), np.linspace(1, 2, 80), None)

    assert [column.tolist() for column in merged] == [[80.0, 50.00001], [1.0, 0.5]]
    assert (len(many), many[0]) == (reference.MAX_PEAKS, 150)


def test_the_whole_ion_comes_last_or_alone():
    got = peaks_of(BY_NAME["[M+NH4]+"])

    assert got.counts[0, -1].tolist() == counts("C9H8O4")
    assert (got.token_type[0, -1], got.intensity[0, -1]) == (reference.WHOLE_TYPE, 1)
    assert got.adduct.unique().tolist() == [4]
    assert got.n_tokens.tolist() == [got.counts.shape[1]]
    assert peaks_of(BY_NAME["[M+H]+"], ()).counts.shape == (1, 1, 18)


@pytest.mark.parametrize("spelling", ["[M-H+2Na]+", "[M+2Na-H]+", "M+H-2H2O", "[M-H4O2+H]+"])
def test_an_ion_is_known_however_it_is_spelled(spelling):
    adduct = peaks_of(parse_adduct(spelling)).adduct

    assert adduct.unique().tolist() == [7 if "Na" in spelling else 6]


def test_what_the_reference_does_not_know_is_named():
    with pytest.raises(ValueError, match=r"knows \[M\+H\]\+.* not '\[M-H\]-'"):
        peaks_of(BY_NAME["[M-H]-"])
