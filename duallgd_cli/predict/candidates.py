"""From drawn bond matrices to distinct molecules, here or in processes beside the next spectrum.

S samples, U distinct matrices among them, M pairs. The same matrix is assembled once, however often
it was drawn.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.molecule import (
    Mol,
    assemble,
    is_internal_salt,
    is_zwitterion,
    read_back,
)
from duallgd_cli.chem.repair import repair
from duallgd_cli.chem.valence import ORDINARY, TIERS, USUAL
from duallgd_cli.errors import MoleculeError, UsageError
from duallgd_cli.generator.reranker import CandidateScorer
from duallgd_cli.predict.generation import Generated, LoadedModel, OutOfTimeError
from duallgd_cli.predict.prediction import HypothesisResult, Structure
from duallgd_cli.runtime import ELSEWHERE, Processes, add_seconds

T = TypeVar("T")

_LEAST_PROBABILITY: Final = 1e-4
_SALT: Final = "internal salt"
KNOWN_MOLECULE: Final = "known molecule"
_GO_ON: Final = "finished work is kept, and --resume with fewer --workers goes on"
# Of each molecule: samples that became it, samples that it is a further reading of, those of the
# first that were repaired, and the summed log-likelihoods of the first and of the second.
_COUNTED: Final = ("samples", "alternatives", "repaired", "total", "alternative_total")
_SAMPLES: Final = 0


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
    is_repaired: bool = False

    @property
    def block(self) -> str:
        """First block of the InChIKey."""
        return self.inchikey[: identity.BLOCK_LENGTH]


# What one matrix became: the molecule, then further readings of the same matrix; or why none.
Assembled: TypeAlias = tuple[NamedMolecule, ...] | Rejection

# A matrix and the tiers of atom states that it may use, to what it is as it stands.
_Assemble: TypeAlias = Callable[[NDArray[np.int8], Sequence[int]], Assembled]

# What was drawn in one go, and what each sample became: the same result for the same matrix.
Round: TypeAlias = tuple[Generated, list[Assembled]]


def fitting(sample: Assembled) -> tuple[NamedMolecule, ...]:
    """Molecules that a sample became and that are as they must be."""
    found = () if isinstance(sample, Rejection) else sample
    return tuple(one for one in found if not one.fault)


def assemble_matrices(
    formula: Formula,
    bond_class: NDArray[np.int8],
    bond_log_prob: NDArray[np.float16] | None = None,
    scorer: CandidateScorer | None = None,
    timeout_s: float | None = None,
    guide: Guide | None = None,
) -> list[Assembled]:
    """Turn bond matrices into molecules; what fails is repaired where log-probabilities are given.

    Each molecule is named once: that takes longer than assembling, and the same molecule is drawn
    with many atom labellings.

    Args:
        formula: All molecules have it.
        bond_class: (U, M).
        bond_log_prob: (U, M, 5) of a sample of each matrix, or None: no repair.
        scorer: Scores each molecule for the spectrum, or None.
        timeout_s: Seconds the work may take, or None; looked at before each matrix.
        guide: What the molecules must be like, or None.

    Raises:
        OutOfTimeError: They passed.
    """
    started, results = time.monotonic(), list[Assembled]()
    named: dict[str, NamedMolecule] = {}  # by SMILES

    def assembled(matrix: NDArray[np.int8], tiers: Sequence[int]) -> Assembled:
        mols, found = assemble(formula, matrix, tiers=tiers), []
        if isinstance(mols, Rejection):
            return mols
        for mol in mols:
            smiles = identity.canonical_smiles(mol)
            if smiles not in named:
                try:
                    named[smiles] = _named(formula, scorer, guide, mol, smiles)
                except MoleculeError:
                    return Rejection("no InChI")
            found.append(named[smiles])
        return tuple(found)

    for number, matrix in enumerate(bond_class):
        if timeout_s is not None and time.monotonic() - started > timeout_s:
            raise OutOfTimeError
        log_prob = None if bond_log_prob is None else bond_log_prob[number].astype(np.float32)
        results.append(_repaired(formula, matrix, log_prob, assembled))
    return results


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
    formula: Formula, scorer: CandidateScorer | None, guide: Guide | None, mol: Mol, smiles: str
) -> NamedMolecule:
    inchi = identity.inchi(mol)
    bits, is_charged = identity.fingerprint(mol), "+" in smiles or "-]" in smiles
    is_salt = is_charged and is_internal_salt(mol)
    has_charges = is_charged and (is_salt or is_zwitterion(mol))
    return NamedMolecule(
        smiles=smiles,
        inchi=inchi,
        inchikey=identity.inchikey_of(inchi),
        bits=bits,
        is_salt=is_salt,
        placement=identity.charge_free_smiles(mol) if has_charges else "",
        fault="" if guide is None else guide.fault(mol),
        scores={} if scorer is None else scorer.scores(mol, read_back(mol, formula), bits),
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
    named: dict[str, NamedMolecule] = {}
    rejected: Counter[str] = Counter()
    for log_likelihood, sample in _samples(rounds):
        found = fitting(sample)
        if not found:
            why = sample.reason if isinstance(sample, Rejection) else sample[0].fault
            rejected[why] += 1
        for one in {one.block: one for one in reversed(found)}.values():
            first = one is found[0]
            spellings[one.block][one.smiles] += first
            named.setdefault(one.smiles, one)
            as_first = (1, 0, one.is_repaired, log_likelihood, 0)
            counts[one.block] += as_first if first else (0, 1, 0, 0, log_likelihood)
    molecules = {
        block: named[min(of_block, key=lambda smiles: (-of_block[smiles], smiles))]
        for block, of_block in spellings.items()
    }
    rejected[_SALT] += _without_strays(counts, molecules)
    for block in rounds[0][0].excluded & counts.keys():
        rejected[KNOWN_MOLECULE] += int(counts.pop(block)[_SAMPLES])
    fingerprint = rounds[0][0].fingerprint
    structures = tuple(
        _structure(molecules[block], counts[block], fingerprint) for block in sorted(counts)
    )
    sampled = sum(len(samples) for _, samples in rounds)
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


def _samples(rounds: Sequence[Round]) -> Iterator[tuple[float, Assembled]]:
    """Log-likelihood of each sample, and what it became."""
    for generated, samples in rounds:
        yield from zip(generated.log_likelihood.tolist(), samples, strict=True)


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
    counts: dict[str, NDArray[np.float64]], molecules: Mapping[str, NamedMolecule]
) -> int:
    """Take out what only a wrong placement of charges made, in place.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was drawn.

    Returns:
        Samples of the internal salts that were taken out.
    """
    best: dict[str, str] = {}
    for block in sorted(counts, key=lambda block: (-counts[block][_SAMPLES], block)):
        placement = molecules[block].placement
        kept = best.setdefault(placement, block) if placement else block
        if kept != block:
            counts[kept] += counts.pop(block)
    salts = [block for block in counts if molecules[block].is_salt]
    if len(salts) == len(counts):
        return 0
    return int(sum(counts.pop(block)[_SAMPLES] for block in salts))


def _structure(
    molecule: NamedMolecule, counts: NDArray[np.float64], fingerprint: NDArray[np.float32] | None
) -> Structure:
    """A molecule with its counts, in the order of `_COUNTED`."""
    agreement: tuple[float, float] | tuple[None, None] = (None, None)
    if fingerprint is not None:
        agreement = fingerprint_agreement(molecule.bits, fingerprint)
    samples, alternatives, repaired, total, alternative_total = counts.tolist()
    return Structure(
        smiles=molecule.smiles,
        inchi=molecule.inchi,
        inchikey=molecule.inchikey,
        samples=int(samples),
        alternatives=int(alternatives),
        repaired=int(repaired),
        log_likelihood=total / samples if samples else alternative_total / alternatives,
        fingerprint_log_likelihood=agreement[0],
        fingerprint_tanimoto=agreement[1],
        **molecule.scores,
    )


class Workers:
    """Predicts, or assembles molecules, with a number of processes; results do not depend on it.

    Attributes:
        count: Processes.
        drawing: The network's thread of its own, or None.
        again: Loads the network for processes that predict features; None where they assemble.
    """

    def __init__(
        self,
        count: int,
        *,
        draws_aside: bool = False,
        again: Callable[[], LoadedModel] | None = None,
    ) -> None:
        """Start `count` processes when there is work, or none if it is 1.

        Args:
            count: Processes.
            draws_aside: Whether the network has a thread of its own, for networks that leave this
                process idle while they run.
            again: Loads the network once more, or None.
        """
        self.count, self.again = count, again if count > 1 else None
        self._pool: Processes | None = None
        self.drawing = ThreadPoolExecutor(1, "draw") if draws_aside else None

    @property
    def ahead(self) -> int:
        """How many hypotheses may be under way while the next is begun."""
        return 2 * (self.count > 1) + (self.drawing is not None)

    def assemble(
        self,
        formula: Formula,
        generated: Generated,
        timeout_s: float | None = None,
        guide: Guide | None = None,
    ) -> Callable[[], list[Assembled]]:
        """Begin to turn samples into molecules.

        Args:
            formula: All molecules have it.
            generated: What was drawn.
            timeout_s: Seconds each process may take, or None.
            guide: What the molecules must be like, or None.

        Returns:
            A function that waits for what each sample became. It raises `OutOfTimeError` where the
            time is up, counted from when each process took up its share.
        """
        log_prob = generated.bond_log_prob
        _, chosen, matrix = np.unique(
            generated.bond_class, axis=0, return_index=True, return_inverse=True
        )
        shares = [
            partial(
                assemble_matrices,
                formula,
                generated.bond_class[rows],
                None if log_prob is None else log_prob[rows],
                generated.scorer,
                timeout_s,
                guide,
            )
            for rows in np.array_split(chosen, self.count)
            if rows.size
        ]
        submitted = [self._submit(share) for share in shares] if self.count > 1 else shares

        def wait() -> list[Assembled]:
            results = list[Assembled]()
            for share in submitted:
                results += share()
            return [results[number] for number in matrix.reshape(-1)]

        return wait

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
        if self.drawing is not None:  # whoever pressed Ctrl-C does not wait for what is dropped
            self.drawing.shutdown(wait=kind is not KeyboardInterrupt, cancel_futures=True)
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
