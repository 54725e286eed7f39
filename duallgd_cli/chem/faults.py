"""How far an atom's bonds are from those that it can have: tables for the search for a repair.

Rows of all tables are kinds of atoms: an element, a sum of bond orders and a number of aromatic
bonds. C is the number of bond classes.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX, N_BOND_CLASSES, N_HEAVY
from duallgd_cli.chem.valence import plain_states

# Change of order sum and of aromatic bonds from an old class (rows) to a new one (columns).
ORDERS: Final = (0, 1, 2, 3, 1)
ORDER_CHANGE: Final = tuple(tuple(new - old for new in ORDERS) for old in ORDERS)
_IS_AROMATIC: Final = (0, 0, 0, 0, 1)
AROMATIC_CHANGE: Final = tuple(tuple(new - old for new in _IS_AROMATIC) for old in _IS_AROMATIC)

_MAX_SUM: Final = 32
_MAX_AROMATIC: Final = 6
# Atoms that are possible but seldom meant count as a part of a broken rule.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0
# An aromatic atom's share in the pi system.
NO_PI, ONE_PI, OPEN_PI = range(3)


def kind_of(element: int, order_sum: int, n_aromatic: int) -> int:
    """Row of an atom in the tables of atoms."""
    row = element * _MAX_SUM + min(order_sum, _MAX_SUM - 1)
    return row * _MAX_AROMATIC + min(n_aromatic, _MAX_AROMATIC - 1)


@cache
def atom_table(is_cation: bool) -> list[tuple[float, float, float]]:
    """Fault, and least and greatest hydrogens minus charge, of every kind of atom.

    The sum of hydrogens minus charge over all atoms is fixed by the formula, while a single N+ and
    its O- leave it as it is: so it can be judged before any charge is placed.

    Args:
        is_cation: Whether the molecule has a net positive charge.

    Returns:
        Rows as `kind_of` numbers them: elements, then order sums, then aromatic bonds.
    """
    kinds = np.ndindex(N_HEAVY, _MAX_SUM, _MAX_AROMATIC)
    return [_entry(element, n, rings, is_cation) for element, n, rings in kinds]


@cache
def change_table(is_cation: bool, rule_nats: float) -> NDArray[np.float64]:
    """What a change of one bond changes at an atom, in nats.

    Args:
        is_cation: Whether the molecule has a net positive charge.
        rule_nats: What a broken rule costs.

    Returns:
        Fault, half the least and half the negative of the greatest contribution, each for all new
        classes: rows as of `atom_table`, for each of these all old classes, shape (rows x C, 3 C).
    """
    shape = (N_HEAVY, _MAX_SUM, _MAX_AROMATIC, 3)
    table = np.array(atom_table(is_cation)).reshape(shape) * (1, 0.5, -0.5) * rule_nats
    orders = np.arange(_MAX_SUM)[:, None, None, None] + np.array(ORDER_CHANGE)
    aromatic = np.arange(_MAX_AROMATIC)[:, None, None] + np.array(AROMATIC_CHANGE)
    after = table[:, np.clip(orders, 0, _MAX_SUM - 1), np.clip(aromatic, 0, _MAX_AROMATIC - 1)]
    change = after - table[:, :, :, None, None]  # (elements, sums, aromatic, C old, C new, 3)
    return np.ascontiguousarray(change.swapaxes(-1, -2)).reshape(-1, 3 * N_BOND_CLASSES)


@cache
def possible_kinds() -> NDArray[np.bool_]:
    """Whether an atom can have these bonds, rows as of `atom_table`."""
    kinds = np.ndindex(N_HEAVY, _MAX_SUM, _MAX_AROMATIC)
    return np.array([bool(plain_states(element, n, rings > 0)) for element, n, rings in kinds])


@cache
def pi_share(element: int, order_sum: int) -> int:
    """Whether an aromatic atom's share in the pi system is none, one, or open."""
    shares = {state.pi for state in plain_states(element, order_sum, aromatic=True)}
    if len(shares) != 1:
        return OPEN_PI
    return ONE_PI if shares == {1} else NO_PI


def _entry(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    states = plain_states(element, order_sum, n_aromatic > 0)
    if not states:
        return _impossible(element, order_sum, n_aromatic, is_cation)
    if not is_cation:
        # A neutral molecule seldom has a charge where the atom can do without one.
        states = tuple(s for s in states if s.charge == 0) or states
    cost = _CHARGE if is_cation else _UNUSUAL_CHARGE
    if element == INDEX["N"]:
        cost = 0.0  # judged by its neighbours, see `_EditSearch`
    fault = cost * min(abs(state.charge) for state in states)
    if n_aromatic == 1:
        fault += _LONE_AROMATIC_BOND
    contributions = [state.hydrogens - state.charge for state in states]
    return fault, min(contributions), max(contributions)


def _impossible(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    """Entry of an atom whose bonds do not fit it: judged by the nearest order sum that does."""
    # No halogen is aromatic at all: judge it as if its bonds were single.
    for kind in (n_aromatic, 0):
        nearest = [
            (abs(order_sum - n), n) for n in range(_MAX_SUM) if plain_states(element, n, kind > 0)
        ]
        if nearest:
            break
    distance, possible = min(nearest)
    fault, _, most = _entry(element, possible, kind, is_cation)
    # Bonds beyond the valence count as hydrogens that others lack: mending restores the count.
    contribution = most + possible - order_sum
    return fault + max(distance, 1), contribution, contribution
