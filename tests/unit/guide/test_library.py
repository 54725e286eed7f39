"""Spectral libraries: read, kept, searched; what is found and what is alike."""

import json
import tracemalloc

import numpy as np
import pytest

from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.guide import library
from duallgd_cli.guide.library import Library, analogues_among
from duallgd_cli.spectra.types import Source, Spectrum

pytestmark = pytest.mark.usefixtures("databases")

pytest.importorskip("matchms")

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
PEAKS = ((56.05, 10), (83.06, 20), (110.0713, 40), (138.0662, 100), (195.0877, 60))


def msp(peaks=PEAKS, precursor=195.0877, name="caffeine", **fields):
    head = {"NAME": name, "PRECURSORMZ": precursor, "SMILES": CAFFEINE} | fields
    lines = [f"{key}: {value}" for key, value in head.items() if value is not None]
    return "\n".join([*lines, f"Num Peaks: {len(peaks)}", *(f"{m} {i}" for m, i in peaks), "\n"])


def measured(peaks=PEAKS, precursor=195.0877, polarity=1):
    mz, intensity = np.array(peaks, float).T
    return Spectrum(Source("a", 0), "a", mz, intensity, precursor, polarity=polarity)


def shifted(by):
    return tuple((mz + by, i) if mz > 100 else (mz, i) for mz, i in PEAKS)


def made(tmp_path, text, name="lib.msp"):
    (tmp_path / name).write_text(text)
    return Library.read(tmp_path / name)


def test_a_spectrum_with_the_precursor_is_found_and_named(tmp_path):
    known = made(tmp_path, msp() + msp(PEAKS[:2], name="other", SMILES="CCO"))

    best, second = known.search([measured()])

    assert best.is_found
    assert best.values() | {"inchi": ""} == {
        "name": "caffeine", "library": "lib.msp", "score": 1.0, "matched_peaks": 5, "inchi": "",
        "smiles": CAFFEINE, "inchikey": "RYYVLZVUVIJVGH-UHFFFAOYSA-N", "formula": "C8H10N4O2",
        "mz": (56.05, 83.06, 110.0713, 138.0662, 195.0877), "intensity": (0.1, 0.2, 0.4, 1.0, 0.6),
    }  # fmt: skip
    assert not second.is_found


def test_another_precursor_gives_an_analogue_by_the_modified_cosine(tmp_path):
    known = made(tmp_path, msp(shifted(14.0157), 209.1033, SMILES="CCn1cnc2c1c(=O)n(C)c(=O)n2C"))

    (match,) = known.search([measured()])

    assert (match.is_same, match.is_found, match.peaks) == (False, False, 5)
    assert match.score == pytest.approx(1, abs=1e-3)
    (row,) = analogues_among([match, match])
    assert (row.smiles, row.name) == ("CCn1cnc2c1c(=O)n(C)c(=O)n2C", "caffeine")


def test_the_other_polarity_is_not_compared(tmp_path):
    known = made(tmp_path, msp(IONMODE="Negative"))

    assert not known.search([measured()])
    assert known.search([measured(polarity=0)])


def test_a_spectrum_without_precursor_or_peaks_finds_nothing(tmp_path):
    known = made(tmp_path, msp())
    empty = Spectrum(Source("a", 0), "a", np.zeros(0), np.zeros(0), 195.0877)

    assert not known.search([empty, measured(precursor=None)])


def test_bad_records_are_counted_and_the_others_read(tmp_path, caplog):
    text = msp() + msp(SMILES=None) + msp(SMILES="xx(") + msp(precursor=None) + msp(((1, "x"),))

    for _ in ("read", "kept"):
        caplog.clear()
        known = made(tmp_path, text + msp(SMILES=None, INCHI="InChI=1S/CH4O/c1-2/h2H,1H3"))
        assert list(known.smiles) == [CAFFEINE, "CO"]
        for said in ("without a structure", "not a molecule", "without a precursor"):
            assert f"1 spectrum left out ({said}" in caplog.text.replace("its structure is ", "")


