import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import FREE, Guide, read_core
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.errors import UsageError

FLAVONE = "O=c1cc(-c2ccccc2)oc2ccccc12"
CORES = (FLAVONE, "c1ccccc1", "C1CCNCC1", "CC(=O)N", "C#CCO", "c1ccc2[nH]ccc2c1", "C[N+](=O)[O-]")


def squares(held, n):
    """Held classes as symmetric matrices, `FREE` on the diagonal."""
    found = np.full((len(held), n, n), FREE)
    first, second = np.triu_indices(n, 1)
    found[:, first, second] = found[:, second, first] = held
    return found


@settings(deadline=None)
@given(st.sampled_from(CORES), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_the_bonds_of_a_core_are_held_between_atoms_of_its_elements(smiles, more, seed):
    core = read_core(smiles)
    counts = np.bincount(core.element, minlength=13) + more
    formula = Formula(tuple(int(n) for n in counts))

    held = squares(core.held(formula, 3, seed), formula.n_heavy)

    bonded = core.bonds > 0
    for square in held:
        known = (square != FREE).any(1)
        assert known.sum() == len(core.element)
        assert sorted(formula.atom_class[known]) == sorted(core.element)
        ours = sorted(np.sort(square[known][:, known][square[known][:, known] > 0]))
        assert ours == sorted(core.bonds[bonded])


def test_a_molecule_that_is_all_core_is_held_whole():
    formula = Formula.parse("C15H10O2")

    (held,) = read_core(FLAVONE).held(formula, 1, 0)

    (found,) = assemble(formula, held).molecules
    assert Chem.MolToSmiles(found) == Chem.CanonSmiles(FLAVONE)


def test_fragments_are_held_each_and_are_free_between_them():
    core = read_core("c1ccccc1.C=O")

    between = core.bonds[:6, 6:]

    assert (between == FREE).all()
    assert (core.bonds[6:, 6:] == [[0, 2], [2, 0]]).all()


def test_with_attachment_points_other_atoms_get_no_further_bonds():
    formula = Formula.parse("C8H10O")
    core = read_core("*c1ccccc1")

    square = squares(core.held(formula, 1, 3), formula.n_heavy)[0]

    closed = (square != FREE).sum(1) == formula.n_heavy - 1
    assert closed.sum() == 5
    guide = Guide("*c1ccccc1")
    assert not guide.fault(Chem.MolFromSmiles("OCCc1ccccc1"))
    assert guide.fault(Chem.MolFromSmiles("CCc1ccc(O)cc1")) == "without the core"


def test_each_sample_has_places_of_its_own_and_the_same_seed_the_same():
    formula, core = Formula.parse("C20H20O10"), read_core(FLAVONE)

    held = core.held(formula, 20, 5)

    assert len(np.unique(held, axis=0)) > 10
    assert (held == core.held(formula, 20, 5)).all()


@pytest.mark.parametrize(
    ("formula", "missing"),
    [("C15H10O2", ""), ("C14H10O2", "1 C"), ("C10H10N2", "5 C, 2 O")],
)
def test_what_a_formula_lacks_for_a_core(formula, missing):
    assert read_core(FLAVONE).missing(Formula.parse(formula)) == missing


@pytest.mark.parametrize("text", ["c1cc", "", "[Fe]", "*", "C~C", "[Na+].[Cl-]"])
def test_what_is_no_core_is_refused_by_name(text):
    with pytest.raises(UsageError, match="core"):
        read_core(text)


@pytest.mark.parametrize(
    ("guide", "smiles", "fault"),
    [
        (Guide(), "CCO", ""),
        (Guide(core="c1ccccc1"), "CCO", "without the core"),
        (Guide(core="c1ccccc1"), "OCc1ccccc1", ""),
        (Guide(require=("indole",)), "c1ccc2[nH]ccc2c1", ""),
        (Guide(require=("indole",)), "Cn1ccc2ccccc12", ""),
        (Guide(require=("Hexose", "[#6]C(=O)[OX2H1]")), "OCC1OC(O)C(O)C(O)C1O",
         "without [#6]C(=O)[OX2H1]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1[N+](=O)[O-]", "with [N+](=O)[O-]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1N", ""),
    ],
)  # fmt: skip
def test_molecules_that_break_what_is_known_are_told_why(guide, smiles, fault):
    guide.check()

    assert guide.fault(Chem.MolFromSmiles(smiles)) == fault


def test_a_part_that_is_neither_name_nor_smarts_is_refused():
    with pytest.raises(UsageError, match=r"'hexoze\(' is neither a SMARTS nor the name of a part"):
        Guide(require=("hexoze(",)).check()
