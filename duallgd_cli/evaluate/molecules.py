"""Molecules as the metrics see them: identity, fingerprint and formula of a SMILES."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import FormulaError, MoleculeError

# The metric's fingerprint, as MassSpecGym defines it; the networks use a longer one.
METRIC_BITS: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Molecule:
    """One valid molecule without stereochemistry.

    Attributes:
        smiles: Canonical SMILES.
        inchi: Standard InChI, "" if InChI refuses it.
        block: First block of the InChIKey, "" if there is no InChI.
        bits: Set bits of the Morgan fingerprint (radius 2, 2,048 bits), ascending, uint16 (n_on,).
        formula: Molecular formula in Hill order, "" with an element outside the vocabulary.
        n_bonds: Bonds between heavy atoms.
    """

    smiles: str
    inchi: str
    block: str
    bits: NDArray[np.uint16]
    formula: str
    n_bonds: int


@lru_cache(maxsize=100_000)
def molecule(smiles: str) -> Molecule | None:
    """Describe a SMILES; None if it is not a possible molecule."""
    try:
        mol = identity.parse_smiles(smiles)
    except MoleculeError:
        return None
    try:
        text = identity.inchi(mol)
        block = identity.inchikey_block(mol)
    except MoleculeError:
        text = block = ""
    try:
        formula = str(formula_of(mol))
    except FormulaError:
        formula = ""
    return Molecule(
        smiles=identity.canonical_smiles(mol),
        inchi=text,
        block=block,
        bits=identity.fingerprint(mol, METRIC_BITS),
        formula=formula,
        n_bonds=int(mol.GetNumBonds()),
    )
