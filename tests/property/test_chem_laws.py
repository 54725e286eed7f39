"""Laws of formulas, and of molecules taken apart and put together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.elements import N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.identity import canonical_smiles, charge_free_smiles, parse_smiles, tanimoto
from duallgd_cli.chem.molecule import assemble, disassemble, formula_of
from duallgd_cli.chem.repair import repair
from duallgd_cli.errors import FormulaError
from tests.made_molecules import another_order, moved

FORMULAS = st.builds(
    Formula, st.tuples(*[st.integers(0, 60)] * N_ELEMENTS).filter(any), st.integers(-3, 3)
)
# Building blocks with an open valence at both ends; a chain of them is a molecule.
PIECES = (
    "C", "N", "O", "S", "CC", "C=C", "C#C", "C(=O)", "NC(=O)", "S(=O)(=O)", "P(=O)(O)",
    "c1ccc(cc1)", "c1[nH]c(cc1)", "c1cnc(nc1)", "c1nc2[nH]c(nc2cc1)", "c1oc(cc1)",
    "C(N=[N+]=[N-])", "C([N+](=O)[O-])", "[N+](C)(C)CC([O-])=NC", "C1CC(CC1)", "C(Cl)",
    "[Si](C)(C)",
)  # fmt: skip


@st.composite
def molecules(draw):
    """Chains of building blocks, capped with methyl groups."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
    return parse_smiles("C" + "".join(pieces) + "C")


@st.composite
def matrices(draw):
    """Any bond matrix over the heavy atoms of any small formula."""
    n = draw(st.integers(1, 9))
    heavy = draw(st.lists(st.integers(0, N_HEAVY - 1), min_size=n, max_size=n))
    counts = np.bincount(heavy, minlength=N_ELEMENTS)
    counts[-1] = draw(st.integers(0, 2 * n + 2))
    formula = Formula(tuple(counts.tolist()), draw(st.integers(-1, 1)))
    n_pairs = n * (n - 1) // 2
    # Mostly unbonded pairs, as otherwise nothing but "valence" would be met.
    classes = st.sampled_from([0, 0, 0, 0, 1, 1, 1, 2, 3, 4])
    bonds = draw(st.lists(classes, min_size=n_pairs, max_size=n_pairs))
    return formula, np.array(bonds, dtype=np.int8)


@given(FORMULAS)
def test_a_printed_formula_reads_back_as_itself(formula):
    assert Formula.parse(str(formula)) == formula


@given(st.text(max_size=20))
def test_any_text_is_a_formula_or_a_formula_error(text):
    try:
        formula = Formula.parse(text)
    except FormulaError:
        return
    assert min(formula.counts) >= 0


@given(molecules(), st.integers(0, 1 << 30))
def test_a_molecule_taken_apart_and_shuffled_comes_back(mol, seed):
    parts = disassemble(mol)
    order = another_order(parts.atom_class, np.random.default_rng(seed))

    found = assemble(parts.formula, moved(parts.bond_class, order))

    assert charge_free_smiles(found) == charge_free_smiles(mol)  # or a tautomer of the molecule
    assert formula_of(found) == formula_of(mol)


@given(molecules(), st.randoms(use_true_random=False))
def test_a_molecule_has_one_bond_matrix(mol, random):
    order = list(range(mol.GetNumAtoms()))
    random.shuffle(order)

    one, other = disassemble(mol), disassemble(Chem.RenumberAtoms(mol, order))

    assert one.formula == other.formula == formula_of(mol)
    np.testing.assert_array_equal(one.atom_class, one.formula.atom_class)
    np.testing.assert_array_equal(one.bond_class, other.bond_class)


@given(matrices(), st.integers(0, 1 << 30))
def test_any_matrix_is_rejected_or_becomes_a_molecule_of_the_formula(case, seed):
    formula, bond_class = case
    order = another_order(formula.atom_class, np.random.default_rng(seed))

    mol, again = assemble(formula, bond_class), assemble(formula, moved(bond_class, order))

    if isinstance(mol, Rejection):
        assert again == mol
        return
    assert formula_of(mol) == formula
    assert len(Chem.GetMolFrags(mol)) == 1
    assert not any(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())
    assert canonical_smiles(mol) == canonical_smiles(again)


@given(matrices(), st.integers(0, 1 << 30))
def test_a_repair_gives_nothing_or_a_molecule_of_the_formula(case, seed):
    formula, bond_class = case
    logits = np.random.default_rng(seed).normal(0, 3, (bond_class.size, 5))
    log_prob = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)

    fixed = repair(formula, bond_class, log_prob)

    assert fixed is None or not isinstance(assemble(formula, fixed), Rejection)


@given(st.sets(st.integers(0, 4095)), st.sets(st.integers(0, 4095)))
def test_similarity_is_symmetric_and_between_zero_and_one(one, other):
    a, b = (np.array(sorted(bits), dtype=np.uint16) for bits in (one, other))

    assert tanimoto(a, b) == tanimoto(b, a)
    assert 0.0 <= tanimoto(a, b) <= 1.0
    assert tanimoto(a, b) == pytest.approx(
        len(one & other) / len(one | other) if one | other else 1.0
    )
