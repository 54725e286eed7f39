"""Repair of bond matrices: near the sampled one, as likely as can be, in any order of atoms."""

import numpy as np
import pytest

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.chem.repair import repair
from tests.made_molecules import another_order, damaged, disassembled, moved


def certain(bond_class, nats=6.0):
    """Log-probabilities of a model that is sure of the true classes, whatever was sampled."""
    logits = np.eye(5)[bond_class] * nats
    return (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)


def repaired(parts, sample, log_prob):
    return canonical_smiles(assemble(parts.formula, repair(parts.formula, sample, log_prob)))


# As the search of version 0.2 found them, whose states were all built anew.
FOUND = {
    ("CC(=O)Oc1ccccc1C(=O)O", 12): "CC(=O)Oc1ccccc1C(=O)O",
    ("CC(=O)Oc1ccccc1C(=O)O", 25): "C=C=C1[O+]=CC([O-])(O)C1=C(O)C=C",
    ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", 12): "C[N-]C(=O)C[N+](=CN)C1C(=O)C1=C=N",
    ("Cn1c(=O)c2c(ncn2C)n(C)c1=O", 25): "C[N+]#CON(C)C([O-])=CN=CCC#N",
    ("CC(N)Cc1c[nH]c2ccccc12", 12): "CC(N)Cc1c[nH]c2ccccc12",
    ("CC(N)Cc1c[nH]c2ccccc12", 25): "CC1NC2(C)CC=C(N2)C2=C1C=C2",
    ("O=[N+]([O-])c1ccc(Cl)cc1", 12): "O=C=C1C(=CCl)C=C1NO",
    ("O=[N+]([O-])c1ccc(Cl)cc1", 25): "O=NC12CC=C1C2=COCl",
    ("CS(=O)(=O)Nc1ccc(F)cc1Br", 12): "CS(=O)(=O)Nc1ccc(F)cc1Br",
    ("CS(=O)(=O)Nc1ccc(F)cc1Br", 25): "CN(F)C12OS13(=C=CC2Br)C=CO3",
    ("OCC1OC(O)C(O)C(O)C1O", 12): "OCC1OC(O)C(O)C(O)C1O",
    ("OCC1OC(O)C(O)C(O)C1O", 25): "COC(O)=C(CO)COOCO",
}


MOLECULES = sorted({"C[N+](C)(C)CC(=O)[O-]", *(smiles for smiles, _ in FOUND)})


@pytest.mark.parametrize(("smiles", "n_flips"), FOUND)
def test_a_search_finds_what_it_found_before(smiles, n_flips):
    parts = disassembled(smiles)
    sample = damaged(parts.bond_class, n_flips, np.random.default_rng(n_flips))

    assert repaired(parts, *sample) == FOUND[smiles, n_flips]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_one_wrong_bond_is_put_right_where_the_model_knows_better(smiles):
    parts = disassembled(smiles)
    places = np.random.default_rng(0).choice(parts.bond_class.size, 10, replace=False)
    for pair in (None, *places):
        sample = parts.bond_class.copy()
        if pair is not None:
            sample[pair] = BOND_DOUBLE if sample[pair] == BOND_NONE else BOND_NONE

        fixed = repair(parts.formula, sample, certain(parts.bond_class))

        assert fixed.dtype == np.int8
        np.testing.assert_array_equal(fixed, parts.bond_class)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_repair_does_not_depend_on_the_order_of_like_atoms(smiles):
    rng, parts = np.random.default_rng(4), disassembled(smiles)
    sample = damaged(parts.bond_class, 4, rng)
    order = another_order(parts.atom_class, rng)

    assert repaired(parts, *sample) == repaired(parts, *(moved(part, order) for part in sample))


@pytest.mark.parametrize("formula", ["C2H5", "C2H20", "CF2Br2ClH", "CH6"])
def test_a_formula_that_no_molecule_has_gives_nothing(formula):
    formula = Formula.parse(formula)
    nothing = np.zeros(formula.n_heavy * (formula.n_heavy - 1) // 2, dtype=np.int8)

    assert repair(formula, nothing, certain(nothing, nats=0.0)) is None
