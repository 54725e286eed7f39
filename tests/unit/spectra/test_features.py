"""Grouping of spectra into features."""

import pytest

from duallgd_cli.spectra.features import group
from duallgd_cli.spectra.reading.record import unreadable
from duallgd_cli.spectra.types import Source
from tests.made_spectra import made_spectrum


def spectrum(index, feature_id="", mz=181.05, adduct="[M+H]+", file="a.mgf", **more):
    named = {"precursor_mz": mz, "feature_id": feature_id, "adduct_text": adduct} | more
    return made_spectrum(index=index, file=file, **named)


def indices(items, by="feature"):
    return [
        [s.source.index for s in item.spectra] if item.first.failure is None else "unreadable"
        for item in group(items, by)
    ]


def test_spectra_of_one_feature_are_read_together_in_the_order_of_the_first():
    items = [spectrum(0, "7"), spectrum(1, "8"), spectrum(2, "7"), spectrum(3), spectrum(4, "8")]

    assert indices(items) == [[0, 2], [1, 4], [3]]
    assert indices(items, "none") == [[0], [1], [2], [3], [4]]
    bad, other = unreadable(Source("a.mgf", 1), "torn"), spectrum(0, "7", file="b.mgf")
    assert indices([items[0], bad, items[2], other]) == [[0, 2], "unreadable", [0]]
    numbers = iter(range(3))
    next(group(map(spectrum, numbers)))  # without ids they stream through
    assert list(numbers) == [1, 2]


def test_one_adduct_for_all_goes_before_their_own_and_says_so():
    items = [spectrum(0, "7"), spectrum(1, "7", adduct="[M+Na]+"), spectrum(2, adduct="")]

    same, alone = group(items, "feature", "[M+Na]+")

    assert [one.adduct_text for one in (*same.spectra, alone.first)] == ["[M+Na]+"] * 3
    said = ("the adduct [M+Na]+ is used, not the spectrum's [M+H]+",)
    assert [one.warnings for one in same.spectra] == [said, ()]


def test_another_precursor_adduct_formula_or_level_is_another_feature():
    differences = (
        *({}, {"mz": 203.03}, {"adduct": "M+H"}, {"adduct": "[M+Na]+"}, {"mz": 181.0505}),
        *({"formula_text": "C9H8O4"}, {"formula_text": "C9H9O4"}, {"ms_level": 3}, {"mz": None}),
        *({"mz": None}, {"feature_id": "8"}),
    )
    items = [spectrum(n, **{"feature_id": "7"} | one) for n, one in enumerate(differences)]

    assert indices(items) == [[0, 2, 4, 5, 6], [1], [3], [7], [8, 9], [10]]


@pytest.mark.parametrize(
    ("first", "other", "what"),
    [
        ({"retention_time_s": 100.0}, {"retention_time_s": 900.0}, "retention time"),
        ({"charge": 1}, {"charge": 2}, "charge"),
        ({"polarity": 1}, {"polarity": -1}, "ion mode"),
        ({}, {"mz": 203.03}, "precursor m/z"),
        ({}, {"adduct": "[M+Na]+"}, "adduct"),
        ({"formula_text": "C9H8O4"}, {"formula_text": "C10H12O3"}, "formula"),
        # What one of two leaves out does not part them and holds for both.
        ({"retention_time_s": 100.0}, {"retention_time_s": 150.0}, ""),
        ({"retention_time_s": 100.0}, {}, ""),
        ({"charge": 1, "polarity": 1}, {}, ""),
    ],
)
def test_what_differs_between_spectra_of_one_id_parts_them_and_is_said(first, other, what):
    items = [spectrum(0, "7", **other), spectrum(1, "7", **first), spectrum(2, "8")]

    *found, alone = group(items)

    said = (f"spectra of FEATURE_ID 7 differ in {what} and are read apart",) if what else ()
    assert [len(one.spectra) for one in found] == ([1, 1] if what else [2])
    assert {s.warnings for one in found for s in one.spectra} == {said}
    if not what:
        assert {s.polarity for s in found[0].spectra} == {first.get("polarity", 0)}
    assert alone.first.warnings == ()


def test_an_id_that_all_spectra_of_a_file_have_groups_none_of_them():
    items = [spectrum(n, "1", mz=mz) for n, mz in enumerate((181.05, 195.08765, 181.05, 301.14))]

    assert indices(items) == [[0], [1], [2], [3]]
    said = ("FEATURE_ID 1, the only one of the file, is of several precursors and groups none",)
    assert {one.first.warnings for one in group(items)} == {said}


FRAGMENTS = {"peaks": [(110.0713, 600.0), (138.0662, 1000.0)]}
ISOTOPES = [(195.08765, 1e4), (196.0906, 980.0), (197.0930, 80.0)]
MS1 = {"peaks": [*ISOTOPES, (217.0696, 700.0)]}
LOW_ENERGY = [(138.0662, 50.0), (195.08765, 1e4), (196.0906, 980.0)]


def measured(index, feature_id="", peaks=(), **more):
    named = {"precursor_mz": 195.08765, "feature_id": feature_id} | more
    return made_spectrum(*zip(*peaks, strict=True), index, **named)


@pytest.mark.parametrize("feature_id", ["", "7"])
@pytest.mark.parametrize("by", ["feature", "none"])
def test_an_ms1_block_without_a_level_is_read_as_what_it_is_and_said(feature_id, by):
    items = [measured(0, feature_id, **MS1), measured(1, feature_id, **FRAGMENTS)]

    (found,) = group(items, by)

    assert [one.source.index for one in found.spectra] == [1]
    assert found.isotopes.intensity[3] == pytest.approx(980.0)
    (said,) = found.first.assumptions
    assert "index 0 of the file has no MS level" in said
    assert "read as the MS1 spectrum of this one" in said


def test_it_may_stand_after_the_fragments_and_hold_the_isotopes_alone():
    items = [("7", FRAGMENTS), ("7", {"peaks": ISOTOPES}), ("8", FRAGMENTS)]

    found, other = group(measured(n, name, **one) for n, (name, one) in enumerate(items))

    assert [one.source.index for one in found.spectra] == [0]
    assert (found.isotopes is None, other.isotopes is None) == (False, True)


@pytest.mark.parametrize(
    "other",
    [
        {"ms_level": 2, "metadata": {"mslevel": "2"}},
        {"metadata": {"collision_energy": "10 eV"}},
        {"charge": 2},
        {"peaks": LOW_ENERGY},
        {"peaks": [*LOW_ENERGY, (260.1, 9.0)]},  # noise
        {"peaks": [(195.08765, 1e4), (217.0696, 700.0)]},  # no isotopes
    ],
)
def test_what_may_be_of_fragments_stays_a_spectrum_of_fragments(other):
    items = [measured(0, "7", **MS1 | other), measured(1, "7", **FRAGMENTS)]

    assert indices(items) == [[0, 1]]
    assert all(one.assumptions == () for feature in group(items) for one in feature.spectra)
