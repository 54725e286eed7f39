"""Samples that are one change away from known molecules."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.edits import Groups
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import assemble, disassemble
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.generator.edits import edited_starts

KNOWN = parse_smiles("CC(=O)Nc1ccccc1")
GROUPS = Groups.of([parse_smiles("Oc1ccccc1")])
PARACETAMOL = parse_smiles("CC(=O)Nc1ccc(O)cc1")
FORMULA = Formula.parse("C8H9NO2")


def graph(mol):
    parts = disassemble(mol)
    return graph_of_bonds(parts.formula, parts.bond_class)


def told(mol, doubt=0.1):
    """Chances of the bits of a molecule, nearly certain."""
    chance = np.full(FINGERPRINT_BITS, doubt, np.float32)
    chance[fingerprint(mol)] = 1 - doubt
    return chance


def block(row):
    return inchikey_block(assemble(FORMULA, row.numpy().astype(np.int8))[0])


def test_the_molecule_that_the_fingerprint_tells_comes_first():
    found = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 40)

    assert block(found[0]) == inchikey_block(PARACETAMOL)
    assert len(torch.unique(found, dim=0)) == len(found)
    assert len(found) > 3  # ortho, meta, para and the hydroxamic acid at least


def test_there_are_no_more_than_samples():
    few = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 2)
    many = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 40)

    assert torch.equal(few, many[:2])


@pytest.mark.parametrize("known", [[], [graph(parse_smiles("CCO"))]])
def test_without_a_way_there_are_none(known):
    assert edited_starts(known, FORMULA, told(PARACETAMOL), GROUPS, 9) is None
