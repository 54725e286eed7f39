"""The same molecules with their atoms in another order."""

import numpy as np
import pytest
from atom_orders import SMILES_PLACE, OrderSelection, load_in_order, prepare_orders
from rdkit import Chem

from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.data.prepared import load_array, load_molecules
from duallgd_cli.errors import UsageError
from tests.made_prepared import structures_folder

DRUGS = ("CC(=O)Oc1ccccc1", "NCC(=O)NCC", "OC1CCCCC1CN", "CC(C)CC(N)C(=O)O", "c1ccc2[nH]ccc2c1")
BOND_OF = {1: 1, 2: 2, 3: 3, 12: 4}


@pytest.fixture
def ordered(tmp_path):
    source = structures_folder(tmp_path / "structures", *DRUGS, "OB(O)c1ccccc1", "CCO")
    prepare_orders(source, tmp_path / "ordered", OrderSelection(held_out=2))
    return tmp_path / "ordered"


def bonds_by_smiles():
    """Bonds of each drug with atoms numbered along its canonical SMILES, read by RDKit."""
    found = {}
    for text in DRUGS:
        mol = Chem.MolFromSmiles(canonical_smiles(parse_smiles(text)))
        elements = tuple(atom.GetAtomicNum() for atom in mol.GetAtoms())
        bonds = {
            (
                *sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())),
                BOND_OF[int(bond.GetBondType())],
            )
            for bond in mol.GetBonds()
        }
        found[elements] = bonds
    return found


def test_the_true_order_is_that_of_the_canonical_smiles(ordered):
    molecules, expected = load_in_order(ordered, "truth"), bonds_by_smiles()
    number = {0: 6, 1: 7, 2: 8}

    for row in range(len(molecules)):
        elements = tuple(number[int(e)] for e in molecules.atom_class(row))
        start, stop = molecules.bond_offset[row : row + 2]
        rows = zip(
            molecules.bond_pair[start:stop].tolist(),
            molecules.bond_type[start:stop].tolist(),
            strict=True,
        )
        assert {(*pair, kind) for pair, kind in rows} == expected[elements]


def test_foreign_elements_and_other_sizes_are_left_out_and_some_are_held_out(ordered):
    molecules = load_molecules(ordered)

    assert len(molecules) == len(DRUGS)
    assert molecules.fold.tolist().count(3) == 2
    assert load_array(ordered, SMILES_PLACE).size == molecules.n_heavy.sum()


def test_the_blind_twin_differs_in_the_fingerprints_alone(ordered):
    blind = load_molecules(ordered.with_name("ordered-blind"))
    seen = load_molecules(ordered)

    assert all(len(blind.fingerprint_bits(row)) == 0 for row in range(len(blind)))
    assert np.array_equal(blind.bond_pair, seen.bond_pair)


@pytest.mark.parametrize("order", ["truth", "random", "formula"])
def test_every_order_holds_the_same_molecules(ordered, order):
    here, there = load_in_order(ordered, order, seed=3), load_molecules(ordered)

    for row in range(len(here)):
        assert sorted(here.atom_class(row)) == there.atom_class(row).tolist()
        degrees = [
            np.bincount(m.bond_pair[slice(*m.bond_offset[row : row + 2])].ravel(), minlength=12)
            for m in (here, there)
        ]
        assert sorted(degrees[0]) == sorted(degrees[1])
        pairs = here.bond_pair[slice(*here.bond_offset[row : row + 2])]
        assert (pairs[:, 0] < pairs[:, 1]).all()


def test_data_that_do_not_know_the_true_order_say_so(tmp_path):
    folder = structures_folder(tmp_path / "structures", *DRUGS)

    with pytest.raises(UsageError, match=r"examples/studies/leak\.py"):
        load_in_order(folder, "truth")
