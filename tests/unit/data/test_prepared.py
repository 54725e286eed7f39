"""Prepared folders: read back as written, checked against their checksums."""

import json

import numpy as np
import pytest

from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.prepared import (
    FORMAT_VERSION,
    load_molecules,
    load_spectra,
)
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from tests.made_prepared import SMILES, spectra_folder, structures_folder, verify


@pytest.fixture
def folder(tmp_path):
    return structures_folder(tmp_path / "prepared")


def test_molecules_read_back_as_they_were(folder):
    molecules = load_molecules(folder)

    assert len(molecules) == len(SMILES)
    for row, smiles in enumerate(SMILES):
        mol = parse_smiles(smiles)
        parts = disassemble(mol)
        assert np.array_equal(molecules.bond_class(row), parts.bond_class)
        assert molecules.formula(row) == parts.formula
        assert np.array_equal(molecules.atom_class(row), parts.atom_class)
        assert molecules.n_heavy[row] == len(parts.atom_class)
        assert molecules.fingerprint_bits(row).tolist() == sorted(fingerprint(mol))


def test_a_missing_array_is_named(folder):
    (folder / "bits.npy").unlink()

    with pytest.raises(UnreadableError, match=r"bits\.npy is missing; prepare the data again"):
        load_molecules(folder)


def test_another_format_version_is_refused(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))

    with pytest.raises(UnreadableError, match=f"version 99, this version reads {FORMAT_VERSION}"):
        load_molecules(folder)


def test_a_folder_without_manifest_is_no_prepared_data(tmp_path):
    with pytest.raises(MissingInputError, match=r"holds no prepared data \(manifest\.json"):
        load_molecules(tmp_path)


@pytest.mark.parametrize("text", ["", '{"format_version": 1, "arr', "[1, 2]", "\x00\x01"])
def test_a_broken_manifest_is_refused_in_a_sentence(folder, text):
    (folder / "manifest.json").write_text(text)

    with pytest.raises(UnreadableError, match="prepare the data again"):
        load_molecules(folder)


def test_a_truncated_array_is_refused_in_a_sentence(folder):
    path = folder / "bond_pair.npy"
    path.write_bytes(path.read_bytes()[:-7])

    with pytest.raises(UnreadableError, match=r"bond_pair\.npy is broken .*prepare the data again"):
        load_molecules(folder)


def test_molecules_with_other_elements_are_refused(folder):
    counts = np.load(folder / "atom_counts.npy")
    np.save(folder / "atom_counts.npy", counts[:, :-1].copy())

    with pytest.raises(UnreadableError, match=r"count \(12,\) elements, expected 13"):
        load_molecules(folder)


def test_preparing_again_leaves_no_manifest_of_the_old_data_behind(folder):
    before = load_molecules(folder)

    structures_folder(folder, "CCCC", "CCN")

    verify(folder)
    assert len(load_molecules(folder)) == 2
    assert len(before) == len(SMILES), "what is mapped stays"
    assert before.fingerprint_bits(0).tolist() == sorted(fingerprint(parse_smiles(SMILES[0])))
    assert not list(folder.glob(".*"))


def test_spectra_unfold_their_table_of_sub_formulas(tmp_path):
    folder = spectra_folder(tmp_path / "spectra")
    verify(folder)

    spectra = load_spectra(folder)

    table, index = (np.load(folder / f"subformula_{name}.npy") for name in ("table", "index"))
    assert len(np.unique(table, axis=0)) == len(table) < len(index)
    np.testing.assert_array_equal(spectra.subformula, table[index])
    assert len(spectra) == len(spectra.spectrum_id) == 7
    assert spectra.peak_offset[-1] == len(spectra.mz)


def test_structures_are_not_taken_for_spectra(folder):
    with pytest.raises(UsageError, match=r"holds structures, not spectra.*duallgd data spectra"):
        load_spectra(folder)
