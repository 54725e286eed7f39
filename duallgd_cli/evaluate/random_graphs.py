"""Random connected graphs of a formula: what a candidate list is worth that ignores the spectrum.

N heavy atoms, M = N (N - 1) / 2 pairs in row-major order of the strict upper triangle.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_TRIPLE, INDEX, VALENCES
from duallgd_cli.chem.formula import Formula

_ATTEMPTS: Final = 20
# Elements that carry a positive charge as one more bond, the likeliest first.
_CARRIERS: Final = tuple(INDEX[symbol] for symbol in ("N", "P", "S", "O"))
# New bonds go to pairs that are bonded already as often as this, else they close a ring.
_MULTIPLE_SHARE: Final = 0.5


class HasFormula(Protocol):
    """A hypothesis, as far as a random graph looks at it."""

    @property
    def formula(self) -> Formula:
        """Of the molecule."""
        ...


class HasHypothesis(Protocol):
    """An annotated spectrum, as far as a random graph looks at it."""

    @property
    def hypothesis(self) -> HasFormula:
        """What the spectrum may be of."""
        ...


def random_graph(formula: Formula, generator: np.random.Generator) -> NDArray[np.int8]:
    """Draw a connected graph whose free valences take up exactly the formula's hydrogens.

    A random tree over the atoms, then bonds at random between atoms with free valences. Where no
    such graph is found the last attempt is returned, whose hydrogens do not fit.

    Args:
        formula: Of the molecule.
        generator: Source of randomness.

    Returns:
        Bond classes none, single, double or triple, int8 (M,).
    """
    n = formula.n_heavy
    order = np.zeros((n, n), dtype=np.int8)
    for _ in range(_ATTEMPTS):
        order[:] = 0
        free = _valences(formula, generator)
        _grow_tree(order, free, generator)
        _add_bonds(order, free, int(free.sum()) - formula.hydrogens, generator)
        if int(free.sum()) == formula.hydrogens and free.min(initial=0) >= 0:
            break
    return order[np.triu_indices(n, 1)]


def _valences(formula: Formula, generator: np.random.Generator) -> NDArray[np.int64]:
    """A valence for each atom, raised where the smallest ones cannot hold the graph together."""
    atoms = formula.atom_class
    valence = np.array([VALENCES[element][0] for element in atoms], dtype=np.int64)
    for _ in range(formula.charge):
        carriers = next((c for c in _CARRIERS if c in atoms), None)
        if carriers is not None:
            valence[generator.choice(np.flatnonzero(atoms == carriers))] += 1
    while valence.sum() < formula.hydrogens + 2 * (len(atoms) - 1):
        raisable = [i for i, v in enumerate(valence) if v + 2 in VALENCES[atoms[i]]]
        if not raisable:
            break
        valence[generator.choice(raisable)] += 2
    return valence


def _grow_tree(
    order: NDArray[np.int8], free: NDArray[np.int64], generator: np.random.Generator
) -> None:
    waiting = generator.permutation(len(free)).tolist()
    # Atoms of valence one cannot carry the tree on: they come last.
    waiting.sort(key=lambda atom: free[atom] == 1)
    placed = waiting[:1]
    for atom in waiting[1:]:
        open_atoms = [other for other in placed if free[other] > 0] or placed
        _bind(order, free, atom, int(generator.choice(open_atoms)))
        placed.append(atom)


def _add_bonds(
    order: NDArray[np.int8],
    free: NDArray[np.int64],
    surplus: int,
    generator: np.random.Generator,
) -> None:
    a, b = np.triu_indices(len(free), 1)
    for _ in range(max(0, surplus) // 2):
        possible = np.flatnonzero((free[a] > 0) & (free[b] > 0) & (order[a, b] < BOND_TRIPLE))
        if not possible.size:
            return
        bonded = possible[order[a[possible], b[possible]] > 0]
        multiple = bonded.size and generator.random() < _MULTIPLE_SHARE
        chosen = generator.choice(bonded if multiple else possible)
        _bind(order, free, int(a[chosen]), int(b[chosen]))


def _bind(order: NDArray[np.int8], free: NDArray[np.int64], a: int, b: int) -> None:
    order[a, b] += 1
    order[b, a] += 1
    free[[a, b]] -= 1
