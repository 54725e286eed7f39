"""JSON of spectra as matchms, GNPS, mzmine, MoNA and MassBank write it, and what may be wrong.

Peaks are those of caffeine, rounded.
"""

import json

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.reading import json_records, read
from tests.made_spectra import parsed

PEAKS = [[138.0662, 1000.0], [110.0713, 600.0]]
FLAT = {"precursor_mz": 195.08765, "adduct": "[M+H]+"}
MZMINE = {
    "softwaresource": "mzmine", "ms_level": 2, "polarity": "Positive", "rt": 5.21, "num_peaks": 2,
    "feature_id": "7", "collision_energy": [20.0, 40.0], "peaks": PEAKS,
}  # fmt: skip
SMILES = "Cn1cnc2c1c(=O)n(C)c(=O)n2C"


def listed(**values):
    return [{"name": name.replace("_", " "), "value": value} for name, value in values.items()]


MONA = {
    "compound": [{"inchi": "InChI=1S/C8H10N4O2/c1-10-4", "inchiKey": "RYYVLZVUVIJVGH-UHFFFAOYSA-N",
        "metaData": listed(molecular_formula="C8H10N4O2", SMILES=SMILES),
        "names": [{"computed": False, "name": "Caffeine", "score": 0.0}], "kind": "biological"}],
    "id": "EQ300803",
    "metaData": [*listed(instrument_type="LC-ESI-QFT", instrument="Q Exactive Plus Orbitrap"),
        *listed(ms_level="MS2", ionization="ESI", precursor_type="[M+H]+"),
        {"name": "collision energy", "value": "35", "unit": "eV"}, {"name": "retention time",
        "value": "5.21", "unit": "min"}, {"category": "focused ion", "name": "precursor m/z",
        "value": 195.08765}, *listed(ionization_mode="positive")],
    "spectrum": "138.0662:1000.000000 110.0713:600.000000",
    "splash": {"splash": "splash10-x"},
}  # fmt: skip
MASSBANK = {
    "accession": "MSBNK-X-1",
    "title": "Caffeine; LC-ESI-QFT; MS2",
    "compound": {"names": ["Caffeine", "Coffein"], "formula": "C8H10N4O2", "smiles": SMILES,
        "link": [{"database": "CAS", "identifier": "58-08-2"}]},
    "acquisition": {"instrument": "Q Exactive", "instrument_type": "LC-ESI-QFT",
        "mass_spectrometry": {"ms_type": "MS2", "ion_mode": "POSITIVE",
        "subtags": [{"subtag": "COLLISION_ENERGY", "value": "35 eV"}]},
        "chromatography": [{"subtag": "RETENTION_TIME", "value": "5.21 min"}]},
    "mass_spectrometry": {"focused_ion": [{"subtag": "PRECURSOR_M/Z", "value": "195.08765"},
        {"subtag": "PRECURSOR_TYPE", "value": "[M+H]+"}]},
    "peak": {"splash": "splash10-x", "numPeak": 2, "peak": {"values": [{"mz": mz, "intensity": i,
        "rel": 9} for mz, i in PEAKS]}},
}  # fmt: skip
GNPS = {
    "spectruminfo": {"spectrum_id": "CCMSLIB1", "peaks_json": str(PEAKS), "ms_level": "2"},
    "annotations": [{"Precursor_MZ": "195.08765", "Adduct": "[M+H]+", "Ion_Mode": "positive"}],
}
PROXI = {
    "attributes": listed(selected_ion_mz="195.08765", adduct_ion_formula="[M+H]+"),
    "mzs": [138.0662, 110.0713], "intensities": [1000, 600],
}  # fmt: skip
PROXI["attributes"][0]["name"] = "selected ion m/z"
TEXTS = {
    "peaks as text": [FLAT | {"peaks_json": str(PEAKS)}],
    "GNPS, one spectrum": GNPS,
    "an object": {"n_peaks": 2} | FLAT | {"peaks": PEAKS},
    "mzmine": MZMINE | FLAT,
    "MoNA, one": MONA,
    "MassBank": MASSBANK,
    "peaks as objects": FLAT | {"peaks": [{"mz": m, "intensity": i} for m, i in PEAKS]},
    "columns of peaks": FLAT | {"mz": [138.0662, 110.0713], "intensities": [1000, 600]},
    "peaks as lines": FLAT | {"peaks": "138.0662 1000\n110.0713 600"},
    "numbers as text": FLAT | {"peaks": [["138.0662", "1000"], ["110.0713", "600"]]},
    "PROXI": [PROXI],
    "outer fields first": FLAT | {"compound": {"adduct": "[M+Na]+"}, "peaks": PEAKS},
}
INDENT = {"an object over lines": json.dumps(FLAT | {"peaks": PEAKS}, indent=2)}
TEXTS = {name: json.dumps(made) for name, made in TEXTS.items()} | INDENT


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_every_shape_gives_the_same_spectrum(tmp_path, text):
    (found,) = parsed(tmp_path, text)

    assert found.failure is None
    assert (found.precursor_mz, found.adduct_text, found.ms_level) == (195.08765, "[M+H]+", 2)
    assert found.mz.tolist() == [110.0713, 138.0662]
    assert found.intensity.tolist() == [600, 1000]
    assert found.warnings == ()
    assert "c2c1" not in str(found.metadata)  # nothing of the answer is kept


