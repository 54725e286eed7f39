"""Molecules as graphs of heavy atoms, and what each atom is where a bond beside it may break.

N atoms, b bonds.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import BOND_AROMATIC, HYDROGEN, INDEX, N_HEAVY
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data.prepared import Molecules

# What cutting a bond costs: by class, and less where a heteroatom is at one end.
_COST: Final = np.array([0.0, 1.0, 2.0, 3.0, 2.5], np.float32)
_HETERO_DISCOUNT: Final = 0.35
_SINGLE, _DOUBLE, _TRIPLE = 1, 2, 3
_CARBON, _NITROGEN, _OXYGEN, _SULPHUR = (INDEX[symbol] for symbol in "CNOS")
# Carbon, nitrogen, oxygen, phosphorus and sulphur, halogens, boron and silicon and selenium.
_GROUP: Final = np.array([0, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5])
N_GROUP_FEATURES: Final = 10
N_ATOM_TYPES: Final = 18


def graph_of(molecules: Molecules, molecule: int) -> MolecularGraph:
    """One of the prepared molecules, by its row."""
    start, stop = molecules.bond_offset[molecule : molecule + 2]
    return MolecularGraph(
        np.repeat(np.arange(N_HEAVY), molecules.atom_counts[molecule, :N_HEAVY]),
        molecules.bond_pair[start:stop].astype(np.int64),
        molecules.bond_type[start:stop].astype(np.int64),
        int(molecules.atom_counts[molecule, HYDROGEN]),
    )


def to_hetero(graph: MolecularGraph) -> NDArray[np.bool_]:
    """Bonds that are not aromatic and have a heteroatom at one end, (b,)."""
    has_hetero = (graph.element[graph.pair] != 0).any(1)
    return np.asarray(has_hetero & (graph.bond_class != BOND_AROMATIC))


def cutting_cost(graph: MolecularGraph) -> NDArray[np.float32]:
    """Of each bond, (b,)."""
    return (_COST[graph.bond_class] - _HETERO_DISCOUNT * to_hetero(graph)).astype(np.float32)


def atom_groups(graph: MolecularGraph) -> NDArray[np.float32]:
    """Group of elements, bears =O, is aromatic, has one neighbour, has three or more; (N, 10)."""
    element, pair, bond_class = graph.element, graph.pair, graph.bond_class
    n = len(element)
    groups = np.zeros((n, N_GROUP_FEATURES), np.float32)
    groups[np.arange(n), _GROUP[element]] = 1
    groups[:, 6] = _beside(pair[bond_class == _DOUBLE], element == _OXYGEN) > 0
    groups[pair[bond_class == BOND_AROMATIC].ravel(), 7] = 1
    degree = np.bincount(pair.ravel(), minlength=n)
    groups[:, 8], groups[:, 9] = degree == 1, degree >= 3
    return groups


def atom_types(graph: MolecularGraph, in_ring: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    """Which atoms are of each of `N_ATOM_TYPES` types, (N,); an atom is of one or none.

    An amine holds a charge that an amide does not, a benzylic bond breaks where a phenylic one does
    not: types are told apart by what they are part of, where ``in_ring`` says which bonds are part
    of a ring, (b,). C=S and S=O count as C=O does.
    """
    element, pair, bond_class = graph.element, graph.pair, graph.bond_class
    n = len(element)
    carbon, nitrogen = element == _CARBON, element == _NITROGEN
    oxygen, sulphur = element == _OXYGEN, element == _SULPHUR
    single, double = (pair[bond_class == kind] for kind in (_SINGLE, _DOUBLE))
    # How many bonds of each class an atom has, (C, N).
    ends = np.bincount((bond_class[:, None] * n + pair).ravel(), minlength=(BOND_AROMATIC + 1) * n)
    ends = ends.reshape(-1, n)
    degree, aromatic = ends.sum(0), ends[BOND_AROMATIC] > 0
    saturated = ~aromatic & (ends[_DOUBLE] == 0) & (ends[_TRIPLE] == 0)
    bears_oxygen = _beside(double, oxygen | sulphur) > 0  # or sulphur in its place
    on_arene, on_acyl = _beside(single, aromatic) > 0, _beside(single, bears_oxygen) > 0
    carbonyl = carbon & bears_oxygen
    acid = _beside(pair, ~carbon) >= 2  # or ester, amide
    chain = np.bincount(pair[in_ring].ravel(), minlength=n) == 0
    plain = carbon & ~aromatic & ~carbonyl
    amine, alcohol = nitrogen & saturated, oxygen & saturated & (degree == 1)
    return {
        "aromatic carbon": carbon & aromatic,
        "carbon of an acid, ester or amide": carbonyl & acid,
        "carbon of a ketone or aldehyde": carbonyl & ~acid,
        "carbon of a double bond": plain & (ends[_DOUBLE] > 0),
        "carbon of a triple bond": plain & (ends[_TRIPLE] > 0),
        "methyl": plain & saturated & (degree == 1),
        "methylene of a chain": plain & saturated & (degree == 2) & chain,
        "saturated carbon of a ring": plain & saturated & (degree >= 2) & ~chain,
        "branching carbon of a chain": plain & saturated & (degree >= 3) & chain,
        "aromatic nitrogen": nitrogen & aromatic,
        "nitrogen of an amide": amine & on_acyl,
        "nitrogen of an aniline": amine & ~on_acyl & on_arene,
        "nitrogen of an amine": amine & ~on_acyl & ~on_arene,
        "nitrogen of a multiple bond": nitrogen & ~aromatic & ~saturated,
        "oxygen of an alcohol": alcohol & ~on_acyl & ~on_arene,
        "oxygen of a phenol or acid": alcohol & (on_acyl | on_arene),
        "oxygen of an ether or ester": oxygen & saturated & (degree == 2),
        "sulphur of a thiol or sulphide": sulphur & saturated,
    }


def _beside(pair: NDArray[np.int64], has: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many of the atoms that each is bonded to by some bonds, (b, 2), have something, (N,)."""
    low, high = pair.T
    ends = np.concatenate([low[has[high]], high[has[low]]])
    return np.bincount(ends, minlength=len(has))
