"""Sources that list molecules, all or most of them not drawn.

Many more are made of known molecules, by one change or of building blocks, than are proposed; those
that fingerprint and peaks speak for most are. The user's own structures stand beside them: a
database, a library, and molecules that are like the unknown one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.building_blocks import NO_BLOCKS, BuildingBlocks
from duallgd_cli.chem.edits import edited
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import (
    canonical_smiles,
    charge_free_smiles,
    fingerprint,
    parse_smiles,
)
from duallgd_cli.chem.joining import together
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.scores import FragmentScorer
from duallgd_cli.sources import ANALOGUES, DATABASE, LIBRARY, Proposal, Query
from duallgd_cli.sources.collection import Collection, molecule_of
from duallgd_cli.sources.network import from_analogues

# Changes of one known molecule, so that a large one takes no longer than its drawing.
_MOST_OF_ONE: Final = 1_000
# Molecules put together, and how many are looked at until so many are as they must be.
_PUT_TOGETHER, _LOOKED_AT = 1_000, 10_000
# Molecules that are named at once, often all that there are: so only those that stay are named. As
# many take 70 MiB.
_AT_ONCE: Final = 2_000
# Of the proposals from analogues, those that are made of them by one change; the others start from
# one as it is.
_CHANGED: Final = 0.8
# The following were chosen on validation molecules. What one change is worth, in log-odds, next to
# blocks put together.
_OF_A_CHANGE: Final = 10.0
# So many times as many as are wanted are compared by what their fragments speak for them, and what
# that counts in log-odds of the bits.
_COMPARED: Final = 4
_OF_PEAKS: Final = 10.0
# What log-odds of bits and of bits beside isomers count for in this.
_OF_CHANCE, _OF_ISOMERS = 0.4, 4.0
_LEAST, _MOST = 0.003, 0.997


@dataclass(frozen=True, slots=True)
class Enumerated:
    """Molecules made of the collection."""

    collection: Collection
    fragments: FragmentScorer | None = None
    name: str = "enumerated"

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """The n likeliest molecules, or all that there are."""
        del seed
        blocks, most, core = self.collection.blocks, _PUT_TOGETHER, None
        if query.constraints is not None:
            most, core = _LOOKED_AT, query.constraints.core_molecule()
        near = mols_of_graphs(self.collection.near(query.fingerprint, query.formula))
        known = near if core is None else [core, *near]
        near_by = query.allowed(changed(known, query.formula, blocks))
        joined = query.allowed(together(blocks, query.formula, bit_scores(query), most))
        first = islice(joined, _PUT_TOGETHER)
        mols = shortlist(query, n, self.fragments, near_by, first)
        return (Proposal(self.name, mol) for mol in mols)


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """Structures of the formula in the user's databases; the likeliest where they are many.

    How many samples are drawn has no say in their number: the only one of many that was looked at
    would seem certain.
    """

    fragments: FragmentScorer | None = None
    name: str = DATABASE

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """The n likeliest structures, or all that there are."""
        del seed
        if query.known is None:
            return iter(())
        isomers = ((mol, 0.0) for mol in query.known.isomers(query.formula))
        mols = shortlist(query, n, self.fragments, query.allowed(isomers))
        return (Proposal(self.name, mol) for mol in mols)


@dataclass(frozen=True, slots=True)
class LibrarySource:
    """The structure of the spectrum of a library that is most like the measured one."""

    name: str = LIBRARY

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """The structure, if it is of the formula and its spectrum like enough."""
        del n, seed
        match = None if query.known is None else query.known.match(query.formula)
        if match is not None and match["offered"]:
            yield Proposal(self.name, parse_smiles(match["smiles"]))


@dataclass(frozen=True, slots=True)
class AnalogueSource:
    """Molecules that are one change away from the user's, and samples that start from these."""

    sampler: Sampler | None = None
    collection: Collection | None = None
    fragments: FragmentScorer | None = None
    name: str = ANALOGUES

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """N proposals, or none where no molecule of the user's has nearly the formula's atoms."""
        if not query.analogues:
            return iter(())
        blocks = NO_BLOCKS if self.collection is None else self.collection.blocks
        made = changed(mols_of_graphs(query.analogues), query.formula, blocks)
        mols = shortlist(query, int(_CHANGED * n), self.fragments, query.allowed(made))
        listed = (Proposal(self.name, mol) for mol in mols)
        left = n - len(mols)
        if self.sampler is None or not left:
            return listed
        return chain(listed, from_analogues(self.name, self.sampler, query, left, seed))


