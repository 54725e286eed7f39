"""The border between molecules and bond matrices of N heavy atoms and their M pairs."""

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
    INDEX_OF_NUMBER,
    N_ELEMENTS,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Completion, Rejection, complete
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.valence import TIERS, Skeleton, bonds_of, pairs
from duallgd_cli.errors import MoleculeError, UnsupportedElementError

# For rooms that pass molecules on without looking into them.
Mol: TypeAlias = Chem.Mol

_PLUS, _MINUS = "+,+2,+3,+4", "-,-2,-3,-4"
_LONE_CATION: Final = Chem.MolFromSmarts(f"[{_PLUS};!$(*~[{_MINUS}])]")
_LONE_ANION: Final = Chem.MolFromSmarts(f"[{_MINUS};!$(*~[{_PLUS}])]")
# Anions without a reason: no acid's, and not beside a cation, where a carbon needs a multiple bond
# too. Those of boron and silicon have four or five bonds.
_STRAY: Final = Chem.MolFromSmarts(
    f"[#6,#7,#8,#16,#34;{_MINUS};!$([!#6]~[{_PLUS}]);!$([#6;$(*~[{_PLUS}]);$(*=,#,:*)]);"
    "!$([#8,#16,#34]~*=[#8,#16])]"
)
_AROMATIC_ORDER: Final = 1.5
_RADICAL: Final = rdqueries.NumRadicalElectronsGreaterQueryAtom(0)
# To ask a molecule at once is several times faster than to ask each of its atoms.
_FOREIGN: Final = Chem.MolFromSmarts("".join(["[", *(f"!#{n}" for n in ATOMIC_NUMBERS), "]"]))
_SUSPICIOUS: Final = Chem.MolFromSmarts(f"[!0*,#1,{'&'.join(f'!#{n}' for n in ATOMIC_NUMBERS)}]")
ODD_BOND: Final = Chem.MolFromSmarts("*!-!=!#!:*")
# Each answer costs a sanitisation; the right one is among the first few (see tests).
_MAX_BUILT: Final = 12
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
    [BOND_NONE, BOND_NONE, BOND_SINGLE, BOND_AROMATIC, BOND_DOUBLE, BOND_NONE, BOND_TRIPLE], np.int8
)


@dataclass(frozen=True, eq=False)
class Disassembled:
    """A molecule as the network sees it."""

    formula: Formula  # with the net charge
    atom_class: NDArray[np.int64]  # element of each row, (N,); equals that of the formula
    bond_class: NDArray[np.int8]  # of each pair, (M,)
    order: NDArray[np.int64]  # RDKit's index of each row, (N,)


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
    flat = Chem.Mol(mol)
    Chem.RemoveStereochemistry(flat)
    canonical_smiles(flat)
    return read_back(flat)


def read_back(mol: Chem.Mol) -> Disassembled:
    """What `disassemble` gives of a molecule that a bond matrix can express.

    It must have been named last by `canonical_smiles`, whose order of the atoms is taken.
    """
    formula = formula_of(mol)
    # Looked up one by one: RDKit's own iteration is several times slower.
    atoms = map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))
    element = np.array([INDEX_OF_NUMBER[atom.GetAtomicNum()] for atom in atoms], dtype=np.int64)
    text = mol.GetProp("_smilesAtomOutputOrder")  # such as [2,0,1,]
    traversal = np.array([int(number) for number in text[1:-1].split(",") if number])
    order = traversal[np.argsort(element[traversal], kind="stable")]
    low, high = pairs(order.size)
    bond_order = Chem.GetAdjacencyMatrix(mol, useBO=True, force=True)[order[low], order[high]]
    bond_class = _CLASS_OF[(2 * bond_order).astype(np.int64)]
    return Disassembled(formula, element[order], bond_class, order)


