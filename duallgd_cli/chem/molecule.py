"""The border between molecules and bond matrices.

N is the number of heavy atoms, M = N (N - 1) / 2 the number of their pairs, in row-major order of
the strict upper triangle: (0, 1), (0, 2), ..., (0, N - 1), (1, 2), ...
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.elements import (
    ATOMIC_NUMBERS,
    BOND_AROMATIC,
    BOND_DOUBLE,
    BOND_SINGLE,
    BOND_TRIPLE,
    HYDROGEN,
    N_ELEMENTS,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import MoleculeError, UnsupportedElementError

_ELEMENT_OF: Final = {number: index for index, number in enumerate(ATOMIC_NUMBERS)}
_BOND_CLASS: Final = {
    Chem.BondType.SINGLE: BOND_SINGLE,
    Chem.BondType.DOUBLE: BOND_DOUBLE,
    Chem.BondType.TRIPLE: BOND_TRIPLE,
    Chem.BondType.AROMATIC: BOND_AROMATIC,
}


@dataclass(frozen=True, eq=False)
class Disassembled:
    """A molecule as the network sees it.

    Attributes:
        formula: Molecular formula with the net charge.
        atom_class: Element of each row, int64, shape (N,); equals ``formula.atom_class``.
        bond_class: Bond class of each pair, int8, shape (M,).
        order: RDKit atom index of each row, int64, shape (N,).
    """

    formula: Formula
    atom_class: NDArray[np.int64]
    bond_class: NDArray[np.int8]
    order: NDArray[np.int64]


def disassemble(mol: Chem.Mol) -> Disassembled:
    """Turn a sanitised molecule into its formula and bond classes.

    Rows are sorted by element; within an element they follow the traversal of the canonical
    SMILES without stereochemistry, so that the result is a function of the molecule alone.

    Raises:
        UnsupportedElementError: An element outside the vocabulary.
        MoleculeError: Several fragments, isotope labels, explicit hydrogen atoms, unpaired
            electrons, or a bond that is not single, double, triple or aromatic.
    """
    _refuse_the_inexpressible(mol)
    element = np.array(
        [_ELEMENT_OF[atom.GetAtomicNum()] for atom in mol.GetAtoms()], dtype=np.int64
    )
    order = _canonical_order(mol, element)
    row_of = np.empty_like(order)
    row_of[order] = np.arange(order.size)
    n = order.size
    bond_class = np.zeros(n * (n - 1) // 2, dtype=np.int8)
    for bond in mol.GetBonds():
        a, b = int(row_of[bond.GetBeginAtomIdx()]), int(row_of[bond.GetEndAtomIdx()])
        low, high = min(a, b), max(a, b)
        bond_class[pair_index(n, low, high)] = _BOND_CLASS[bond.GetBondType()]
    return Disassembled(formula_of(mol), element[order], bond_class, order)


def pair_index(n: int, low: int, high: int) -> int:
    """Position of the pair (low, high), low < high, among the M pairs of n atoms."""
    return low * n - low * (low + 1) // 2 + high - low - 1


def formula_of(mol: Chem.Mol) -> Formula:
    """Molecular formula of a molecule, implicit hydrogens and the net charge included.

    Raises:
        UnsupportedElementError: An element outside the vocabulary.
    """
    counts = [0] * N_ELEMENTS
    charge = 0
    for atom in mol.GetAtoms():
        element = _ELEMENT_OF.get(atom.GetAtomicNum())
        if element is None:
            raise UnsupportedElementError(
                f"the molecule holds {atom.GetSymbol()}; supported elements are {' '.join(SYMBOLS)}"
            )
        counts[element] += 1
        counts[HYDROGEN] += atom.GetTotalNumHs()
        charge += atom.GetFormalCharge()
    return Formula(tuple(counts), charge)


def _canonical_order(mol: Chem.Mol, element: NDArray[np.int64]) -> NDArray[np.int64]:
    flat = Chem.Mol(mol)
    Chem.RemoveStereochemistry(flat)
    Chem.MolToSmiles(flat, isomericSmiles=False)
    properties = flat.GetPropsAsDict(includePrivate=True, includeComputed=True)
    traversal = np.array(list(properties["_smilesAtomOutputOrder"]), dtype=np.int64)
    return traversal[np.argsort(element[traversal], kind="stable")]


def _refuse_the_inexpressible(mol: Chem.Mol) -> None:
    fragments = len(Chem.GetMolFrags(mol))
    if fragments != 1:
        raise MoleculeError(f"the molecule has {fragments} fragments; exactly one is needed")
    for atom in mol.GetAtoms():
        _refuse_atom(atom)
    for bond in mol.GetBonds():
        if bond.GetBondType() not in _BOND_CLASS:
            raise MoleculeError(
                f"the molecule has a {str(bond.GetBondType()).lower()} bond; "
                "single, double, triple and aromatic bonds are supported"
            )


def _refuse_atom(atom: Chem.Atom) -> None:
    number = atom.GetAtomicNum()
    if atom.GetIsotope():
        raise MoleculeError("the molecule holds isotope labels; remove them first")
    if number == ATOMIC_NUMBERS[HYDROGEN]:
        raise MoleculeError("the molecule holds explicit hydrogen atoms; remove them first")
    if number not in _ELEMENT_OF:
        raise UnsupportedElementError(
            f"the molecule holds {atom.GetSymbol()}; supported elements are {' '.join(SYMBOLS)}"
        )
    if atom.GetNumRadicalElectrons():
        raise MoleculeError("the molecule has unpaired electrons; radicals are not supported")