def changed(
    known: Iterable[Mol], formula: Formula, blocks: BuildingBlocks
) -> Iterator[tuple[Mol, float]]:
    """Molecules of a formula that are one change away from known ones, some more than once.

    They are made when they are asked for, each with what is added to the log-odds of its bits.
    Blocks may be put in place of a group or a hydrogen.
    """
    for mol in known:
        for made in islice(edited(mol, formula, blocks), _MOST_OF_ONE):
            yield made, _OF_A_CHANGE


def mols_of_graphs(graphs: Iterable[MolecularGraph]) -> list[Mol]:
    """Known molecules with their hydrogens; those that are none are left out."""
    return list(filter(None, map(molecule_of, graphs)))


def bit_scores(query: Query) -> NDArray[np.float64]:
    """What each bit speaks for a molecule in a shortlist, (F,)."""
    odds = log_odds(query.fingerprint)
    if query.isomer_log_odds is None:
        return odds
    return _OF_CHANCE * odds + _OF_ISOMERS * query.isomer_log_odds


def log_odds(probability: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each bit, never quite certain, (F,)."""
    chance = probability.astype(np.float64).clip(_LEAST, _MOST)
    return np.asarray(np.log(chance / (1 - chance)))


def shortlist(
    query: Query, most: int, fragments: FragmentScorer | None, *streams: Iterable[tuple[Mol, float]]
) -> list[Mol]:
    """The likeliest of molecules, by the fingerprint and by the peaks, best first, all different.

    Without a scorer of fragments peaks have no say; streams are as of `likeliest`.
    """
    best = likeliest(bit_scores(query), _COMPARED * most, *streams)
    if fragments is None:
        return [mol for _, mol in best[:most]]
    named = [(canonical_smiles(mol), mol) for _, mol in best]
    cost = [cost for cost, _ in best] - _OF_PEAKS * fragments.peaks(query, named).sum(1)
    return [best[row][1] for row in np.argsort(cost, kind="stable")[:most]]


def likeliest(
    scores: NDArray[np.float64], most: int, *streams: Iterable[tuple[Mol, float]]
) -> list[tuple[float, Mol]]:
    """The molecules whose bits score best, all of different graphs, of many that are shown.

    A molecule that is of no use is not even named, which takes longer than to compare it.

    Args:
        scores: Of each bit, (F,).
        most: Number of molecules that are kept.
        streams: Molecules, made when they are asked for, with what is added to the scores of the
            bits of each.

    Returns:
        Cost and molecule, in order of the costs.
    """
    best: list[tuple[float, Mol, str]] = []  # the last is the name, "" until it is asked for
    limit = np.inf  # from which on a molecule is of no use
    for mol, worth in chain.from_iterable(streams):
        cost = -worth - scores[fingerprint(mol)].sum()
        if cost < limit:
            best.append((cost, mol, ""))
        if len(best) == most + _AT_ONCE:
            best = _different(best, most)
            is_full = most > 0 and len(best) == most
            limit = best[-1][0] if is_full else np.inf
    return [(cost, mol) for cost, mol, _ in _different(best, most)]


def _different(molecules: list[tuple[float, Mol, str]], most: int) -> list[tuple[float, Mol, str]]:
    """The first of all graphs among molecules in order of their costs, named."""
    kept: dict[str, tuple[float, Mol]] = {}
    for cost, mol, name in sorted(molecules, key=itemgetter(0)):
        if len(kept) == most:
            break
        if not name and Chem.SanitizeMol(mol, catchErrors=True):
            continue
        # Tautomers may share a graph; of these the one of the lowest cost stays.
        kept.setdefault(name or charge_free_smiles(mol), (cost, mol))
    return [(cost, mol, name) for name, (cost, mol) in kept.items()]
