import numpy as np
import pytest

from duallgd_cli.chem.elements import BOND_DOUBLE, BOND_NONE
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.chem.repair import _smallest, repair
from tests.made_molecules import QUESTIONS, damaged, disassembled, real_structures, shuffled

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


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_molecule_is_left_alone(smiles):
    parts = disassembled(smiles)

    fixed = repair(parts.formula, parts.bond_class, certain(parts.bond_class))

    np.testing.assert_array_equal(fixed, parts.bond_class)
    assert fixed.dtype == np.int8


@pytest.mark.parametrize("smiles", MOLECULES)
def test_one_wrong_bond_is_put_right_where_the_model_knows_better(smiles):
    parts = disassembled(smiles)
    rng = np.random.default_rng(0)

    for pair in rng.choice(parts.bond_class.size, 10, replace=False):
        sample = parts.bond_class.copy()
        sample[pair] = BOND_DOUBLE if sample[pair] == BOND_NONE else BOND_NONE
        fixed = repair(parts.formula, sample, certain(parts.bond_class))
        np.testing.assert_array_equal(fixed, parts.bond_class)


def test_repair_does_not_depend_on_the_order_of_like_atoms():
    rng = np.random.default_rng(4)
    for smiles in MOLECULES:
        parts = disassembled(smiles)
        n = parts.atom_class.size
        sample, log_prob = damaged(parts.bond_class, 4, rng)
        order = np.lexsort((rng.random(n), parts.atom_class))
        # Shuffling the pair numbers tells where each pair's probabilities go.
        _, moved = shuffled(parts.atom_class, np.arange(sample.size) + 1, order)
        one = repair(parts.formula, sample, log_prob)
        other = repair(parts.formula, sample[moved - 1], log_prob[moved - 1])

        assert (one is None) == (other is None)
        if one is not None:
            names = [assemble(parts.formula, fixed)[0] for fixed in (one, other)]
            assert canonical_smiles(names[0]) == canonical_smiles(names[1])


def test_impossible_probabilities_do_not_stop_it():
    parts = disassembled("CCO")
    log_prob = np.full((3, 5), -np.inf, dtype=np.float16)
    log_prob[:, 0] = 0.0

    fixed = repair(parts.formula, np.zeros(3, dtype=np.int8), log_prob)

    assert fixed is not None
    assert isinstance(assemble(parts.formula, fixed), tuple)


@pytest.mark.parametrize("formula", ["C2H5", "C2H20", "CF2Br2ClH"])
def test_a_formula_that_no_molecule_has_gives_nothing(formula):
    formula = Formula.parse(formula)
    n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
    uniform = np.full((n_pairs, 5), np.log(0.2), dtype=np.float32)

    assert repair(formula, np.zeros(n_pairs, dtype=np.int8), uniform) is None


def test_a_single_atom_has_nothing_to_repair():
    none, no_probabilities = np.zeros(0, dtype=np.int8), np.zeros((0, 5), dtype=np.float32)

    assert repair(Formula.parse("CH4"), none, no_probabilities).shape == (0,)
    assert repair(Formula.parse("CH6"), none, no_probabilities) is None


@pytest.mark.slow
@pytest.mark.parametrize(("n_flips", "share"), [(1, 0.99), (3, 0.98), (6, 0.96)])
def test_nearly_every_damaged_structure_becomes_a_molecule_again(shared, n_flips, share):
    rng = np.random.default_rng(n_flips)
    molecules, repaired = real_structures(shared, 20_000, 80), 0
    for smiles in molecules:
        parts = disassembled(smiles)
        fixed = repair(parts.formula, *damaged(parts.bond_class, n_flips, rng))
        repaired += fixed is not None and isinstance(assemble(parts.formula, fixed), tuple)

    assert repaired / len(molecules) >= share


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

    found = assemble(parts.formula, fixed)[0]
    assert canonical_smiles(found) == FOUND[smiles, n_flips]


def test_the_smallest_values_are_those_of_a_stable_sort():
    values = np.random.default_rng(0).integers(0, 9, 200).astype(np.float64)
    values[::7] = np.inf

    for count in (0, 1, 10, 150):
        expected = np.argsort(values, kind="stable")[:count]
        np.testing.assert_array_equal(_smallest(values, count), expected)
