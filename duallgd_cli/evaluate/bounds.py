"""A lower bound of the MCES distance from the atoms' neighbourhoods.

The same number as the stronger bound of myopic-mces, as an assignment problem over vectors: an atom
is the list of its bond orders to each element, sorted and padded with zeros; mapping one atom to
another costs half the L1 distance, and leaving it out costs half its own bond orders, which is the
distance to a vector of zeros.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity

_MAX_NEIGHBOURS = 8


@dataclass(frozen=True, slots=True, eq=False)
class MoleculeGraph:
    """Atoms and bonds of a molecule as the MCES distance sees them; N atoms, E bonds.

    Attributes:
        elements: Symbol of each atom.
        ends: Atoms of each bond, int64 (E, 2).
        orders: Bond orders, aromatic 1.5, float64 (E,).
    """

    elements: tuple[str, ...]
    ends: NDArray[np.int64]
    orders: NDArray[np.float64]


def molecule_graph(smiles: str) -> MoleculeGraph:
    """Read the graph of a valid SMILES.

    Raises:
        MoleculeError: The text is not a SMILES.
    """
    mol = identity.parse_smiles(smiles)
    bonds = list(mol.GetBonds())
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    return MoleculeGraph(
        elements=tuple(atom.GetSymbol() for atom in mol.GetAtoms()),
        ends=np.array(ends, dtype=np.int64).reshape(-1, 2),
        orders=np.array([bond.GetBondTypeAsDouble() for bond in bonds], dtype=np.float64),
    )


def lower_bound(first: MoleculeGraph, second: MoleculeGraph) -> float:
    """Smallest MCES distance that the atoms' neighbourhoods allow.

    Elements are mapped separately; atoms left over on one side are dropped at the cost of half
    their bonds.
    """
    from scipy.optimize import linear_sum_assignment  # only the `evaluate` extra brings scipy

    symbols = sorted(set(first.elements) | set(second.elements))
    profiles = [_profiles(graph, symbols) for graph in (first, second)]
    total = 0.0
    for symbol in symbols:
        mine, theirs = (
            profile[[element == symbol for element in graph.elements]]
            for profile, graph in zip(profiles, (first, second), strict=True)
        )
        size = max(len(mine), len(theirs))
        mine, theirs = _pad(mine, size), _pad(theirs, size)
        cost = np.abs(mine[:, None, :] - theirs[None, :, :]).sum(axis=2) / 2
        rows, columns = linear_sum_assignment(cost)
        total += float(cost[rows, columns].sum())
    return total


def _profiles(graph: MoleculeGraph, symbols: list[str]) -> NDArray[np.float64]:
    """Bond orders of each atom to each element, sorted downwards, float64 (N, symbols x 8)."""
    table = np.zeros((len(graph.elements), len(symbols), _MAX_NEIGHBOURS))
    column = [symbols.index(element) for element in graph.elements]
    filled = np.zeros(table.shape[:2], dtype=np.int64)
    for (a, b), order in zip(graph.ends, graph.orders, strict=True):
        for atom, neighbour in ((a, b), (b, a)):
            place = (atom, column[neighbour])
            table[(*place, filled[place])] = order
            filled[place] += 1
    table.sort(axis=2)
    return table[:, :, ::-1].reshape(len(graph.elements), -1)


def _pad(profile: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    missing = np.zeros((size - len(profile), profile.shape[1]))
    return np.concatenate([profile, missing])
