"""Samples that known molecules become by one change, or of their parts."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    charge_free_smiles,
    fingerprint,
    inchikey_block,
    parse_smiles,
)
from duallgd_cli.chem.joining import cut
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.generator.planning import Unknown, changed, put_together, shortlist

KNOWN = parse_smiles("CC(=O)Nc1ccccc1")
BLOCKS = cut([parse_smiles("Oc1ccccc1")])
METHYL = cut([parse_smiles("Cc1ccccc1")])
PARACETAMOL = parse_smiles("CC(=O)Nc1ccc(O)cc1")
FORMULA = Formula.parse("C8H9NO2")


def graph(mol):
    parts = disassemble(mol)
    return graph_of_bonds(parts.formula, parts.bond_class)


def graphs(mols):
    """Different bond matrices among molecules, wherever hydrogens and charges are."""
    return {charge_free_smiles(mol) for mol in mols}


def told(mol, doubt=0.1):
    """Chances of the bits of a molecule, nearly certain."""
    chance = np.full(FINGERPRINT_BITS, doubt, np.float32)
    chance[fingerprint(mol)] = 1 - doubt
    return chance


def starts(known, formula, chance, blocks, samples):
    unknown = Unknown(formula, torch.from_numpy(chance))
    return shortlist(changed(known, formula, blocks), unknown, samples)


def test_the_molecule_that_the_fingerprint_tells_comes_first():
    found = starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), BLOCKS, 40)

    assert inchikey_block(found[0]) == inchikey_block(PARACETAMOL)
    assert len(graphs(found)) == len(found)
    assert len(found) > 3  # ortho, meta, para and the hydroxamic acid at least


def test_rows_are_ordered_by_the_log_odds_of_their_bits():
    chance = np.random.default_rng(1).random(FINGERPRINT_BITS).astype(np.float32)

    found = starts([graph(KNOWN)], FORMULA, chance, BLOCKS, 40)

    log_odds = np.log(chance / (1 - chance)).clip(np.log(0.003 / 0.997), np.log(0.997 / 0.003))
    score = [log_odds[fingerprint(mol)].sum() for mol in found]
    assert score == sorted(score, reverse=True)


@pytest.mark.parametrize("smiles", ["CO", "CC(=O)Nc1ccc(O)cc1", "Cn1cnc2c1c(=O)n(C)c(=O)n2C"])
def test_a_known_molecule_of_the_formula_is_one_of_them(smiles):
    mol = parse_smiles(smiles)

    found = starts([graph(mol)], formula_of(mol), told(mol), BLOCKS, 40)

    assert inchikey_block(found[0]) == inchikey_block(mol)


def test_tautomers_are_one_graph():
    """Methyl at C4 or C5 of imidazole is one matrix of bonds, and so is whichever N has the H."""
    formula, chance = Formula.parse("C4H6N2"), np.full(FINGERPRINT_BITS, 0.01, np.float32)

    found = starts([graph(parse_smiles("c1c[nH]cn1"))], formula, chance, METHYL, 40)

    assert len(graphs(found)) == len(found)
    assert len(found) == 3  # at nitrogen, between the nitrogens, or at one of the other carbons


def test_a_molecule_drawn_as_a_salt_is_the_same_graph():
    """An oxide moved from a nitrogen with its charge is the hydroxyl of another molecule."""
    formula, chance = Formula.parse("C6H5NO2"), np.full(FINGERPRINT_BITS, 0.01, np.float32)
    known = [graph(parse_smiles(text)) for text in ("O=[N+]([O-])c1ccccc1", "O=Nc1ccccc1")]

    found = starts(known, formula, chance, BLOCKS, 40)

    assert len(graphs(found)) == len(found)


def test_there_are_no_more_than_samples():
    few = starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), BLOCKS, 2)
    many = starts([graph(KNOWN)], FORMULA, told(PARACETAMOL), BLOCKS, 40)

    assert list(map(inchikey_block, few)) == list(map(inchikey_block, many[:2]))


@pytest.mark.parametrize("known", [[], [graph(parse_smiles("CCO"))]])
def test_without_a_way_there_are_none(known):
    assert starts(known, FORMULA, told(PARACETAMOL), BLOCKS, 9) == []


def test_molecules_of_parts_are_ordered_by_their_bits_and_what_their_parts_are_worth():
    """Of toluene and phenol, joined in any way; blocks that more molecules have are worth more."""
    blocks = cut(map(parse_smiles, ["Cc1ccccc1", "Oc1ccccc1", "CC(=O)NCC", "CC(=O)O"]))
    formula = Formula.parse("C8H9NO")
    chance = told(KNOWN)

    unknown = Unknown(formula, torch.from_numpy(chance))
    made = list(put_together(blocks, unknown))
    found = shortlist(made, unknown, 40)

    log_odds = np.log(chance.astype(float) / (1 - chance))
    best = {}
    for mol, worth in made:
        value = worth + log_odds[fingerprint(mol)].sum()
        best[inchikey_block(mol)] = max(value, best.get(inchikey_block(mol), -np.inf))
    keys = list(map(inchikey_block, found))
    assert sorted(keys) == sorted(best)
    assert [best[key] for key in keys] == sorted(best.values(), reverse=True)
    assert keys[0] == inchikey_block(KNOWN)


def test_the_better_way_to_a_molecule_counts():
    """A molecule that several ways lead to keeps the price of the best, whichever comes first."""
    unknown = Unknown(FORMULA, torch.from_numpy(told(PARACETAMOL)))
    other = parse_smiles("CC(=O)Nc1ccccc1O")
    ways = [(PARACETAMOL, -50.0), (other, 0.0), (PARACETAMOL, 50.0)]

    for made in (ways, ways[::-1]):
        first, second = shortlist(made, unknown, 9)

        assert inchikey_block(first) == inchikey_block(PARACETAMOL)
        assert inchikey_block(second) == inchikey_block(other)


class Peaks:
    """A spectrum that the fragments of one molecule explain, and how often it is looked at."""

    contrast = None

    def __init__(self, smiles, worth):
        self.block, self.worth, self.asked = inchikey_block(parse_smiles(smiles)), worth, 0

    def peaks(self, parts):
        self.asked += 1
        mol = assemble(parts.formula, parts.bond_class)[0]
        return self.worth * (inchikey_block(mol) == self.block), 0.0


def ortho_and_para():
    """That the fingerprint tells ortho from para, and not by much."""
    chance = told(parse_smiles("CC(=O)Nc1ccccc1O"), doubt=0.4)
    made = list(changed([graph(KNOWN)], FORMULA, BLOCKS))
    return made, Unknown(FORMULA, torch.from_numpy(chance))


def test_peaks_that_fragments_explain_decide_where_the_fingerprint_is_in_doubt():
    made, unknown = ortho_and_para()
    para = Peaks("CC(=O)Nc1ccc(O)cc1", worth=100.0)

    without = shortlist(made, unknown, 40)
    found = shortlist(made, unknown._replace(scorer=para), 40)

    assert inchikey_block(without[0]) == inchikey_block(parse_smiles("CC(=O)Nc1ccccc1O"))
    assert inchikey_block(found[0]) == para.block
    assert sorted(map(inchikey_block, found)) == sorted(map(inchikey_block, without))


def test_what_bits_speak_for_a_molecule_decides_as_well():
    """The chances of bits prefer ortho; what bits speak for a molecule beside isomers does not."""
    made, unknown = ortho_and_para()
    para = "CC(=O)Nc1ccc(O)cc1"
    scorer = Peaks(para, worth=0.0)
    scorer.contrast = np.zeros(4096, np.float32)
    scorer.contrast[fingerprint(parse_smiles(para))] = 2.0

    found = shortlist(made, unknown._replace(scorer=scorer), 40)

    assert inchikey_block(found[0]) == scorer.block


def test_only_some_of_what_is_made_is_compared_by_its_peaks():
    made, unknown = ortho_and_para()
    nothing = Peaks("CCO", worth=100.0)

    one = shortlist(made, unknown._replace(scorer=nothing), 1)

    assert nothing.asked == 4
    assert inchikey_block(one[0]) == inchikey_block(parse_smiles("CC(=O)Nc1ccccc1O"))
