"""Keys, missing values, levels and polarities."""

import pytest

from duallgd_cli.spectra.reading import record as fields


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("precursortype|precursor_type|adduct type|adduct_type", "adduct"),
        ("precursormz|precursor_mass|precursor m/z|precursor_m/z|mz|precursor", "precursor_mz"),
        ("ionmode|ion_mode|polarity|scan_polarity|ionpolarity", "ionmode"),
        ("collisionenergy|collision energy|ce|colenergy", "collision_energy"),
        ("mslevel|ms level|ms_type|spectrum type", "ms_level"),
        ("featureid|feature id|feature_id", "feature_id"),
        ("name|compoundname|compound_name", "compound_name"),
        ("spectrumid|accession|db#", "spectrum_id"),
        ("instrumenttype|instrument type", "instrument_type"),
        ("rtinseconds|retentiontime|rt", "retention_time"),
        ("my key", "my key"),
    ],
)
def test_all_spellings_of_a_key_lead_to_one_name(keys, name):
    assert {fields.canonical_key(key) for key in keys.split("|")} == {name}


@pytest.mark.parametrize("value", ["", " ", "N/A", "na", "NaN", "null", "None", "-", "unknown"])
def test_words_for_nothing_are_missing(value):
    assert fields.canonical({"formula": value}) == {}


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, 2),
        ({"ms_level": "1"}, 1),
        ({"ms_level": "MS1"}, 1),
        ({"ms_level": "MS"}, 1),
        ({"ms_level": "MS2"}, 2),
        ({"ms_level": "2.0"}, 2),
        ({"ms_level": "3"}, 3),
        ({"ms_level": "MSn"}, 2),
        ({"spectype": "CORRELATED MS", "ms_level": "2"}, 1),
    ],
)
def test_ms_levels(given, level):
    assert fields.level_of(given) == level


@pytest.mark.parametrize(
    ("text", "polarity"),
    [
        *(("Positive", 1), ("POS", 1), ("p", 1), ("+", 1), ("NEGATIVE", -1), ("n", -1), ("-", -1)),
        *(("1-", -1), ("[M+?]+", 1), ("[M-?]-", -1), ("ESI", 0), ("", 0), ("[M+H]+", 0)),
    ],
)
def test_polarities(text, polarity):
    assert fields.polarity_of(text) == polarity


@pytest.mark.parametrize(
    ("given", "adduct"),
    [
        ({"adduct": "[M+H]+"}, "[M+H]+"),
        ({"ion": "ESI", "adduct_guess": "M+Na"}, "M+Na"),
        ({"ion": "MALDI"}, ""),
        ({"ion": "1+"}, ""),
        ({"ion": "[M+?]+"}, ""),
        ({"ion": "[2M+H]+"}, "[2M+H]+"),
        ({"adduct": "MH+"}, "MH+"),
    ],
)
def test_adducts_are_told_from_polarities_and_ion_sources(given, adduct):
    assert fields.adduct_of(given) == adduct


@pytest.mark.parametrize(
    ("key", "text", "seconds"),
    [
        ("rtinseconds", "448.2", 448.2),
        ("rtinseconds", "60-62", 61.0),
        ("rtinminutes", "1.5", 90.0),
        ("rt", "448.2s", 448.2),
        ("retentiontime", "2.5", 150.0),
        ("retention_time", "2.5 min", 150.0),
        ("retention_time", "PT12.5S", 12.5),
        ("rt", "n/a", None),
        ("title", "5", None),
    ],
)
def test_retention_times_are_in_seconds(key, text, seconds):
    assert fields.retention_time_s({key: text}) == seconds
