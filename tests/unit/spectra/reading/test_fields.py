"""Keys, missing values, levels, polarities, adducts and retention times."""

import pytest

from duallgd_cli.spectra.reading import record as fields

SPELLINGS = {
    "precursortype|precursor_type|adduct type|adduct_type": "adduct",
    "precursormz|precursor_mass|precursor m/z|precursor_m/z|mz|precursor": "precursor_mz",
    "ionmode|ion_mode|polarity|scan_polarity|ionpolarity": "ionmode",
    "collisionenergy|collision energy|ce|colenergy": "collision_energy",
    "mslevel|ms level|ms_type|spectrum type": "ms_level",
    "featureid|feature id|feature_id": "feature_id",
    "name|compoundname|compound_name": "compound_name",
    "spectrumid|accession|db#": "spectrum_id",
    "instrumenttype|instrument type": "instrument_type",
    "rtinseconds|retentiontime|rt": "retention_time",
    "my key": "my key",
}
MISSING = ("", " ", "N/A", "na", "NaN", "null", "None", "-", "unknown")
LEVELS = (
    ({}, 2),
    ({"ms_level": "1"}, 1),
    ({"ms_level": "MS1"}, 1),
    ({"ms_level": "MS"}, 1),
    ({"ms_level": "MS2"}, 2),
    ({"ms_level": "2.0"}, 2),
    ({"ms_level": "3"}, 3),
    ({"ms_level": "MSn"}, 2),
    ({"spectype": "CORRELATED MS", "ms_level": "2"}, 1),
)
POLARITIES = (
    *(("Positive", 1), ("POS", 1), ("p", 1), ("+", 1), ("NEGATIVE", -1), ("n", -1), ("-", -1)),
    *(("1-", -1), ("[M+?]+", 1), ("[M-?]-", -1), ("ESI", 0), ("", 0), ("[M+H]+", 0)),
)
ADDUCTS = (
    ({"adduct": "[M+H]+"}, "[M+H]+"),
    ({"ion": "ESI", "adduct_guess": "M+Na"}, "M+Na"),
    ({"ion": "MALDI"}, ""),
    ({"ion": "1+"}, ""),
    ({"ion": "[M+?]+"}, ""),
    ({"ion": "[2M+H]+"}, "[2M+H]+"),
    ({"adduct": "MH+"}, "MH+"),
)
TIMES = (
    ({"rtinseconds": "448.2"}, 448.2),
    ({"rtinseconds": "60-62"}, 61.0),
    ({"rtinminutes": "1.5"}, 90.0),
    ({"rt": "448.2s"}, 448.2),
    ({"retentiontime": "2.5"}, 150.0),
    ({"retention_time": "2.5 min"}, 150.0),
    ({"retention_time": "PT12.5S"}, 12.5),
    ({"rt": "n/a"}, None),
    ({"title": "5"}, None),
)
CASES = (
    *(
        (fields.canonical_key, key, name)
        for keys, name in SPELLINGS.items()
        for key in keys.split("|")
    ),
    *((fields.canonical, {"formula": value}, {}) for value in MISSING),
    *((fields.level_of, given, level) for given, level in LEVELS),
    *((fields.polarity_of, text, polarity) for text, polarity in POLARITIES),
    *((fields.adduct_of, given, adduct) for given, adduct in ADDUCTS),
    *((fields.retention_time_s, given, seconds) for given, seconds in TIMES),
)


@pytest.mark.parametrize(("read", "given", "expected"), CASES)
def test_what_fields_say(read, given, expected):
    assert read(given) == expected
