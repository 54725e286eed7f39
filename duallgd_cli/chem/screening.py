"""Which of many patterns a molecule may contain, told from counts of its atoms and bonds.

To look for five hundred patterns in a molecule takes milliseconds, though most of them ask for
atoms or bonds that it does not have. Whatever a pattern asks of one atom, so many different atoms
must satisfy as the pattern has such atoms; likewise for bonds with their two ends. What remains is
looked for as before, so that the result is the same.

C molecules, P patterns, Q queries of one atom, K kinds of atoms or bonds in patterns, T thresholds.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

# Queries that depend on more of a molecule than the type of an atom says, such as sizes of rings.
_FAR: Final = re.compile(r"\$|@|\d\*|R\d|(?<!B)r|\^|x|v|D|k|z")

# Element, hydrogens, charge, neighbours with hydrogens, whether aromatic, whether in a ring.
AtomType: TypeAlias = tuple[int, int, int, int, bool, bool]
# Numbers of the types of both ends, RDKit's number of the kind of bond, whether in a ring.
_BondType: TypeAlias = tuple[int, int, int, bool]
# A query of one atom as SMARTS, "*" for any; whether the atom must be in a ring.
_AtomKind: TypeAlias = tuple[str, bool]
# The kinds of both ends, the query of the bond as SMARTS, whether it must be in a ring.
_BondKind: TypeAlias = tuple[_AtomKind, _AtomKind, str, bool]


class Sketch(NamedTuple):
    """A molecule whose atoms and bonds were read once, since to ask RDKit for each takes long.

    Attributes:
        mol: Of RDKit; nobody changes it.
        atoms: Types of its atoms.
        bonds: Its bonds: both atoms, the lower first; RDKit's number of its kind, whether in a
            ring.
    """

    mol: Chem.Mol
    atoms: Sequence[AtomType]
    bonds: Sequence[tuple[int, int, int, bool]]


def sketch_of(mol: Chem.Mol) -> Sketch:
    """Read atoms and bonds of a molecule."""
    rings = mol.GetRingInfo()
    ring_atoms, ring_bonds = (set().union(*own) for own in (rings.AtomRings(), rings.BondRings()))
    degree = [0] * mol.GetNumAtoms()
    bonds = []
    for number in range(mol.GetNumBonds()):
        bond = mol.GetBondWithIdx(number)
        one, other = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        degree[one] += 1
        degree[other] += 1
        ends = (one, other) if one < other else (other, one)
        bonds.append((*ends, int(bond.GetBondType()), number in ring_bonds))
    atoms = []
    for number, neighbours in enumerate(degree):
        atom = mol.GetAtomWithIdx(number)
        hydrogens = atom.GetTotalNumHs()
        about = atom.GetAtomicNum(), hydrogens, atom.GetFormalCharge(), neighbours + hydrogens
        atoms.append((*about, atom.GetIsAromatic(), number in ring_atoms))
    return Sketch(mol, atoms, bonds)


class Screen:
    """Looks patterns up by what they ask of single atoms and bonds."""

    def __init__(self, patterns: Sequence[Chem.Mol]) -> None:
        """Read what patterns ask for.

        Args:
            patterns: P patterns, from SMARTS.
        """
        self._queries: dict[str, Chem.QueryAtom] = {}
        self._orders: dict[str, Chem.QueryBond] = {}
        asked = [self._asked(pattern) for pattern in patterns]
        # What a pattern asks for twice, another asks for once: thresholds of the same count.
        thresholds = sorted({pair for each in asked for pair in each.items()}, key=repr)
        kinds = list(dict.fromkeys(kind for kind, _ in thresholds))
        place = {pair: row for row, pair in enumerate(thresholds)}
        self._atom_kinds = [kind for kind in kinds if len(kind) == 2]
        self._bond_kinds = [kind for kind in kinds if len(kind) == 4]
        column = {kind: n for n, kind in enumerate([*self._atom_kinds, *self._bond_kinds])}
        self._column = np.array([column[kind] for kind, _ in thresholds])  # (T,)
        self._least = np.array([least for _, least in thresholds])  # (T,)
        self._needs = np.array([place[pair] for each in asked for pair in each.items()])
        self._starts = np.cumsum([0, *map(len, asked[:-1])])  # of each pattern's needs, (P,)
        # Types that were met, and of which kinds each is.
        self._number: dict[AtomType | _BondType, int] = {}
        self._answers: dict[AtomType, frozenset[str]] = {}
        self._kinds_of: list[NDArray[np.float32]] = []

    def possible(self, molecules: Iterable[Sketch]) -> NDArray[np.bool_]:
        """Which patterns may be in which molecule, (C, P): none that is in it is missing."""
        types = [self._types(sketch) for sketch in molecules]
        if not any(types):
            return np.zeros((len(types), len(self._starts)), np.bool_)
        rows = np.repeat(np.arange(len(types)), [len(each) for each in types])
        # Of the types that were ever met, these molecules have few.
        met, which = np.unique(
            np.fromiter(chain.from_iterable(types), np.int64, len(rows)), return_inverse=True
        )
        often = np.bincount(rows * len(met) + which, minlength=len(types) * len(met))
        kinds_of = np.stack([self._kinds_of[number] for number in met.tolist()])
        counts = often.reshape(-1, len(met)).astype(np.float32) @ kinds_of  # (C, K)
        has = counts[:, self._column] >= self._least  # (C, T)
        return np.logical_and.reduceat(has[:, self._needs], self._starts, axis=1)

    def _asked(self, pattern: Chem.Mol) -> Counter[_AtomKind | _BondKind]:
        """The kinds of atoms and bonds in a pattern, and how often it asks for each."""
        Chem.FastFindRings(pattern)
        asked: Counter[_AtomKind | _BondKind] = Counter()
        kinds: list[_AtomKind] = []
        for atom in pattern.GetAtoms():
            text = _near(atom.GetSmarts())
            self._queries.setdefault(text, Chem.MolFromSmarts(text).GetAtomWithIdx(0))
            kinds.append((text, atom.IsInRing()))
        asked.update(kinds)
        for bond in pattern.GetBonds():
            ends = sorted((kinds[bond.GetBeginAtomIdx()], kinds[bond.GetEndAtomIdx()]))
            text = bond.GetSmarts()  # type: ignore[call-arg] # as its types say of no other
            self._orders.setdefault(text, bond)
            asked[ends[0], ends[1], text, bond.IsInRing()] += 1
        return asked

    def _types(self, sketch: Sketch) -> list[int]:
        """Types of the atoms and of the bonds of a molecule, by number."""
        found = []
        for place, kind in enumerate(sketch.atoms):
            if kind not in self._number:
                self._learn_atom(kind, sketch.mol.GetAtomWithIdx(place))
            found.append(self._number[kind])
        for place, (one, other, order, in_ring) in enumerate(sketch.bonds):
            joined = (found[one], found[other], order, in_ring)
            if joined not in self._number:
                ends = sketch.atoms[one], sketch.atoms[other]
                self._learn_bond(joined, ends, sketch.mol.GetBondWithIdx(place))
            found.append(self._number[joined])
        return found

    def _learn_atom(self, kind: AtomType, atom: Chem.Atom) -> None:
        """Ask every query about an atom; the answer is that of all atoms of its type."""
        yes = frozenset(text for text, query in self._queries.items() if query.Match(atom))
        self._answers[kind] = yes
        fits = [_fits(asked, kind, yes) for asked in self._atom_kinds]
        self._remember(kind, [*fits, *[False] * len(self._bond_kinds)])

    def _learn_bond(
        self, joined: _BondType, types: tuple[AtomType, AtomType], bond: Chem.Bond
    ) -> None:
        yes = {text for text, query in self._orders.items() if query.Match(bond)}
        ends = [(kind, self._answers[kind]) for kind in types]
        fits = [
            text in yes
            and (bond.IsInRing() or not in_ring)
            and any(
                _fits(first, *here) and _fits(second, *there) for here, there in (ends, ends[::-1])
            )
            for first, second, text, in_ring in self._bond_kinds
        ]
        self._remember(joined, [*[False] * len(self._atom_kinds), *fits])

    def _remember(self, kind: AtomType | _BondType, fits: Sequence[bool]) -> None:
        self._number[kind] = len(self._kinds_of)
        self._kinds_of.append(np.array(fits, np.float32))


def _near(text: str) -> str:
    """What a query asks of an atom as far as the atom's type tells: it may ask for more.

    Args:
        text: SMARTS of one atom; terms are joined by ``&``, then ``,`` (or), then ``;`` (and).
    """
    if not _FAR.search(text):
        return text
    kept = []
    for group in _split(text.removeprefix("[").removesuffix("]"), ";"):
        if len(_split(group, ",")) == 1:
            kept += [term for term in _split(group, "&") if not _FAR.search(term)]
        elif not _FAR.search(group):
            kept.append(group)
    return f"[{';'.join(kept)}]" if kept else "*"


def _split(text: str, mark: str) -> list[str]:
    """The pieces of a text between marks that are in no parentheses."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == mark and not depth:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def _fits(asked: _AtomKind, kind: AtomType, yes: frozenset[str]) -> bool:
    text, in_ring = asked
    return text in yes and (kind[-1] or not in_ring)
