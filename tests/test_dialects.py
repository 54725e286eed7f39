"""Files as some fifty programs write them: readers and rows against what the spectra truly are."""

import re

import pytest

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from tests.dialects import DIALECTS
from tests.made_spectra import parsed

WINDOWS = ("MS-DIAL", "MS-FINDER", "NIST", "Agilent", "Bruker", "Sciex", "Thermo", "Progenesis")
# What a sentence on a field that was read otherwise holds.
OF_ION = r"polarity|charge|mode|positive|negative|adduct"
SAID = {"charge": OF_ION, "polarity": OF_ION, "rt": r"retention|minute|second", "energy": r"energ"}


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_read_of_a_record_is_true_or_left_open_where_the_dialect_does_not_say_it(
    name, tmp_path
):
    dialect = DIALECTS[name]
    text = dialect.write(dialect.made)

    spectra = parsed(
        tmp_path, text.replace("\n", "\r\n") if name.startswith(WINDOWS) else text, dialect.file
    )

    assert [one.ms_level for one in spectra] == [made.level for made in dialect.made]
    for spectrum, made in zip(spectra, dialect.made, strict=True):
        assert spectrum.mz.size == len(made.peaks)
        if made.level == 1:
            continue
        assert spectrum.precursor_mz == pytest.approx(made.mz, abs=1e-3)
        adduct = spectrum.adduct_text
        assert not adduct or isinstance(parse_adduct(adduct), Adduct)
        # What is read, and whether it is true; what the file gets wrong is for the row to say.
        time_s, energy_ev = spectrum.retention_time_s, spectrum.collision_energy_ev
        fields = {
            "polarity": ("", spectrum.polarity == (1 if made.charge > 0 else -1)),
            "charge": ("", spectrum.charge == made.charge),
            "rt": (time_s, time_s == pytest.approx(made.rt, abs=0.5)),
            "energy": (energy_ev, energy_ev == pytest.approx(made.energy, abs=0.01)),
            "adduct": (adduct, adduct == made.adduct),
        }
        said = " ".join([*spectrum.warnings, *spectrum.assumptions])
        for field, (value, is_true) in fields.items():
            is_open = field in dialect.unsaid and not value
            is_said = re.search(SAID.get(field, field), said)
            assert is_true or is_open or is_said, (field, spectrum.metadata)
