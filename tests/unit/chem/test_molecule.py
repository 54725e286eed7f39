import csv
import itertools
import lzma
from functools import partial

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE, BOND_SINGLE, INDEX
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of, read_back
from duallgd_cli.chem.valence import pair_index
from duallgd_cli.errors import MoleculeError, UnsupportedElementError
from tests.made_molecules import QUESTIONS, disassembled, real_structures, shuffled


def smiles_of(result):
    assert isinstance(result, tuple), result
    return [canonical_smiles(mol) for mol in result]


def matrix(n, bonds):
    bond_class = np.zeros(n * (n - 1) // 2, dtype=np.int8)
    for low, high, kind in bonds:
        bond_class[pair_index(low, high, n)] = kind
    return bond_class


FIVE_RING = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 4), (0, 4, 4)]


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
    ("smiles", "message"),
    [
        ("[Na+].[Cl-]", "2 fragments"),
        ("[13CH4]", "isotope"),
        ("[2H]C([2H])[2H]", "isotope"),
        ("[H][H]", "explicit hydrogen"),
        ("C[CH2]", "unpaired electrons"),
        ("N->B", "dative bond"),
    ],
)
def test_what_a_bond_matrix_cannot_say_is_refused(smiles, message):
    mol = Chem.MolFromSmiles(smiles)

    with pytest.raises(MoleculeError, match=message):
        disassemble(mol)


@pytest.mark.parametrize("smiles", ["C[Sn](C)(C)C", "[He]", "*C"])
def test_foreign_elements_are_named(smiles):
    mol = Chem.MolFromSmiles(smiles)

    with pytest.raises(UnsupportedElementError, match="supported elements are C N O P S"):
        disassemble(mol)
    with pytest.raises(UnsupportedElementError):
        formula_of(mol)


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_shuffled_bond_matrix_gives_the_molecule_back(smiles):
    parts = disassembled(smiles)
    plain = assemble(parts.formula, parts.bond_class)
    rng = np.random.default_rng(0)

    assert inchikey_block(plain[0]) == inchikey_block(parse_smiles(smiles))
    for _ in range(3):
        order = rng.permutation(parts.atom_class.size)
        atom_class, bond_class = shuffled(parts.atom_class, parts.bond_class, order)
        result = assemble(parts.formula, bond_class, atom_class)
        assert smiles_of(result) == smiles_of(plain)


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_named_molecule_is_read_back_as_it_is_disassembled(smiles):
    mol = parse_smiles(smiles)
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    other = Chem.RenumberAtoms(mol, order)
    canonical_smiles(other)

    expected, found = disassemble(other), read_back(other)

    assert found.formula == expected.formula
    np.testing.assert_array_equal(found.atom_class, expected.atom_class)
    np.testing.assert_array_equal(found.bond_class, expected.bond_class)
    np.testing.assert_array_equal(found.order, expected.order)


def test_atoms_of_the_molecule_are_rows_of_the_matrix():
    parts = disassembled("Clc1ccc(Br)cc1")
    atom_class, bond_class = shuffled(parts.atom_class, parts.bond_class, np.arange(8)[::-1])

    mol = assemble(parts.formula, bond_class, atom_class)[0]

    np.testing.assert_array_equal([INDEX[atom.GetSymbol()] for atom in mol.GetAtoms()], atom_class)


def test_hydrogen_placements_that_inchi_tells_apart_are_all_returned():
    # The hydrogen sits on the five- or on the six-membered ring, and InChI does not move it.
    parts = disassembled("COc1ccc(-c2cc3[nH]c(C)cc(=O)n3n2)cc1")

    blocks = [inchikey_block(m) for m in assemble(parts.formula, parts.bond_class)]

    assert len(blocks) == len(set(blocks)) == 2
    assert inchikey_block(parse_smiles("COc1ccc(-c2cc3[nH]c(C)cc(=O)n3n2)cc1")) in blocks
    assert inchikey_block(parse_smiles("COc1ccc(-c2cc3nc(C)cc(=O)n3[nH]2)cc1")) in blocks


def test_the_same_bonds_give_another_molecule_for_another_hydrogen_count():
    # C-N(C)-O and C-N-O... the skeleton N(C)(C)(C)O is an amine oxide or its protonated form.
    bonds = matrix(5, [(0, 3, 1), (1, 3, 1), (2, 3, 1), (3, 4, 1)])

    assert smiles_of(assemble(Formula.parse("C3H9NO"), bonds)) == ["C[N+](C)(C)[O-]"]
    assert smiles_of(assemble(Formula.parse("C3H10NO+"), bonds)) == ["C[N+](C)(C)O"]
    assert assemble(Formula.parse("C3H11NO"), bonds) == Rejection("hydrogens")


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


def test_atoms_that_are_not_the_formulas_are_the_callers_mistake():
    parts = disassembled("CCO")

    with pytest.raises(ValueError, match="not the heavy atoms of C2H6O"):
        assemble(parts.formula, parts.bond_class, np.array([0, 0, 1]))
    with pytest.raises(ValueError, match="3 atoms need 3 pairs"):
        assemble(parts.formula, parts.bond_class[:2])


def test_rdkit_stays_silent_whatever_the_matrix(capfd):
    rng = np.random.default_rng(5)
    formula = Formula.parse("C8H9NO2S")
    for _ in range(200):
        assemble(formula, rng.choice(5, 66, p=[0.8, 0.12, 0.03, 0.01, 0.04]))

    assert capfd.readouterr() == ("", "")


def some_of_massbank(shared):
    csv.field_size_limit(1 << 30)
    with lzma.open(shared / "data" / "massbank" / "massbank.tsv.xz", "rt") as file:
        rows = csv.DictReader(file, delimiter="\t")
        molecules = {row["inchikey"]: row["smiles"] for row in rows if row["fold"] != "test"}
    return list(molecules.values())[::8]


@pytest.mark.slow
@pytest.mark.parametrize(
    "molecules", [partial(real_structures, stop=60_000, step=60), some_of_massbank]
)
def test_molecules_come_back_from_their_shuffled_bond_matrix(shared, molecules):
    rng = np.random.default_rng(1)
    is_first, is_there = [], []
    for smiles in molecules(shared):
        mol = parse_smiles(smiles)
        parts = disassemble(mol)
        order = rng.permutation(parts.atom_class.size)
        atom_class, bond_class = shuffled(parts.atom_class, parts.bond_class, order)
        found = assemble(parts.formula, bond_class, atom_class)
        found = found if isinstance(found, tuple) else ()
        if found and canonical_smiles(found[0]) == canonical_smiles(mol):
            places = [0]  # the same SMILES is the same molecule, and InChI is slow
        else:
            block = inchikey_block(mol)
            places = [i for i, other in enumerate(found) if inchikey_block(other) == block]
        is_first.append(places[:1] == [0])
        is_there.append(bool(places))

    assert np.mean(is_first) >= 0.99
    assert np.mean(is_there) >= 0.995


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