@pytest.mark.parametrize(
    ("made", "spectrum_id"), [(MONA, "EQ300803"), (MASSBANK, "MSBNK-X-1")], ids=["MoNA", "MassBank"]
)
def test_what_a_library_says_of_the_measurement_is_read(tmp_path, made, spectrum_id):
    (found,) = parsed(tmp_path, json.dumps(made), keep_structures=True)

    assert (found.spectrum_id, found.polarity, found.formula_text) == (spectrum_id, 1, "C8H10N4O2")
    assert (found.instrument, found.collision_energy_ev) == ("orbitrap", 35)
    assert found.retention_time_s == pytest.approx(312.6)
    assert (found.metadata["name"], found.metadata["smiles"]) == ("Caffeine", SMILES)


SOUND = json.dumps(MZMINE | FLAT)


@pytest.mark.parametrize("cut", [1, 20, 31, 41, len(SOUND) // 2, len(SOUND) - 1])
def test_lines_are_spectra_and_a_broken_one_costs_no_other(tmp_path, cut):
    found = parsed(tmp_path, f"{SOUND}\n{SOUND[:cut]}\n\n{SOUND}\n17\n{SOUND}")

    assert [one.failure is None for one in found] == [True, False, True, False, True]
    assert [one.source.index for one in found] == [0, 1, 2, 3, 4]
    assert (found[0].feature_id, found[0].collision_energy_text) == ("7", "[20.0, 40.0]")
    assert "17" in found[3].failure.message


NO_SPECTRA = (
    *(1, "x", None, [1, 2], {}, {"precursor_mz": 61}, {"peaks_json": 5}, {"peaks_json": [5]}),
    *({"mzs": [1.0], "intensities": []}, {"peaks": [["a", 1]]}, {"peaks": [{"mz": 1}, 5]}),
    *({"peaks": {"mz": [1]}}, {"spectruminfo": 5}, {"spectrum": "none"}, {"peak": {}}),
    {"attributes": [5], "mzs": [1], "intensities": [1]},
)


def test_what_is_no_spectrum_in_a_list_is_a_row_of_its_own(tmp_path):
    sound = FLAT | {"peaks_json": PEAKS}

    found = parsed(tmp_path, json.dumps([sound, *NO_SPECTRA, sound]))

    assert [one.failure is None for one in found] == [True, *[False] * len(NO_SPECTRA), True]
    assert all("\n" not in one.failure.message for one in found[1:-1])


@pytest.mark.parametrize(
    ("text", "n_whole", "said"),
    [
        *((json.dumps([FLAT | {"peaks_json": PEAKS}] * 3)[:-n], 2, "within it") for n in (3, 60)),
        (json.dumps([MZMINE] * 3)[:-1], 3, "the file ends within its list of spectra"),
        (f'[{SOUND}, {{"precursor_mz": oops}}, {SOUND}]', 1, "what follows is not read"),
        ("[" * 200_000, 0, "nested too deeply"),
        ('{"settings": {"steps": 10}}', 0, "it is no spectrum in JSON"),
    ],
    ids=["torn", "torn earlier", "no end", "a fault", "deep", "other"],
)
def test_a_file_that_breaks_off_gives_what_came_before_and_says_so(tmp_path, text, n_whole, said):
    *whole, last = parsed(tmp_path, text)

    assert [one.failure for one in whole] == [None] * n_whole
    assert said in last.failure.message


def test_numbers_that_are_none_or_miscounted_are_said(tmp_path):
    made = {"peaks_json": [*PEAKS, [float("nan"), 1]], "rt": float("inf"), "num_peaks": 5}

    (found,) = parsed(tmp_path, json.dumps([FLAT | made]))

    assert "num_peaks says 5, and there are 3" in found.warnings[0]
    assert "1 of 3 peaks" in found.warnings[1]


@pytest.mark.parametrize("size", [1, 3, 64])
def test_spectra_are_found_wherever_the_blocks_end(size):
    key = 'a "quoted" \\ [name] {of it}'
    made = {"attributes": [{"spectra": []}], "spectra": [{"title": key, "peaks_json": PEAKS}] * 3}
    text = json.dumps(made | {"clusters": [1]})

    blocks = [text[start : start + size] for start in range(0, len(text), size)]
    found = list(json_records.json_records(blocks))

    assert [one.metadata for one in found] == [{"title": key}] * 3


def test_a_spectrum_that_is_too_long_is_said(monkeypatch):
    monkeypatch.setattr(json_records, "_LONGEST", 300)
    monkeypatch.setattr(json_records, "_HEAD", 10)
    text = json.dumps({"peaks_json": PEAKS * 40})
    blocks = [text[start : start + 50] for start in range(0, len(text), 50)]

    (found,) = json_records.json_records(["[", *blocks, "]"])
    long, sound = json_records.json_records([*blocks, '\n{"peaks": [[1, 2]]}'])

    assert "longer than" in found.trouble
    assert "what follows is not read" in found.trouble
    assert "longer than" in long.trouble
    assert sound.mz.tolist() == [1]


def test_an_empty_list_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match="holds no spectrum, though it looks like json"):
        parsed(tmp_path, "[]")


WITHIN = (
    {"library_matches": [{"formula": "C9H9", "adduct": "[M+Na]+"}]},
    {"ms1": {"charge": -2, "polarity": "Negative"}},
    {
        "score": {"impacts": [{"value": 1.0, "reason": "x"}]},
        "quant": [{"sample": "a", "value": 3.0}],
    },
    {"annotations": [{"name": "adduct", "value": "[M+K]+"}]},
)


@pytest.mark.parametrize("values", WITHIN)
@pytest.mark.parametrize(
    "whole", [{**FLAT, "peaks": PEAKS}, MZMINE, MONA], ids=["flat", "m", "mona"]
)
def test_what_other_objects_say_is_not_said_of_the_spectrum(tmp_path, whole, values):
    files = [tmp_path / name for name in ("plain.json", "within.json")]
    for file, content in zip(files, (whole, {**whole, **values}), strict=True):
        file.write_text(json.dumps([content]))

    plain, within = (next(iter(read(str(file)))) for file in files)

    assert within.failure is None
    for field in ("formula_text", "adduct_text", "charge", "polarity", "precursor_mz"):
        assert getattr(within, field) == getattr(plain, field)
