"""Files as some fifty programs write them: readers and rows against what the spectra truly are."""

import re

import pytest

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.reading import read
from tests.dialects import CEF, DIALECTS

WINDOWS = ("MS-DIAL", "MS-FINDER", "NIST", "Agilent", "Bruker", "Sciex", "Thermo", "Progenesis")
# What a sentence on a field that was read otherwise holds.
SAID = {
    "charge": r"polarity|charge|mode|positive|negative|adduct",
    "polarity": r"polarity|charge|mode|positive|negative|adduct",
    "rt": r"retention|minute|second",
    "energy": r"energ",
    "adduct": r"adduct",
    "level": r"MS level",
}


def written(folder, name):
    dialect = DIALECTS[name]
    path = folder / dialect.file
    ends = "\r\n" if name.startswith(WINDOWS) else "\n"
    path.write_text(dialect.write(dialect.made), "utf-8", newline=ends)
    return path, dialect


def is_near(value, truth, within):
    return value is not None and abs(value - truth) <= within


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_read_of_a_record_is_true_or_left_open_where_the_dialect_does_not_say_it(
    name, tmp_path
):
    path, dialect = written(tmp_path, name)

    spectra = list(read(str(path)))

    assert [one.ms_level for one in spectra] == [made.level for made in dialect.made]
    for spectrum, made in zip(spectra, dialect.made, strict=True):
        assert is_near(spectrum.precursor_mz, made.mz, 1e-3) or made.level == 1
        assert len(spectrum.mz) == len(made.peaks)
        adduct = parse_adduct(spectrum.adduct_text) if spectrum.adduct_text else None
        assert adduct is None or isinstance(adduct, Adduct)
        # What is read, and whether it is true; what the file gets wrong is for the row to say.
        time_s, energy_ev = spectrum.retention_time_s, spectrum.collision_energy_ev
        sign = 1 if made.charge > 0 else -1
        fields = {
            "polarity": ("", spectrum.polarity == sign),
            "charge": ("", spectrum.charge == made.charge),
            "rt": (time_s, is_near(time_s, made.rt, 0.5)),
            "energy": (energy_ev, is_near(energy_ev, made.energy, 0.01)),
            "adduct": (spectrum.adduct_text, spectrum.adduct_text == made.adduct),
        }
        said = " ".join([*spectrum.warnings, *spectrum.assumptions])
        for field, (value, is_true) in fields.items() if made.level == 2 else ():
            is_open = field in dialect.unsaid and not value
            assert is_true or is_open or re.search(SAID[field], said), (field, spectrum.metadata)


def test_an_exchange_file_of_agilent_is_refused(tmp_path):
    (tmp_path / "a.cef").write_text(CEF)

    with pytest.raises(UnreadableError, match=r"a\.cef"):
        list(read(str(tmp_path / "a.cef")))
