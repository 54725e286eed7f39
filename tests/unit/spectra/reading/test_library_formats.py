"""JSON of matchms and GNPS, and mzSpecLib as text and as JSON."""

import json

import numpy as np
import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.reading import libraries, read
from tests.fuzz.corpus import sound_files
from tests.made_spectra import parsed

FORMS = ("matchms.json", "gnps.json", "plain.mzlib.json", "plain.mzlib.txt")
PEAKS = [[50.0, 1.0], [60.5, 2.0]]


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


def test_what_matchms_writes_is_read(tmp_path):
    matchms = pytest.importorskip("matchms")
    exporting = pytest.importorskip("matchms.exporting")
    metadata = {"precursor_mz": 61.2, "compound_name": "x", "adduct": "[M+H]+", "smiles": "CCO"}
    made = matchms.Spectrum(np.array([50.0, 60.5]), np.array([0.5, 1.0]), metadata)
    exporting.save_as_json([made, made], str(tmp_path / "in.json"))

    found = list(read(str(tmp_path / "in.json")))

    assert [one.precursor_mz for one in found] == [61.2, 61.2]
    assert found[0].mz.tolist() == [50.0, 60.5]
    assert "CCO" not in str(found[0].metadata)  # nothing of the answer is kept


def test_a_broken_spectrum_costs_no_other(tmp_path):
    sound = json.dumps({"precursor_mz": 61, "peaks_json": PEAKS})
    broken = ['{"precursor_mz": oops}', '{"precursor_mz": 61}', '{"peaks_json": [["a", 1]]}', "{}"]
    broken += ['{"mzs": [1.0], "intensities": []}', '{"peaks_json": 5}', '{"peaks_json": [5]}']

    found = parsed(tmp_path, f"[{', '.join([sound, *broken, sound])}]")

    assert [one.failure is None for one in found] == [True, *[False] * len(broken), True]
    assert all("\n" not in one.failure.message for one in found[1:-1])


def test_a_file_that_breaks_off_says_so(tmp_path):
    text = json.dumps([{"precursor_mz": 61, "peaks_json": PEAKS}] * 2)

    *_, last = parsed(tmp_path, text[:-10])

    assert last.failure.message == "the file ends within it"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_spectra_are_cut_wherever_the_blocks_end(size):
    key = 'a "quoted" \\ [name] {of it}'
    made = {"attributes": [{"spectra": []}], "spectra": [{"title": key, "peaks_json": PEAKS}] * 3}
    text = json.dumps(made)

    blocks = [text[start : start + size] for start in range(0, len(text), size)]
    found = list(libraries.json_records(blocks))

    assert [one.metadata for one in found] == [{"title": key}] * 3


def test_too_long_and_too_deep_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "LONGEST_LINE", 100)
    one = json.dumps({"peaks_json": PEAKS * 20})

    long, short = parsed(tmp_path, f'[{one}, {{"peaks_json": {PEAKS}}}]')
    assert "longer than" in long.failure.message
    assert short.mz.size == 2

    (deep,) = parsed(tmp_path, "[" * 5000)
    assert "nested too deeply" in deep.failure.message


def test_other_json_holds_no_spectrum(tmp_path):
    with pytest.raises(UnreadableError, match="holds no spectrum, though it looks like json"):
        parsed(tmp_path, '{"settings": {"steps": 10}}')