def assemble(
    formula: Formula, bond_class: NDArray[np.integer], tiers: Sequence[int] = TIERS
) -> Chem.Mol | Rejection:
    """Turn bond classes into the likeliest molecule of a formula that has these bonds.

    The order of the formula's atoms is that of the M pairs; the result does not depend on the order
    in which atoms of an element are given. Tiers are as of `chem.hydrogens.complete`.

    Returns:
        A sanitised molecule, whose atom i is row i of the bond matrix; or why there is none.
    """
    if not formula.has_even_electrons:
        return Rejection("radical")
    element: list[int] = formula.atom_class.tolist()
    skeleton = Skeleton.of(element, bonds_of(len(element), bond_class))
    draft = Chem.RWMol()
    for index in element:
        atom = Chem.Atom(ATOMIC_NUMBERS[index])
        atom.SetNoImplicit(True)
        draft.AddAtom(atom)
    for low, high, bond in skeleton.bonds:
        draft.AddBond(low, high, _DRAFT_BOND[bond])
    Chem.FastFindRings(draft)
    rank = list(Chem.CanonicalRankAtoms(draft, breakTies=True, includeChirality=False))
    answers = complete(skeleton.relabelled(rank), formula.hydrogens, formula.charge, tiers)
    if isinstance(answers, Rejection):
        return answers
    best, least = None, np.inf
    with rdBase.BlockLogs():
        for answer in answers[:_MAX_BUILT]:
            mol = _build(draft, skeleton, rank, answer)
            if mol is None or mol.GetAtomsMatchingQuery(_RADICAL) or formula_of(mol) != formula:
                continue
            # In how many bonds the aromaticity differs from that of the bond matrix.
            order = Chem.GetAdjacencyMatrix(mol, useBO=True, force=True)
            misfit = sum(
                (order[low, high] == _AROMATIC_ORDER) != (kind == BOND_AROMATIC)
                for low, high, kind in skeleton.bonds
            )
            if misfit < least:
                best, least = mol, misfit
            if not misfit:
                break
    return Rejection("sanitisation") if best is None else best.GetMol()


def _build(
    draft: Chem.RWMol, skeleton: Skeleton, rank: Sequence[int], answer: Completion
) -> Chem.RWMol | None:
    """The molecule of one answer, None where RDKit refuses it."""
    mol = Chem.RWMol(draft)
    for row, place in enumerate(rank):
        mol.GetAtomWithIdx(row).SetNumExplicitHs(answer.hydrogens[place])
        mol.GetAtomWithIdx(row).SetFormalCharge(answer.charge[place])
    for index, (low, high, kind) in enumerate(skeleton.bonds):
        if kind == BOND_AROMATIC:
            ends = min(rank[low], rank[high]), max(rank[low], rank[high])
            mol.GetBondWithIdx(index).SetBondType(_DRAFT_BOND[1 + (ends in answer.double)])
    return None if Chem.SanitizeMol(mol, catchErrors=True) else mol


def is_zwitterion(mol: Chem.Mol) -> bool:
    """Whether a cation and an anion that are not bonded to each other are in the molecule."""
    return mol.HasSubstructMatch(_LONE_CATION) and mol.HasSubstructMatch(_LONE_ANION)


def is_internal_salt(mol: Chem.Mol) -> bool:
    """Whether an anion is in the molecule that chemistry gives no reason for.

    An acid's anion (carboxylate, sulfonate, phosphate) and one bonded to a cation (nitro group,
    N-oxide, azide) have a reason; an alkoxide opposite an ammonium, or an ylide, has none: a
    bond drawn wrong makes up for its hydrogens in that way.
    """
    return bool(mol.HasSubstructMatch(_STRAY))


def formula_of(mol: Chem.Mol) -> Formula:
    """Molecular formula of a molecule, implicit hydrogens and the net charge included.

    Raises:
        UnsupportedElementError: An element outside the vocabulary.
    """
    if foreign := mol.GetSubstructMatch(_FOREIGN):
        raise UnsupportedElementError(
            f"the molecule holds {mol.GetAtomWithIdx(foreign[0]).GetSymbol()}; "
            f"supported elements are {' '.join(SYMBOLS)}"
        )
    return _read(rdMolDescriptors.CalcMolFormula(mol))


@lru_cache(maxsize=10_000)  # a database has few formulas, and hundreds of molecules of each
def _read(text: str) -> Formula:
    """A formula as RDKit writes it, "" of a molecule without atoms."""
    return Formula.parse(text) if text else Formula((0,) * N_ELEMENTS)


def require_expressible(mol: Chem.Mol) -> None:
    """Refuse a molecule that a bond matrix over heavy atoms cannot express; see `disassemble`."""
    fragments = len(Chem.GetMolFrags(mol))
    if fragments != 1:
        raise MoleculeError(f"the molecule has {fragments} fragments; exactly one is needed")
    if mol.HasSubstructMatch(_SUSPICIOUS) or mol.GetAtomsMatchingQuery(_RADICAL):
        formula_of(mol)  # refuses elements
        fault = "has unpaired electrons; radicals are not supported"
        if any(atom.GetAtomicNum() == ATOMIC_NUMBERS[HYDROGEN] for atom in mol.GetAtoms()):
            fault = "holds explicit hydrogen atoms; remove them first"
        if any(atom.GetIsotope() for atom in mol.GetAtoms()):
            fault = "holds isotope labels; remove them first"
        raise MoleculeError(f"the molecule {fault}")
    for bond in mol.GetBonds() if mol.HasSubstructMatch(ODD_BOND) else ():
        if bond.GetBondType() not in _EXPRESSIBLE:
            raise MoleculeError(
                f"the molecule has a {str(bond.GetBondType()).lower()} bond; "
                "single, double, triple and aromatic bonds are supported"
            )
