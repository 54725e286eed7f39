"""What a chemist knows of an unknown: a core it has, parts it must have or must not have.

All of these choose among candidates; none changes how molecules are proposed.
"""

import contextlib
import difflib
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Final

from rdkit import Chem, rdBase
from rdkit.Chem.MolStandardize import rdMolStandardize

from duallgd_cli.chem.elements import INDEX, MAX_HEAVY_ATOMS, N_ELEMENTS, N_HEAVY, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    LONGEST_SMILES,
    MORE_THAN_ONE,
    canonical_smiles,
    parse_smiles,
    sole_token,
)
from duallgd_cli.chem.molecule import ODD_BOND
from duallgd_cli.chem.parts import RING_SYSTEM, catalogue
from duallgd_cli.errors import Failure, MoleculeError, RefusedError, UsageError, quote

_LOOSE_AROMATIC_BOND: Final = Chem.MolFromSmarts("*:!@*")
_MOST_TAUTOMERS, _MOST_TRANSFORMS = 16, 100
_ATTACHMENT: Final = Chem.MolFromSmarts("[#0]")
_HYDROGENS: Final = re.compile(r"!H\d")  # how many an atom has at least, in a SMARTS
_LONGEST_NAME: Final = 60  # of a part; what is longer is no misspelt one
_MOST_STEPS: Final = 100_000  # a tenth of a second; patterns of chemists take some thousands


class Pattern:
    """A substructure to be found in molecules; ``query`` holds its atoms and bonds."""

    def __init__(self, query: Chem.Mol, text: str) -> None:
        """Take atoms and bonds, in any number of pieces, and how the user wrote them."""
        self.query, self._text = query, text
        pieces = Chem.GetMolFrags(query, asMols=True, sanitizeFrags=False)
        times = Counter(map(Chem.MolToSmarts, pieces))
        by_text = dict(zip(map(Chem.MolToSmarts, pieces), pieces, strict=True))
        self._repeated = [(by_text[smarts], n) for smarts, n in times.items() if n > 1]

    def is_in(self, mol: Chem.Mol, *, is_lenient: bool = False) -> bool:
        """Whether a molecule has the pattern.

        If lenient, conjugated bonds match aromatic ones: what is a quinone alone may be part of an
        aromatic ring.

        Raises:
            RefusedError: Looking for them takes too many steps.
        """
        steps = count(1)

        def allow(*_: Chem.Atom) -> bool:
            if next(steps) > _MOST_STEPS:
                message = (
                    f"looking for {quote(self._text)} in one molecule takes more than "
                    f"{_MOST_STEPS:,} steps; write it with fewer wildcards and fewer parts apart"
                )
                raise RefusedError(Failure("no_candidate", message))
            return True

        limits: Any = Chem.SubstructMatchParameters()  # the types of RDKit's settings are wrong
        limits.setExtraAtomCheckFunc(allow)
        limits.aromaticMatchesConjugated = is_lenient
        # Where a piece is asked for more often than it is there, no order of trying is of use.
        for piece, limits.maxMatches in self._repeated:
            if len(mol.GetSubstructMatches(piece, limits)) < limits.maxMatches:
                return False
        limits.maxMatches = 1
        return bool(mol.GetSubstructMatch(self.query, limits))

    def lacking(self, formula: Formula) -> str:
        """The atoms that a formula has too few of for the pattern, such as ``2 O``; "" if none."""
        # Atoms that may be of several elements ask for none of them.
        needed = Counter(
            atom.GetSymbol()
            for atom in self.query.GetAtoms()
            if atom.GetAtomicNum() and not {",", "!"} & set(_HYDROGENS.sub("", atom.GetSmarts()))
        )
        lacking = needed - Counter(dict(zip(SYMBOLS, formula.counts, strict=True)))
        order = sorted(lacking, key=lambda element: INDEX.get(element, N_ELEMENTS))
        return ", ".join(f"{lacking[element]} {element}" for element in order)


@dataclass(frozen=True, slots=True)
class Guide:
    """What a molecule must be like; plain texts, so that other processes can be told."""

    core: str | None = None  # SMILES of one or several fragments
    require: tuple[str, ...] = ()  # SMARTS, or names of the catalogue of parts: each must be there
    forbid: tuple[str, ...] = ()  # of which none may be there

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
        parts = [("no_candidate", "required", text) for text in self.require]
        if self.core is not None:
            parts.insert(0, ("core_mismatch", "core", self.core))
        for status, what, text in parts:
            try:
                pattern = read_core(text)[0] if what == "core" else _pattern(text)
            except UsageError as error:  # of a table and an option together
                raise RefusedError(Failure(status, str(error))) from None
            if missing := pattern.lacking(formula):
                message = f"{formula} cannot hold the {what} {quote(text)}: it lacks {missing}"
                raise RefusedError(Failure(status, message))

    def core_molecule(self) -> Chem.Mol | None:
        """The core with hydrogens at its open bonds; None where it is no single molecule."""
        if self.core is None:
            return None
        with contextlib.suppress(MoleculeError):
            mol = Chem.DeleteSubstructs(_uncharged(self.core)[0], _ATTACHMENT)
            return parse_smiles(Chem.MolToSmiles(mol))
        return None

    @property
    def remark(self) -> str:
        """What is to be said of how the core is understood, "" if nothing is."""
        if self.core is None:
            return ""
        mol, is_changed = _uncharged(self.core)
        return f"the core is taken as {canonical_smiles(mol)}" * is_changed

    def fault(self, mol: Chem.Mol) -> str:
        """What is wrong with a molecule, "" if nothing is.

        Raises:
            RefusedError: That takes too long to say.
        """
        if self.core is not None:
            forms = read_core(self.core)
            if not any(form.is_in(mol, is_lenient=True) for form in forms):
                return "without the core"
        for text in self.require:
            if not _pattern(text).is_in(mol):
                return f"without {text}"
        for text in self.forbid:
            if _pattern(text).is_in(mol):
                return f"with {text}"
        return ""


