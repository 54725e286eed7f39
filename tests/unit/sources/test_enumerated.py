"""Molecules that are listed: known ones with one change, or put together from blocks."""

import numpy as np
import pytest

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    charge_free_smiles,
    fingerprint,
    inchikey_block,
    parse_smiles,
)
from duallgd_cli.chem.joining import cut, parts_of, together
from duallgd_cli.chem.molecule import disassemble, formula_of
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.sources import Query, enumerated
from duallgd_cli.sources.collection import known_molecules
from duallgd_cli.sources.enumerated import (
    Enumerated,
    bit_scores,
    changed,
    mols_of_graphs,
    shortlist,
)
from tests.made_prepared import molecules_of
from tests.made_spectra import annotated

KNOWN = parse_smiles("CC(=O)Nc1ccccc1")
BLOCKS = cut([parts_of(parse_smiles("Oc1ccccc1"))])
METHYL = cut([parts_of(parse_smiles("Cc1ccccc1"))])
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


def query(formula, chance, **changes):
    return Query(annotated([], str(formula)), chance, **changes)


def listed(known, formula, chance, blocks, most):
    """Of known molecules by one change, the likeliest."""
    made = changed(mols_of_graphs(known), formula, blocks)
    return shortlist(query(formula, chance), most, None, made)


def test_the_molecule_that_the_fingerprint_tells_comes_first():
    found = listed([graph(KNOWN)], FORMULA, told(PARACETAMOL), BLOCKS, 40)

    assert inchikey_block(found[0]) == inchikey_block(PARACETAMOL)
    assert len(graphs(found)) == len(found)
    assert len(found) > 3  # ortho, meta, para and the hydroxamic acid at least


@pytest.mark.parametrize(
    ("known", "formula", "blocks", "count"),
    [
        # Methyl at C4 or C5 of imidazole is one matrix of bonds, and so is whichever N has the H.
        (["c1c[nH]cn1"], "C4H6N2", METHYL, 3),
        # An oxide moved from a nitrogen with its charge is the hydroxyl of another molecule.
        (["O=[N+]([O-])c1ccccc1", "O=Nc1ccccc1"], "C6H5NO2", BLOCKS, None),
        ([], "C8H9NO2", BLOCKS, 0),  # without a way there are none
        (["CCO"], "C8H9NO2", BLOCKS, 0),
    ],
)
def test_tautomers_and_salts_are_one_graph(known, formula, blocks, count):
    chance = np.full(FINGERPRINT_BITS, 0.01, np.float32)

    found = listed(
        [graph(parse_smiles(s)) for s in known], Formula.parse(formula), chance, blocks, 40
    )

    assert len(graphs(found)) == len(found) == (count if count is not None else len(found))


def test_molecules_of_parts_are_ordered_by_their_bits_and_what_their_parts_are_worth():
    """Of toluene and phenol, joined in any way; blocks that more molecules have are worth more."""
    blocks = cut(
        map(parts_of, map(parse_smiles, ["Cc1ccccc1", "Oc1ccccc1", "CC(=O)NCC", "CC(=O)O"]))
    )
    formula, chance = Formula.parse("C8H9NO"), told(KNOWN)
    asked = query(formula, chance)

    made = list(together(blocks, formula, bit_scores(asked), 1_000))
    found = shortlist(asked, 40, None, made)

    odds = np.log(chance.astype(float) / (1 - chance))
    best = {}
    for mol, worth in made:
        value = worth + odds[fingerprint(mol)].sum()
        best[inchikey_block(mol)] = max(value, best.get(inchikey_block(mol), -np.inf))
    keys = list(map(inchikey_block, found))
    assert sorted(keys) == sorted(best)
    assert [best[key] for key in keys] == sorted(best.values(), reverse=True)
    assert keys[0] == inchikey_block(KNOWN)


