"""Families and scaffolds: what of a molecule is left when positions are forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.identity import (
    _NAMES,
    canonical_smiles,
    family,
    family_name,
    parse_smiles,
    scaffold,
)

ORTHO, META, PARA = "Cc1ccccc1O", "Cc1cccc(O)c1", "Cc1ccc(O)cc1"


@pytest.mark.parametrize(
    ("smiles", "pieces", "name"),
    [
        ("CCO", "CCO", "hydroxyethyl or ethoxy"),
        (ORTHO, "C.O.c1ccccc1", "benzene ring + methyl + hydroxyl, positions open"),
        (
            "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
            "C.C.C.O=c1[nH]c(=O)c2[nH]cnc2[nH]1",
            "xanthine + 3 methyl, positions open",
        ),
        ("O=[N+]([O-])c1ccccc1", "O=[NH+][O-].c1ccccc1", "benzene ring + nitro, positions open"),
        ("C[N+](C)(C)CC(=O)[O-]", "C[N+](C)(C)CC(=O)[O-]", "C[N+](C)(C)CC(=O)[O-]"),
        ("C[n+]1ccccc1", "C.c1cc[nH+]cc1", "c1cc[nH+]cc1 + methyl, positions open"),
    ],
)
def test_pieces_and_their_names(smiles, pieces, name):
    found = family(parse_smiles(smiles))

    assert found == pieces
    assert family_name(found) == name


@pytest.mark.parametrize("piece", _NAMES)
def test_every_piece_with_a_name_is_written_as_pieces_are(piece):
    assert canonical_smiles(parse_smiles(piece)) == piece


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CCO", "acyclic"),
        (PARA, "c1ccccc1"),
        ("O=C(Nc1ccccc1)c1ccncc1", "O=C(Nc1ccccc1)c1ccncc1"),
        ("CC(=O)Oc1ccccc1C(=O)O", "c1ccccc1"),
    ],
)
def test_scaffolds(smiles, expected):
    assert scaffold(parse_smiles(smiles)) == expected


MOLECULES = [
    *(ORTHO, "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "OCC1OC(Oc2ccccc2)C(O)C(O)C1O", "C[n+]1ccccc1"),
    *("CC(C)(C)c1nc2ccccc2n1C", "O=S(=O)(Nc1ccccc1)c1cccs1", "CCOP(=S)(OCC)Oc1ccccc1"),
]


@given(st.sampled_from(MOLECULES), st.randoms(use_true_random=False))
def test_the_order_of_atoms_has_no_say(smiles, random):
    mol = parse_smiles(smiles)
    order = list(range(mol.GetNumAtoms()))
    random.shuffle(order)

    again = Chem.RenumberAtoms(mol, order)

    assert family(again) == family(mol)
    assert scaffold(again) == scaffold(mol)
