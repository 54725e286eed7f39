"""Keys, missing values and levels."""

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
CASES = (
    *(
        (fields.canonical_key, key, name)
        for keys, name in SPELLINGS.items()
        for key in keys.split("|")
    ),
    *((fields.canonical, {"formula": value}, {}) for value in MISSING),
    *((fields.level_of, given, level) for given, level in LEVELS),
)


@pytest.mark.parametrize(("read", "given", "expected"), CASES)
def test_what_fields_say(read, given, expected):
    assert read(given) == expected
