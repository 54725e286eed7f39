"""Sources of candidates: each proposes molecules of a formula for a spectrum.

A source of your own has a ``name`` and a method ``propose``; see `CandidateSource` and
``examples/own_source.py``. F fingerprint bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.config import SamplingSettings
from duallgd_cli.sources.known import Known
from duallgd_cli.spectra.types import AnnotatedSpectrum

if TYPE_CHECKING:  # settings are read where no rdkit is loaded
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.chem.molecule import Mol

T = TypeVar("T")

# Sources of the user's own structures. They propose all they have, beside what is generated.
DATABASE: Final = "database"
ANALOGUES: Final = "analogues"
LIBRARY: Final = "library"
GIVEN: Final = frozenset({DATABASE, LIBRARY})
BUILT_IN: Final = frozenset({DATABASE, LIBRARY, ANALOGUES, "enumerated", "templates", "noise"})
MOST_OF_A_DATABASE: Final = 100


class Proposal(NamedTuple):
    """What a source proposes."""

    source: str  # its name
    mol: "Mol | None"  # of the formula; None where what was drawn is no molecule
    log_likelihood: float | None = None  # of the graph, by the network that drew it
    is_repaired: bool = False  # whether bonds had to be changed to make it a molecule
    rejection: str = ""  # why it is no candidate


@dataclass(frozen=True, eq=False)
class Query:
    """The molecule of a spectrum under one hypothesis, as far as anything is known of it."""

    annotated: AnnotatedSpectrum  # peaks with formula and adduct
    fingerprint: NDArray[np.float32]  # predicted probability of each Morgan bit, (F,)
    # What each bit speaks for a molecule beside its isomers, (F,), where an encoder says so.
    isomer_log_odds: NDArray[np.float32] | None = None
    known: Known | None = None  # what options and files of the user say of the molecule
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    check: Callable[[], None] = lambda: None  # raises OutOfTimeError once the time is up
    notes: list[str] = field(default_factory=list)  # for the run record, which sources add to
    remarks: list[str] = field(default_factory=list)  # sentences for the user, likewise
    memo: dict[str, Any] = field(default_factory=dict, repr=False)  # see `once`

    @property
    def formula(self) -> Formula:
        """The formula of all candidates."""
        return self.annotated.hypothesis.formula

    @property
    def constraints(self) -> "Guide | None":
        """What every candidate must be like."""
        return None if self.known is None else self.known.guide

    @property
    def analogues(self) -> list[MolecularGraph]:
        """Molecules of the user's to start from, most alike first; few or none."""
        if (known := self.known) is None:
            return []
        return self.once("analogues", lambda: known.graphs(self.fingerprint, self.formula))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made when it is first asked for under this name."""
        if name not in self.memo:
            self.memo[name] = make()
        value: T = self.memo[name]
        return value

    def allowed(self, molecules: "Iterable[tuple[Mol, float]]") -> "Iterator[tuple[Mol, float]]":
        """Those of molecules, each with a number, that are as they must be, sanitised to see it."""
        from rdkit import Chem

        if self.constraints is None:
            return iter(molecules)
        sound = (pair for pair in molecules if not Chem.SanitizeMol(pair[0], catchErrors=True))
        return (pair for pair in sound if not self.fault(pair[0]))

    def fault(self, mol: "Mol") -> str:
        """Which constraint a molecule breaks, "" if none."""
        if self.constraints is None:
            return ""
        self.check()
        return self.constraints.fault(mol)


class CandidateSource(Protocol):
    """Where candidates come from."""

    @property
    def name(self) -> str:
        """Of the source, in the column ``sources`` and in the setting of the same name."""
        ...

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Up to n proposals for a query; a function of the arguments and nothing else.

        Fewer mean that the source has no more.
        """
        ...


def propose(
    sources: Sequence[CandidateSource], query: Query, quotas: Mapping[str, int], seed: int
) -> Iterator[Proposal]:
    """Ask each source for its quota; what a source lacks, the next one is asked for.

    Args:
        sources: In this order; one without a quota is left out.
        query: What is looked for.
        quotas: Proposals by name of the source.
        seed: Of all random numbers, 0 to 2^63 - 1.
    """
    lacking = 0
    for source in sources:
        if source.name not in quotas:
            continue
        wanted, n = quotas[source.name] + (0 if source.name in GIVEN else lacking), 0
        for proposal in source.propose(query, wanted, seed) if wanted else ():
            n += 1
            fault = "" if proposal.mol is None else query.fault(proposal.mol)
            yield proposal._replace(rejection=fault) if fault else proposal
        if source.name not in GIVEN:
            lacking = max(0, wanted - n)
