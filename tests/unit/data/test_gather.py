"""Labelled spectra of files in several formats become one table; what is held out is not in it."""

import pytest

from duallgd_cli.data.gather import gather_spectra
from duallgd_cli.data.prepared import load_spectra
from duallgd_cli.data.spectra import prepare_spectra
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.tables import table_rows

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
JSON = """[{"spectrum_id": "glycine", "smiles": "NCC(=O)O", "adduct": "[M+H]+",
"collision_energy": "30 eV", "precursor_mz": 76.0393, "peaks": [[30.033812345, 1], [76.0393, 1]]}]
"""
TSV = (
    "identifier\tmzs\tintensities\tsmiles\tadduct\tprecursor_mz\tinstrument_type\tfold\n"
    "T1\t96.0444\t1\tOc1ccccn1\t[M+H]+\t96.0444\tOrbitrap\tval\n"
)
FILES = {"a.mgf": MGF, "b.msp": MSP, "c.json": JSON, "d.tsv": TSV}
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

    assert [(row["identifier"], row["formula"], row["fold"]) for row in rows] == [
        ("aspirin", "C9H8O4", "train"), ("catechol", "C6H6O2", "train"),
        ("glycine", "C2H5NO2", "train"), ("T1", "C5H5NO", "val"),
    ]  # fmt: skip
    assert (rows[2]["collision_energy"], rows[2]["mzs"]) == ("30.0", "30.033812345,76.0393")
    assert held == [ASPIRIN, PYRIDONE]  # of fold test, of fold val
    assert counts == {
        "train": 3, "test": 1, "val": 1, "no structure": 1, "not a molecule": 1,
        "held out": 2, "in several folds": 1,
    }  # fmt: skip
    report = (tmp_path / "report.tsv").read_text()
    assert "a.mgf\t3\tnameless\tno structure\tno SMILES or InChI\n" in report
    assert "b.msp\t2\tbroken\tnot a molecule\tC1CC\n" in report


def test_spectra_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "in.mgf").write_text(MGF.replace("FOLD=test\n", ""))

    assert [row["identifier"] for row in gathered(tmp_path / "in.mgf", tmp_path)[1]] == [
        "aspirin", "aspirin-2",
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("b.mgf", UnreadableError, "no spectrum with a structure to train on; name .*report.tsv s"),
        ("missing.msp", MissingInputError, "missing.msp does not exist; check the paths"),
        ("empty", MissingInputError, "is empty; put files of spectra into it"),
    ],
)
def test_what_cannot_be_trained_on_is_said(tmp_path, name, error, message):
    unlabelled = (line for line in MGF.splitlines() if not line.startswith("SMILES"))
    (tmp_path / "b.mgf").write_text("\n".join(unlabelled))
    (tmp_path / "empty").mkdir()

    with pytest.raises(error, match=message):
        gather_spectra([tmp_path / name], tmp_path / "t.tsv", tmp_path / "keys")