def test_the_better_way_to_a_molecule_counts():
    """A molecule that several ways lead to costs what the best does, whichever comes first."""
    asked = query(FORMULA, told(PARACETAMOL))
    other = parse_smiles("CC(=O)Nc1ccccc1O")
    ways = [(PARACETAMOL, -50.0), (other, 0.0), (PARACETAMOL, 50.0)]

    for made in (ways, ways[::-1]):
        first, second = shortlist(asked, 9, None, made)

        assert inchikey_block(first) == inchikey_block(PARACETAMOL)
        assert inchikey_block(second) == inchikey_block(other)


def test_of_more_than_are_compared_at_once_the_likeliest_stay(monkeypatch):
    made, asked = (
        list(changed(mols_of_graphs([graph(KNOWN)]), FORMULA, BLOCKS)),
        query(FORMULA, told(PARACETAMOL)),
    )
    whole = shortlist(asked, 3, None, made)
    monkeypatch.setattr(enumerated, "_AT_ONCE", 2)

    for order in (made, made[::-1]):
        found = shortlist(asked, 3, None, order)
        assert list(map(inchikey_block, found)) == list(map(inchikey_block, whole))
    assert shortlist(asked, 0, None, made) == []


class Peaks:
    """A spectrum that the fragments of one molecule explain, and how often it is looked at."""

    def __init__(self, smiles, worth):
        self.block, self.worth, self.asked = inchikey_block(parse_smiles(smiles)), worth, 0

    def peaks(self, query, molecules):
        self.asked += len(molecules)
        is_it = [inchikey_block(mol) == self.block for _, mol in molecules]
        return self.worth * np.outer(is_it, [1.0, 0.0])


def ortho_and_para(**changes):
    """That the fingerprint tells ortho from para, and not by much."""
    chance = told(parse_smiles("CC(=O)Nc1ccccc1O"), doubt=0.4)
    made = list(changed(mols_of_graphs([graph(KNOWN)]), FORMULA, BLOCKS))
    return made, query(FORMULA, chance, **changes)


def test_peaks_that_fragments_explain_decide_where_the_fingerprint_is_in_doubt():
    made, asked = ortho_and_para()
    para = Peaks("CC(=O)Nc1ccc(O)cc1", worth=100.0)

    without = shortlist(asked, 40, None, made)
    found = shortlist(asked, 40, para, made)

    assert inchikey_block(without[0]) == inchikey_block(parse_smiles("CC(=O)Nc1ccccc1O"))
    assert inchikey_block(found[0]) == para.block
    assert sorted(map(inchikey_block, found)) == sorted(map(inchikey_block, without))


@pytest.fixture(scope="module")
def collection():
    """Cresols, anisole and benzyl alcohol can be made of its molecules and their parts."""
    return known_molecules(molecules_of("Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1"), max_atoms=99)


CRESOL = parse_smiles("Cc1ccccc1O")


def test_the_source_lists_changes_and_what_is_put_together_best_first(collection):
    formula = formula_of(CRESOL)
    asked = query(formula, told(CRESOL))

    proposals = list(Enumerated(collection).propose(asked, 40, seed=1))

    mols = [one.mol for one in proposals]
    assert proposals[0].source == "enumerated"
    assert all(one[2:] == (None, False, "") for one in proposals)
    assert {formula_of(mol) for mol in mols} == {formula}
    assert inchikey_block(mols[0]) == inchikey_block(CRESOL)
    others = map(parse_smiles, ("COc1ccccc1", "OCc1ccccc1"))
    assert {*map(inchikey_block, others)} < {*map(inchikey_block, mols)}
    assert len({*map(inchikey_block, mols)}) == len(mols)
    few = [one.mol for one in Enumerated(collection).propose(asked, 3, seed=2)]
    assert list(map(inchikey_block, few)) == list(map(inchikey_block, mols[:3]))
    nothing = query(Formula.parse("CHCl3"), told(CRESOL))
    assert list(Enumerated(collection).propose(nothing, 40, seed=1)) == []
