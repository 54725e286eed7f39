import pytest

from duallgd_cli.chem.hydrogens import Rejection, complete
from duallgd_cli.chem.valence import Skeleton, bonds_of
from tests.made_molecules import QUESTIONS, disassembled


def skeleton_of(smiles):
    parts = disassembled(smiles)
    bonds = bonds_of(parts.atom_class.size, parts.bond_class)
    return Skeleton.of(parts.atom_class.tolist(), bonds), parts.formula


@pytest.mark.parametrize("smiles", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_every_answer_meets_the_sums(smiles):
    skeleton, formula = skeleton_of(smiles)

    answers = complete(skeleton, formula.hydrogens, formula.charge)

    assert answers
    for answer in answers:
        assert sum(answer.hydrogens) == formula.hydrogens
        assert sum(answer.charge) == formula.charge
        assert all(low < high for low, high in answer.double)


def test_answers_come_cheapest_first():
    skeleton, formula = skeleton_of("Nc1ncnc2[nH]cnc12")

    costs = [answer.cost for answer in complete(skeleton, formula.hydrogens, formula.charge)]

    assert len(costs) > 1
    assert costs == sorted(costs)


def test_the_hydrogen_of_an_indole_is_on_its_nitrogen():
    skeleton, formula = skeleton_of("c1ccc2[nH]ccc2c1")

    (answer,) = complete(skeleton, formula.hydrogens, formula.charge)

    assert answer.hydrogens[skeleton.element.index(1)] == 1
    assert len(answer.double) == 4


def test_a_nitro_group_and_a_carboxylic_acid_do_not_trade_charges():
    skeleton, formula = skeleton_of("O=C(O)c1ccc([N+](=O)[O-])cc1")

    (answer,) = complete(skeleton, formula.hydrogens, formula.charge)

    assert sorted(answer.charge)[:2] == [-1, 0]


@pytest.mark.parametrize(("hydrogens", "charge"), [(0, 0), (7, 0), (6, 1), (6, -3), (60, 0)])
def test_sums_that_no_choice_meets_are_rejected(hydrogens, charge):
    skeleton, _ = skeleton_of("c1ccccc1")

    assert complete(skeleton, hydrogens, charge) == Rejection("hydrogens")


def test_many_open_sites_do_not_make_it_slow():
    # Twenty alcohols and one quaternary nitrogen: any of them may be the anion.
    sugar = "C[N+](C)(C)" + "C(O)" * 19 + "C[O-]"
    skeleton, formula = skeleton_of(sugar)

    answers = complete(skeleton, formula.hydrogens, formula.charge)

    assert 1 < len(answers) <= 24
