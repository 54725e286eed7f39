"""Grouping of spectra into features."""

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
    items = [
        spectrum(0, "7"),
        spectrum(1, "7", mz=203.03),
        spectrum(2, "7", adduct="M+H"),
        spectrum(3, "7", adduct="[M+Na]+"),
        spectrum(4, "7", mz=181.0505),
        spectrum(5, "7", formula_text="C9H8O4"),
        spectrum(6, "7", formula_text="C9H9O4"),
        spectrum(7, "7", ms_level=3),
        spectrum(8, "7", mz=None),
        spectrum(9, "7", mz=None),
    ]

    assert indices(items) == [[0, 2, 4, 5, 6], [1], [3], [7], [8, 9]]


def test_members_that_name_different_formulas_stay_apart():
    items = [spectrum(0, "7", formula_text="C9H8O4"), spectrum(1, "7", formula_text="C10H12O3")]

    assert indices(items) == [[0], [1]]


def test_files_do_not_mix_and_unreadable_records_keep_their_place():
    bad = unreadable(Source("a.mgf", 1), "torn")
    items = [spectrum(0, "7"), bad, spectrum(2, "7"), spectrum(0, "7", file="b.mgf")]

    assert indices(items) == [[0, 2], "unreadable", [0]]


def test_spectra_without_a_feature_id_stream_through():
    seen = []

    def source():
        for index in range(3):
            seen.append(index)
            yield spectrum(index)

    features = group(source())
    next(features)

    assert seen == [0]
