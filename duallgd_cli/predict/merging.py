"""From what was proposed to distinct molecules with their counts and scores."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from duallgd_cli.chem import identity
from duallgd_cli.errors import MoleculeError
from duallgd_cli.results import HypothesisResult, Structure
from duallgd_cli.scores import Molecule, Score, score
from duallgd_cli.sources import GIVEN, Proposal, Query

_SALT: Final = "internal salt"
_NO_INCHI: Final = "no InChI"
KNOWN_MOLECULE: Final = "known molecule"


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
    together = defaultdict[str, list[Proposal]](list)
    spellings = defaultdict[str, Counter[str]](Counter)
    rejected, sampled = Counter[str](), 0
    for proposal in proposals:
        is_sample, molecule = proposal.source not in GIVEN, None
        sampled += is_sample
        if proposal.mol is not None and not proposal.rejection:
            smiles = identity.canonical_smiles(proposal.mol)
            if smiles not in named:
                query.check()
                try:
                    named[smiles] = Molecule.of(proposal.mol, smiles)
                except MoleculeError:
                    named[smiles] = None
            molecule = named[smiles]
        if molecule is not None:
            together[molecule.block].append(proposal)
            spellings[molecule.block][molecule.smiles] += is_sample
        elif is_sample:
            rejected[proposal.rejection or _NO_INCHI] += 1
    # Of molecules with one block the one proposed most often.
    spelled = {smiles: molecule for smiles, molecule in named.items() if molecule is not None}
    molecules = {
        block: spelled[min(counts, key=lambda text: (-counts[text], text))]
        for block, counts in spellings.items()
    }
    rejected[_SALT] += _without_strays(together, molecules)
    for block in excluded & together.keys():
        rejected[KNOWN_MOLECULE] += _n_samples(together.pop(block))
    blocks = sorted(together)
    scored = score(scores, query, [molecules[block] for block in blocks])
    structures = tuple(
        _structure(molecules[block], together[block], values)
        for block, values in zip(blocks, scored, strict=True)
    )
    repaired = sum(structure.repaired for structure in structures)
    return replace(
        result,
        structures=structures,
        sampled=sampled,
        assembled=sampled - repaired - rejected.total(),
        repaired=repaired,
        rejected=dict(sorted((+rejected).items())),
    )


def _n_samples(proposals: Sequence[Proposal]) -> int:
    """Proposals that count: structures of the user's are there or not, however often."""
    return sum(proposal.source not in GIVEN for proposal in proposals)


def _without_strays(together: dict[str, list[Proposal]], molecules: Mapping[str, Molecule]) -> int:
    """Take out what only a wrong placement of charges made, in place; samples of internal salts.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was proposed. Structures of the
    user stay as they are.
    """
    n_samples = {block: _n_samples(proposals) for block, proposals in together.items()}
    kept = {block for block, n in n_samples.items() if n < len(together[block])}
    best: dict[str, str] = {}
    for block in sorted(together, key=lambda block: (-n_samples[block], block)):
        placement = molecules[block].placement
        first = best.setdefault(placement, block) if placement and block not in kept else block
        if first != block:
            together[first] += together.pop(block)
    salts = [block for block in together if molecules[block].is_salt and block not in kept]
    if len(salts) == len(together):
        return 0
    return sum(_n_samples(together.pop(block)) for block in salts)


def _structure(
    molecule: Molecule, proposals: Sequence[Proposal], scores: Mapping[str, float]
) -> Structure:
    samples = [proposal for proposal in proposals if proposal.source not in GIVEN]
    drawn = [one.log_likelihood for one in samples if one.log_likelihood is not None]
    return Structure(
        smiles=molecule.smiles,
        inchi=molecule.inchi,
        inchikey=molecule.inchikey,
        samples=len(samples),
        repaired=sum(one.is_repaired for one in samples),
        log_likelihood=sum(drawn) / len(drawn) if drawn else None,
        sources=tuple(sorted({one.source for one in proposals})),
        family=molecule.family,
        scaffold=molecule.scaffold,
        scores=scores,
    )