@lru_cache(maxsize=64)
def read_core(text: str) -> tuple[Pattern, ...]:
    """Patterns of a core and of its tautomers, the one that was given first.

    Fragments are apart by dots. Where the SMILES has attachment points (``*``), its other atoms
    have no further bonds but those to hydrogen. Acids and amines may be drawn as ions, as at pH 7;
    candidates have the hydrogens that these lack.

    Raises:
        UsageError: It is no SMILES, or holds an element or a bond that molecules here cannot have.
    """
    try:
        mol, _ = _uncharged(text)
    except MoleculeError as error:
        if error.reason == MORE_THAN_ONE:
            why = "write fragments apart by dots, as CCO.c1ccccc1"
            raise UsageError(f"core: {error}; {why}") from None
        why = "is too long for one" if len(text) > LONGEST_SMILES else "is not a SMILES"
        example = "write it as c1ccccc1 or C(=O)O, the hydrogen of a ring nitrogen as in c1c[nH]cn1"
        raise UsageError(f"core {quote(text)} {why}; {example}") from error
    points = [point for (point,) in mol.GetSubstructMatches(_ATTACHMENT)]
    atoms = [atom for atom in mol.GetAtoms() if atom.GetAtomicNum()]
    foreign = ", ".join(sorted({atom.GetSymbol() for atom in atoms} - set(SYMBOLS[:N_HEAVY])))
    fault = ""
    if len(atoms) > MAX_HEAVY_ATOMS:
        most = f"molecules here at most {MAX_HEAVY_ATOMS}; give a part of it"
        raise UsageError(f"core {quote(text)} has {len(atoms)} heavy atoms, and {most}")
    if foreign or not atoms:
        fault = f"holds {foreign or 'no atom'}"
    elif mol.HasSubstructMatch(ODD_BOND):
        fault = "holds a bond that is no single, double, triple or aromatic one"
    elif mol.HasSubstructMatch(_LOOSE_AROMATIC_BOND):
        fault = "has an aromatic bond outside rings"
    if fault:
        raise UsageError(f"core {quote(text)} {fault}; leave that out")
    return tuple(Pattern(_query(form, points), text) for form in _tautomers(mol))


@lru_cache(maxsize=64)
def _uncharged(text: str) -> tuple[Chem.Mol, bool]:
    """A core with its protons where neutral molecules have them, and whether any had to move.

    Hydrogens that a bracket lacks are not left open: candidates have no radicals and no isotopes.
    """
    mol = parse_smiles(text)
    with rdBase.BlockLogs():
        neutral = rdMolStandardize.Uncharger().uncharge(mol)
    for atom in neutral.GetAtoms():
        atom.SetIsotope(0)
        if not atom.GetFormalCharge() and not atom.GetIsAromatic():
            atom.SetNoImplicit(False)
            atom.SetNumExplicitHs(0)
            atom.SetNumRadicalElectrons(0)
    neutral.UpdatePropertyCache(strict=False)
    return neutral, canonical_smiles(neutral) != canonical_smiles(mol)


def _query(mol: Chem.Mol, points: list[int]) -> Chem.Mol:
    """The core without its attachment points: with any, only atoms at them have further bonds."""
    query = Chem.RWMol(mol)
    for atom in mol.GetAtoms() if points else ():
        if atom.GetAtomicNum() and all(near.GetAtomicNum() for near in atom.GetNeighbors()):
            closed = Chem.AtomFromSmarts(f"[#{atom.GetAtomicNum()}&D{atom.GetDegree()}]")
            query.ReplaceAtom(atom.GetIdx(), closed)
    for point in sorted(points, reverse=True):
        query.RemoveAtom(point)
    query.UpdatePropertyCache(strict=False)
    return query.GetMol()


def _tautomers(mol: Chem.Mol) -> list[Chem.Mol]:
    """A molecule and the tautomers of it, atoms in the same order; few, and in a fixed order."""
    enumerator = rdMolStandardize.TautomerEnumerator()
    enumerator.SetMaxTautomers(_MOST_TAUTOMERS)
    enumerator.SetMaxTransforms(_MOST_TRANSFORMS)
    with rdBase.BlockLogs():
        by_smiles = {Chem.MolToSmiles(one): one for one in enumerator.Enumerate(mol)}
    by_smiles.pop(Chem.MolToSmiles(mol), None)
    return [mol, *(by_smiles[smiles] for smiles in sorted(by_smiles))]


@lru_cache(maxsize=256)
def _pattern(text: str) -> Pattern:
    """The pattern of a part of the catalogue, or of a SMARTS."""
    if len(text) > LONGEST_SMILES:
        most = f"{len(text):,} characters; write at most {LONGEST_SMILES:,}"
        raise UsageError(f"the SMARTS {quote(text)} has {most}")
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
    query = Chem.MergeQueryHs(query)  # hydrogens are no atoms of the molecules that are searched
    if any(Chem.HasQueryHs(query)):
        raise UsageError(
            f"{quote(text)} holds a hydrogen that may be alone or another atom; write hydrogens at "
            "the atom that has them, as [OX2H] or [CX3H1](=O)"
        )
    return Pattern(query, text)


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """SMARTS by name, lower case."""
    named = {row["name"].lower(): row["smarts"] for row in catalogue()}
    rings = (row["name"].lower() for row in catalogue() if row["kind"] == RING_SYSTEM)
    return named | {name: named[name].replace("[nH]", "n") for name in rings}
