"""The border between molecules and bond matrices.

N is the number of heavy atoms, M = N (N - 1) / 2 the number of their pairs, in row-major order of
the strict upper triangle: (0, 1), (0, 2), ..., (0, N - 1), (1, 2), ...
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdMolDescriptors, rdqueries

from duallgd_cli.chem.elements import (
    ATOMIC_NUMBERS,
    BOND_AROMATIC,
    BOND_DOUBLE,
    BOND_NONE,
    BOND_SINGLE,
    BOND_TRIPLE,
    HYDROGEN,
    N_ELEMENTS,
    N_HEAVY,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Completion, Rejection, complete
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block
from duallgd_cli.chem.valence import TIERS, Skeleton, bonds_of, pairs
from duallgd_cli.errors import MoleculeError, UnsupportedElementError

# For rooms that pass molecules on without looking into them.
Mol: TypeAlias = Chem.Mol

_ELEMENT_OF: Final = {number: index for index, number in enumerate(ATOMIC_NUMBERS)}
# Elements whose anions need a reason; those of boron and silicon have four or five bonds.
_STRAY: Final = frozenset({"C", "N", "O", "S", "Se"})
_AROMATIC_ORDER: Final = 1.5
_RADICAL: Final = rdqueries.NumRadicalElectronsGreaterQueryAtom(0)
# To ask a molecule at once is several times faster than to ask each of its atoms.
_FOREIGN: Final = Chem.MolFromSmarts("".join(["[", *(f"!#{n}" for n in ATOMIC_NUMBERS), "]"]))
_SUSPICIOUS: Final = Chem.MolFromSmarts(f"[!0*,#1,{'&'.join(f'!#{n}' for n in ATOMIC_NUMBERS)}]")
_ODD_BOND: Final = Chem.MolFromSmarts("*!-!=!#!:*")
# Each answer costs a sanitisation; the right one is among the first few (see tests).
_MAX_BUILT: Final = 12
_MAX_READINGS: Final = 4
# Aromatic bonds before their Kekule form is chosen: any type that sets no aromatic flags.
_DRAFT_BOND: Final = (
    Chem.BondType.ZERO,
    Chem.BondType.SINGLE,
    Chem.BondType.DOUBLE,
    Chem.BondType.TRIPLE,
    Chem.BondType.ONEANDAHALF,
)
_EXPRESSIBLE: Final = {*_DRAFT_BOND[BOND_SINGLE:BOND_AROMATIC], Chem.BondType.AROMATIC}
# Bond classes by twice the bond order.
_CLASS_OF: Final = np.array(
    [BOND_NONE, BOND_NONE, BOND_SINGLE, BOND_AROMATIC, BOND_DOUBLE, BOND_NONE, BOND_TRIPLE],
    np.int8,
)


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
    require_expressible(mol)
    element = np.array([_ELEMENT_OF[atom.GetAtomicNum()] for atom in _atoms(mol)], dtype=np.int64)
    flat = Chem.Mol(mol)
    Chem.RemoveStereochemistry(flat)
    canonical_smiles(flat)
    return _in_canonical_order(flat, element, formula_of(mol))


def read_back(mol: Chem.Mol) -> Disassembled:
    """What `disassemble` gives of a molecule that a bond matrix can express.

    It must have been named last by `canonical_smiles`, whose order of the atoms is taken.

    Raises:
        UnsupportedElementError: An element outside the vocabulary.
    """
    formula = formula_of(mol)
    element = np.array([_ELEMENT_OF[atom.GetAtomicNum()] for atom in _atoms(mol)], dtype=np.int64)
    return _in_canonical_order(mol, element, formula)


def _in_canonical_order(
    mol: Chem.Mol, element: NDArray[np.int64], formula: Formula
) -> Disassembled:
    """A molecule without stereochemistry by the atom order of the SMILES last made of it."""
    text = mol.GetProp("_smilesAtomOutputOrder")  # such as [2,0,1,]
    traversal = np.array([int(number) for number in text[1:-1].split(",") if number])
    order = traversal[np.argsort(element[traversal], kind="stable")]
    low, high = pairs(order.size)
    bond_order = Chem.GetAdjacencyMatrix(mol, useBO=True, force=True)[order[low], order[high]]
    bond_class = _CLASS_OF[(2 * bond_order).astype(np.int64)]
    return Disassembled(formula, element[order], bond_class, order)


def assemble(
    formula: Formula,
    bond_class: NDArray[np.integer],
    atom_class: NDArray[np.integer] | None = None,
    tiers: Sequence[int] = TIERS,
) -> tuple[Chem.Mol, ...] | Rejection:
    """Turn bond classes into the molecules of a formula that have these bonds.

    Hydrogens, charges and Kekule forms are chosen so that valences hold and the molecule has
    exactly the formula's hydrogen count and charge. The result does not depend on the order in
    which the atoms are given.

    Args:
        formula: Formula that every molecule must have.
        bond_class: Bond class of each pair, shape (M,).
        atom_class: Element of each row, shape (N,); the formula's own order if None.
        tiers: Kinds of atoms that may occur, see `chem.hydrogens.complete`.

    Returns:
        Sanitised molecules, best first, at least one, all of the requested formula and no two with
        the same InChIKey first block; atom i is row i of the bond matrix. Or why there is none.

    Raises:
        ValueError: The atoms are not those of the formula, or M does not fit their number.
    """
    atom_class = formula.atom_class if atom_class is None else atom_class
    if not np.array_equal(np.bincount(atom_class, minlength=N_HEAVY), formula.counts[:N_HEAVY]):
        raise ValueError(f"the {atom_class.size} atoms are not the heavy atoms of {formula}")
    element: list[int] = atom_class.tolist()
    n = len(element)
    if bond_class.shape != (n * (n - 1) // 2,):
        raise ValueError(f"{n} atoms need {n * (n - 1) // 2} pairs, found {bond_class.shape}")
    if not formula.has_even_electrons:
        return Rejection("radical")
    skeleton = Skeleton.of(element, bonds_of(n, bond_class))
    draft = Chem.RWMol()
    for one in element:
        atom = Chem.Atom(ATOMIC_NUMBERS[one])
        atom.SetNoImplicit(True)
        draft.AddAtom(atom)
    for low, high, bond in skeleton.bonds:
        draft.AddBond(low, high, _DRAFT_BOND[bond])
    Chem.FastFindRings(draft)
    rank = list(Chem.CanonicalRankAtoms(draft, breakTies=True, includeChirality=False))
    answers = complete(skeleton.relabelled(rank), formula.hydrogens, formula.charge, tiers)
    if isinstance(answers, Rejection):
        return answers
    with rdBase.BlockLogs():
        built = [_build(draft, skeleton, rank, answer) for answer in answers[:_MAX_BUILT]]
    sound = (mol for mol in built if mol is not None)
    closed_shell = (mol for mol in sound if not mol.GetAtomsMatchingQuery(_RADICAL))
    exact = [mol for mol in closed_shell if formula_of(mol) == formula]
    if len(exact) > 1:
        exact.sort(key=lambda mol: _misfit(mol, skeleton))
    return _distinct(exact) or Rejection("sanitisation")


def _build(
    draft: Chem.RWMol, skeleton: Skeleton, rank: Sequence[int], answer: Completion
) -> Chem.RWMol | None:
    """The molecule of one answer, None where RDKit refuses it."""
    mol = Chem.RWMol(draft)
    for row, place in enumerate(rank):
        if answer.hydrogens[place]:
            mol.GetAtomWithIdx(row).SetNumExplicitHs(answer.hydrogens[place])
        if answer.charge[place]:
            mol.GetAtomWithIdx(row).SetFormalCharge(answer.charge[place])
    aromatic = [i for i, (_, _, kind) in enumerate(skeleton.bonds) if kind == BOND_AROMATIC]
    for index in aromatic:
        low, high, _ = skeleton.bonds[index]
        ends = min(rank[low], rank[high]), max(rank[low], rank[high])
        mol.GetBondWithIdx(index).SetBondType(_DRAFT_BOND[1 + (ends in answer.double)])
    if Chem.SanitizeMol(mol, catchErrors=True) != Chem.SanitizeFlags.SANITIZE_NONE:
        return None
    return mol


def _misfit(mol: Chem.Mol, skeleton: Skeleton) -> int:
    """In how many bonds the molecule's aromaticity differs from that of the bond matrix."""
    order = Chem.GetAdjacencyMatrix(mol, useBO=True, force=True)
    return sum(
        (order[low, high] == _AROMATIC_ORDER) != (kind == BOND_AROMATIC)
        for low, high, kind in skeleton.bonds
    )


