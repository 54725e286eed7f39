"""What a chemist knows of an unknown: a core it has, parts it must have or must not have.

All of these choose among candidates; none changes how molecules are proposed.
"""

import difflib
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Final

from rdkit import Chem, rdBase
from rdkit.Chem import rdqueries
from rdkit.Chem.MolStandardize import rdMolStandardize

from duallgd_cli.chem.elements import INDEX, MAX_HEAVY_ATOMS, N_ELEMENTS, N_HEAVY, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import LONGEST_SMILES, MORE_THAN_ONE, parse_smiles, sole_token
from duallgd_cli.chem.parts import RING_SYSTEM, catalogue
from duallgd_cli.errors import Failure, MoleculeError, RefusedError, UsageError, quote

_PI_BONDS: Final = {Chem.BondType.SINGLE: 0, Chem.BondType.DOUBLE: 1, Chem.BondType.TRIPLE: 2}
_BONDS: Final = {*_PI_BONDS, Chem.BondType.AROMATIC}
# Rings or double bonds that an atom may add to those of usual valences: in SF5, or B- beside N+.
_MORE_UNSATURATED: Final = {"B": 1, "P": 1, "I": 1, "S": 2, "Se": 2}
_MOST_TAUTOMERS: Final = 16
_ATTACHMENT: Final = Chem.MolFromSmarts("[#0]")
_LONGEST_NAME: Final = 60  # of a part; what is longer is no misspelt one
_MOST_TRANSFORMS: Final = 100


_MOST_STEPS: Final = 100_000  # a tenth of a second; patterns of chemists take some thousands


