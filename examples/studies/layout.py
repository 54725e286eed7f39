"""Where a drawing of a graph puts its atoms, whether or not it is a molecule."""

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdDepictor

from duallgd_cli.chem.elements import ATOMIC_NUMBERS
from duallgd_cli.chem.valence import bonds_of


def places(atom_class: NDArray[np.integer], bond_class: NDArray[np.integer]) -> NDArray[np.float64]:
    """Places of N atoms with bonds among their M pairs, float64 (N, 2), bonds about 1.5 long."""
    bare = Chem.RWMol()
    for element in atom_class.tolist():
        atom = Chem.Atom(ATOMIC_NUMBERS[element])
        atom.SetNoImplicit(True)
        bare.AddAtom(atom)
    for low, high, _ in bonds_of(len(atom_class), bond_class):
        bare.AddBond(low, high, Chem.BondType.SINGLE)
    Chem.FastFindRings(bare)
    rdDepictor.Compute2DCoords(bare)
    drawn: NDArray[np.float64] = bare.GetConformer().GetPositions()[:, :2]
    return drawn
