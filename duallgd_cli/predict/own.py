"""Sources and scores of the user's own: given from Python, or by a package that names them.

A package names a class in the entry points ``duallgd.sources`` or ``duallgd.scores``. What goes
wrong inside one is a sentence in the row of the spectrum, and the rest of the row stands.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.errors import FormulaError, MoleculeError, OutOfTimeError, UsageError, counted
from duallgd_cli.ranking.ranking import FEATURES
from duallgd_cli.scores import Molecule, Score
from duallgd_cli.sources import CandidateSource, Proposal, Query

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel

_NOT_A_MOLECULE: Final = "not a molecule"


@contextmanager
def _telling(query: Query, what: str) -> Iterator[None]:
    """Whatever foreign code raises inside is a remark, which begins with these words."""
    try:
        yield
    except (OutOfTimeError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001
        query.remarks.append(f"{what}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class OwnSource:
    """A source of the user's, whose faults are said and cost nothing else.

    Its ``propose(query, n, seed)`` gives molecules as SMILES or for RDKit, or proposals.
    """

    source: Any
    name: str

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """What the source gives, at most n; a molecule of another formula is no candidate."""
        with _telling(query, f"source {self.name} failed"):
            for item in islice(self.source.propose(query, n, seed), n):
                yield self._proposal(item, query)

    def _proposal(self, item: object, query: Query) -> Proposal:
        proposal = item if isinstance(item, Proposal) else Proposal(self.name, item)  # type: ignore[arg-type]
        mol: Any = proposal.mol
        try:
            mol = parse_smiles(mol) if isinstance(mol, str) else mol
            if not isinstance(mol, Chem.Mol):
                raise MoleculeError(_NOT_A_MOLECULE)
            is_of = formula_of(mol) == query.formula
        except (MoleculeError, FormulaError):
            return Proposal(self.name, None, rejection=_NOT_A_MOLECULE)
        why = proposal.rejection or ("" if is_of else "another formula")
        return proposal._replace(source=self.name, mol=mol, rejection=why)


@dataclass(frozen=True, slots=True)
class OwnScore:
    """A score of the user's, whose faults are said; it then counts for no molecule."""

    score: Any
    name: str

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> NDArray[np.float64]:
        """Score molecules, (C,); 0 for all where something is wrong."""
        with _telling(query, f"score {self.name} failed and does not count"):
            values = np.asarray(self.score(query, molecules), np.float64)
            if values.shape == (len(molecules),) and np.isfinite(values).all():
                query.remarks.append(f"scored by {self.name} too: confidence is not calibrated")
                return values
            number = counted(len(molecules), "molecule")
            query.remarks.append(
                f"score {self.name} does not count: it must give one finite number for each of "
                f"{number}"
            )
        return np.zeros(len(molecules))


def with_own(
    model: "LoadedModel", sources: Sequence[CandidateSource] = (), scores: Sequence[Score] = ()
) -> "LoadedModel":
    """A model with the user's sources and scores, those of installed packages included.

    Raises:
        UsageError: One has no name, the name of another, or cannot be called.
    """
    own_sources, own_scores = list[OwnSource](), list[OwnScore]()
    taken = {each.name for each in model.sources}
    for source in (*_installed("duallgd.sources"), *sources):
        own_sources.append(OwnSource(source, _new_name("source", source, "propose", taken)))
    taken = {each.name for each in model.scores} | set(FEATURES)
    for score in (*_installed("duallgd.scores"), *scores):
        own_scores.append(OwnScore(score, _new_name("score", score, "__call__", taken)))
    return model.added(own_sources, own_scores) if own_sources or own_scores else model


def _new_name(kind: str, own: object, verb: str, taken: set[str]) -> str:
    """The name of a source or score, which is then taken."""
    name = getattr(own, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or not hasattr(own, verb):
        raise UsageError(
            f"{type(own).__name__} is no {kind}: it needs a name of letters and a {verb}"
        )
    if name in taken:
        raise UsageError(f"there are two {kind}s of the name {name}; rename one")
    taken.add(name)
    return name


def _installed(group: str) -> Iterator[Any]:
    """What installed packages name."""
    from importlib.metadata import entry_points  # takes a while, and loads the network's modules

    for point in entry_points(group=group):
        try:
            yield point.load()()
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            raise UsageError(
                f"{point.value}, which a package names in {group}, cannot be loaded "
                f"({type(error).__name__}: {error}); mend or uninstall it"
            ) from None
