"""Samples that are one change away from known molecules."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.edits import Groups
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    charge_free_smiles,
    fingerprint,
    inchikey_block,
    parse_smiles,
)
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.generator.edits import edited_starts

KNOWN = parse_smiles("CC(=O)Nc1ccccc1")
GROUPS = Groups.of([parse_smiles("Oc1ccccc1")])
METHYL = Groups.of([parse_smiles("Cc1ccccc1")])
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


def test_rows_are_ordered_by_the_log_odds_of_their_bits():
    chance = np.random.default_rng(1).random(FINGERPRINT_BITS).astype(np.float32)

    found = edited_starts([graph(KNOWN)], FORMULA, chance, GROUPS, 40)

    log_odds = np.log(chance / (1 - chance)).clip(np.log(0.003 / 0.997), np.log(0.997 / 0.003))
    score = [
        log_odds[fingerprint(assemble(FORMULA, row.numpy().astype(np.int8))[0])].sum()
        for row in found
    ]
    assert score == sorted(score, reverse=True)


@pytest.mark.parametrize("smiles", ["CO", "CC(=O)Nc1ccc(O)cc1", "Cn1cnc2c1c(=O)n(C)c(=O)n2C"])
def test_a_known_molecule_of_the_formula_is_one_of_them(smiles):
    mol = parse_smiles(smiles)

    found = edited_starts([graph(mol)], formula_of(mol), told(mol), GROUPS, 40)

    first = assemble(formula_of(mol), found[0].numpy().astype(np.int8))[0]
    assert inchikey_block(first) == inchikey_block(mol)


def test_all_are_molecules_of_the_formula():
    found = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 40)

    for row in found:
        assert formula_of(assemble(FORMULA, row.numpy().astype(np.int8))[0]) == FORMULA


def test_tautomers_are_one_graph():
    """Methyl at C4 or C5 of imidazole is one matrix of bonds, and so is whichever N has the H."""
    formula, chance = Formula.parse("C4H6N2"), np.full(FINGERPRINT_BITS, 0.01, np.float32)

    found = edited_starts([graph(parse_smiles("c1c[nH]cn1"))], formula, chance, METHYL, 40)

    assert len(torch.unique(found, dim=0)) == len(found)
    assert len(found) == 3  # at nitrogen, between the nitrogens, or at one of the other carbons


def test_a_molecule_drawn_as_a_salt_is_the_same_graph():
    """An oxide moved from a nitrogen with its charge is the hydroxyl of another molecule."""
    formula, chance = Formula.parse("C6H5NO2"), np.full(FINGERPRINT_BITS, 0.01, np.float32)
    known = [graph(parse_smiles(text)) for text in ("O=[N+]([O-])c1ccccc1", "O=Nc1ccccc1")]

    found = edited_starts(known, formula, chance, GROUPS, 40)

    graphs = [
        charge_free_smiles(assemble(formula, row.numpy().astype(np.int8))[0]) for row in found
    ]
    assert len(set(graphs)) == len(graphs)


def test_there_are_no_more_than_samples():
    few = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 2)
    many = edited_starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), GROUPS, 40)

    assert torch.equal(few, many[:2])


@pytest.mark.parametrize("known", [[], [graph(parse_smiles("CCO"))]])
def test_without_a_way_there_are_none(known):
    assert edited_starts(known, FORMULA, told(PARACETAMOL), GROUPS, 9) is None
