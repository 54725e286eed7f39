"""Sources and scores of the user's own: given from Python, or by a package that names them.

A package names a class in the entry points ``duallgd.sources`` or ``duallgd.scores``. What goes
wrong inside one is a sentence in the row of the spectrum, and the rest of the row stands.
"""

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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

logger = logging.getLogger(__name__)

SOURCES, SCORES = "duallgd.sources", "duallgd.scores"
_OTHER_FORMULA: Final = "another formula"
_NOT_A_MOLECULE: Final = "not a molecule"


@dataclass(frozen=True, slots=True)
class OwnSource:
    """A source of the user's, whose faults are said and cost nothing else.

    Its ``propose(query, n, seed)`` gives molecules as SMILES or for RDKit, or proposals.
    """

    source: Any
    name: str

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """What the source gives, at most n; a molecule of another formula is no candidate."""
        try:
            for number, item in enumerate(self.source.propose(query, n, seed)):
                if number == n:
                    return
                yield self._proposal(item, query)
        except (OutOfTimeError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            query.remarks.append(f"source {self.name} failed: {type(error).__name__}: {error}")

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
        why = proposal.rejection or ("" if is_of else _OTHER_FORMULA)
        return proposal._replace(source=self.name, mol=mol, rejection=why)


@dataclass(frozen=True, slots=True)
class OwnScore:
    """A score of the user's, whose faults are said; it then counts for no molecule."""

    score: Any
    name: str

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> NDArray[np.float64]:
        """Score molecules, (C,); 0 for all where something is wrong."""
        values = np.zeros(0)
        try:
            values = np.asarray(self.score(query, molecules), np.float64)
        except (OutOfTimeError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            said = f"failed and does not count: {type(error).__name__}: {error}"
        else:
            number = counted(len(molecules), "molecule")
            said = f"does not count: it must give one finite number for each of {number}"
            if values.shape == (len(molecules),) and np.isfinite(values).all():
                query.remarks.append(f"scored by {self.name} too: confidence is not calibrated")
                return values
        query.remarks.append(f"score {self.name} {said}")
        return np.zeros(len(molecules))


def with_own(
    model: "LoadedModel", sources: Sequence[CandidateSource] = (), scores: Sequence[Score] = ()
) -> "LoadedModel":
    """A model with the user's sources and scores, those of installed packages included.

    Raises:
        UsageError: One has no name, the name of another, or cannot be called.
    """
    sources = (*_installed(SOURCES), *sources)
    scores = (*_installed(SCORES), *scores)
    if not sources and not scores:
        return model
    names = {each.name for each in model.scores} | set(FEATURES)
    _require_new("source", sources, "propose", {each.name for each in model.sources})
    _require_new("score", scores, "__call__", names)
    own_sources = tuple(OwnSource(each, each.name) for each in sources)
    return added(model, own_sources, tuple(OwnScore(each, each.name) for each in scores))


def _require_new(kind: str, own: Sequence[object], verb: str, taken: set[str]) -> None:
    for each in own:
        name = getattr(each, "name", None)
        if not isinstance(name, str) or not name.isidentifier() or not hasattr(each, verb):
            raise UsageError(
                f"{type(each).__name__} is no {kind}: it needs a name of letters and a {verb}"
            )
        if name in taken:
            raise UsageError(f"there are two {kind}s of the name {name}; rename one")
        taken.add(name)


def _installed(group: str) -> tuple[Any, ...]:
    """What installed packages name."""
    from importlib.metadata import entry_points  # takes a while, and loads the network's modules

    made = []
    for point in entry_points(group=group):
        try:
            made.append(point.load()())
        except Exception as error:  # noqa: BLE001  whatever foreign code raises
            raise UsageError(
                f"{point.value}, which a package names in {group}, cannot be loaded "
                f"({type(error).__name__}: {error}); mend or uninstall it"
            ) from None
    return tuple(made)


def added(
    model: "LoadedModel", sources: Sequence[CandidateSource], scores: Sequence[Score] = ()
) -> "LoadedModel":
    """A model with further sources and scores, in other processes too if they can be sent."""
    again = None if model.again is None else partial(_loaded, model.again, sources, scores)
    try:
        pickle.dumps(again)
    except Exception as error:  # noqa: BLE001  whatever foreign code raises
        logger.warning("own sources or scores cannot be sent to other processes: %s", error)
        again = None
    sources, scores = (*model.sources, *sources), (*model.scores, *scores)
    return replace(model, sources=sources, scores=scores, again=again)


def _loaded(
    again: "Callable[[], LoadedModel]", sources: Sequence[CandidateSource], scores: Sequence[Score]
) -> "LoadedModel":
    return added(again(), sources, scores)
