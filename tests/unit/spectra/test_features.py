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


def test_one_adduct_for_all_goes_before_their_own_and_says_so():
    items = [spectrum(0, "7"), spectrum(1, "7", adduct="[M+Na]+"), spectrum(2, adduct="")]

    same, alone = group(items, "feature", "[M+Na]+")

    assert [one.adduct_text for one in (*same.spectra, alone.first)] == ["[M+Na]+"] * 3
    assert [one.warnings for one in same.spectra] == [
        ("the adduct [M+Na]+ is used, not the spectrum's [M+H]+",), ()
    ]  # fmt: skip


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
    ],
)
def test_what_differs_between_spectra_of_one_id_is_said(first, other, what):
    items = [spectrum(0, "7", **first), spectrum(1, "7", **other), spectrum(2, "8")]

    *apart, alone = group(items)

    said = f"spectra of FEATURE_ID 7 differ in {what} and are read apart"
    assert [[s.warnings for s in one.spectra] for one in apart] == [[(said,)], [(said,)]]
    assert alone.first.warnings == ()


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"retention_time_s": 100.0}, {"retention_time_s": 150.0}),
        ({"retention_time_s": 100.0}, {}),
        ({"charge": 1, "polarity": 1}, {}),
    ],
)
def test_what_one_of_two_leaves_out_does_not_part_them_and_holds_for_both(first, other):
    (both,) = group(
        [spectrum(0, "7", **other), spectrum(1, "7", **first), spectrum(2, file="b")][:2]
    )

    assert len(both.spectra) == 2
    assert {one.polarity for one in both.spectra} == {first.get("polarity", 0)}
    assert both.first.warnings == ()


def test_an_id_that_all_spectra_of_a_file_have_groups_none_of_them():
    items = [spectrum(n, "1", mz=mz) for n, mz in enumerate((181.05, 195.08765, 181.05, 301.14))]

    features = list(group(items))

    assert [[s.source.index for s in one.spectra] for one in features] == [[0], [1], [2], [3]]
    said = ("all spectra of the file have FEATURE_ID 1, which groups none of them",)
    assert {one.first.warnings for one in features} == {said}


FRAGMENTS = {"mz": 195.08765, "adduct": "", "peaks": [(110.0713, 600.0), (138.0662, 1000.0)]}
MS1 = {"mz": 195.08765, "adduct": "", "peaks": [
    (195.08765, 1e4), (196.0906, 980.0), (197.0930, 80.0), (217.0696, 700.0)]}  # fmt: skip
LOW_ENERGY = [(138.0662, 50.0), (195.08765, 1e4), (196.0906, 980.0)]


def measured(index, feature_id="", peaks=(), **more):
    mz, intensity = zip(*peaks, strict=True)
    named = {"precursor_mz": more.pop("mz"), "feature_id": feature_id}
    return made_spectrum(mz, intensity, index, adduct_text=more.pop("adduct"), **named | more)


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
    alone = MS1 | {"peaks": MS1["peaks"][:3]}
    items = [("7", FRAGMENTS), ("7", alone), ("8", FRAGMENTS)]

    found, other = group(measured(n, name, **one) for n, (name, one) in enumerate(items))

    assert [one.source.index for one in found.spectra] == [0]
    assert found.isotopes is not None
    assert other.isotopes is None


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

    if "charge" not in other:
        assert indices(items) == [[0, 1]]
    assert all(one.assumptions == () for feature in group(items) for one in feature.spectra)


def test_files_do_not_mix_and_unreadable_records_keep_their_place():
    bad = unreadable(Source("a.mgf", 1), "torn")
    items = [spectrum(0, "7"), bad, spectrum(2, "7"), spectrum(0, "7", file="b.mgf")]

    assert indices(items) == [[0, 2], "unreadable", [0]]


def test_spectra_without_a_feature_id_stream_through():
    indices_to_come = iter(range(3))

    next(group(map(spectrum, indices_to_come)))

    assert list(indices_to_come) == [1, 2]
