"""Layouts of labelled spectra, and these to prepared folders; peaks are made from formulas."""

import gzip
import lzma
import math
from dataclasses import asdict

import pytest

from duallgd_cli.chem.adduct import BY_NAME, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.prepared import FOLDS, load_spectra, read_manifest
from duallgd_cli.data.spectra import (
    LabelledSpectrum,
    RejectedSpectrum,
    prepare_spectra,
    read_labelled,
)
from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.annotation import AnnotationSettings
from duallgd_cli.spectra.types import INSTRUMENTS
from tests.made_prepared import COLUMNS, cells_of, verify
from tests.made_runs import rows_of

ASPIRIN, CATECHOL = "CC(=O)Oc1ccccc1C(=O)O", "Oc1ccccc1O"
CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
KEYS = {ASPIRIN: b"BSYNRYMUTXBXSQ", CATECHOL: b"YCIMNLLNPGFGHC", CAFFEINE: b"RYYVLZVUVIJVGH"}


def row(name, smiles, fragments, *, adduct="[M+H]+", fold="train", **changes):
    """Cells of a spectrum by column."""
    cells = cells_of(0, smiles, adduct, " ".join(fragments), "20", fold)
    return dict(zip(COLUMNS, cells, strict=True)) | {"identifier": name} | changes


def table(path, *rows):
    """A table, packed as its name says, of cells by column or lines as they are."""
    lines = [row if isinstance(row, str) else "\t".join(row.values()) for row in rows]
    text = "\n".join(["\t".join(COLUMNS), *lines]) + "\n"
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text.encode()))
    return path


