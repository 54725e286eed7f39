"""From what was proposed to distinct molecules with their counts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from duallgd_cli.chem import identity
from duallgd_cli.errors import MoleculeError
from duallgd_cli.results import HypothesisResult, Structure
from duallgd_cli.scores import Molecule, Score, score
from duallgd_cli.sources import GIVEN, Proposal, Query

_SALT: Final = "internal salt"
_NO_INCHI: Final = "no InChI"
KNOWN_MOLECULE: Final = "known molecule"


@dataclass(slots=True)
class _Counts:
    """How often a molecule was proposed, and by what."""

    samples: int = 0
    repaired: int = 0
    log_likelihoods: list[float] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    spellings: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: "_Counts") -> "_Counts":
        self.samples += other.samples
        self.repaired += other.repaired
        self.log_likelihoods += other.log_likelihoods
        self.sources |= other.sources
        return self


def merge(
    result: HypothesisResult,
    proposals: Iterable[Proposal],
    query: Query,
    scores: Sequence[Score],
    excluded: Set[str] = frozenset(),
) -> HypothesisResult:
    """Merge proposals by the first block of their InChIKey, and score the molecules.

    The same molecule is named once, however often it was proposed: naming takes longest.

    Args:
        result: Of their hypothesis, so far.
        proposals: All of them.
        query: They were made for.
        scores: Of every molecule.
        excluded: First blocks of molecules that are no candidates.

    Returns:
        It with distinct molecules, in alphabetical order of their keys, and with the tallies.
    """
    named: dict[str, Molecule | None] = {}  # by SMILES
    counts: defaultdict[str, _Counts] = defaultdict(_Counts)
    rejected: Counter[str] = Counter()
    sampled = 0
    for proposal in proposals:
        is_given = proposal.source in GIVEN
        sampled += not is_given
        molecule = _named(proposal, named, query)
        if molecule is None or proposal.rejection:
            if not is_given:
                rejected[proposal.rejection or _NO_INCHI] += 1
            continue
        own = counts[molecule.block]
        own.sources.add(proposal.source)
        own.spellings[molecule.smiles] += not is_given
        if is_given:  # no sample: whatever else is counted, it is one of the user's or not
            continue
        own.samples += 1
        own.repaired += proposal.is_repaired
        if proposal.log_likelihood is not None:
            own.log_likelihoods.append(proposal.log_likelihood)
    molecules = {block: _first(own.spellings, named) for block, own in counts.items()}
    rejected[_SALT] += _without_strays(counts, molecules)
    for block in excluded & counts.keys():
        rejected[KNOWN_MOLECULE] += counts.pop(block).samples
    blocks = sorted(counts)
    values = score(scores, query, [molecules[block] for block in blocks])
    structures = tuple(
        _structure(molecules[block], counts[block], own)
        for block, own in zip(blocks, values or [{}] * len(blocks), strict=True)
    )
    repaired = sum(structure.repaired for structure in structures)
    return replace(
        result,
        structures=structures,
        sampled=sampled,
        assembled=sampled - repaired - rejected.total(),
        repaired=repaired,
        rejected=dict(sorted((+rejected).items())),
        distinct=len(structures),
    )


def _named(proposal: Proposal, named: dict[str, Molecule | None], query: Query) -> Molecule | None:
    """The molecule that was proposed, by name; None where there is none or it has no InChI."""
    if proposal.mol is None or proposal.rejection:
        return None
    smiles = identity.canonical_smiles(proposal.mol)
    if smiles not in named:
        query.check()
        try:
            named[smiles] = Molecule.of(proposal.mol, smiles)
        except MoleculeError:
            named[smiles] = None
    return named[smiles]


def _first(spellings: Counter[str], named: Mapping[str, Molecule | None]) -> Molecule:
    """Of molecules with one InChIKey block the one proposed most often."""
    ordered: Iterator[str] = iter(sorted(spellings, key=lambda text: (-spellings[text], text)))
    return next(molecule for text in ordered if (molecule := named[text]) is not None)


def _without_strays(counts: dict[str, _Counts], molecules: Mapping[str, Molecule]) -> int:
    """Take out what only a wrong placement of charges made, in place; samples of internal salts.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was proposed. Structures of the
    user stay as they are.
    """
    kept = {block for block, own in counts.items() if own.sources & GIVEN}
    best: dict[str, str] = {}
    for block in sorted(counts, key=lambda block: (-counts[block].samples, block)):
        placement = molecules[block].placement
        first = best.setdefault(placement, block) if placement and block not in kept else block
        if first != block:
            counts[first] += counts.pop(block)
    salts = [block for block in counts if molecules[block].is_salt and block not in kept]
    if len(salts) == len(counts):
        return 0
    return sum(counts.pop(block).samples for block in salts)


def _structure(molecule: Molecule, counts: _Counts, scores: Mapping[str, float]) -> Structure:
    drawn = counts.log_likelihoods
    return Structure(
        smiles=molecule.smiles,
        inchi=molecule.inchi,
        inchikey=molecule.inchikey,
        samples=counts.samples,
        repaired=counts.repaired,
        log_likelihood=sum(drawn) / len(drawn) if drawn else None,
        sources=tuple(sorted(counts.sources)),
        family=molecule.family,
        scaffold=molecule.scaffold,
        scores=scores,
    )
