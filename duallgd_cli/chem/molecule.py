"""The border between molecules and bond matrices of N heavy atoms and their M pairs.

A bond matrix over heavy atoms says nothing about hydrogens and charges, yet the whole molecule's
hydrogen count and charge are known. Atoms whose state is open, and aromatic ring systems as a
whole, are the unknowns of a small exact-sum problem; it is solved cheapest answer first.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain, combinations, islice, product
from typing import Final, NamedTuple, TypeAlias

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
    MAX_HEAVY_ATOMS,
    N_ELEMENTS,
    SYMBOLS,
)
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, parse_smiles
from duallgd_cli.chem.valence import (
    TIERS,
    MolecularGraph,
    Skeleton,
    State,
    bonds_of,
    match,
    members,
    ring_systems,
    states,
)
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
    [BOND_NONE, BOND_NONE, BOND_SINGLE, BOND_AROMATIC, BOND_DOUBLE, BOND_NONE, BOND_TRIPLE]
)
# Bounds on the states of a ring system that are listed, on those of them whose Kekule form is
# looked for, and on what has one; and on answers. Far above what molecules need.
_MAX_SELECTIONS: Final = 4096
_MAX_MATCHINGS: Final = 256
_MAX_OPTIONS: Final = 96
_MAX_SOLUTIONS: Final = 24
# Answers costlier than the cheapest by more than this are not worth a candidate.
_COST_WINDOW: Final = 2
_IMPOSSIBLE: Final = 1 << 20


class Completion(NamedTuple):
    """Everything that a skeleton lacks."""

    cost: int  # how unusual it is
    charge: list[int]  # of each atom
    hydrogens: list[int]  # on each atom
    double: set[tuple[int, int]]  # aromatic bonds that the Kekule form has as double ones


class _Option(NamedTuple):
    """One way to complete some atoms."""

    cost: int
    charge: int
    hydrogens: int
    states: Sequence[State]
    double: Sequence[tuple[int, int]] = ()


_Unit: TypeAlias = tuple[Sequence[int], Sequence[_Option]]  # atoms, and ways to complete them


def disassemble(mol: Chem.Mol) -> tuple[MolecularGraph, NDArray[np.int64]]:
    """The graph of a sanitised molecule, and RDKit's index of each of its atoms, (N,).

    Within an element atoms follow the traversal of the canonical SMILES without stereochemistry, so
    that the graph is a function of the molecule alone.

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


def read_back(mol: Chem.Mol) -> tuple[MolecularGraph, NDArray[np.int64]]:
    """What `disassemble` gives of a molecule that a bond matrix can express.

    It must have been named last by `canonical_smiles`, whose order of the atoms is taken.
    """
    # Looked up one by one: RDKit's own iteration is several times slower.
    atoms = map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))
    element = np.array([INDEX_OF_NUMBER[atom.GetAtomicNum()] for atom in atoms], dtype=np.int64)
    text = mol.GetProp("_smilesAtomOutputOrder")  # such as [2,0,1,]
    traversal = np.array([int(number) for number in text[1:-1].split(",") if number])
    order = traversal[np.argsort(element[traversal], kind="stable")]
    bond_order = Chem.GetAdjacencyMatrix(mol, useBO=True, force=True)[order][:, order]
    pair = np.argwhere(np.triu(bond_order))
    bond_class = _CLASS_OF[(2 * bond_order[tuple(pair.T)]).astype(np.int64)]
    return MolecularGraph(element[order], pair, bond_class, formula_of(mol).hydrogens), order


def assemble(
    formula: Formula, bond_class: NDArray[np.integer], tiers: Sequence[int] = TIERS
) -> Chem.Mol | str:
    """Turn bond classes into the likeliest molecule of a formula that has these bonds.

    The order of the formula's atoms is that of the M pairs; the result does not depend on the order
    in which atoms of an element are given. Tiers are as of `complete`.

    Returns:
        A sanitised molecule, whose atom i is row i of the bond matrix; or why there is none, as
        `complete` says it, radical (the formula has an odd number of electrons) or sanitisation
        (RDKit refuses the result).
    """
    if not formula.has_even_electrons:
        return "radical"
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
    if isinstance(answers, str):
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
    return "sanitisation" if best is None else best.GetMol()


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


