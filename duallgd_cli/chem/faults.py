"""How far an atom with given bonds is from a possible one: the tables that repair steers by."""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import INDEX, N_HEAVY
from duallgd_cli.chem.valence import plain_states

MAX_SUM: Final = 32
MAX_AROMATIC: Final = 6
# Atoms that are possible but seldom meant count as a part of a broken rule.
_LONE_AROMATIC_BOND: Final = 0.5
_CHARGE: Final = 0.25
_UNUSUAL_CHARGE: Final = 1.0

# An aromatic atom's share in the pi system.
NO_PI, ONE_PI, OPEN_PI = range(3)


@cache
def atom_tables(is_cation: bool) -> NDArray[np.float64]:
    """Faults, and least and greatest hydrogens minus charge, of every kind of atom.

    The sum of hydrogens minus charge over all atoms is fixed by the formula, while a single N+ and
    its O- leave it as it is: so it can be judged before any charge is placed.

    Args:
        is_cation: Whether the molecule has a net positive charge.

    Returns:
        Shape (3, elements, MAX_SUM order sums, MAX_AROMATIC aromatic bonds).
    """
    table = np.zeros((3, N_HEAVY, MAX_SUM, MAX_AROMATIC))
    for element, order_sum, n_aromatic in np.ndindex(table.shape[1:]):
        table[:, element, order_sum, n_aromatic] = _entry(element, order_sum, n_aromatic, is_cation)
    return table


@cache
def possible_atoms() -> NDArray[np.bool_]:
    """Whether an atom can have these bonds, shape (elements, MAX_SUM, MAX_AROMATIC)."""
    table = np.zeros((N_HEAVY, MAX_SUM, MAX_AROMATIC), dtype=np.bool_)
    for element, order_sum, n_aromatic in np.ndindex(table.shape):
        table[element, order_sum, n_aromatic] = bool(
            plain_states(element, order_sum, n_aromatic > 0)
        )
    return table


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
    fault = _charge_price(element, is_cation) * min(abs(state.charge) for state in states)
    if n_aromatic == 1:
        fault += _LONE_AROMATIC_BOND
    contributions = [state.hydrogens - state.charge for state in states]
    return fault, min(contributions), max(contributions)


def _charge_price(element: int, is_cation: bool) -> float:
    if element == INDEX["N"]:
        return 0.0  # judged by its neighbours, see `repair`
    return _CHARGE if is_cation else _UNUSUAL_CHARGE


def _impossible(
    element: int, order_sum: int, n_aromatic: int, is_cation: bool
) -> tuple[float, float, float]:
    """Entry of an atom whose bonds do not fit it: judged by the nearest order sum that does."""
    # No halogen is aromatic at all: judge it as if its bonds were single.
    for kind in (n_aromatic, 0):
        nearest = [
            (abs(order_sum - n), n) for n in range(MAX_SUM) if plain_states(element, n, kind > 0)
        ]
        if nearest:
            break
    distance, possible = min(nearest)
    fault, _, most = _entry(element, possible, kind, is_cation)
    # Bonds beyond the valence count as hydrogens that others lack: mending restores the count.
    contribution = most + possible - order_sum
    return fault + max(distance, 1), contribution, contribution
