"""Sources of the user's own structures: a database, and molecules that are like the unknown one."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from duallgd_cli.chem.building_blocks import NO_BLOCKS
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.scores import FragmentScorer
from duallgd_cli.sources import ANALOGUES, DATABASE, LIBRARY, Proposal, Query
from duallgd_cli.sources.collection import Collection
from duallgd_cli.sources.enumerated import changed, mols_of_graphs, shortlist
from duallgd_cli.sources.network import from_analogues

# Of the proposals from analogues, those that are made of them by one change; the others start from
# one as it is.
_CHANGED: Final = 0.8


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
        """N proposals, or none where no molecule of the user's has nearly the formula's atoms.

        Asked again for the same query it lists none: they would count twice.
        """
        if not query.analogues:
            return iter(())
        mols: list[Mol] = []
        if "listed of analogues" not in query.memo:
            query.memo["listed of analogues"] = True
            blocks = NO_BLOCKS if self.collection is None else self.collection.blocks
            made = changed(mols_of_graphs(query.analogues), query.formula, blocks)
            mols = shortlist(query, int(_CHANGED * n), self.fragments, query.allowed(made))
        listed = (Proposal(self.name, mol) for mol in mols)
        left = n - len(mols)
        if self.sampler is None or not left:
            return listed
        return chain(listed, from_analogues(self.name, self.sampler, query, left, seed))