LINE = f"A1\t121.0284,163.0390\t1,0.5\t{ASPIRIN}\t[M+H]+\t181.0495\tOrbitrap\t30.0\tval"
GOOD = (
    row("A1", ASPIRIN, ["C7H5O2", "C9H7O3", "C6H7O"]),
    row("A2", ASPIRIN, ["C9H7O3"], collision_energy="", instrument_type="QTOF"),
    row("C1", CATECHOL, ["C6H5O"], adduct="[M-H]-", fold="val", precursor_mz=""),
    row("K1", CAFFEINE, ["C6H8N3O", "C5H8N3"], fold="test"),
    row("K2", CAFFEINE, ["C6H5S"]),
)
BAD = (
    ("unusable structure", {"smiles": "not a molecule"}),
    ("unsupported element", {"smiles": "CC[Hg]C"}),
    ("too few or too many atoms", {"smiles": "C" * 101}),
    ("unsupported adduct", {"adduct": "[M+2H]2+"}),
    ("adduct does not fit the molecule", {"adduct": "[M]+"}),
    ("precursor m/z differs", {"precursor_mz": "200.0"}),
    ("no usable peaks", {"mzs": "500.0", "intensities": "1"}),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    bad = (row(f"B{n}", ASPIRIN, ["C7H5O2"]) | changes for n, (_, changes) in enumerate(BAD))
    prepare_spectra(table(folder / "set.tsv", *bad, *GOOD), folder / "out")
    verify(folder / "out")
    return folder / "out"


def test_molecules_and_conditions_of_the_measurement_are_kept(folder):
    prepared = load_spectra(folder)
    molecules = prepared.molecules
    instruments = [INSTRUMENTS[i] for i in prepared.instrument]

    assert molecules.inchikey.tolist() == list(KEYS.values())
    assert prepared.molecule.tolist() == [0, 0, 1, 2, 2]
    # A molecule of two folds counts as the one that is farther from training.
    assert [FOLDS[f] for f in molecules.fold] == ["train", "val", "test"]
    assert [FOLDS[f] for f in prepared.spectrum_fold] == ["train", "train", "val", "test", "train"]
    assert instruments == ["orbitrap", "qtof", "orbitrap", "orbitrap", "orbitrap"]
    assert prepared.adduct.tolist() == [0, 0, BY_NAME["[M-H]-"].index, 0, 0]
    assert prepared.energy_ev[0] == 20
    assert math.isnan(prepared.energy_ev[1])
    # A missing precursor m/z is the theoretical one.
    expected = precursor_mz(Formula.parse("C6H6O2"), BY_NAME["[M-H]-"])
    assert prepared.precursor_mz[2] == pytest.approx(expected, abs=1e-4)
    assert prepared.spectrum_id.tolist() == [b"A1", b"A2", b"C1", b"K1", b"K2"]


def test_bad_records_are_rejected_by_reason_and_reported(folder):
    report = rows_of(folder / "report.tsv")

    assert read_manifest(folder)["rejected"] == {reason: 1 for reason, _ in BAD}
    for number, (line, (reason, _)) in enumerate(zip(report, BAD, strict=True)):
        found = line["number"], line["spectrum_id"], line["reason"]
        assert found == (str(number + 1), f"B{number}", reason)
        assert line["detail"]


def test_the_manifest_records_settings_source_and_what_was_explained(folder):
    manifest = read_manifest(folder)

    assert manifest["settings"]["annotation"] == asdict(AnnotationSettings())
    assert manifest["source"]["file"] == "set.tsv"
    assert len(manifest["source"]["sha256"]) == 64
    assert (manifest["spectra"], manifest["molecules_in_several_folds"]) == (5, 1)
    assert manifest["without_explained_peak"] == 1
    assert manifest["mean_intensity_explained"] == pytest.approx(4 / 5)


def test_molecules_on_the_holdout_list_never_reach_training(tmp_path):
    holdout = frozenset(key.decode() for key in (KEYS[ASPIRIN], KEYS[CAFFEINE]))

    manifest = prepare_spectra(
        table(tmp_path / "set.tsv", *GOOD), tmp_path / "out", holdout=holdout
    )

    prepared = load_spectra(tmp_path / "out")
    trained = prepared.molecules.inchikey[prepared.molecules.fold == FOLDS.index("train")]
    assert trained.tolist() == []
    assert prepared.spectrum_id.tolist() == [b"C1", b"K1"]
    assert (manifest["holdout_keys"], manifest["holdout_removed"]) == (2, 3)


@pytest.mark.parametrize("name", ["set.tsv", "set.tsv.gz", "set.tsv.xz"])
def test_a_table_is_read_plain_or_compressed(tmp_path, name):
    (record,) = read_labelled(table(tmp_path / name, LINE))

    assert isinstance(record, LabelledSpectrum)
    spectrum = record.feature.first
    assert (record.smiles, spectrum.adduct_text, record.fold) == (ASPIRIN, "[M+H]+", "val")
    assert (record.number, spectrum.spectrum_id, spectrum.instrument) == (1, "A1", "orbitrap")
    assert spectrum.mz.tolist() == [121.0284, 163.0390]
    assert spectrum.precursor_mz == 181.0495
    # The column of numbers is in eV, also on an Orbitrap.
    assert spectrum.collision_energy_ev == 30.0
    assert spectrum.metadata == {}  # labels do not travel with it


def test_a_table_without_folds_is_all_training_data(tmp_path):
    path = table(tmp_path / "set.tsv", LINE)
    path.write_text("\n".join(row.rpartition("\t")[0] for row in path.read_text().splitlines()))

    (record,) = read_labelled(path)

    assert record.fold == "train"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("A1\t100.0\t1", "no structure"),
        (LINE.replace("1,0.5", "1"), "unreadable"),
        (LINE.replace("121.0284", "peak"), "unreadable"),
        (LINE.replace(ASPIRIN, ""), "no structure"),
        (LINE.replace("\tval", "\teverything"), "unknown fold"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason_and_the_next_is_read(tmp_path, row, reason):
    bad, good = read_labelled(table(tmp_path / "set.tsv", row, LINE))

    assert isinstance(bad, RejectedSpectrum)
    assert (bad.reason, bad.number) == (reason, 1)
    assert bad.detail
    assert isinstance(good, LabelledSpectrum)


def test_an_mgf_with_structures_is_a_data_set_too(tmp_path):
    path = tmp_path / "library.mgf"
    path.write_text(
        f"BEGIN IONS\nTITLE=A1\nPEPMASS=181.0495\nADDUCT=[M+H]+\nSMILES={ASPIRIN}\nFOLD=test\n"
        "121.0284 1\nEND IONS\nBEGIN IONS\nMSLEVEL=1\nPEPMASS=181.0495\n181.0495 1\nEND IONS\n",
        encoding="utf-8",
    )

    record, survey = read_labelled(path)

    assert (record.smiles, record.fold) == (ASPIRIN, "test")
    assert survey.reason == "not an MS2 spectrum"


def test_what_holds_no_labelled_spectra_is_refused(tmp_path):
    useless = table(tmp_path / "set.tsv", row("B1", ASPIRIN, ["C7H5O2"]) | {"smiles": "nothing"})
    with pytest.raises(UnreadableError, match="no spectrum that can be used"):
        prepare_spectra(useless, tmp_path / "out")
    with pytest.raises(UnreadableError, match="make one of MassBank's record files with recipes"):
        list(read_labelled(tmp_path))
