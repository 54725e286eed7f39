"""Layouts of labelled data sets; every spectrum here is made from fragment formulas."""

import gzip
import lzma

import pytest

from duallgd_cli.data.spectra import (
    LabelledSpectrum,
    RejectedSpectrum,
    prepare_record,
    read_labelled_file,
    read_nplib1,
)
from duallgd_cli.errors import UnreadableError, UsageError

HEADER = (
    "identifier\tmzs\tintensities\tsmiles\tadduct\tprecursor_mz\tinstrument_type\t"
    "collision_energy\tfold"
)
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"
GOOD = f"A1\t121.0284,163.0390\t1,0.5\t{ASPIRIN}\t[M+H]+\t181.0495\tOrbitrap\t30.0\tval"


def write_table(path, *rows):
    text = "\n".join([HEADER, *rows]) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["set.tsv", "set.tsv.gz", "set.tsv.xz"])
def test_a_table_is_read_plain_or_compressed(tmp_path, name):
    (record,) = read_labelled_file(write_table(tmp_path / name, GOOD))

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
    path = tmp_path / "set.tsv"
    rows = [HEADER, GOOD]
    path.write_text("\n".join(row.rpartition("\t")[0] for row in rows) + "\n", encoding="utf-8")

    (record,) = read_labelled_file(path)

    assert record.fold == "train"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("A1\t100.0\t1", "unreadable"),
        (GOOD.replace("1,0.5", "1"), "unreadable"),
        (GOOD.replace("121.0284", "peak"), "unreadable"),
        (GOOD.replace(ASPIRIN, ""), "no structure"),
        (GOOD.replace("\tval", "\teverything"), "unknown fold"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason_and_the_next_is_read(tmp_path, row, reason):
    bad, good = read_labelled_file(write_table(tmp_path / "set.tsv", row, GOOD))

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

    record, survey = read_labelled_file(path)

    assert (record.smiles, record.fold) == (ASPIRIN, "test")
    assert survey.reason == "not an MS2 spectrum"


MS_FILE = """>compound A1
>parentmass 181.0495
>ionization [M+H]+

>collision 10
163.0390 1.0
>collision 40
121.0284 1.0
163.0390 0.1
"""


def nplib1(folder, *, splits=("split.tsv",)):
    (folder / "spec_files").mkdir(parents=True)
    (folder / "spec_files" / "A1.ms").write_text(MS_FILE, encoding="utf-8")
    labels = "dataset\tspec\tformula\tionization\tsmiles\tinchikey\tinstrument\n"
    for name in ("A1", "A2", "A3"):
        labels += f"made\t{name}\tC9H8O4\t[M+H]+\t{ASPIRIN}\tBSYNRYMUTXBXSQ\tOrbitrap\n"
    (folder / "labels.tsv").write_text(labels, encoding="utf-8")
    for name in splits:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("name\tsplit\nA1\ttest\nA2\ttrain\n", encoding="utf-8")
    return folder


def test_an_nplib1_folder_gives_all_energies_of_a_compound_as_one_feature(tmp_path):
    first, missing, unsplit = read_nplib1(nplib1(tmp_path / "nplib1"))

    assert (first.smiles, first.fold) == (ASPIRIN, "test")
    assert first.feature.first.adduct_text == "[M+H]+"
    assert [s.spectrum_id for s in first.feature.spectra] == ["A1", "A1"]
    # Numbers without a unit are normalised energies on an Orbitrap, which only the label names.
    energies = [s.collision_energy_ev for s in first.feature.spectra]
    assert energies == pytest.approx([10 * 181.0495 / 500, 40 * 181.0495 / 500])
    assert (missing.spectrum_id, missing.reason) == ("A2", "unreadable")
    assert (unsplit.spectrum_id, unsplit.reason) == ("A3", "in no fold")


def test_of_several_split_tables_one_must_be_chosen(tmp_path):
    folder = nplib1(tmp_path / "nplib1", splits=("splits/a.tsv", "splits/b.tsv"))

    with pytest.raises(UsageError, match=r"a\.tsv, b\.tsv"):
        list(read_nplib1(folder))
    assert len(list(read_nplib1(folder, folder / "splits" / "b.tsv"))) == 3


def test_a_table_without_its_columns_is_refused(tmp_path):
    folder = nplib1(tmp_path / "nplib1")
    (folder / "labels.tsv").write_text("name\tsmiles\n", encoding="utf-8")

    with pytest.raises(UnreadableError, match="no column spec"):
        list(read_nplib1(folder))


def test_rows_cut_short_and_long_cells_of_its_tables_are_no_crash(tmp_path):
    folder = nplib1(tmp_path / "nplib1")
    long = f"A1\t[M+H]+\t\t{'x' * 200_000}\n"
    labels = f"spec\tionization\tsmiles\tnote\n{long}A2\n\nA3\n"
    (folder / "labels.tsv").write_text(labels, encoding="utf-8")
    (folder / "split.tsv").write_text("name\tsplit\nA1\ttrain\nA2\n", encoding="utf-8")

    first, *others = read_nplib1(folder)

    refused = prepare_record(first)
    assert refused.detail.startswith("an empty SMILES is not a molecule")
    assert [other.reason for other in others] == ["in no fold"] * 2
