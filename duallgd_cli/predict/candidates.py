"""From what was proposed to distinct molecules; and processes, each of which predicts features.

S samples, U distinct matrices among them, M pairs. The same matrix is assembled once, however often
it was drawn.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import families, identity
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.molecule import (
    Mol,
    assemble,
    disassemble,
    is_internal_salt,
    is_zwitterion,
    read_back,
)
from duallgd_cli.chem.repair import repair
from duallgd_cli.chem.valence import ORDINARY, TIERS, USUAL
from duallgd_cli.errors import MoleculeError, UsageError
from duallgd_cli.generator.reranker import CandidateScorer
from duallgd_cli.predict.generation import Generated, LoadedModel, OutOfTimeError
from duallgd_cli.predict.prediction import DATABASE, HypothesisResult, Structure
from duallgd_cli.runtime import ELSEWHERE, Processes, add_seconds

T = TypeVar("T")

_LEAST_PROBABILITY: Final = 1e-4
_SALT: Final = "internal salt"
KNOWN_MOLECULE: Final = "known molecule"
_GO_ON: Final = "finished work is kept, and --resume with fewer --workers goes on"
# Of each molecule: proposals that it was, those that it is a further reading of, those of the first
# that were repaired, those of the first that were drawn, and the summed log-likelihoods of the
# drawn and of the further readings.
_COUNTED: Final = ("samples", "alternatives", "repaired", "drawn", "total", "alternative_total")
_SAMPLES: Final = 0
_DRAWN: Final = "noise"  # where a generator names no sources


@dataclass(frozen=True, slots=True, eq=False)
class NamedMolecule:
    """A molecule by name.

    Attributes:
        smiles: Canonical.
        inchi: Standard.
        inchikey: 27 characters.
        bits: Set Morgan bits, (n_on,).
        is_salt: See `chem.molecule.is_internal_salt`.
        placement: Of a zwitterion, what it shares with all that differ from it in the placement of
            charges alone; "" of any other molecule.
        fault: What of a `chem.guide.Guide` it breaks, "" if nothing.
        scores: By `generator.reranker.CandidateScorer.scores`; empty without one.
        family: See `chem.families`.
        scaffold: Likewise.
        is_repaired: Whether it took a repair to make it of its matrix.
    """

    smiles: str
    inchi: str
    inchikey: str
    bits: NDArray[np.uint16]
    is_salt: bool
    placement: str
    fault: str
    scores: dict[str, float]
    family: str
    scaffold: str
    is_repaired: bool = False

    @property
    def block(self) -> str:
        """First block of the InChIKey."""
        return self.inchikey[: identity.BLOCK_LENGTH]


# What one proposal became: the molecule, then further readings of the same matrix; or why none.
Assembled: TypeAlias = tuple[NamedMolecule, ...] | Rejection

# A matrix and the tiers of atom states that it may use, to what it is as it stands.
_Assemble: TypeAlias = Callable[[NDArray[np.int8], Sequence[int]], Assembled]

# What was proposed in one go, and what each proposal became, samples drawn before complete
# molecules: the same result for the same matrix.
Round: TypeAlias = tuple[Generated, list[Assembled]]


def fitting(sample: Assembled) -> tuple[NamedMolecule, ...]:
    """Molecules that a sample became and that are as they must be."""
    found = () if isinstance(sample, Rejection) else sample
    return tuple(one for one in found if not one.fault)


def assemble_all(
    formula: Formula,
    generated: Generated,
    timeout_s: float | None = None,
    guide: Guide | None = None,
) -> list[Assembled]:
    """Turn proposals into named molecules; samples that fail are repaired where that is possible.

    The same matrix is assembled once, however often it was drawn, and each molecule is named once:
    that takes longer than assembling, and the same molecule is drawn with many atom labellings.

    Args:
        formula: All molecules have it.
        generated: Samples drawn and complete molecules.
        timeout_s: Seconds the work may take, or None; looked at before each molecule.
        guide: What the molecules must be like, or None.

    Returns:
        What each sample became, (S,), then what each complete molecule is.

    Raises:
        OutOfTimeError: The seconds passed.
    """
    started, results = time.monotonic(), list[Assembled]()
    named: dict[str, NamedMolecule] = {}  # by SMILES

    def check() -> None:
        if timeout_s is not None and time.monotonic() - started > timeout_s:
            raise OutOfTimeError

    def named_all(mols: Sequence[Mol], is_complete: bool = False) -> Assembled:
        found = []
        for mol in mols:
            smiles = identity.canonical_smiles(mol)
            if smiles not in named:
                try:
                    named[smiles] = _named(
                        formula, generated.scorer, guide, mol, smiles, is_complete
                    )
                except MoleculeError:
                    return Rejection("no InChI")
            found.append(named[smiles])
        return tuple(found)

    def assembled(matrix: NDArray[np.int8], tiers: Sequence[int]) -> Assembled:
        mols = assemble(formula, matrix, tiers=tiers)
        return mols if isinstance(mols, Rejection) else named_all(mols)

    matrices, chosen, which = np.unique(
        generated.bond_class, axis=0, return_index=True, return_inverse=True
    )
    for matrix, row in zip(matrices, chosen, strict=True):
        check()
        log_prob = generated.bond_log_prob
        certain = None if log_prob is None else log_prob[row].astype(np.float32)
        results.append(_repaired(formula, matrix, certain, assembled))
    samples = [results[number] for number in which.reshape(-1)]
    for _, mol in generated.molecules:
        check()
        samples.append(named_all([mol], is_complete=True))
    return samples


def _repaired(
    formula: Formula,
    matrix: NDArray[np.int8],
    log_prob: NDArray[np.float32] | None,
    assembled: _Assemble,
) -> Assembled:
    """What a matrix is as it stands, after repair, or with rare atom types; in this order.

    Without log-probabilities nothing is repaired.

    Almost any bonds make up a formula's hydrogens with a carbanion and a cation or two, or as an
    internal salt, molecules that nobody meant: a bond drawn wrong is likelier by far.
    """
    if log_prob is None:
        return assembled(matrix, TIERS)
    best = assembled(matrix, ORDINARY)
    for tiers in (ORDINARY, (USUAL,)):
        if not isinstance(best, Rejection) and (tiers == ORDINARY or not best[0].is_salt):
            continue
        fixed = repair(formula, matrix, log_prob, tiers)
        if fixed is None:
            break  # fewer types of atoms mend no more
        if not isinstance(result := assembled(fixed, tiers), Rejection):
            best = tuple(replace(one, is_repaired=True) for one in result)
    return assembled(matrix, TIERS) if isinstance(best, Rejection) else best


def _named(
    formula: Formula,
    scorer: CandidateScorer | None,
    guide: Guide | None,
    mol: Mol,
    smiles: str,
    is_complete: bool,
) -> NamedMolecule:
    inchi = identity.inchi(mol)
    bits, is_charged = identity.fingerprint(mol), "+" in smiles or "-]" in smiles
    is_salt = is_charged and is_internal_salt(mol)
    # Of a molecule of `assemble` the order of atoms is known, which spares half the time.
    parts = disassemble(mol) if is_complete else read_back(mol, formula)
    has_charges = is_charged and (is_salt or is_zwitterion(mol))
    return NamedMolecule(
        smiles=smiles,
        inchi=inchi,
        inchikey=identity.inchikey_of(inchi),
        bits=bits,
        is_salt=is_salt,
        placement=identity.charge_free_smiles(mol) if has_charges else "",
        fault="" if guide is None else guide.fault(mol),
        scores={} if scorer is None else scorer.scores(mol, parts, bits),
        family=families.family(mol),
        scaffold=families.scaffold(mol),
    )


def collect(result: HypothesisResult, rounds: Sequence[Round]) -> HypothesisResult:
    """Merge what samples became by InChIKey first block.

    Args:
        result: Of their hypothesis, so far.
        rounds: The samples; those of all rounds count as if they were drawn in one.

    Returns:
        It with distinct molecules, in alphabetical order of their keys, and with the tallies.
    """
    counts: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(len(_COUNTED)))
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    sources: defaultdict[str, set[str]] = defaultdict(set)
    named: dict[str, NamedMolecule] = {}
    rejected: Counter[str] = Counter()
    of_databases = set[str]()
    for source, log_likelihood, sample in proposals(rounds):
        found = fitting(sample)
        if source == DATABASE:  # no sample: whatever else is counted, it is one of them or not
            for one in found:
                of_databases.add(one.block)
                sources[one.block].add(source)
                named.setdefault(one.smiles, one)
                spellings[one.block][one.smiles] += 0
                counts[one.block] += 0
            continue
        if not found:
            why = sample.reason if isinstance(sample, Rejection) else sample[0].fault
            rejected[why] += 1
        is_drawn = log_likelihood is not None
        for one in {one.block: one for one in reversed(found)}.values():
            first = one is found[0]
            spellings[one.block][one.smiles] += first
            sources[one.block].add(source)
            named.setdefault(one.smiles, one)
            likelihood = log_likelihood or 0.0
            as_first = (1, 0, one.is_repaired, is_drawn, likelihood, 0)
            counts[one.block] += as_first if first else (0, 1, 0, 0, 0, likelihood)
    molecules = {
        block: named[min(of_block, key=lambda smiles: (-of_block[smiles], smiles))]
        for block, of_block in spellings.items()
    }
    rejected[_SALT] += _without_strays(counts, molecules, of_databases)
    for block in rounds[0][0].excluded & counts.keys():
        rejected[KNOWN_MOLECULE] += int(counts.pop(block)[_SAMPLES])
    fingerprint = rounds[0][0].fingerprint
    structures = tuple(
        _structure(molecules[block], counts[block], fingerprint, sources[block])
        for block in sorted(counts)
    )
    sampled = sum(source != DATABASE for source, *_ in proposals(rounds))
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


def proposals(rounds: Sequence[Round]) -> Iterator[tuple[str, float | None, Assembled]]:
    """Source and log-likelihood, None where nothing was drawn, of each proposal; what it became."""
    for generated, became in rounds:
        drawn = generated.log_likelihood.tolist()
        names = [
            *(generated.sources or [_DRAWN] * len(drawn)),
            *(n for n, _ in generated.molecules),
        ]
        likelihoods = [*drawn, *[None] * len(generated.molecules)]
        yield from zip(names, likelihoods, became, strict=True)


def fingerprint_agreement(
    bits: NDArray[np.uint16], probability: NDArray[np.float32]
) -> tuple[float, float]:
    r"""How well a molecule's Morgan bits agree with predicted bit probabilities.

    Args:
        bits: Set bits of the molecule, (n_on,).
        probability: Predicted, (4096,).

    Returns:
        The log-likelihood :math:`\sum_b \log p(x_b) - \max_x \log p(x)`, at most 0 and 0 for the
        most probable bits; and the soft Tanimoto similarity
        :math:`\sum_b \min(x_b, p_b) / \sum_b \max(x_b, p_b)`.
    """
    p = np.clip(probability.astype(np.float64), _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    on = np.zeros(p.shape, dtype=np.bool_)
    on[bits] = True
    chosen = np.where(on, p, 1 - p)
    log_likelihood = float(np.sum(np.log(chosen) - np.log(np.maximum(p, 1 - p))))
    shared = float(p[on].sum())
    return log_likelihood, shared / (float(p[~on].sum()) + int(on.sum()))


def _without_strays(
    counts: dict[str, NDArray[np.float64]],
    molecules: Mapping[str, NamedMolecule],
    kept: Set[str],
) -> int:
    """Take out what only a wrong placement of charges made, in place.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was drawn. Structures of
    databases, whose blocks are `kept`, stay as they are.

    Returns:
        Samples of the internal salts that were taken out.
    """
    best: dict[str, str] = {}
    for block in sorted(counts, key=lambda block: (-counts[block][_SAMPLES], block)):
        placement = molecules[block].placement
        first = best.setdefault(placement, block) if placement and block not in kept else block
        if first != block:
            counts[first] += counts.pop(block)
    salts = [block for block in counts if molecules[block].is_salt and block not in kept]
    if len(salts) == len(counts):
        return 0
    return int(sum(counts.pop(block)[_SAMPLES] for block in salts))


def _structure(
    molecule: NamedMolecule,
    counts: NDArray[np.float64],
    fingerprint: NDArray[np.float32] | None,
    sources: set[str],
) -> Structure:
    """A molecule with its counts, in the order of `_COUNTED`."""
    agreement: tuple[float, float] | tuple[None, None] = (None, None)
    if fingerprint is not None:
        agreement = fingerprint_agreement(molecule.bits, fingerprint)
    samples, alternatives, repaired, drawn, total, alternative_total = counts.tolist()
    likelihood = total / drawn if drawn else None
    if not samples and alternatives:
        likelihood = alternative_total / alternatives
    return Structure(
        smiles=molecule.smiles,
        inchi=molecule.inchi,
        inchikey=molecule.inchikey,
        samples=int(samples),
        alternatives=int(alternatives),
        repaired=int(repaired),
        log_likelihood=likelihood,
        fingerprint_log_likelihood=agreement[0],
        fingerprint_tanimoto=agreement[1],
        **molecule.scores,
        sources=tuple(sorted(sources)),
        family=molecule.family,
        scaffold=molecule.scaffold,
    )


class Workers:
    """Processes that predict, each a feature at a time; results do not depend on their number.

    Attributes:
        count: Processes.
        again: Loads the network for each of them; None where all is predicted in this process.
    """

    def __init__(self, count: int, *, again: Callable[[], LoadedModel] | None = None) -> None:
        """Start `count` processes when there is work, or none if it is 1.

        Args:
            count: Processes.
            again: Loads the network once more, or None.
        """
        self.count, self.again = count, again if count > 1 else None
        self._pool: Processes | None = None

    def predict(self, work: Callable[[LoadedModel], T]) -> Callable[[], T]:
        """Begin work with the network in a process that has its own; see `again`.

        Returns:
            A function that waits for what it gives.
        """
        return self._submit(partial(_with_network, work, self.again))

    def _submit(self, work: Callable[[], T]) -> Callable[[], T]:
        if self._pool is None:
            self._pool = Processes(self.count, _GO_ON)
        submitted: Callable[[], tuple[T, float]] = self._pool.submit(_timed, work)

        def wait() -> T:
            result, seconds = submitted()
            add_seconds(ELSEWHERE, seconds)
            return result

        return wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, *error)
        self._pool = None  # its semaphores are given back before the process ends


_networks: Final = list[LoadedModel]()  # of a process that predicts


def _with_network(work: Callable[[LoadedModel], T], again: Callable[[], LoadedModel] | None) -> T:
    if again is not None and not _networks:
        try:
            _networks.append(again())
        except RuntimeError as error:  # the GPU is full, or takes one process alone
            why = str(error).partition("\n")[0]
            raise UsageError(f"a process cannot load the network ({why}); {_GO_ON}") from None
    return work(_networks[0])


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started