def _distinct(mols: Sequence[Chem.RWMol]) -> tuple[Chem.Mol, ...]:
    """The first molecules, four at most, that differ in the InChIKey first block."""
    if len(mols) < 2:
        return tuple(mol.GetMol() for mol in mols)
    by_smiles: dict[str, Chem.RWMol] = {}
    for mol in mols:
        by_smiles.setdefault(canonical_smiles(mol), mol)
    by_block: dict[str, Chem.Mol] = {}
    for mol in by_smiles.values():
        try:
            by_block.setdefault(inchikey_block(mol), mol.GetMol())
        except MoleculeError:  # nothing that InChI cannot name is compared or ranked
            continue
        if len(by_block) == _MAX_READINGS:
            break
    return tuple(by_block.values())


def is_zwitterion(mol: Chem.Mol) -> bool:
    """Whether a cation and an anion that are not bonded to each other are in the molecule."""
    charge = [atom.GetFormalCharge() for atom in _atoms(mol)]
    paired = {
        end
        for bond in _bonds(mol)
        for end in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
        if charge[bond.GetBeginAtomIdx()] * charge[bond.GetEndAtomIdx()] < 0
    }
    signs = {value > 0 for atom, value in enumerate(charge) if value and atom not in paired}
    return len(signs) == 2


