"""JSON of spectra as matchms, GNPS, mzmine, MoNA and MassBank write it, and what may be wrong.

Peaks are those of caffeine, rounded.
"""

import json
from pathlib import Path

import pytest

from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.reading import json_records
from tests.made_spectra import fields_of, parsed

PEAKS = [[138.0662, 1000.0], [110.0713, 600.0]]
FLAT = {"precursor_mz": 195.08765, "adduct": "[M+H]+"}
WHOLE = FLAT | {"peaks": PEAKS}
SMILES = "Cn1cnc2c1c(=O)n(C)c(=O)n2C"
FOLDER = Path(__file__).parents[3] / "data" / "json"
MZMINE, GNPS, MONA, MASSBANK = (
    json.loads((FOLDER / f"{name}.json").read_text())
    for name in ("mzmine", "gnps", "mona", "massbank")
)
OF_LIBRARY = {
    "polarity": 1, "formula_text": "C8H10N4O2", "instrument": "orbitrap",
    "collision_energy_ev": 35, "retention_time_s": pytest.approx(312.6), "name": "Caffeine",
}  # fmt: skip
SHAPES = {
    "an object": ({"n_peaks": 2} | WHOLE, {}),
    "peaks as text": ([FLAT | {"peaks_json": str(PEAKS)}], {}),
    "peaks as objects": (FLAT | {"peaks": [{"mz": m, "intensity": i} for m, i in PEAKS]}, {}),
    "columns of peaks": (FLAT | {"mz": [138.0662, 110.0713], "intensities": [1000, 600]}, {}),
    "peaks as lines": (FLAT | {"peaks": "138.0662 1000\n110.0713 600"}, {}),
    "numbers as text": (FLAT | {"peaks": [["138.0662", "1000"], ["110.0713", "600"]]}, {}),
    "outer fields first": (WHOLE | {"compound": {"adduct": "[M+Na]+"}}, {}),
    "mzmine": (MZMINE, {"feature_id": "7", "collision_energy_text": "[20.0, 40.0]"}),
    "GNPS, one spectrum": (GNPS, {"spectrum_id": "CCMSLIB1", "polarity": 1}),
    "MoNA": (MONA, OF_LIBRARY | {"spectrum_id": "EQ300803"}),
    "MassBank": (MASSBANK, OF_LIBRARY | {"spectrum_id": "MSBNK-X-1"}),
    # What other objects say is not said of the spectrum.
    "matches": (WHOLE | {"matches": [{"formula": "C9H9", "adduct": "[M+Na]+"}]},
        {"formula_text": ""}),
    "another level": (MZMINE | {"ms1": {"charge": -2, "polarity": "Negative"}},
        {"charge": 0, "polarity": 1}),
    "values": (MONA | {"score": {"impacts": [{"value": 1.0, "reason": "x"}]},
        "quant": [{"sample": "a", "value": 3.0}]}, OF_LIBRARY),
    "annotations of peaks": (WHOLE | {"annotations": [{"name": "adduct", "value": "[M+K]+"}]}, {}),
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_spectrum(tmp_path, shape, indent):
    content, fields = SHAPES[shape]
    text = json.dumps(content, indent=indent)
    fields = {"precursor_mz": 195.08765, "adduct_text": "[M+H]+", "ms_level": 2} | fields

    (found,) = parsed(tmp_path, text)

    assert fields_of(found, fields) == fields
    assert found.warnings == ()
    assert [*zip(found.mz, found.intensity, strict=True)] == [(110.0713, 600), (138.0662, 1000)]
    assert "c2c1" not in str(found.metadata)  # nothing of the answer is kept
    if "c2c1" in text:
        assert parsed(tmp_path, text, keep_structures=True)[0].metadata["smiles"] == SMILES


SOUND = json.dumps(MZMINE)


@pytest.mark.parametrize("cut", [1, 20, 31, 41, len(SOUND) // 2, len(SOUND) - 1])
def test_lines_are_spectra_and_a_broken_one_costs_no_other(tmp_path, cut):
    found = parsed(tmp_path, f"{SOUND}\n{SOUND[:cut]}\n\n{SOUND}\n17\n{SOUND}")

    assert [one.failure is None for one in found] == [True, False, True, False, True]
    assert [one.source.index for one in found] == [0, 1, 2, 3, 4]
    assert "17" in found[3].failure.message


def test_what_is_no_spectrum_in_a_list_is_a_row_of_its_own(tmp_path):
    none = [
        *(1, "x", None, [1, 2], {}, {"precursor_mz": 61}, {"peaks_json": 5}, {"peaks_json": [5]}),
        *({"mzs": [1.0], "intensities": []}, {"peaks": [["a", 1]]}, {"peaks": [{"mz": 1}, 5]}),
        *({"peaks": {"mz": [1]}}, {"spectruminfo": 5}, {"spectrum": "none"}, {"peak": {}}),
        {"attributes": [{"name": "selected ion m/z", "value": "61"}]} | WHOLE,
    ]

    first, *broken, last = parsed(tmp_path, json.dumps([WHOLE, *none, WHOLE]))

    assert (first.failure, last.failure) == (None, None)
    assert len(broken) == len(none)
    assert all(one.failure and "\n" not in one.failure.message for one in broken)


@pytest.mark.parametrize(
    ("text", "n_whole", "said"),
    [
        *((json.dumps([WHOLE] * 3)[:-n], 2, "within it") for n in (3, 60)),
        (json.dumps([WHOLE] * 3)[:-1], 3, "the file ends within its list of spectra"),
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


def test_numbers_that_are_none_or_miscounted_and_empty_lists_are_said(tmp_path):
    made = {"peaks_json": [*PEAKS, [float("nan"), 1]], "rt": float("inf"), "num_peaks": 5}

    (found,) = parsed(tmp_path, json.dumps([FLAT | made]))

    assert "num_peaks says 5, and there are 3" in found.warnings[0]
    assert "1 of 3 peaks" in found.warnings[1]
    with pytest.raises(UnreadableError, match="holds no spectrum, though it looks like json"):
        parsed(tmp_path, "[]")


def blocks_of(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 3, 64])
def test_spectra_are_found_wherever_the_blocks_end(size):
    key = 'a "quoted" \\ [name] {of it}'
    made = {"attributes": [{"spectra": []}], "spectra": [{"title": key, "peaks_json": PEAKS}] * 3}

    found = list(json_records.json_records(blocks_of(json.dumps(made | {"clusters": [1]}), size)))

    assert [one.metadata for one in found] == [{"title": key}] * 3
    (number,) = json_records.json_records(["1", "7"])  # whose end a block does not tell
    assert "17" in number.trouble


def test_a_spectrum_that_is_too_long_is_said(monkeypatch):
    monkeypatch.setattr(json_records, "_LONGEST", 300)
    monkeypatch.setattr(json_records, "_HEAD", 10)
    blocks = blocks_of(json.dumps({"peaks_json": PEAKS * 40}), 50)

    (found,) = json_records.json_records(["[", *blocks, "]"])
    long, sound = json_records.json_records([*blocks, '\n{"peaks": [[1, 2]]}'])

    assert ["longer than" in one.trouble for one in (found, long)] == [True, True]
    assert "what follows is not read" in found.trouble
    assert sound.mz.tolist() == [1]
