"""Labelled spectra of any file to one table and to prepared folders; what is held out is not in.

Peaks are made from formulas.
"""

import gzip
import math
from collections import Counter
from dataclasses import asdict

import pytest

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.data import prepared
from duallgd_cli.data.prepared import FOLDS, load_spectra, read_manifest
from duallgd_cli.data.spectra import gather_spectra, prepare_spectra
from duallgd_cli.errors import MissingInputError, UnreadableError
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.types import INSTRUMENTS
from duallgd_cli.tables import table_rows
from tests.made_prepared import COLUMNS, row_of, verify
from tests.made_runs import rows_of

ASPIRIN, CATECHOL = "CC(=O)Oc1ccccc1C(=O)O", "Oc1ccccc1O"
CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
KEYS = {ASPIRIN: "BSYNRYMUTXBXSQ", CATECHOL: "YCIMNLLNPGFGHC", CAFFEINE: "RYYVLZVUVIJVGH"}
PYRIDONE = "UBQKCCHYAOITMY"


def row(name, smiles, fragments, ion="[M+H]+", /, **changes):
    """A line of a table of spectra, some cells of it changed."""
    return "\t".join((row_of(name, smiles, ion, fragments) | changes).values())


def table(path, *lines):
    """A table of spectra, packed if its name says so."""
    text = "\n".join(["\t".join(COLUMNS), *lines, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


GOOD = (
    row("A1", ASPIRIN, "C7H5O2 C9H7O3 C6H7O"),
    row("A2", ASPIRIN, "C9H7O3", collision_energy="", instrument_type="QTOF"),
    row("C1", CATECHOL, "C6H5O", "[M-H]-", fold="val", precursor_mz=""),
    row("K1", CAFFEINE, "C6H8N3O C5H8N3", fold="test"),
    row("K2", CAFFEINE, "C6H5S"),
)
BAD = (
    ("other text follows the SMILES in its cell", {"smiles": "not a molecule"}),
    ("not a molecule", {"smiles": "C1CC"}),
    ("the molecule has 2 fragments; exactly one is needed", {"smiles": "Cc1ccccc1.NCCCCCC"}),
    ("unsupported element", {"smiles": "CC[Hg]C"}),
    ("number of heavy atoms outside 2 to 100", {"smiles": "C" * 101}),
    ("unsupported adduct", {"adduct": "[M+2H]2+"}),
    ("adduct does not fit the molecule", {"adduct": "[M]+"}),
    ("precursor m/z differs", {"precursor_mz": "200.0"}),
    ("no usable peaks", {"mzs": "500.0", "intensities": "1"}),
    ("unreadable", {"intensities": "1,0.5"}),
    ("unreadable", {"mzs": "peak"}),
    ("no structure", {"smiles": ""}),
    ("unknown fold", {"fold": "everything"}),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bad = (row(f"B{n}", ASPIRIN, "C7H5O2", **changed) for n, (_, changed) in enumerate(BAD))
    prepare_spectra(table(folder / "set.tsv", *bad, *GOOD), folder / "out")
    verify(folder / "out")
    return folder / "out"


def test_molecules_and_conditions_of_the_measurement_are_kept(folder):
    spectra = load_spectra(folder)

    assert spectra.molecules.inchikey.tolist() == [key.encode() for key in KEYS.values()]
    # A molecule of two folds counts as the one that is farther from training.
    assert [FOLDS[f] for f in spectra.molecules.fold] == ["train", "val", "test"]
    assert spectra.molecule.tolist() == [0, 0, 1, 2, 2]
    assert [FOLDS[f] for f in spectra.spectrum_fold] == ["train", "train", "val", "test", "train"]
    instruments = [INSTRUMENTS[i] for i in spectra.instrument]
    assert instruments == ["orbitrap", "qtof", "orbitrap", "orbitrap", "orbitrap"]
    assert [ADDUCTS[i].name for i in spectra.adduct] == ["[M+H]+"] * 2 + ["[M-H]-"] + ["[M+H]+"] * 2
    # The column of numbers is in eV, also on an Orbitrap.
    assert spectra.energy_ev.tolist() == [20, pytest.approx(math.nan, nan_ok=True), 20, 20, 20]


def test_what_is_left_out_is_reported_and_what_is_in_is_recorded(folder):
    report, manifest = rows_of(folder / "report.tsv"), read_manifest(folder)

    found = [(line["number"], line["spectrum_id"], line["reason"]) for line in report]
    assert found == [(str(n + 1), f"B{n}", reason) for n, (reason, _) in enumerate(BAD)]
    assert all(line["detail"] for line in report)
    assert manifest["rejected"] == Counter(reason for reason, _ in BAD)
    assert manifest["settings"]["annotation"] == asdict(AnnotationSettings())
    assert (manifest["source"]["file"], len(manifest["source"]["sha256"])) == ("set.tsv", 64)
    figures = ("spectra", "molecules", "molecules_in_several_folds", "without_explained_peak")
    assert [manifest[name] for name in figures] == [5, 3, 1, 1]
    assert manifest["mean_intensity_explained"] == pytest.approx(4 / 5)


def test_spectra_are_written_in_blocks_to_the_same_folder(folder, tmp_path, monkeypatch):
    """A block may hold no molecule that is new; a packed table is the same."""
    monkeypatch.setattr(prepared, "BLOCK", 1)
    packed = tmp_path / "set.tsv.gz"
    packed.write_bytes(gzip.compress(folder.with_name("set.tsv").read_bytes()))

    prepare_spectra(packed, tmp_path / "blocks")

    one, other = (
        {path.name: path.read_bytes() for path in made.glob("*.npy")}
        for made in (folder, tmp_path / "blocks")
    )
    assert one == other


def test_molecules_on_the_holdout_list_never_reach_training(tmp_path):
    held = frozenset(KEYS[smiles] for smiles in (ASPIRIN, CAFFEINE))

    manifest = prepare_spectra(table(tmp_path / "set.tsv", *GOOD), tmp_path / "out", holdout=held)

    spectra = load_spectra(tmp_path / "out")
    assert FOLDS.index("train") not in spectra.molecules.fold
    assert [FOLDS[fold] for fold in spectra.spectrum_fold] == ["val", "test"]
    assert (manifest["holdout_keys"], manifest["holdout_removed"]) == (2, 3)


@pytest.mark.parametrize("line", ["A1\t100.0\t1", row("B1", ASPIRIN, "C7H5O2", smiles="nothing")])
def test_what_holds_no_labelled_spectra_is_refused(tmp_path, line):
    with pytest.raises(UnreadableError, match="no spectrum that can be used"):
        prepare_spectra(table(tmp_path / "set.tsv", line), tmp_path / "out")


ENTRY = f"PEPMASS=181.0495\nADDUCT=[M+H]+\nSMILES={ASPIRIN}\n163.0390 100\nEND IONS\n"
FILES = {
    "a.mgf": (
        f"BEGIN IONS\nTITLE=aspirin\n121.0284 50\n{ENTRY}"
        f"BEGIN IONS\nTITLE=aspirin\nFOLD=test\n{ENTRY}"
        "BEGIN IONS\nTITLE=nameless\nPEPMASS=181.0495\nADDUCT=[M+H]+\n163.0390 100\nEND IONS\n"
        "BEGIN IONS\nMSLEVEL=1\nPEPMASS=181.0495\n181.0495 1\nEND IONS\n"
    ),
    "b.msp": (
        "Name: catechol\nPrecursor_type: [M-H]-\nPrecursorMZ: 109.0295\nSMILES: N/A\n"
        "InChI: InChI=1S/C6H6O2/c7-5-3-1-2-4-6(5)8/h1-4,7-8H\nNum Peaks: 1\n108.0217 999\n\n"
        "Name: broken\nPrecursor_type: [M-H]-\nPrecursorMZ: 109.0295\nSMILES: C1CC\n"
        "Num Peaks: 1\n108.0217 999\n"
    ),
    "c.json": (
        '[{"spectrum_id": "catechol", "smiles": "NCC(=O)O", "adduct": "[M+H]+", "precursor_mz":'
        ' 76.0393, "collision_energy": "30 eV", "peaks": [[30.033812345, 1], [76.0393, 1]]}]'
    ),
    "d.tsv": (
        "identifier\tmzs\tintensities\tsmiles\tadduct\tprecursor_mz\tinstrument_type\tfold\n"
        "T1\t96.0444\t1\tOc1ccccn1\t[M+H]+\t96.0444\tOrbitrap\tval\n"
    ),
}


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "spectra").mkdir()
    for name, text in FILES.items():
        (tmp_path / "spectra" / name).write_text(text)
    return tmp_path / "spectra"


def gathered(sources, out, **settings):
    counts = gather_spectra([sources], out / "table.tsv", out / "held.keys", **settings)
    rows = list(table_rows(out / "table.tsv", required=("smiles",)))
    return counts, rows, (out / "held.keys").read_text().split()


def test_every_format_gives_its_spectra_and_no_record_is_lost_in_silence(sources, tmp_path):
    """And spectra of one name are told apart."""
    counts, rows, held = gathered(sources, tmp_path)

    assert [(row["identifier"], row["formula"], row["fold"]) for row in rows] == [
        ("aspirin", "C9H8O4", "train"), ("catechol", "C6H6O2", "train"),
        ("catechol-2", "C2H5NO2", "train"), ("T1", "C5H5NO", "val"),
    ]  # fmt: skip
    assert (rows[2]["collision_energy"], rows[2]["mzs"]) == ("30.0", "30.033812345,76.0393")
    assert held == [KEYS[ASPIRIN], PYRIDONE]  # of fold test, of fold val
    assert counts == {
        "train": 3, "test": 1, "val": 1, "no structure": 1, "not a molecule": 1,
        "not an MS2 spectrum": 1, "held out": 2, "in several folds": 1,
    }  # fmt: skip
    report = (tmp_path / "report.tsv").read_text()
    assert "a.mgf\t3\tnameless\tno structure\tno SMILES or InChI\n" in report
    assert "b.msp\t2\tbroken\tnot a molecule\t" in report
    # A molecule in two folds is not trained on.
    keys = frozenset(held)
    manifest = prepare_spectra(tmp_path / "table.tsv", tmp_path / "prepared", holdout=keys)
    assert manifest["rejected"] == {"on the hold-out list": 1}


def test_a_name_that_is_made_is_none_that_another_spectrum_has(tmp_path):
    """In whatever order they come."""
    names = ("A", "A", "A-2", "A", "B-2", "B", "B")
    (tmp_path / "spectra").mkdir()
    made = (FILES["a.mgf"].partition("END IONS\n")[0].replace("=aspirin", f"={n}") for n in names)
    (tmp_path / "spectra" / "a.mgf").write_text("".join(f"{text}END IONS\n" for text in made))

    _, rows, _ = gathered(tmp_path / "spectra", tmp_path)

    assert [row["identifier"] for row in rows] == ["A", "A-2", "A-2-2", "A-3", "B-2", "B", "B-3"]


def test_molecules_on_a_list_are_left_out_and_stay_held_out(sources, tmp_path):
    given = frozenset({KEYS[CATECHOL], PYRIDONE})

    counts, rows, held = gathered(sources, tmp_path, holdout=given)

    assert [row["identifier"] for row in rows] == ["aspirin", "catechol"]
    assert set(held) == given | {KEYS[ASPIRIN]}
    assert counts["on the hold-out list"] == 2


def test_a_share_of_the_molecules_is_moved_to_fold_val_whatever_else_there_is(sources, tmp_path):
    _, rows, held = gathered(sources, tmp_path, validation=0.5, seed=1)
    _, none, _ = gathered(sources, tmp_path, validation=0.001, seed=1)
    (sources / "a.mgf").unlink()
    _, fewer, _ = gathered(sources, tmp_path, validation=0.5, seed=1)

    folds = {row["smiles"]: row["fold"] for row in rows}
    assert set(folds.values()) == {"train", "val"}
    assert [row["identifier"] for row in none if row["fold"] == "val"] == ["T1"]  # as it says
    assert all(folds[row["smiles"]] == row["fold"] for row in fewer)
    assert {row["inchikey"] for row in rows if row["fold"] == "val"} <= set(held)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("b.mgf", UnreadableError, "no spectrum with a structure to train on; name .*report.tsv s"),
        ("test.mgf", UnreadableError, "no spectrum with a structure to train on"),
        ("missing.msp", MissingInputError, "missing.msp does not exist; check the paths"),
        ("empty", MissingInputError, "is empty; put files of spectra into it"),
    ],
)
def test_what_cannot_be_trained_on_is_said(tmp_path, name, error, message):
    (tmp_path / "b.mgf").write_text(FILES["a.mgf"].replace("SMILES=", "REMARK="))
    (tmp_path / "test.mgf").write_text(FILES["a.mgf"])  # its only molecule is of fold test, too
    (tmp_path / "empty").mkdir()

    with pytest.raises(error, match=message):
        gather_spectra([tmp_path / name], tmp_path / "t.tsv", tmp_path / "keys")