def is_internal_salt(mol: Chem.Mol) -> bool:
    """Whether an anion is in the molecule that chemistry gives no reason for.

    An acid's anion (carboxylate, sulfonate, phosphate) and one bonded to a cation (nitro group,
    N-oxide, azide) have a reason; an alkoxide opposite an ammonium, or an ylide, has none: a
    bond drawn wrong makes up for its hydrogens in that way.
    """
    return any(
        atom.GetFormalCharge() < 0 and atom.GetSymbol() in _STRAY and not _has_reason(atom)
        for atom in _atoms(mol)
    )


def _has_reason(atom: Chem.Atom) -> bool:
    if any(neighbour.GetFormalCharge() > 0 for neighbour in atom.GetNeighbors()):
        bonds = [bond.GetBondTypeAsDouble() for bond in atom.GetBonds()]
        return atom.GetSymbol() != "C" or max(bonds) > 1
    return atom.GetSymbol() in ("O", "S", "Se") and any(
        bond.GetBondType() == Chem.BondType.DOUBLE and bond.GetOtherAtom(middle).GetSymbol() in "OS"
        for middle in atom.GetNeighbors()
        for bond in middle.GetBonds()
    )


def _atoms(mol: Chem.Mol) -> list[Chem.Atom]:
    # Looked up one by one: RDKit's own iteration is several times slower.
    return [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]


def _bonds(mol: Chem.Mol) -> list[Chem.Bond]:
    return [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]


def formula_of(mol: Chem.Mol) -> Formula:
    """Molecular formula of a molecule, implicit hydrogens and the net charge included.

    Raises:
        UnsupportedElementError: An element outside the vocabulary.
    """
    if mol.HasSubstructMatch(_FOREIGN):
        for atom in _atoms(mol):
            _refuse_element(atom)
    return _formula(rdMolDescriptors.CalcMolFormula(mol))


@lru_cache(maxsize=10_000)  # a database has few formulas, and hundreds of molecules of each
def _formula(text: str) -> Formula:
    """A formula as RDKit writes it, "" of a molecule without atoms."""
    return Formula.parse(text) if text else Formula((0,) * N_ELEMENTS)


def require_expressible(mol: Chem.Mol) -> None:
    """Refuse a molecule that a bond matrix over heavy atoms cannot express; see `disassemble`."""
    fragments = len(Chem.GetMolFrags(mol))
    if fragments != 1:
        raise MoleculeError(f"the molecule has {fragments} fragments; exactly one is needed")
    if mol.HasSubstructMatch(_SUSPICIOUS) or mol.GetAtomsMatchingQuery(_RADICAL):
        for atom in _atoms(mol):
            if atom.GetIsotope():
                raise MoleculeError("the molecule holds isotope labels; remove them first")
            if atom.GetAtomicNum() == ATOMIC_NUMBERS[HYDROGEN]:
                raise MoleculeError("the molecule holds explicit hydrogen atoms; remove them first")
            _refuse_element(atom)
            if atom.GetNumRadicalElectrons():
                raise MoleculeError(
                    "the molecule has unpaired electrons; radicals are not supported"
                )
    for bond in _bonds(mol) if mol.HasSubstructMatch(_ODD_BOND) else ():
        if bond.GetBondType() not in _EXPRESSIBLE:
            raise MoleculeError(
                f"the molecule has a {str(bond.GetBondType()).lower()} bond; "
                "single, double, triple and aromatic bonds are supported"
            )


def _refuse_element(atom: Chem.Atom) -> None:
    if atom.GetAtomicNum() not in _ELEMENT_OF:
        raise UnsupportedElementError(
            f"the molecule holds {atom.GetSymbol()}; supported elements are {' '.join(SYMBOLS)}"
        )
