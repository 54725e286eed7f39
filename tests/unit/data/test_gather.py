"""Labelled spectra of files in several formats become one table; what is held out is not in it."""

import json

import numpy as np
import pytest

from duallgd_cli.data.gather import gather_spectra
from duallgd_cli.data.prepared import load_spectra
from duallgd_cli.data.spectra import prepare_spectra
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.tables import table_rows
from tests.made_prepared import spectra_folder

MGF = """BEGIN IONS
TITLE=aspirin
PEPMASS=181.0495
ADDUCT=[M+H]+
SMILES=CC(=O)Oc1ccccc1C(=O)O
121.0284 50
163.0390 100
END IONS
BEGIN IONS
TITLE=aspirin
PEPMASS=181.0495
ADDUCT=[M+H]+
SMILES=CC(=O)Oc1ccccc1C(=O)O
FOLD=test
163.0390 100
END IONS
BEGIN IONS
TITLE=nameless
PEPMASS=181.0495
ADDUCT=[M+H]+
163.0390 100
END IONS
"""
MSP = """Name: catechol
Precursor_type: [M-H]-
PrecursorMZ: 109.0295
SMILES: N/A
InChI: InChI=1S/C6H6O2/c7-5-3-1-2-4-6(5)8/h1-4,7-8H
Num Peaks: 1
108.0217 999

Name: broken
Precursor_type: [M-H]-
PrecursorMZ: 109.0295
SMILES: C1CC
Num Peaks: 1
108.0217 999
"""
MASSBANK = """ACCESSION: MSBNK-made-1
CH$NAME: caffeine
CH$SMILES: Cn1c(=O)c2c(ncn2C)n(C)c1=O
MS$FOCUSED_ION: PRECURSOR_M/Z 195.0877
MS$FOCUSED_ION: PRECURSOR_TYPE [M+H]+
AC$MASS_SPECTROMETRY: COLLISION_ENERGY 30 eV
PK$NUM_PEAK: 1
PK$PEAK: m/z int. rel.int.
  138.0662 100 999
//
"""
MZSPECLIB = """<mzSpecLib>
MS:1003186|library format version=1.0
<Spectrum=1>
MS:1003061|library spectrum name=glycine
MS:1000744|selected ion m/z=76.0393
<Analyte=1>
MS:1000866|molecular formula=C2H5NO2
MS:1002813|adduct ion formula=[M+H]+
MS:1000868|SMILES formula=NCC(=O)O
<Peaks>
30.0338\t100
"""
TSV = (
    "identifier\tmzs\tintensities\tsmiles\tadduct\tprecursor_mz\tinstrument_type\tfold\n"
    "T1\t96.0444\t1\tOc1ccccn1\t[M+H]+\t96.0444\tOrbitrap\tval\n"
)
FILES = {
    "a.mgf": MGF, "b.msp": MSP, "c.txt": MASSBANK, "d.mzlib.txt": MZSPECLIB, "e.tsv": TSV,
}  # fmt: skip
ASPIRIN, CATECHOL, PYRIDONE = "BSYNRYMUTXBXSQ", "YCIMNLLNPGFGHC", "UBQKCCHYAOITMY"


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "spectra"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def gathered(sources, out, **settings):
    counts = gather_spectra([sources], out / "table.tsv", out / "held.keys", **settings)
    rows = list(table_rows(out / "table.tsv", required=("smiles",)))
    return counts, rows, (out / "held.keys").read_text().split()


def test_every_format_gives_its_spectra_and_no_record_is_lost_in_silence(sources, tmp_path):
    counts, rows, held = gathered(sources, tmp_path)

    assert [row["identifier"] for row in rows] == [
        "aspirin", "catechol", "MSBNK-made-1", "glycine", "T1",
    ]  # fmt: skip
    assert [row["formula"] for row in rows] == [
        "C9H8O4",
        "C6H6O2",
        "C8H10N4O2",
        "C2H5NO2",
        "C5H5NO",
    ]
    assert rows[2]["collision_energy"] == "30.0"
    assert rows[4]["fold"] == "val"
    assert held == [ASPIRIN, PYRIDONE]  # of fold test, of fold val
    assert counts == {
        "train": 4, "test": 1, "val": 1, "no structure": 1, "not a molecule": 1,
        "held out": 2, "in several folds": 1,
    }  # fmt: skip
    report = (tmp_path / "report.tsv").read_text()
    assert "a.mgf\t3\tnameless\tno structure\tno SMILES or InChI\n" in report
    assert "b.msp\t2\tbroken\tnot a molecule\tC1CC\n" in report


