"""mzSpecLib as text and as JSON, beside JSON of matchms and GNPS."""

import pytest

from tests.fuzz.corpus import sound_files
from tests.made_spectra import parsed

FORMS = ("matchms.json", "gnps.json", "plain.mzlib.json", "plain.mzlib.txt")


def what_is_read(spectrum):
    return (
        round(spectrum.precursor_mz, 4),
        spectrum.adduct_text,
        spectrum.formula_text,
        spectrum.mz.round(4).tolist(),
    )


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_what_msp_gives(tmp_path, name):
    files = sound_files()
    found = parsed(tmp_path, files[name], name)
    expected = parsed(tmp_path, files["plain.msp"], "in.msp")

    assert [what_is_read(one) for one in found] == [what_is_read(one) for one in expected]
    assert [one.source.index for one in found] == [0, 1, 2, 3]
    assert [one.polarity for one in found] == [1, 1, 1, -1]


@pytest.mark.parametrize("name", ["plain.mzlib.json", "plain.mzlib.txt"])
def test_units_and_attributes_of_all_spectra_are_understood(tmp_path, name):
    first = parsed(tmp_path, sound_files()[name], name)[0]

    assert first.collision_energy_text.endswith(" eV")
    assert first.collision_energy_ev == float(first.collision_energy_text.split()[0])
    assert first.metadata["title"] == "unknown \\ [1]"
    assert first.instrument == ("orbitrap" if name.endswith("txt") else "")
