"""Which MS1 spectra belong to a feature, and what is read from them."""

import numpy as np
import pytest

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.spectra import reading
from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.ms1 import isotope_pattern
from duallgd_cli.spectra.reading import parents_first
from duallgd_cli.spectra.types import ISOTOPES
from tests.made_spectra import made_spectrum, ms1_peaks

FORMULA = "C16H20ClN5O3"


def mz_of(formula=FORMULA, adduct="[M+H]+"):
    return precursor_mz(Formula.parse(formula), parse_adduct(adduct))


def spectrum(index=0, level=2, peaks=((91.05, 1.0),), adduct="[M+H]+", **fields):
    named = {"precursor_mz": mz_of(adduct=adduct), "adduct_text": adduct, "ms_level": level}
    return made_spectrum(*np.array(sorted(peaks)).T, index=index, **named | fields)


def ms1(index=0, adduct="[M+H]+", scale=1e6, more=(), formula=FORMULA, **fields):
    return spectrum(index, 1, [*ms1_peaks(formula, adduct, scale), *more], adduct, **fields)


def shown(*items, by="feature"):
    return [feature.isotopes for feature in group(items, by)]


def test_scans_that_their_ms1_scan_encloses_are_read_after_it(monkeypatch):
    # Number, level, and the number of the scan that encloses it.
    nested = (
        (2, 2, "1"),
        (3, 2, "1"),
        (1, 1, ""),
        (5, 2, "4"),
        (4, 1, ""),
        (6, 2, "4"),
        (8, 2, "7"),
    )
    scans = [
        spectrum(at, level, scans=str(number), metadata={"precursor_scan": of} if of else {})
        for at, (number, level, of) in enumerate(nested)
    ]

    assert [one.source.index for one in parents_first(scans)] == [2, 0, 1, 4, 3, 5, 6]
    monkeypatch.setattr(reading, "_MOST_WAITING", 2)  # of a file without MS1 not all wait
    alone = parents_first(one for one in scans if one.ms_level == 2)
    next(alone)
    assert [one.source.index for one in alone] == [1, 3, 5, 6]


@pytest.mark.parametrize("adduct", ["[M+H]+", "[M+2H]2+", "[2M+Na]+", "[M-H]-"])
def test_isotopes_are_read_at_the_distances_of_the_charge(adduct):
    pattern = isotope_pattern(ms1(adduct=adduct), spectrum(adduct=adduct))

    main, *others = pattern.intensity
    ratio = dict(zip(ISOTOPES, np.array(others) / main, strict=True))
    molecules = parse_adduct(adduct).molecules
    assert ratio[1] == pytest.approx(0.193 * molecules, rel=0.05)
    assert ratio[2] == pytest.approx(0.343 if molecules == 1 else 0.72, rel=0.05)
    assert ratio[-2] == ratio[-1] == 0


def test_ions_beside_the_isotopes_are_not_taken_for_them():
    others = [(mz_of() + offset, 5e5) for offset in (-2.0157, -1.0078, 0.5, 1.02, 2.0157, 4.0313)]

    beside = isotope_pattern(ms1(more=others), spectrum(instrument="orbitrap"))

    assert beside.intensity == isotope_pattern(ms1(), spectrum()).intensity


@pytest.mark.parametrize("ms1_is_first", [True, False])
def test_ms1_spectra_of_a_feature_are_added_up_wherever_they_stand(ms1_is_first):
    own = [ms1(0, feature_id="7"), ms1(1, feature_id="7", scale=3e6)]
    other = ms1(2, feature_id="8")
    members = [spectrum(3, feature_id="7"), spectrum(4, feature_id="7"), spectrum(5)]
    items = [*own, other, *members] if ms1_is_first else [*members, other, *own]

    both, alone = group(items)

    assert (len(both.spectra), len(alone.spectra)) == (2, 1)
    sums = [isotope_pattern(one, members[0]).intensity[0] for one in own]
    assert both.isotopes.intensity[0] == pytest.approx(sum(sums))
    assert alone.isotopes is None  # it names no feature


