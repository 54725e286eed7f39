from duallgd_cli.chem.hydrogens import complete
from duallgd_cli.chem.valence import Skeleton, bonds_of
from tests.made_molecules import disassembled


def skeleton_of(smiles):
    parts = disassembled(smiles)
    bonds = bonds_of(parts.atom_class.size, parts.bond_class)
    return Skeleton.of(parts.atom_class.tolist(), bonds), parts.formula


def test_answers_come_cheapest_first():
    skeleton, formula = skeleton_of("Nc1ncnc2[nH]cnc12")

    costs = [answer.cost for answer in complete(skeleton, formula.hydrogens, formula.charge)]

    assert len(costs) > 1
    assert costs == sorted(costs)


def test_many_open_sites_do_not_make_it_slow():
    # Twenty alcohols and one quaternary nitrogen: any of them may be the anion.
    sugar = "C[N+](C)(C)" + "C(O)" * 19 + "C[O-]"
    skeleton, formula = skeleton_of(sugar)

    answers = complete(skeleton, formula.hydrogens, formula.charge)

    assert 1 < len(answers) <= 24
