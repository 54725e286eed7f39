import pytest

from duallgd_cli.chem.elements import BOND_AROMATIC, BOND_DOUBLE, BOND_SINGLE, INDEX, N_HEAVY
from duallgd_cli.chem.valence import EXOTIC, PROTON_MOVED, USUAL, Skeleton, states


def skeleton(symbols, bonds):
    return Skeleton.of([INDEX[s] for s in symbols], bonds)


def test_carboxylic_acids_lose_their_proton_before_alcohols():
    acid = skeleton("CCOOO", [(0, 1, 1), (1, 2, BOND_DOUBLE), (1, 3, 1), (0, 4, 1)])
    found = states(acid, PROTON_MOVED)

    def price(atom):
        return next(state.cost for state in found[atom] if state.charge == -1)

    assert price(3) < price(4)


def test_an_aromatic_nh_is_likelier_in_a_five_membered_ring():
    pyrrole = skeleton("CCCCN", [(i, (i + 1) % 5, BOND_AROMATIC) for i in range(5)])
    pyridine = skeleton("CCCCCN", [(i, (i + 1) % 6, BOND_AROMATIC) for i in range(6)])

    def price(ring):
        return next(state.cost for state in states(ring, USUAL)[-1] if state.hydrogens)

    assert price(pyrrole) < price(pyridine)


@pytest.mark.parametrize("element", range(N_HEAVY))
def test_higher_tiers_only_add_states(element):
    atom = Skeleton.of([element, 0, 0], [(0, 1, BOND_SINGLE), (0, 2, BOND_SINGLE)])

    few, more, most = (set(states(atom, tier)[0]) for tier in (USUAL, PROTON_MOVED, EXOTIC))

    assert few <= more <= most
    assert most or element == INDEX["F"]