def test_which_ms1_spectra_do_not_count():
    bare, weak = ms1(0, precursor_mz=None), ms1(2, scale=10.0, precursor_mz=None)
    negative = ms1(1, precursor_mz=None, polarity=-1)
    rid = spectrum(1, 1, [(362.1378, 1.0)], precursor_mz=None)  # of isotopes
    before, after = spectrum(0, feature_id="7"), spectrum(2, feature_id="7")

    none, first, second = shown(spectrum(9), bare, spectrum(1), weak, spectrum(3))

    assert none is None
    assert first.intensity[0] > 1e5 > second.intensity[0]  # of the last one before
    for items, is_shown in (
        ([ms1(0, precursor_mz=300.0), spectrum(2)], [False]),
        ([negative, spectrum(2, polarity=1)], [False]),
        ([bare, negative, spectrum(2, polarity=1)], [True]),
        ([ms1(), spectrum(file="b.mgf")], [False]),  # of another file
        ([ms1()], []),  # they are no features
        ([rid, spectrum(2)], [False]),
    ):
        assert [one is not None for one in shown(*items)] == is_shown
    first, second = shown(before, ms1(1, feature_id="7"), after, by="none")
    assert (first, second is None) == (None, False)


@pytest.mark.parametrize(
    ("formula", "heavier", "adduct"),
    [
        ("C8H10N4O2", 1.00336, "[M+H]+"),  # a tenth as strong
        ("C30H48O3", 2.0067, "[M-H]-"),
        ("C30H40N4O6", 1.00336, "[M+2H]2+"),
        ("C9H10ClNO2", 1.99705, "[M+H]+"),
        ("C9H10BrNO2", 1.99795, "[M+H]+"),
    ],
)
def test_an_isotope_that_was_chosen_as_the_precursor_is_known(formula, heavier, adduct):
    survey, mono = ms1(formula=formula, adduct=adduct, precursor_mz=None), mz_of(formula, adduct)
    z = abs(parse_adduct(adduct).charge)
    near = np.abs((survey.mz - mono) * z - heavier) < 0.004
    chosen = survey.mz[near][survey.intensity[near].argmax()]

    (found,) = group([survey, spectrum(1, adduct=adduct, precursor_mz=chosen)])

    assert found.first.monoisotopic_mz == pytest.approx(mono, abs=1e-4)
    of_mono = isotope_pattern(survey, spectrum(adduct=adduct, precursor_mz=mono))
    assert found.isotopes.intensity == pytest.approx(of_mono.intensity)
    (said,) = found.first.assumptions
    assert f"at m/z {found.first.monoisotopic_mz:.4f}" in said
    assert "the precursor is taken for its isotope" in said


def not_an_isotope(survey, mz):
    (found,) = group([survey, spectrum(1, precursor_mz=mz)])
    return (found.first.monoisotopic_mz, found.first.assumptions) == (None, ())


@pytest.mark.parametrize(
    "formula", ["C8H10N4O2", "C9H10BrNO2", "C6H7BO2", "C11H13BN2O4", "C5H11NO2Se", "C12H10Se2"]
)
def test_the_monoisotopic_ion_is_not_taken_for_an_isotope(formula):
    assert not_an_isotope(ms1(formula=formula, precursor_mz=None), mz_of(formula))


BELOW = {"one hydrogen": (1.00783, 5e6), "no 13C": (0.99640, 5e6), "weaker": (1.00336, 5e5)}
BELOW |= {"500 times as strong: less than a carbon atom": (1.00336, 5e8), "half": (0.50168, 5e6)}
BELOW |= {"two hydrogens": (2.01565, 2e6)}


@pytest.mark.parametrize(("below", "height"), BELOW.values(), ids=list(BELOW))
def test_another_ion_below_the_precursor_is_not_taken_for_the_monoisotopic_one(below, height):
    peaks = [(mz_of() - below, height), (mz_of(), 1e6), (mz_of() + 1.00336, 2e5)]

    assert not_an_isotope(spectrum(0, 1, peaks, precursor_mz=None), mz_of())