class Pattern:
    """A substructure to be found in molecules.

    Attributes:
        query: Its atoms and bonds.
    """

    def __init__(self, query: Chem.Mol, text: str) -> None:
        """Take atoms and bonds, in any number of pieces, and how the user wrote them."""
        self.query, self._text = query, text
        pieces = Chem.GetMolFrags(query, asMols=True, sanitizeFrags=False)
        by_text = {Chem.MolToSmarts(piece): piece for piece in pieces}
        times = Counter(map(Chem.MolToSmarts, pieces))
        self._repeated = [(by_text[one], n) for one, n in times.items() if n > 1]

    def is_in(self, mol: Chem.Mol, *, is_lenient: bool = False) -> bool:
        """Whether a molecule has the pattern.

        Args:
            mol: The molecule.
            is_lenient: Whether conjugated bonds match aromatic ones: what is a quinone alone may
                be part of an aromatic ring.

        Raises:
            RefusedError: Looking for them takes too many steps.
        """
        limits = self._limits()
        limits.aromaticMatchesConjugated = is_lenient
        # Where a piece is asked for more often than it is there, no order of trying is of use.
        for piece, limits.maxMatches in self._repeated:
            if len(mol.GetSubstructMatches(piece, limits)) < limits.maxMatches:
                return False
        limits.maxMatches = 1
        return bool(mol.GetSubstructMatch(self.query, limits))

    def _limits(self) -> Any:  # noqa: ANN401 # the types of RDKit's settings are wrong
        steps = count(1)

        def allow(*_: Chem.Atom) -> bool:
            if next(steps) > _MOST_STEPS:
                message = (
                    f"looking for {quote(self._text)} in one molecule takes more than "
                    f"{_MOST_STEPS:,} steps; write it with fewer wildcards and fewer parts apart"
                )
                raise RefusedError(Failure("no_candidate", message, "sample"))
            return True

        limits = Chem.SubstructMatchParameters()
        limits.setExtraAtomCheckFunc(allow)
        return limits


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """A substructure with its bonds.

    Attributes:
        elements: How many atoms it has of each.
        unsaturation: Its rings, and its double bonds between C, N and O.
        patterns: Find its tautomers in a molecule, the one that was given first.
    """

    elements: Counter[str]
    unsaturation: int
    patterns: tuple[Pattern, ...]

    def missing(self, formula: Formula) -> str:
        """What a formula has too little of for the core, such as ``2 O``; "" if nothing."""
        if atoms := _lacking(self.elements, formula):
            return atoms
        more = sum(n * formula.counts[INDEX[one]] for one, n in _MORE_UNSATURATED.items())
        most = formula.unsaturation + more
        has = f"{self.unsaturation} rings and double bonds, where it has {most:g} at most"
        return f"unsaturation ({has})" if self.unsaturation > most else ""

    def is_in(self, mol: Chem.Mol) -> bool:
        """Whether a molecule holds the core or one of its tautomers.

        Raises:
            RefusedError: That takes too long to say.
        """
        return any(pattern.is_in(mol, is_lenient=True) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Guide:
    """What a molecule must be like; plain texts, so that other processes can be told.

    Attributes:
        core: SMILES of one or several fragments, or None.
        require: SMARTS, or names of the catalogue of parts, of which each must be there.
        forbid: Of which none may be there.
    """

    core: str | None = None
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()

    def and_also(self, other: "Guide") -> "Guide":
        """Both together; two cores are two fragments."""
        cores = [core for core in (self.core, other.core) if core is not None]
        return Guide(
            ".".join(dict.fromkeys(cores)) or None,
            tuple(dict.fromkeys((*self.require, *other.require))),
            tuple(dict.fromkeys((*self.forbid, *other.forbid))),
        )

    def check(self) -> None:
        """Read all of it.

        Raises:
            UsageError: A text cannot be read; the message names it.
        """
        if self.core is not None:
            read_core(self.core)
        for text in (*self.require, *self.forbid):
            _pattern(text)

    def require_room(self, formula: Formula) -> None:
        """Refuse a formula that has too few atoms for the core or for a required part.

        Raises:
            RefusedError: The row says which atoms are missing.
        """
        if self.core is not None:
            try:
                missing = read_core(self.core).missing(formula)
            except UsageError as error:  # of a table and an option together
                raise RefusedError(Failure("core_mismatch", str(error), "sample")) from None
            if missing:
                message = f"{formula} cannot hold the core {quote(self.core)}: it lacks {missing}"
                raise RefusedError(Failure("core_mismatch", message, "sample"))
        for text in self.require:
            needed = Counter(filter(None, map(_element, _pattern(text).query.GetAtoms())))
            if missing := _lacking(needed, formula):
                message = f"{formula} cannot hold the required {quote(text)}: it lacks {missing}"
                raise RefusedError(Failure("no_candidate", message, "sample"))

    def core_molecule(self) -> Chem.Mol | None:
        """The core with hydrogens at its open bonds; None where it is no single molecule."""
        mol = None if self.core is None else Chem.MolFromSmiles(self.core)
        if mol is None:
            return None
        bare = Chem.DeleteSubstructs(mol, _ATTACHMENT)
        try:
            return parse_smiles(Chem.MolToSmiles(bare))
        except MoleculeError:
            return None

    def fault(self, mol: Chem.Mol) -> str:
        """What is wrong with a molecule, "" if nothing is.

        Raises:
            RefusedError: That takes too long to say.
        """
        if self.core is not None and not read_core(self.core).is_in(mol):
            return "without the core"
        for text in self.require:
            if not _pattern(text).is_in(mol):
                return f"without {text}"
        for text in self.forbid:
            if _pattern(text).is_in(mol):
                return f"with {text}"
        return ""


def _lacking(needed: Counter[str], formula: Formula) -> str:
    """The atoms of some elements that a formula has too few of, such as ``2 O``; "" if none."""
    has = dict(zip(SYMBOLS, formula.counts, strict=True))
    lacking = {element: n - has.get(element, 0) for element, n in needed.items()}
    order = sorted(lacking, key=lambda element: INDEX.get(element, N_ELEMENTS))
    return ", ".join(f"{lacking[one]} {one}" for one in order if lacking[one] > 0)


def _element(atom: Chem.Atom) -> str:
    """The element that an atom of a pattern stands for, "" where it may be one of several."""
    is_one = atom.GetAtomicNum() and not {",", "!"} & set(atom.GetSmarts())
    return atom.GetSymbol() if is_one else ""


@lru_cache(maxsize=64)
def read_core(text: str) -> Core:
    """Read a core.

    Args:
        text: SMILES, fragments apart by dots. Where it has attachment points (``*``), its other
            atoms have no further bonds but those to hydrogen.

    Raises:
        UsageError: It is no SMILES, or holds an element or a bond that molecules here cannot have.
    """
    try:
        mol = parse_smiles(text)
    except MoleculeError as error:
        if MORE_THAN_ONE in str(error):
            raise UsageError(
                f"core: {error}; write fragments apart by dots, as CCO.c1ccccc1"
            ) from None
        why = "is too long for one" if len(text) > LONGEST_SMILES else "is not a SMILES"
        raise UsageError(f"core {quote(text)} {why}; write it as c1ccccc1 or C(=O)O") from error
    if mol.GetNumHeavyAtoms() > MAX_HEAVY_ATOMS:
        raise UsageError(
            f"core {quote(text)} has {mol.GetNumHeavyAtoms()} heavy atoms, and molecules here at "
            f"most {MAX_HEAVY_ATOMS}; give a part of it"
        )
    atoms = [atom for atom in mol.GetAtoms() if atom.GetAtomicNum()]
    foreign = sorted({atom.GetSymbol() for atom in atoms} - set(SYMBOLS[:N_HEAVY]))
    odd = {bond.GetBondType() for bond in mol.GetBonds()} - _BONDS
    if foreign or odd or not atoms:
        what = ", ".join(foreign) or "a bond that is no single, double, triple or aromatic one"
        raise UsageError(f"core {quote(text)} holds {what if atoms else 'no atom'}; leave that out")
    aromatic = Chem.BondType.AROMATIC
    if any(one.GetBondType() == aromatic and not one.IsInRing() for one in mol.GetBonds()):
        raise UsageError(f"core {quote(text)} has an aromatic bond outside rings; leave that out")
    open_atoms = {
        neighbour.GetIdx()
        for atom in mol.GetAtoms()
        if not atom.GetAtomicNum()
        for neighbour in atom.GetNeighbors()
    }
    points = [atom.GetIdx() for atom in mol.GetAtoms() if not atom.GetAtomicNum()]
    closed = [atom.GetIdx() for atom in atoms if points and atom.GetIdx() not in open_atoms]
    return Core(
        elements=Counter(atom.GetSymbol() for atom in atoms),
        unsaturation=_unsaturation(mol),
        patterns=tuple(Pattern(_query(form, closed, points), text) for form in _tautomers(mol)),
    )


def _unsaturation(mol: Chem.Mol) -> int:
    """Rings, and double bonds between C, N and O, a triple bond being two."""
    plain = Chem.Mol(mol)
    Chem.Kekulize(plain, clearAromaticFlags=True)
    orders = [
        _PI_BONDS[bond.GetBondType()]
        for bond in plain.GetBonds()
        if {bond.GetBeginAtom().GetSymbol(), bond.GetEndAtom().GetSymbol()} <= {"C", "N", "O"}
    ]
    rings = mol.GetNumBonds() - mol.GetNumAtoms() + len(Chem.GetMolFrags(mol))
    return rings + sum(orders)


def _tautomers(mol: Chem.Mol) -> list[Chem.Mol]:
    """A molecule and the tautomers of it, atoms in the same order; few, and in a fixed order."""
    enumerator = rdMolStandardize.TautomerEnumerator()
    enumerator.SetMaxTautomers(_MOST_TAUTOMERS)
    enumerator.SetMaxTransforms(_MOST_TRANSFORMS)
    with rdBase.BlockLogs():
        found = {Chem.MolToSmiles(one): one for one in enumerator.Enumerate(mol)}
    found.pop(Chem.MolToSmiles(mol), None)
    return [mol, *(found[smiles] for smiles in sorted(found))]


def _query(mol: Chem.Mol, closed: list[int], points: list[int]) -> Chem.Mol:
    """The core without its attachment points; closed atoms match only without further bonds."""
    query = Chem.RWMol(mol)
    for index in closed:
        atom = rdqueries.AtomNumEqualsQueryAtom(mol.GetAtomWithIdx(index).GetAtomicNum())
        degree = mol.GetAtomWithIdx(index).GetDegree()
        atom.ExpandQuery(rdqueries.ExplicitDegreeEqualsQueryAtom(degree))
        query.ReplaceAtom(index, atom)
    for index in reversed(points):
        query.RemoveAtom(index)
    query.UpdatePropertyCache(strict=False)
    return query.GetMol()


@lru_cache(maxsize=256)
def _pattern(text: str) -> Pattern:
    """The pattern of a part of the catalogue, or of a SMARTS."""
    if len(text) > LONGEST_SMILES:
        raise UsageError(
            f"the SMARTS {quote(text)} has {len(text):,} characters; write at most "
            f"{LONGEST_SMILES:,}"
        )
    name = text.strip().lower()
    try:
        smarts = sole_token(_named().get(name, text), "SMARTS")
    except MoleculeError as error:
        raise UsageError(f"{error}, which is no name of a part; write one SMARTS") from None
    with rdBase.BlockLogs():
        query = Chem.MolFromSmarts(smarts)
    if query is None or not query.GetNumAtoms():
        close = difflib.get_close_matches(name[:_LONGEST_NAME], _named(), n=1)
        hint = f"; did you mean {close[0]}?" if close else ", such as hexose or indole"
        raise UsageError(f"{quote(text)} is neither a SMARTS nor the name of a part{hint}")
    return Pattern(query, text)


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """SMARTS by name, lower case."""
    return {
        row["name"].lower(): row["smarts"].replace("[nH]", "n")
        if row["kind"] == RING_SYSTEM
        else row["smarts"]
        for row in catalogue()
    }
