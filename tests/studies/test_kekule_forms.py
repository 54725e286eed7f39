"""The same molecules with single and double bonds in place of aromatic ones."""

import numpy as np
import pytest
from kekule_forms import prepare_kekule_forms

from duallgd_cli.chem.elements import BOND_AROMATIC
from duallgd_cli.chem.identity import inchikey_block
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.data.prepared import load_molecules
from tests.made_prepared import structures_folder, verify

DRUGS = (
    "CC(=O)Oc1ccccc1", "c1ccc2[nH]ccc2c1", "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "C[n+]1ccccc1",
    "c1ccc2c(c1)c1ccccc1o2", "O=[N+]([O-])c1ccsc1", "CCO", "OC1CCCCC1CN",
)  # fmt: skip


@pytest.fixture
def source(tmp_path):
    return structures_folder(tmp_path / "structures", *DRUGS)


def test_no_bond_is_aromatic_and_every_molecule_is_the_same(source, tmp_path):
    prepare_kekule_forms(source, tmp_path / "out", max_atoms=30)
    verify(tmp_path / "out")
    before, molecules = load_molecules(source), load_molecules(tmp_path / "out")

    for name in ("atom_counts", "charge", "bond_pair", "bits", "fold", "inchikey"):
        assert np.array_equal(getattr(before, name), getattr(molecules, name)), name
    plain = before.bond_type != BOND_AROMATIC
    assert np.array_equal(before.bond_type[plain], molecules.bond_type[plain])
    assert not (molecules.bond_type == BOND_AROMATIC).any()
    for row in range(len(molecules)):
        read = assemble(molecules.formula(row), molecules.bond_class(row))
        assert inchikey_block(read[0]) == molecules.inchikey[row].decode()


def test_large_molecules_and_those_of_other_folds_are_left_out(tmp_path):
    source = structures_folder(tmp_path / "structures", *DRUGS, fold=[0, 3, 1, 2, 0, 0, 0, 0])

    record = prepare_kekule_forms(source, tmp_path / "out", max_atoms=10)

    molecules = load_molecules(tmp_path / "out")
    assert record["molecules"] == len(molecules) == 5
    assert set(molecules.fold.tolist()) == {0, 3}


def test_a_molecule_without_a_form_is_counted(source, tmp_path):
    """Ethanol whose bonds are called aromatic is in no ring."""
    kind = np.load(source / "bond_type.npy")
    offset = np.load(source / "bond_offset.npy")
    kind[offset[6] : offset[7]] = BOND_AROMATIC
    np.save(source / "bond_type.npy", kind)

    record = prepare_kekule_forms(source, tmp_path / "out", max_atoms=30)

    assert record["rejected"] == {"no Kekule form": 1}
    assert len(load_molecules(tmp_path / "out")) == len(DRUGS) - 1
