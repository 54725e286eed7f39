"""Molecules one change away from a known one: examples from chemistry, and what always holds."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.edits import edited
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    canonical_smiles,
    charge_free_smiles,
    fingerprint,
    parse_smiles,
)
from duallgd_cli.chem.joining import cut, parts_of
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of
from tests.made_molecules import QUESTIONS

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
    "an ether lengthened": ("CCOCC", "CCCOCC"),
    "a side chain in a ring": ("CC(C)c1ccccc1", "CCCc1ccccc1"),
    "an amine methylated": ("CC(N)Cc1ccccc1", "CNC(C)Cc1ccccc1"),
    "a hydroxyl for an amine": ("NCCc1ccccc1", "OCCc1ccccc1"),
    "a methyl moved": ("CCOCC", "COCCC"),
    "a cation": ("C[N+](C)(C)CCO", "C[N+](C)(C)CC(=O)O"),
}  # fmt: skip
BLOCKS = cut(
    map(parts_of, map(parse_smiles, ["CC(=O)O", "Oc1ccccc1", "OCc1ccccc1", "Clc1ccccc1", "CCC"]))
)
# Atoms more in a formula, and atoms fewer.
DIFFERENCES = {
    "none": ("", ""), "O": ("O", ""), "CH2": ("CH2", ""), "NH": ("NH", ""), "H2": ("H2", ""),
    "S": ("S", ""), "nitrogen for CH": ("N", "CH"), "sulphur for oxygen": ("S", "O"),
}  # fmt: skip
MOLECULES = sorted({smiles for pair in PAIRS.values() for smiles in pair})
ALL_BLOCKS = cut(map(parts_of, map(parse_smiles, [*QUESTIONS.values(), *MOLECULES, "C" * 20])))


def made(known, formula, blocks=BLOCKS):
    return [canonical_smiles(mol) for mol in edited(parse_smiles(known), formula, blocks)]


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS.keys())
def test_one_change_leads_there_and_back(one, other):
    for known, unknown in ((one, other), (other, one)):
        mol = parse_smiles(unknown)

        assert canonical_smiles(mol) in made(known, formula_of(mol))


def test_a_group_comes_from_known_molecules_alone():
    """Quercetin to its glucosides: only where some known molecule has a glucose."""
    quercetin = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
    glucoside = parse_smiles("O=c1c(OC2OC(CO)C(O)C(O)C2O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12")
    glucose = cut([parts_of(parse_smiles("COC1OC(CO)C(O)C(O)C1O"))])

    assert not made(quercetin, formula_of(glucoside))
    assert canonical_smiles(glucoside) in made(quercetin, formula_of(glucoside), glucose)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MOLECULES), st.sampled_from(MOLECULES))
def test_what_is_made_depends_on_the_known_molecule_not_on_the_order_of_its_atoms(known, unknown):
    mol, formula = parse_smiles(known), formula_of(parse_smiles(unknown))
    turned = Chem.RenumberAtoms(mol, list(range(mol.GetNumAtoms()))[::-1])

    found, again = (
        {canonical_smiles(one) for one in edited(which, formula, BLOCKS)} for which in (mol, turned)
    )

    assert found == again


def different(formula, name, sign=1, charge=0):
    """A formula with some atoms more and some fewer, or None where it has not so many."""
    more, fewer = (Formula.parse(text).array if text else 0 for text in DIFFERENCES[name])
    counts = (formula.array + sign * (more - fewer)).tolist()
    return Formula(tuple(counts), formula.charge + charge) if min(counts) >= 0 else None


@st.composite
def known_and_formulas(draw):
    """A known molecule, and a formula near it or of any other molecule."""
    known = parse_smiles(draw(st.sampled_from([*QUESTIONS.values(), *MOLECULES])))
    if draw(st.booleans()):
        return known, formula_of(parse_smiles(draw(st.sampled_from(MOLECULES))))
    changes = (sorted(DIFFERENCES), [1, -1], [0, 0, 1, -1])
    return known, different(formula_of(known), *(draw(st.sampled_from(one)) for one in changes))


STEROID = parse_smiles("CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2O")


@settings(max_examples=110, deadline=None)
@example((STEROID, different(formula_of(STEROID), "O")))  # its rings stay whole
@given(known_and_formulas())
def test_atoms_charge_and_bonds_of_what_is_made_come_back_from_its_matrix(case):
    known, formula = case

    for mol in edited(known, formula, ALL_BLOCKS) if formula is not None else ():
        bits = fingerprint(mol)
        assert not Chem.SanitizeMol(mol, catchErrors=True)
        assert bits.tolist() == fingerprint(parse_smiles(canonical_smiles(mol))).tolist()
        parts = disassemble(mol)  # one fragment, no radical, known elements
        assert parts.formula == formula
        assert charge_free_smiles(mol) == charge_free_smiles(assemble(formula, parts.bond_class))
