from itertools import islice

import numpy as np
import pytest

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.chem.repair import _ATTEMPTS, _EditSearch, repair
from tests.made_molecules import another_order, damaged, disassembled, moved

MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "CC(N)Cc1c[nH]c2ccccc12",
    "O=[N+]([O-])c1ccc(Cl)cc1",
    "C[N+](C)(C)CC(=O)[O-]",
    "CS(=O)(=O)Nc1ccc(F)cc1Br",
    "OCC1OC(O)C(O)C(O)C1O",
)


def certain(bond_class, nats=6.0):
    """Log-probabilities of a model that is sure of the true classes, whatever was sampled."""
    logits = np.zeros((bond_class.size, 5))
    logits[np.arange(bond_class.size), bond_class] = nats
    return (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_one_wrong_bond_is_put_right_where_the_model_knows_better(smiles):
    parts = disassembled(smiles)
    rng = np.random.default_rng(0)
    unchanged = repair(parts.formula, parts.bond_class, certain(parts.bond_class))

    np.testing.assert_array_equal(unchanged, parts.bond_class)
    assert unchanged.dtype == np.int8
    for pair in rng.choice(parts.bond_class.size, 10, replace=False):
        sample = parts.bond_class.copy()
        sample[pair] = BOND_DOUBLE if sample[pair] == BOND_NONE else BOND_NONE
        fixed = repair(parts.formula, sample, certain(parts.bond_class))
        np.testing.assert_array_equal(fixed, parts.bond_class)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_repair_does_not_depend_on_the_order_of_like_atoms(smiles):
    rng, parts = np.random.default_rng(4), disassembled(smiles)
    sample, log_prob = damaged(parts.bond_class, 4, rng)
    order = another_order(parts.atom_class, rng)

    one = repair(parts.formula, sample, log_prob)
    other = repair(parts.formula, moved(sample, order), moved(log_prob, order))

    names = [canonical_smiles(assemble(parts.formula, fixed)) for fixed in (one, other)]
    assert names[0] == names[1]


@pytest.mark.parametrize("formula", ["C2H5", "C2H20", "CF2Br2ClH", "CH6"])
def test_a_formula_that_no_molecule_has_gives_nothing(formula):
    formula = Formula.parse(formula)
    n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
    uniform = np.full((n_pairs, 5), np.log(0.2), dtype=np.float32)

    assert repair(formula, np.zeros(n_pairs, dtype=np.int8), uniform) is None


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


@pytest.mark.parametrize(("smiles", "n_flips"), FOUND)
def test_a_search_finds_what_it_found_before(smiles, n_flips):
    parts = disassembled(smiles)
    sample = damaged(parts.bond_class, n_flips, np.random.default_rng(n_flips))

    fixed = repair(parts.formula, *sample)

    assert canonical_smiles(assemble(parts.formula, fixed)) == FOUND[smiles, n_flips]


@pytest.mark.parametrize("smiles", MOLECULES)
def test_what_a_search_keeps_of_bonds_is_that_of_the_changed_matrix(smiles):
    parts = disassembled(smiles)
    sample, log_prob = damaged(parts.bond_class, 8, np.random.default_rng(3))
    nats = -log_prob.astype(np.float64)

    def search(bond_class):
        return _EditSearch(parts.formula, bond_class.astype(np.int64), nats, _ATTEMPTS[0])

    for state in islice(search(sample)._states(), 20):
        edited = sample.copy()
        edited[list(state.edits)] = list(state.edits.values())
        anew = search(edited)._first()

        assert state.kind.tolist() == anew.kind.tolist()
        for name in ("bonds", "fragments", "unpaired", "faults", "least", "most"):
            assert getattr(state, name) == getattr(anew, name), name
        assert state.nats == pytest.approx(anew.nats)