def test_a_molecule_in_two_folds_is_not_trained_on(sources, tmp_path):
    _, _, held = gathered(sources, tmp_path)

    manifest = prepare_spectra(
        tmp_path / "table.tsv", tmp_path / "prepared", holdout=frozenset(held)
    )

    assert manifest["rejected"] == {"on the hold-out list": 1}
    assert ASPIRIN.encode() not in load_spectra(tmp_path / "prepared").molecules.inchikey


def test_molecules_on_a_list_are_left_out_and_stay_held_out(sources, tmp_path):
    counts, rows, held = gathered(sources, tmp_path, holdout=frozenset({CATECHOL, PYRIDONE}))

    assert not {"catechol", "T1"} & {row["identifier"] for row in rows}
    assert {CATECHOL, PYRIDONE} <= set(held)
    assert counts["on the hold-out list"] == 2


def test_a_share_of_the_molecules_is_moved_to_fold_val_whatever_else_there_is(sources, tmp_path):
    _, rows, held = gathered(sources, tmp_path, validation=0.5, seed=1)
    (sources / "a.mgf").unlink()
    _, fewer, _ = gathered(sources, tmp_path, validation=0.5, seed=1)

    folds = {row["smiles"]: row["fold"] for row in rows}
    assert {"train", "val"} == set(folds.values())
    assert all(folds[row["smiles"]] == row["fold"] for row in fewer)
    assert {row["inchikey"] for row in rows if row["fold"] == "val"} <= set(held)


def test_spectra_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "in.mgf").write_text(MGF.replace("FOLD=test\n", ""))

    _, rows, _ = gathered(tmp_path / "in.mgf", tmp_path)

    assert [row["identifier"] for row in rows] == ["aspirin", "aspirin-2"]


def test_the_table_says_what_the_file_said(tmp_path):
    direct = spectra_folder(tmp_path / "direct")
    gather_spectra([tmp_path / "direct.tsv"], tmp_path / "table.tsv", tmp_path / "keys")
    prepare_spectra(tmp_path / "table.tsv", tmp_path / "again")

    one, other = load_spectra(direct), load_spectra(tmp_path / "again")
    kept = one.spectrum_fold != 2  # fold test is in no table
    np.testing.assert_array_equal(one.energy_ev[kept], other.energy_ev)
    np.testing.assert_array_equal(one.precursor_mz[kept], other.precursor_mz)
    np.testing.assert_array_equal(one.instrument[kept], other.instrument)
    n_peaks = np.diff(one.peak_offset)
    np.testing.assert_array_equal(one.mz[np.repeat(kept, n_peaks)], other.mz)
    np.testing.assert_array_equal(one.intensity[np.repeat(kept, n_peaks)], other.intensity)


def test_what_cannot_be_trained_on_is_said(tmp_path):
    (tmp_path / "unlabelled.mgf").write_text(
        "\n".join(line for line in MGF.splitlines() if not line.startswith("SMILES"))
    )
    (tmp_path / "empty").mkdir()
    for name, error, message in (
        (
            "unlabelled.mgf",
            UnreadableError,
            r"no spectrum with a structure to train on; name .*report.tsv says why",
        ),
        ("missing.msp", MissingInputError, "missing.msp does not exist; check the paths"),
        ("empty", MissingInputError, "is empty; put files of spectra into it"),
    ):
        with pytest.raises(error, match=message):
            gather_spectra([tmp_path / name], tmp_path / "t.tsv", tmp_path / "keys")


def test_folds_of_json_and_numbers_survive(tmp_path):
    record = {
        "spectrum_id": "J1",
        "smiles": "NCC(=O)O",
        "adduct": "[M+H]+",
        "precursor_mz": 76.0393,
        "peaks": [[30.033812345, 0.12345678901], [76.0393, 1]],
    }
    (tmp_path / "in.json").write_text(json.dumps([record]))

    _, rows, _ = gathered(tmp_path / "in.json", tmp_path)

    assert rows[0]["mzs"] == "30.033812345,76.0393"