def complete(
    skeleton: Skeleton, hydrogens: int, charge: int, tiers: Sequence[int] = TIERS
) -> list[Completion] | str:
    """Find the hydrogens, charges and Kekule forms that give a hydrogen count and net charge.

    Tiers are kinds of states to try one after the other, the usual ones first. The order of the
    skeleton's atoms only breaks ties.

    Returns:
        Answers, cheapest first, at least one; or why there is none: disconnected, valence (an atom
        has more bonds than it can have), kekule (an aromatic ring system has no Kekule form) or
        hydrogens (no choice gives this hydrogen count and charge).
    """
    if len(skeleton.fragments) != 1:
        return "disconnected"
    reason = ""
    for tier in tiers:
        atom_states = states(skeleton, tier)
        if not all(atom_states):
            continue
        if not _is_within(_spans(atom_states), hydrogens, charge):
            reason = reason or "hydrogens"
            continue
        units = _units(skeleton, atom_states, hydrogens, charge)
        if answers := _cheapest(len(atom_states), units, hydrogens, charge) if units else []:
            return answers
        # What stands in the way of a usual molecule tells more than what exotic atoms would need.
        reason = reason or ("hydrogens" if units else "kekule")
    return reason or "valence"


def _spans(rows: Sequence[Sequence[State]]) -> tuple[int, int, int, int]:
    """Fewest and most hydrogens, least and greatest charge, of atoms that have these states."""
    hydrogens = [[state.hydrogens for state in row] for row in rows]
    charges = [[state.charge for state in row] for row in rows]
    fewest, most = sum(map(min, hydrogens)), sum(map(max, hydrogens))
    return fewest, most, sum(map(min, charges)), sum(map(max, charges))


def _is_within(spans: tuple[int, int, int, int], hydrogens: int, charge: int) -> bool:
    fewest, most, least, greatest = spans
    return fewest <= hydrogens <= most and least <= charge <= greatest


def _units(
    skeleton: Skeleton, atom_states: list[tuple[State, ...]], hydrogens: int, charge: int
) -> list[_Unit]:
    """Split the atoms into independent units; empty where a ring system has no Kekule form."""
    settled, units = list[int](), list[_Unit]()
    for atom, row in enumerate(atom_states):
        if not skeleton.ring[atom] and len(row) == 1:
            settled.append(atom)
        elif not skeleton.ring[atom]:
            units.append(((atom,), [_option([state]) for state in row]))
    units.insert(0, (settled, [_option([atom_states[atom][0] for atom in settled])]))
    for system in ring_systems(skeleton.ring):
        options = _ring_options(skeleton, system, atom_states, hydrogens, charge)
        if not options:
            return []
        units.append((members(system), options))
    return units


def _option(chosen: Sequence[State]) -> _Option:
    cost = charge = hydrogens = 0
    for state in chosen:
        cost += state[0]
        charge += state[1]
        hydrogens += state[2]
    return _Option(cost, charge, hydrogens, chosen)


