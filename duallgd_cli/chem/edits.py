"""Molecules of a formula that are one change away from a known one.

Most unknowns differ from a molecule that somebody has measured by a group more, less or elsewhere.
Given the formula, the changes that lead to it can be listed: another group at a bond or in place of
a hydrogen, a group moved, an atom of another element, an atom put into a bond or taken out of a
chain, a double bond more, less or moved, a ring closed or opened.

N heavy atoms.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations, product
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from duallgd_cli.chem.building_blocks import LARGEST_GROUP, BuildingBlocks
from duallgd_cli.chem.elements import ATOMIC_NUMBERS, HYDROGEN, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.joining import atoms_of, groups, is_of, joined

_Changed: TypeAlias = Iterator[Chem.RWMol]

# What stays of a molecule is at least this share of it.
_LEAST_KEPT: Final = 0.5
# Bonds between two atoms that a new bond joins to a ring; smaller rings are rare, and an epoxide is
# an oxygen put in.
_RING_PATHS: Final = (4, 5)
_SINGLE, _DOUBLE, _TRIPLE = Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE
_FEWER: Final = {_DOUBLE: _SINGLE, _TRIPLE: _DOUBLE}
_MORE: Final = {_SINGLE: _DOUBLE, _DOUBLE: _TRIPLE}


_HYDROGEN, _TWO_HYDROGENS = (Formula.parse(text).counts for text in ("H", "H2"))
# What can be put into a bond or taken out of a chain: one atom with its hydrogens.
_LINKERS: Final = {
    Formula.parse(text).counts: number
    for text, number in (("CH2", 6), ("NH", 7), ("O", 8), ("S", 16))
}


def edited(known: Chem.Mol, formula: Formula, blocks: BuildingBlocks) -> Iterator[Chem.Mol]:
    """Molecules of a formula that one change makes of a sanitised one; some come more than once.

    Yields:
        Molecules of this formula, as `joining.joined` makes them or sanitised.
    """
    draft = _Draft(known)
    delta = formula.array - draft.atoms.sum(0)
    with rdBase.BlockLogs():
        for made in chain(_exchanged(draft, delta, blocks), _sound(_changed(draft, delta))):
            if is_of(made, formula):
                yield made


def _sound(changed: Iterable[Chem.RWMol]) -> _Changed:
    """Those that RDKit accepts, sanitised."""
    return (made for made in changed if not Chem.SanitizeMol(made, catchErrors=True))


class _Draft:
    """A known molecule with single, double and triple bonds only, all its hydrogens implicit."""

    def __init__(self, known: Chem.Mol) -> None:
        # Atoms of one rank are alike, (N,).
        self.rank = list(Chem.CanonicalRankAtoms(known, breakTies=False))
        # Of those that are not aromatic: ends, type, whether in a ring.
        self.bonds = [
            (b.GetBeginAtomIdx(), b.GetEndAtomIdx(), b.GetBondType(), b.IsInRing())
            for b in known.GetBonds()
            if not b.GetIsAromatic()
        ]
        # And the same with its aromatic bonds, all its hydrogens explicit.
        self.mol, self.whole = Chem.RWMol(known), Chem.RWMol(known)
        Chem.Kekulize(self.mol, clearAromaticFlags=True)
        for index in range(known.GetNumAtoms()):
            bare, atom = self.mol.GetAtomWithIdx(index), self.whole.GetAtomWithIdx(index)
            bare.SetNoImplicit(False)
            bare.SetNumExplicitHs(0)
            atom.SetNumExplicitHs(atom.GetTotalNumHs())
            atom.SetNoImplicit(True)
        self.mol.UpdatePropertyCache(strict=False)
        self.atoms = atoms_of(self.mol)
        self.with_hydrogen: list[int] = np.flatnonzero(self.atoms[:, HYDROGEN]).tolist()

    def along(self, kind: Chem.BondType) -> Iterator[tuple[int, int]]:
        """Ends of the bonds of a type, from either end."""
        for low, high, own, _ in self.bonds:
            if own == kind:
                yield from ((low, high), (high, low))

    def unlike(self, sites: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
        """One of each kind of atoms or of neighbours; alike are those whose atoms are."""
        seen = set()
        for site in sites:
            kind = tuple(self.rank[atom] for atom in site)
            if kind not in seen:
                seen.add(kind)
                yield site

    def with_bonds(self, *bonds: tuple[int, int, Chem.BondType | None]) -> Chem.RWMol:
        """The molecule with bonds between some atoms made, or of another type, or None for none."""
        made = Chem.RWMol(self.mol)
        for low, high, kind in bonds:
            bond = made.GetBondBetweenAtoms(low, high)
            if kind is None:
                made.RemoveBond(low, high)
            elif bond is None:
                made.AddBond(low, high, kind)
            else:
                bond.SetBondType(kind)
        return made


def _exchanged(draft: _Draft, delta: NDArray[np.int64], blocks: BuildingBlocks) -> _Changed:
    """Another group in place of a hydrogen or a group; for an isomer itself, and a group moved."""
    if not delta.any():
        yield from _sound([Chem.RWMol(draft.mol)])
    # A group that stands alone has a hydrogen in place of its bond.
    wanted = groups(blocks, delta + _HYDROGEN)
    for (atom,) in draft.unlike((atom,) for atom in draft.with_hydrogen) if wanted else ():
        bare = Chem.RWMol(draft.whole)
        place = bare.GetAtomWithIdx(atom)
        place.SetNumExplicitHs(place.GetNumExplicitHs() - 1)
        yield from (joined(bare, [atom], [group]) for group in wanted)
    far = Chem.GetDistanceMatrix(draft.mol)
    most = min(LARGEST_GROUP, (1 - _LEAST_KEPT) * len(far))
    for stays, goes in draft.unlike(draft.along(_SINGLE)):
        lost = far[goes] < far[stays]
        in_ring = draft.whole.GetBondBetweenAtoms(stays, goes).IsInRing()
        if in_ring or lost.sum() > most:
            continue
        counts = draft.atoms[lost].sum(0) + delta
        if tuple(counts.tolist()) == _HYDROGEN:
            yield from _sound([_without(draft.mol, lost)])
        if wanted := groups(blocks, counts):
            kept, end = _without(draft.whole, lost), int((~lost[:stays]).sum())
            yield from (joined(kept, [end], [group]) for group in wanted)
        if not delta.any():
            yield from _sound(
                draft.with_bonds((stays, goes, None), (atom, goes, _SINGLE))
                for atom in draft.with_hydrogen
                if atom != stays and not lost[atom]
            )


def _without(mol: Chem.Mol, lost: NDArray[np.bool_]) -> Chem.RWMol:
    """A molecule without some of its atoms."""
    kept = Chem.RWMol(mol)
    kept.BeginBatchEdit()
    for atom in np.flatnonzero(lost).tolist():
        kept.RemoveAtom(atom)
    kept.CommitBatchEdit()
    return kept


def _changed(draft: _Draft, delta: NDArray[np.int64]) -> _Changed:
    """All that is no exchange of groups."""
    more, fewer = tuple(delta.tolist()), tuple((-delta).tolist())
    if not delta.any():  # a double bond moved by one bond
        for (far, middle), (beside, near) in product(draft.along(_DOUBLE), draft.along(_SINGLE)):
            if beside == middle and near in draft.with_hydrogen:
                yield draft.with_bonds((far, middle, _SINGLE), (middle, near, _DOUBLE))
    if fewer == _TWO_HYDROGENS:
        yield from _tightened(draft)
    if more == _TWO_HYDROGENS:  # a double or triple bond reduced, or a ring opened
        for low, high, kind, in_ring in draft.bonds:
            if kind in _FEWER or in_ring:
                yield draft.with_bonds((low, high, _FEWER.get(kind)))
    if more in _LINKERS:
        yield from _lengthened(draft, _LINKERS[more])
    if fewer in _LINKERS:
        yield from _shortened(draft, _LINKERS[fewer])
    heavy = delta[:N_HEAVY]
    if sorted(heavy[heavy != 0].tolist()) == [-1, 1]:  # an atom of another element
        old, new = int(heavy.argmin()), int(heavy.argmax())
        for (atom,) in draft.unlike((n,) for n in np.flatnonzero(draft.atoms[:, old]).tolist()):
            made = Chem.RWMol(draft.mol)
            made.GetAtomWithIdx(atom).SetAtomicNum(ATOMIC_NUMBERS[new])
            yield made


def _tightened(draft: _Draft) -> _Changed:
    """A bond more: in a bond, or where it closes a ring."""
    for low, high, kind, _ in draft.bonds:
        if kind in _MORE and {low, high} <= set(draft.with_hydrogen):
            yield draft.with_bonds((low, high, _MORE[kind]))
    far = Chem.GetDistanceMatrix(draft.mol)
    for low, high in combinations(draft.with_hydrogen, 2):
        if far[low, high] in _RING_PATHS:
            yield draft.with_bonds((low, high, _SINGLE))


def _lengthened(draft: _Draft, number: int) -> _Changed:
    """An atom put into a single bond, or joined to both ends of a double bond."""
    for low, high, kind, _ in draft.bonds:
        if kind in (_SINGLE, _DOUBLE):
            made = draft.with_bonds((low, high, _FEWER.get(kind)))
            new = made.AddAtom(Chem.Atom(number))
            made.AddBond(low, new, _SINGLE)
            made.AddBond(high, new, _SINGLE)
            yield made


def _shortened(draft: _Draft, number: int) -> _Changed:
    """An atom with two neighbours taken out, which are bonded instead, or more strongly."""
    for atom in draft.mol.GetAtoms():
        ends = [near.GetIdx() for near in atom.GetNeighbors()]
        if atom.GetAtomicNum() == number and len(ends) == 2:
            between = draft.mol.GetBondBetweenAtoms(*ends)
            kind = _SINGLE if between is None else between.GetBondType()
            made = draft.with_bonds((*ends, kind if between is None else _MORE.get(kind, kind)))
            made.RemoveAtom(atom.GetIdx())
            yield made