@pytest.mark.parametrize(
    ("smiles", "said"),
    [
        ("[*:1]c1ccc(cc1)C(=O)NCC(=O)O", "has no InChI"),
        ("*C", "has no InChI"),
        ("[R1]CC", "is not a molecule"),
        ("C" * 1100, "more than 100 heavy atoms"),
        ("C" * 101, "more than 100 heavy atoms"),
        ("C" * 100_000, "more than 2,000 characters"),
        ("InChI=1S/" + "C" * 9000, "more than 2,000 characters"),
        ("[#0]", "has no InChI"),
        ("[*]", "has no InChI"),
        ("[2*]C(C)C", "has no InChI"),
        ("CC(C)~[#6]", "has no InChI"),
        ("C$C", "has no InChI"),
    ],
)
def test_structures_that_are_no_molecule_here_are_left_out_and_counted(
    tmp_path, caplog, smiles, said
):
    known = made(tmp_path, msp(SMILES=smiles) * 2 + msp())

    assert list(known.smiles) == [CAFFEINE]
    assert [match.values()["smiles"] for match in known.search([measured()])] == [CAFFEINE]
    (warned,) = caplog.messages
    assert "2 spectra left out (" in warned
    assert said in warned


def test_json_mzspeclib_and_mgf_are_read_alike(tmp_path):
    mgf = (
        f"BEGIN IONS\nPEPMASS=195.0877\nSMILES={CAFFEINE}\nNAME=caffeine\n"
        + "".join(f"{mz} {i}\n" for mz, i in PEAKS)
        + "END IONS\n"
    )
    plain = [
        {"precursor_mz": 195.0877, "smiles": CAFFEINE, "compound_name": "caffeine",
         "peaks_json": [list(map(float, peak)) for peak in PEAKS]}
    ]  # fmt: skip
    mzspeclib = (
        "<mzSpecLib 1.0>\n<Spectrum=1>\nMS:1003061|library spectrum name=caffeine\n"
        f"MS:1000744|selected ion m/z=195.0877\n<Analyte=1>\nMS:1000868|SMILES formula={CAFFEINE}\n"
        "<Peaks>\n" + "".join(f"{mz}\t{i}\n" for mz, i in PEAKS)
    )

    written = {"a.mgf": mgf, "a.json": json.dumps(plain), "a.mzspeclib": mzspeclib}
    for name, text in written.items():
        (match,) = made(tmp_path, text, name).search([measured()])
        assert (match.smiles, round(match.score, 4)) == (CAFFEINE, 1)


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("a.msp", msp(SMILES=None), UsageError, "holds no spectrum with a structure: 1 spectrum"),
        ("a.msp", msp() * 4, UsageError, "holds more than 3 spectra"),
        ("a.json", "[{", UsageError, "holds no spectrum with a structure: 1 spectrum"),
        ("a.txt", "hello", UnreadableError, "a.txt"),
    ],
)
def test_what_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, name, text, error, said):
    monkeypatch.setattr(library, "_MOST_SPECTRA", 3)

    with pytest.raises(error) as refused:
        made(tmp_path, text, name)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_matchms_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matchms", None)

    with pytest.raises(UsageError, match=r"pip install duallgd\[library\]"):
        made(tmp_path, msp())


def test_reading_many_spectra_holds_arrays_and_no_spectra(tmp_path):
    fields = "".join(f"FIELD{number}=something that every record says\n" for number in range(30))
    peaks = "".join(f"{50 + number}.01 {number + 1}\n" for number in range(40))
    record = f"BEGIN IONS\nPEPMASS=195.0877\nSMILES={CAFFEINE}\n{fields}{peaks}END IONS\n"
    path = tmp_path / "many.mgf"
    path.write_text(record * 2000)

    tracemalloc.start()
    library = Library.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(library.smiles) == 2000
    assert peak / 2000 < 2500  # bytes; 40 peaks are 480, and a spectrum with its fields was 8,000