def _ring_options(
    skeleton: Skeleton,
    system: int,
    atom_states: list[tuple[State, ...]],
    hydrogens: int,
    charge: int,
) -> list[_Option]:
    """States of all atoms of a ring system that have a Kekule form, cheapest first.

    Few departures from the cheapest states come first, as far as all other atoms can make up for
    what is left of the hydrogens and the charge.
    """
    atoms = members(system)
    rest = _spans([row for atom, row in enumerate(atom_states) if not system >> atom & 1])
    usual = _option([atom_states[atom][0] for atom in atoms])
    # Of each open atom its place, another state, and what that adds to the sums of the usual one.
    changes: list[list[tuple[int, State, int, int]]] = []
    for place, atom in enumerate(atoms):
        first, *others = atom_states[atom]
        if others:
            more = [(s, s.hydrogens - first.hydrogens, s.charge - first.charge) for s in others]
            changes.append([(place, *change) for change in more])
    departures = chain.from_iterable(combinations(changes, n) for n in range(len(changes) + 1))
    selections = chain.from_iterable(product(*changed) for changed in departures)
    options: list[_Option] = []
    pairings: dict[int, list[tuple[int, int]] | None] = {}
    n_matched = 0
    for changed in islice(selections, _MAX_SELECTIONS):
        # Most are not admitted: what each would change is added up, and no more.
        left_hydrogens, left_charge = hydrogens - usual.hydrogens, charge - usual.charge
        for _, _, more_hydrogens, more_charge in changed:
            left_hydrogens -= more_hydrogens
            left_charge -= more_charge
        if not _is_within(rest, left_hydrogens, left_charge):
            continue
        chosen = list(usual.states)
        for place, state, *_ in changed:
            chosen[place] = state
        required = 0
        for atom, state in zip(atoms, chosen, strict=True):
            required |= state.pi << atom
        if required not in pairings:
            pairings[required] = match(required, skeleton.ring)
        double = pairings[required]
        if double is not None:
            options.append(_option(chosen)._replace(double=double))
        n_matched += 1
        if n_matched == _MAX_MATCHINGS or len(options) == _MAX_OPTIONS:
            break
    return sorted(options, key=lambda option: option.cost)


def _cheapest(n_atoms: int, units: list[_Unit], hydrogens: int, charge: int) -> list[Completion]:
    """Choices of one option per unit that meet the sums, cheapest first."""
    # Of the units from an index on, the least cost of all hydrogens and charges that they can take.
    least: list[dict[tuple[int, int], int]] = [{(0, 0): 0}]
    for _, options in reversed(units):
        costs: dict[tuple[int, int], int] = {}
        for (more, rest), cost in least[-1].items():
            for option in options:
                sums = more + option.hydrogens, rest + option.charge
                if sums[0] <= hydrogens and cost + option.cost < costs.get(sums, _IMPOSSIBLE):
                    costs[sums] = cost + option.cost
        least.append(costs)
    least.reverse()

    most = least[0].get((hydrogens, charge), _IMPOSSIBLE) + _COST_WINDOW
    # Of choices begun the cost with all that must follow, which option of each unit, its cost so
    # far, and the sums that are left.
    begun: list[tuple[int, tuple[int, ...], int, int, int]] = [(0, (), 0, hydrogens, charge)]
    answers: list[Completion] = []
    while begun and most < _IMPOSSIBLE and len(answers) < _MAX_SOLUTIONS:
        _, chosen, cost, more, rest = heappop(begun)
        n = len(chosen)
        if n < len(units):
            for number, option in enumerate(units[n][1]):
                left, spent = (more - option.hydrogens, rest - option.charge), cost + option.cost
                total = spent + least[n + 1].get(left, _IMPOSSIBLE)
                if total <= most:
                    heappush(begun, (total, (*chosen, number), spent, *left))
            continue
        answer = Completion(cost, [0] * n_atoms, [0] * n_atoms, set())
        for (atoms, options), number in zip(units, chosen, strict=True):
            answer.double.update(options[number].double)
            for atom, state in zip(atoms, options[number].states, strict=True):
                answer.charge[atom], answer.hydrogens[atom] = state.charge, state.hydrogens
        answers.append(answer)
    return answers


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


def usable(smiles: str) -> Chem.Mol:
    """The molecule of a SMILES, which candidates may be or be compared with.

    Raises:
        MoleculeError: There is none; the reason is the same for all with this trouble.
    """
    mol = parse_smiles(smiles)
    try:
        n_heavy = formula_of(mol).n_heavy
    except UnsupportedElementError as error:
        raise MoleculeError(str(error), "unsupported element") from None
    require_expressible(mol)
    if not 2 <= n_heavy <= MAX_HEAVY_ATOMS:
        raise MoleculeError(f"number of heavy atoms outside 2 to {MAX_HEAVY_ATOMS}")
    return mol


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
