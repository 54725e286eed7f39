"""Molecules to bond matrices and back."""

import itertools

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE, BOND_SINGLE, INDEX
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import (
    assemble,
    disassemble,
    formula_of,
    is_internal_salt,
    is_zwitterion,
)
from duallgd_cli.chem.valence import pair_index
from duallgd_cli.errors import MoleculeError, UnsupportedElementError
from tests.made_molecules import QUESTIONS, another_order, disassembled, moved

FIVE_RING = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 4), (0, 4, 4)]


def matrix(n, bonds):
    bond_class = np.zeros(n * (n - 1) // 2, dtype=np.int8)
    for low, high, kind in bonds:
        bond_class[pair_index(low, high, n)] = kind
    return bond_class


def test_the_order_says_which_atom_each_row_is():
    mol = parse_smiles("OC(=O)c1ccncc1")
    parts = disassemble(mol)

    symbols = [mol.GetAtomWithIdx(int(i)).GetSymbol() for i in parts.order]
    assert symbols == ["C"] * 6 + ["N"] + ["O"] * 2
    assert parts.atom_class.dtype == parts.order.dtype == np.int64
    assert parts.bond_class.dtype == np.int8
    for row, other in itertools.combinations(range(9), 2):
        bond = mol.GetBondBetweenAtoms(int(parts.order[row]), int(parts.order[other]))
        assert (bond is not None) == (parts.bond_class[pair_index(row, other, 9)] != BOND_NONE)


@pytest.mark.parametrize(
    ("smiles", "error", "message"),
    [
        ("[Na+].[Cl-]", MoleculeError, "2 fragments"),
        ("[13CH4]", MoleculeError, "isotope"),
        ("[2H]C([2H])[2H]", MoleculeError, "isotope"),
        ("[H][H]", MoleculeError, "explicit hydrogen"),
        ("C[CH2]", MoleculeError, "unpaired electrons"),
        ("N->B", MoleculeError, "dative bond"),
        *(
            (smiles, UnsupportedElementError, "supported elements are C N O P S")
            for smiles in ("C[Sn](C)(C)C", "[He]", "*C")
        ),
    ],
)
def test_what_a_bond_matrix_cannot_say_is_refused(smiles, error, message):
    mol = Chem.MolFromSmiles(smiles)

    with pytest.raises(error, match=message):
        disassemble(mol)
    if error is UnsupportedElementError:
        with pytest.raises(error):
            formula_of(mol)


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_molecule_comes_back_from_its_bonds_in_any_order(smiles):
    parts, rng = disassembled(smiles), np.random.default_rng(0)
    plain = assemble(parts.formula, parts.bond_class)

    assert inchikey_block(plain) == inchikey_block(parse_smiles(smiles))
    assert [INDEX[atom.GetSymbol()] for atom in plain.GetAtoms()] == parts.atom_class.tolist()
    for _ in range(3):
        bond_class = moved(parts.bond_class, another_order(parts.atom_class, rng))
        assert canonical_smiles(assemble(parts.formula, bond_class)) == canonical_smiles(plain)


@pytest.mark.parametrize(
    ("smiles", "ion"),
    [
        ("NCc1ccncc1", "NCc1cc[nH+]cc1"),  # before an amine the ring nitrogen of a pyridine
        ("NCCC(=O)O", "NCCC(=O)[O-]"),  # an acid before all else
        ("OCCS(=O)(=O)O", "O=S(=O)([O-])CCO"),
        ("CC(=O)NCCN", "CC(=O)NCC[NH3+]"),  # an amine, and no amide
        ("OCCC(=O)O", "O=C([O-])CCO"),  # before an alcohol
        ("C[N+](C)(C)[O-]", "C[N+](C)(C)O"),
    ],
)
def test_a_proton_comes_and_goes_where_it_is_likeliest(smiles, ion):
    parts, charged = disassembled(smiles), formula_of(parse_smiles(ion))

    assert canonical_smiles(assemble(charged, parts.bond_class)) == ion


@pytest.mark.parametrize(
    ("formula", "bonds", "reason"),
    [
        ("C2H8", [], "disconnected"),
        ("C2H5", [(0, 1, BOND_SINGLE)], "radical"),
        ("C2H2", [(0, 1, BOND_SINGLE)], "hydrogens"),
        ("C2H8", [(0, 1, BOND_SINGLE)], "hydrogens"),
        ("CH2F2", [(0, 1, BOND_DOUBLE), (0, 2, BOND_SINGLE)], "valence"),
        (
            "Si10H8",
            [*FIVE_RING, *((a + 5, b + 5, k) for a, b, k in FIVE_RING), (0, 5, 1)],
            "kekule",
        ),
    ],
)
def test_a_matrix_that_is_no_molecule_is_rejected_with_the_reason(formula, bonds, reason):
    formula = Formula.parse(formula)

    assert assemble(formula, matrix(formula.n_heavy, bonds)) == Rejection(reason)


@pytest.mark.parametrize(
    ("smiles", "is_salt", "is_apart"),
    [
        ("C[N+](C)(C)CC(=O)[O-]", False, True), ("C[N+](C)(C)CC[O-]", True, True),
        ("[CH2-][N+](C)(C)C", True, False), ("[C-]#[N+]c1ccccc1", False, False),
        ("O=[N+]([O-])c1ccccc1", False, False), ("C[N+](C)(C)CC", False, False),
    ],
)  # fmt: skip
def test_an_anion_without_a_reason_makes_an_internal_salt(smiles, is_salt, is_apart):
    mol = parse_smiles(smiles)

    assert (is_internal_salt(mol), is_zwitterion(mol)) == (is_salt, is_apart)


@pytest.mark.parametrize(
    "smiles", [*QUESTIONS.values(), "[2H]C", "[H][H]", "C[N+](C)(C)CC[N+](C)(C)C"]
)
def test_a_formula_is_the_count_of_all_atoms(smiles):
    mol = Chem.MolFromSmiles(smiles)
    counted = Chem.AddHs(mol).GetAtoms()

    formula = formula_of(mol)

    for symbol, place in INDEX.items():
        assert formula.counts[place] == sum(atom.GetSymbol() == symbol for atom in counted)
    assert formula.charge == Chem.GetFormalCharge(mol)
