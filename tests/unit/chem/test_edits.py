"""Molecules one change away from a known one: examples from chemistry, and what always holds."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.edits import edited
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, charge_free_smiles, fingerprint
from duallgd_cli.chem.identity import parse_smiles as read
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
MOLECULES = sorted({smiles for pair in PAIRS.values() for smiles in pair})


def blocks_of(*smiles):
    return cut(map(parts_of, map(read, smiles)))


BLOCKS = blocks_of("CC(=O)O", "Oc1ccccc1", "OCc1ccccc1", "Clc1ccccc1", "CCC")
ALL_BLOCKS = blocks_of(*QUESTIONS.values(), *MOLECULES, "C" * 20)


def made(known, unknown, blocks=BLOCKS):
    """Whether a change of the one molecule makes the other."""
    molecules = edited(read(known), formula_of(read(unknown)), blocks)
    return canonical_smiles(read(unknown)) in map(canonical_smiles, molecules)


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS.keys())
def test_one_change_leads_there_and_back(one, other):
    assert made(one, other)
    assert made(other, one)


def test_a_group_comes_from_known_molecules_alone():
    """Quercetin to its glucosides: only where some known molecule has a glucose."""
    quercetin = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
    glucoside = "O=c1c(OC2OC(CO)C(O)C(O)C2O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"

    assert not made(quercetin, glucoside)
    assert made(quercetin, glucoside, blocks_of("COC1OC(CO)C(O)C(O)C1O"))


@st.composite
def known_and_formulas(draw):
    """A known molecule, and a formula near it, if it has the atoms, or of any other molecule."""
    known = read(draw(st.sampled_from([*QUESTIONS.values(), *MOLECULES])))
    if draw(st.booleans()):
        return known, formula_of(read(draw(st.sampled_from(MOLECULES))))
    changes = [("O", ""), ("CH2", ""), ("NH", ""), ("H2", ""), ("S", ""), ("N", "CH"), ("S", "O")]
    more, fewer = (
        Formula.parse(text).array if text else 0
        for text in draw(st.sampled_from([("", ""), *changes, *(pair[::-1] for pair in changes)]))
    )
    formula = formula_of(known)
    counts = (formula.array + more - fewer).clip(0).tolist()
    return known, Formula(tuple(counts), formula.charge + draw(st.sampled_from([0, 0, 1, -1])))


STEROID = read("CC12CCC3C(CCC4=CC(=O)CCC43C)C1CCC2O")


@settings(max_examples=110, deadline=None)
@example((STEROID, Formula.parse("C19H28O3")))  # an atom more: its rings stay whole
@given(known_and_formulas())
def test_what_is_made_is_sound_of_the_formula_and_the_same_in_any_order_of_atoms(case):
    """Atoms, charge and bonds come back from its matrix."""
    known, formula = case
    turned = Chem.RenumberAtoms(known, list(range(known.GetNumAtoms()))[::-1])

    molecules = list(edited(known, formula, ALL_BLOCKS))

    again = set(map(canonical_smiles, edited(turned, formula, ALL_BLOCKS)))
    assert set(map(canonical_smiles, molecules)) == again
    for mol in molecules:
        bits = fingerprint(mol)
        assert not Chem.SanitizeMol(mol, catchErrors=True)
        assert bits.tolist() == fingerprint(read(canonical_smiles(mol))).tolist()
        parts = disassemble(mol)  # one fragment, no radical, known elements
        assert parts.formula == formula
        assert charge_free_smiles(mol) == charge_free_smiles(assemble(formula, parts.bond_class))
