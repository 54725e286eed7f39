"""Laws of adducts, cleaning, grouping and of texts of formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from duallgd_cli.chem.adduct import ADDUCTS, fits, infer_adduct, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.formulas import from_text
from duallgd_cli.spectra.reading.quantities import collision_energy_ev
from duallgd_cli.spectra.types import Feature
from tests.made_spectra import made_spectrum

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def molecules(draw):
    """Formulas of closed-shell molecules C, N, O, S, H with something for every adduct to take."""
    c, n, o, s = (draw(st.integers(*span)) for span in ((1, 40), (0, 8), (1, 12), (0, 3)))
    unsaturation = draw(st.integers(0, c))
    h = 2 * c + n + 2 - 2 * unsaturation
    return Formula.parse(f"C{c}H{h}N{n}O{o}S{s}")


@given(molecules(), st.sampled_from(ADDUCTS))
def test_the_adduct_comes_back_from_formula_and_precursor(formula, adduct):
    if not fits(formula, adduct):
        return

    found = infer_adduct(formula, precursor_mz(formula, adduct), adduct.polarity, 1)

    assert adduct in found


@given(st.sampled_from(ADDUCTS), st.integers(0, 5))
def test_blanks_never_change_an_adduct(adduct, at):
    assert parse_adduct(f"{adduct.name[:at]} {adduct.name[at:]} ") == adduct


NEUTRAL = st.sampled_from(["ACN", "H2O", "NH3", "MeOH", "FA", "CO2", "DMSO", "HBr"])
CHARGED = {1: ["H", "Na", "K", "Li", "NH4", "Ag"], -1: ["Cl", "Br", "CF3COO", "HCOO", "NO3"]}


@st.composite
def adducts(draw):
    """Texts of adducts: molecules, up to two neutral groups, and groups that carry a charge."""
    polarity, size = draw(st.sampled_from([1, -1])), draw(st.integers(1, 3))
    neutral = draw(st.lists(st.tuples(st.sampled_from("+-"), NEUTRAL), max_size=2))
    carriers = [f"+{draw(st.sampled_from(CHARGED[polarity]))}" for _ in range(size)]
    if polarity < 0 and draw(st.booleans()):
        carriers = [f"-{size}H"]
    groups = draw(st.permutations([*(sign + text for sign, text in neutral), *carriers]))
    molecules = draw(st.sampled_from(["", "2", "3"]))
    return f"[{molecules}M{''.join(groups)}]{size}{'+' if polarity > 0 else '-'}"


@given(molecules(), adducts())
def test_an_adduct_is_read_back_from_its_name_and_a_mass_from_its_mz(formula, text):
    adduct = parse_adduct(text)

    again, mass = parse_adduct(adduct.name), adduct.neutral_mass(precursor_mz(formula, adduct))

    assert (again, again.name) == (adduct, adduct.name)
    assert abs(adduct.charge) == int(text[-2])
    assert adduct.trained.polarity == adduct.polarity
    assert mass == pytest.approx(formula.mass, abs=1e-9)
    assert adduct.carriers[0][:3] == (0, "", 0)
    whole = adduct.carriers[-1]
    assert (whole.molecules, whole.charge) == (adduct.molecules - 1, adduct.charge)


@given(st.text(max_size=30) | st.text("M[]()+-0123456789HNaKClOC2.* ", max_size=40))
def test_any_text_is_an_adduct_or_a_failure_and_an_energy_or_none(text):
    adduct, energy = parse_adduct(text), collision_energy_ev(text, 300.0, "orbitrap")

    assert isinstance(adduct, Failure) or parse_adduct(adduct.name) == adduct
    assert energy is None or 0 < energy <= 1000


@given(st.data())
def test_cleaning_keeps_its_promises_and_is_idempotent(data):
    n = data.draw(st.integers(0, 40))
    mz = data.draw(arrays.arrays(np.float64, n, elements=ANY_FLOAT))
    intensity = data.draw(arrays.arrays(np.float64, n, elements=ANY_FLOAT))
    settings = CleaningSettings(max_peaks=data.draw(st.integers(1, 10)))
    precursor = data.draw(st.none() | st.floats(1, 2000))

    with np.errstate(all="raise", under="ignore"):
        cleaned = clean(made_spectrum(mz, intensity, precursor_mz=precursor), settings)

    if cleaned.failure is not None:
        assert cleaned.failure.status == "no_peaks"
        return
    assert 1 <= cleaned.mz.size <= settings.max_peaks
    assert (np.diff(cleaned.mz) > 0).all()
    assert cleaned.intensity.max() == 1
    assert np.isfinite(cleaned.intensity).all()
    assert (cleaned.intensity >= 0).all()
    again = clean(cleaned, settings)
    np.testing.assert_array_equal(again.mz, cleaned.mz)
    np.testing.assert_array_equal(again.intensity, cleaned.intensity)


@given(st.lists(st.tuples(st.sampled_from(["", "1", "2"]), st.sampled_from([100.0, 200.0]))))
def test_grouping_loses_nothing_and_keeps_the_order_of_the_first_members(cases):
    items = [
        made_spectrum(precursor_mz=mz, feature_id=fid, index=index)
        for index, (fid, mz) in enumerate(cases)
    ]

    features = list(group(items))

    firsts = [feature.first.source.index for feature in features]
    members = [s.source.index for feature in features for s in feature.spectra]
    assert firsts == sorted(firsts)
    assert sorted(members) == list(range(len(items)))


@given(st.text(max_size=15), st.none() | st.floats(0.001, 3000), st.text(max_size=10))
def test_any_formula_and_adduct_text_gives_a_hypothesis_or_a_failure(formula, mz, adduct):
    spectrum = made_spectrum(precursor_mz=mz, adduct_text=adduct)

    result = from_text(Feature((spectrum,)), formula)

    assert isinstance(result, Failure) or len(result) == 1
