"""Molecules one change away from a known one: examples from chemistry, and what always holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duallgd_cli.chem.edits import Groups, edited
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of

# Each pair is one change apart, in both directions.
PAIRS = {
    "methyl in place of hydrogen": ("Cn1c(=O)c2[nH]cnc2n(C)c1=O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"),
    "hydroxyl in place of hydrogen": ("CC(=O)Nc1ccccc1", "CC(=O)Nc1ccc(O)cc1"),
    "a group moved": ("Oc1ccccc1Cl", "Oc1ccc(Cl)cc1"),
    "a group for another of other atoms": ("Cc1ccccc1C(=O)O", "OCc1ccccc1C(=O)O"),
    "an alcohol oxidised": (
        "CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2O", "CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2=O",
    ),
    "a double bond reduced": ("O=C(O)C=Cc1ccccc1", "O=C(O)CCc1ccccc1"),
    "a double bond moved": ("C=CCC", "CC=CC"),
    "an epoxide": ("C(=Cc1ccccc1)c1ccccc1", "c1ccc(C2OC2c2ccccc2)cc1"),
    "a longer chain": ("CCCCCCCCC(=O)O", "CCCCCCCCCC(=O)O"),
    "oxygen in a ring": ("O=C1CCCC1", "O=C1CCCCO1"),
    "a ring": ("CCCCCC", "C1CCCCC1"),
    "nitrogen for carbon": ("c1ccccc1", "c1ccncc1"),
    "sulphur for oxygen": ("c1ccoc1", "c1ccsc1"),
    "a cation": ("C[N+](C)(C)CCO", "C[N+](C)(C)CC(=O)O"),
}  # fmt: skip
GROUPS = Groups.of(map(parse_smiles, ["CC(=O)O", "Oc1ccccc1", "OCc1ccccc1", "Clc1ccccc1", "CCC"]))
MOLECULES = sorted({smiles for pair in PAIRS.values() for smiles in pair})


def made(known, formula, groups=GROUPS):
    return [canonical_smiles(mol) for mol in edited(parse_smiles(known), formula, groups)]


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS.keys())
def test_one_change_leads_there_and_back(one, other):
    for known, unknown in ((one, other), (other, one)):
        mol = parse_smiles(unknown)

        assert canonical_smiles(mol) in made(known, formula_of(mol))


def test_a_group_comes_from_known_molecules_alone():
    """Quercetin to its glucosides: only where some known molecule has a glucose."""
    quercetin = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
    glucoside = parse_smiles("O=c1c(OC2OC(CO)C(O)C(O)C2O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12")
    glucose = Groups.of([parse_smiles("COC1OC(CO)C(O)C(O)C1O")])

    assert not made(quercetin, formula_of(glucoside))
    assert canonical_smiles(glucoside) in made(quercetin, formula_of(glucoside), glucose)


def test_groups_are_counted_once_a_molecule_the_most_frequent_first():
    toluene, xylene, phenol = map(parse_smiles, ["Cc1ccccc1", "Cc1ccc(C)cc1", "Oc1ccccc1"])

    groups = Groups.of([toluene, xylene, phenol])

    assert groups.smiles[:2] == ("*C", "*c1ccccc1")  # two molecules each, in order of their text
    assert Formula(tuple(groups.counts[0].tolist())) == Formula.parse("CH3")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MOLECULES), st.sampled_from(MOLECULES))
def test_all_that_is_made_is_a_molecule_of_the_formula(known, unknown):
    formula = formula_of(parse_smiles(unknown))

    for mol in edited(parse_smiles(known), formula, GROUPS):
        parts = disassemble(mol)  # one fragment, no radical, known elements
        assert parts.formula == formula
        read = assemble(formula, parts.bond_class)
        assert inchikey_block(mol) in {inchikey_block(one) for one in read}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MOLECULES), st.sampled_from(MOLECULES))
def test_what_is_made_depends_on_the_known_molecule_not_on_the_order_of_its_atoms(known, unknown):
    from rdkit import Chem

    mol, formula = parse_smiles(known), formula_of(parse_smiles(unknown))
    turned = Chem.RenumberAtoms(mol, list(range(mol.GetNumAtoms()))[::-1])

    found, again = (
        {canonical_smiles(one) for one in edited(which, formula, GROUPS)} for which in (mol, turned)
    )

    assert found == again


def test_nothing_is_made_where_no_single_change_leads():
    assert not made("c1ccccc1", formula_of(parse_smiles("CC(=O)NCCc1c[nH]c2ccc(OC)cc12")))
