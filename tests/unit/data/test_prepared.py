"""Prepared folders: read back as written, checked against their checksums."""

import json

import numpy as np
import pytest

from duallgd_cli.chem.identity import fingerprint, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.prepared import FORMAT_VERSION, load_molecules
from duallgd_cli.errors import MissingInputError, UnreadableError
from tests.made_prepared import SMILES, structures_folder, verify


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


def of_another_version(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))


def with_an_element_less(folder):
    counts = np.load(folder / "atom_counts.npy")
    np.save(folder / "atom_counts.npy", counts[:, :-1].copy())


def cut_short(folder):
    path = folder / "bond_pair.npy"
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda folder: (folder / "bits.npy").unlink(),
            r"bits\.npy is missing; prepare the data ag",
        ),
        (of_another_version, f"version 99, this version reads {FORMAT_VERSION}"),
        (cut_short, r"bond_pair\.npy is broken .*prepare the data again"),
        (with_an_element_less, r"count \(12,\) elements, expected 13"),
        *(
            (lambda folder, text=text: (folder / "manifest.json").write_text(text), "prepare the d")
            for text in ("", '{"format_version": 1, "arr', "[1, 2]", "\x00\x01")
        ),
    ],
)
def test_broken_and_foreign_folders_are_refused_in_a_sentence(folder, spoil, said):
    spoil(folder)

    with pytest.raises(UnreadableError, match=said):
        load_molecules(folder)


def test_a_folder_without_manifest_is_no_prepared_data(tmp_path):
    with pytest.raises(MissingInputError, match=r"holds no prepared data \(manifest\.json"):
        load_molecules(tmp_path)


def test_preparing_again_leaves_no_manifest_of_the_old_data_behind(folder):
    before = load_molecules(folder)

    structures_folder(folder, "CCCC", "CCN")

    verify(folder)
    assert len(load_molecules(folder)) == 2
    assert len(before) == len(SMILES), "what is mapped stays"
    assert before.fingerprint_bits(0).tolist() == sorted(fingerprint(parse_smiles(SMILES[0])))
    assert not list(folder.glob(".*"))
