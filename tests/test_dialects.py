"""Files as some fifty programs write them: readers and rows against what the spectra truly are."""

import re

import pytest

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UnreadableError
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.spectra.reading import read
from tests.dialects import CEF, DIALECTS
from tests.made_runs import request, rows_of
from tests.stub_model import stub_model

SETTINGS = PredictSettings(
    sampling=SamplingSettings(steps=1, samples=1), group_by="none", top_k=1, formula_candidates=1
)
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


@pytest.mark.parametrize("name", DIALECTS)
def test_every_record_is_a_row_that_agrees_with_it_or_says_what_not(name, tmp_path):
    path, dialect = written(tmp_path, name)

    predict(request(str(path), tmp_path / "out.csv", settings=SETTINGS), stub_model())

    rows = rows_of(tmp_path / "out.csv")
    ms2 = {str(index): made for index, made in enumerate(dialect.made) if made.level == 2}
    assert [row["index"] for row in rows] == list(ms2)
    for row in rows:
        made, said = ms2[row["index"]], f"{row['message']} {row['warnings']}"
        assert row["status"] == "ok" or row["message"]
        if row["status"] == "ok":
            assert is_near(float(row["precursor_mz"]), made.mz, 1e-3)
            is_same = row["adduct"] == made.adduct
            is_told = row["adduct_source"] != "file" and "adduct" in dialect.unsaid
            assert is_same or is_told or re.search(SAID["adduct"], said)
            sign = parse_adduct(row["adduct"]).charge * made.charge
            assert sign > 0 or re.search(SAID["polarity"], said)
    assert sum(row["status"] == "ok" for row in rows) > 6


def test_an_exchange_file_of_agilent_is_refused(tmp_path):
    (tmp_path / "a.cef").write_text(CEF)

    with pytest.raises(UnreadableError, match=r"a\.cef"):
        list(read(str(tmp_path / "a.cef")))
