"""Molecules to bond matrices and back."""

import itertools

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE, BOND_SINGLE, SYMBOLS
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


@pytest.mark.parametrize(
    ("smiles", "error", "message"),
    [
        ("[Na+].[Cl-]", MoleculeError, "2 fragments"), ("[13CH4]", MoleculeError, "isotope"),
        ("[2H]C([2H])[2H]", MoleculeError, "isotope"),
        ("[H][H]", MoleculeError, "explicit hydrogen"),
        ("C[CH2]", MoleculeError, "unpaired electrons"), ("N->B", MoleculeError, "dative bond"),
        ("C[Sn](C)(C)C", UnsupportedElementError, "holds Sn; supported elements are C N O P S"),
        ("[He]", UnsupportedElementError, "holds He"), ("*C", UnsupportedElementError, "holds"),
    ],
)  # fmt: skip
def test_what_a_bond_matrix_cannot_say_is_refused(smiles, error, message):
    mol = Chem.MolFromSmiles(smiles)

    with pytest.raises(error, match=message):
        disassemble(mol)
    if error is UnsupportedElementError:
        with pytest.raises(error, match=message):
            formula_of(mol)


@pytest.mark.parametrize("smiles", ["[2H]C", "[H][H]", "C[N+](C)(C)CC[N+](C)(C)C"])
def test_a_formula_is_the_count_of_all_atoms(smiles):
    mol = Chem.MolFromSmiles(smiles)
    symbols = [atom.GetSymbol() for atom in Chem.AddHs(mol).GetAtoms()]
    charge = Chem.GetFormalCharge(mol)

    assert formula_of(mol) == Formula(tuple(map(symbols.count, SYMBOLS)), charge)


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_molecule_comes_back_from_its_bonds_in_any_order(smiles):
    mol, rng = parse_smiles(smiles), np.random.default_rng(0)
    symbols = [atom.GetSymbol() for atom in Chem.AddHs(mol).GetAtoms()]

    parts = disassemble(mol)
    plain = assemble(parts.formula, parts.bond_class)

    counts = tuple(map(symbols.count, SYMBOLS))
    assert parts.formula == formula_of(mol) == Formula(counts, Chem.GetFormalCharge(mol))
    assert (parts.atom_class.dtype, parts.bond_class.dtype) == (np.int64, np.int8)
    own = [SYMBOLS.index(mol.GetAtomWithIdx(i).GetSymbol()) for i in parts.order.tolist()]
    assert own == parts.atom_class.tolist() == sorted(own)
    assert [SYMBOLS[n] for n in own] == [atom.GetSymbol() for atom in plain.GetAtoms()]
    for row, other in itertools.combinations(range(len(own)), 2):
        bond = mol.GetBondBetweenAtoms(*parts.order[[row, other]].tolist())
        assert (bond is None) == (parts.bond_class[pair_index(row, other, len(own))] == BOND_NONE)
    assert inchikey_block(plain) == inchikey_block(mol)
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
    bonds, charged = disassembled(smiles).bond_class, formula_of(parse_smiles(ion))

    assert canonical_smiles(assemble(charged, bonds)) == ion


RING = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 4), (0, 4, 4)]
TWO_RINGS = [*RING, *((low + 5, high + 5, kind) for low, high, kind in RING), (0, 5, 1)]


@pytest.mark.parametrize(
    ("formula", "bonds", "reason"),
    [
        ("C2H8", [], "disconnected"), ("C2H5", [(0, 1, BOND_SINGLE)], "radical"),
        ("C2H2", [(0, 1, BOND_SINGLE)], "hydrogens"), ("C2H8", [(0, 1, BOND_SINGLE)], "hydrogens"),
        ("CH2F2", [(0, 1, BOND_DOUBLE), (0, 2, BOND_SINGLE)], "valence"),
        ("Si10H8", TWO_RINGS, "kekule"),
    ],
)  # fmt: skip
def test_a_matrix_that_is_no_molecule_is_rejected_with_the_reason(formula, bonds, reason):
    formula = Formula.parse(formula)
    n = formula.n_heavy
    bond_class = np.zeros(n * (n - 1) // 2, dtype=np.int8)
    for low, high, kind in bonds:
        bond_class[pair_index(low, high, n)] = kind

    assert assemble(formula, bond_class) == Rejection(reason)


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
