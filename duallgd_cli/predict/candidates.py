"""From drawn bond matrices to distinct molecules: plain functions of picklable values.

S samples, M pairs. The same matrix is assembled once, however often it was drawn.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.hydrogens import Rejection
from duallgd_cli.chem.molecule import (
    Assembled,
    Mol,
    assemble,
    disassemble,
    is_internal_salt,
    is_zwitterion,
)
from duallgd_cli.chem.repair import repair
from duallgd_cli.chem.valence import ORDINARY, TIERS, USUAL
from duallgd_cli.errors import MoleculeError
from duallgd_cli.predict.evidence import Evidence, Witness
from duallgd_cli.predict.generation import Generated, OutOfTimeError
from duallgd_cli.predict.prediction import Structure, Tallies

_LEAST_PROBABILITY = 1e-4
_SALT = "internal salt"


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """Distinct bond matrices of one formula: what a worker is sent.

    Attributes:
        formula: All molecules have it.
        bond_class: int8 (U, M).
        bond_log_prob: float16 (U, M, 5) of one sample of each matrix, or None: no repair.
        witness: Asks each molecule about the spectrum, or None.
        timeout_s: Seconds the work may take, or None.
    """

    formula: Formula
    bond_class: NDArray[np.int8]
    bond_log_prob: NDArray[np.float16] | None
    witness: Witness | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A molecule by name, with its set Morgan bits (n_on,) and what speaks for it, if asked.

    Attributes:
        smiles: Canonical.
        inchi: Standard.
        inchikey: 27 characters.
        bits: Set Morgan bits, (n_on,).
        is_salt: See `chem.molecule.is_internal_salt`.
        placement: Of a zwitterion, what it shares with all that differ from it in the placement of
            charges alone; "" of any other molecule.
        evidence: What speaks for it, or None.
    """

    smiles: str
    inchi: str
    inchikey: str
    bits: NDArray[np.uint16]
    is_salt: bool = False
    placement: str = ""
    evidence: Evidence | None = None

    @property
    def block(self) -> str:
        """First block of the InChIKey."""
        return self.inchikey[: identity.BLOCK_LENGTH]


@dataclass(frozen=True, slots=True, eq=False)
class AssemblyResult:
    """What one matrix became.

    Attributes:
        molecules: The molecule, then further readings of the same matrix; empty if rejected.
        repaired: Whether it took a repair.
        reason: Why the matrix as drawn was rejected, "" if it was not.
    """

    molecules: tuple[Named, ...]
    repaired: bool = False
    reason: str = ""


@dataclass(slots=True)
class _Tally:
    """Samples of one molecule while they are counted; log-likelihoods are sums."""

    names: Counter[str] = field(default_factory=Counter)
    named: dict[str, Named] = field(default_factory=dict)
    samples: int = 0
    alternatives: int = 0
    repaired: int = 0
    sample_sum: float = 0.0
    alternative_sum: float = 0.0

    def add(self, molecule: Named, log_likelihoods: NDArray[np.float64], repaired: bool) -> None:
        """Count samples that became the molecule."""
        self._name(molecule, len(log_likelihoods))
        self.samples += len(log_likelihoods)
        self.repaired += len(log_likelihoods) * repaired
        self.sample_sum += float(log_likelihoods.sum())

    def add_alternative(self, molecule: Named, log_likelihoods: NDArray[np.float64]) -> None:
        """Count samples that the molecule is a further reading of."""
        self._name(molecule, 0)
        self.alternatives += len(log_likelihoods)
        self.alternative_sum += float(log_likelihoods.sum())

    def absorb(self, other: "_Tally") -> None:
        """Count what the other counted, under the name that this has."""
        self.samples += other.samples
        self.alternatives += other.alternatives
        self.repaired += other.repaired
        self.sample_sum += other.sample_sum
        self.alternative_sum += other.alternative_sum

    def representative(self) -> Named:
        """The most frequent spelling; ties go to the first in the alphabet."""
        return self.named[min(self.names, key=lambda smiles: (-self.names[smiles], smiles))]

    def mean_log_likelihood(self) -> float:
        """Over its samples, or over those it is a further reading of."""
        if self.samples:
            return self.sample_sum / self.samples
        return self.alternative_sum / self.alternatives

    def _name(self, molecule: Named, count: int) -> None:
        self.names[molecule.smiles] += count
        self.named.setdefault(molecule.smiles, molecule)


def distinct(formula: Formula, generated: Generated) -> tuple[Matrices, NDArray[np.int64]]:
    """The distinct matrices among the samples, and each sample's place among them, shape (S,)."""
    unique, first, inverse = np.unique(
        generated.bond_class, axis=0, return_index=True, return_inverse=True
    )
    log_prob = generated.bond_log_prob
    kept = None if log_prob is None else log_prob[first]
    matrices = Matrices(formula, unique, kept, generated.witness)
    return matrices, inverse.reshape(-1)


def split(matrices: Matrices, parts: int) -> list[Matrices]:
    """The same matrices in order, in at most `parts` pieces of nearly equal size."""
    places = np.array_split(np.arange(len(matrices.bond_class)), parts)
    log_prob = matrices.bond_log_prob
    return [
        replace(
            matrices,
            bond_class=matrices.bond_class[place],
            bond_log_prob=None if log_prob is None else log_prob[place],
        )
        for place in places
        if place.size
    ]


def read_matrices(matrices: Matrices) -> list[AssemblyResult]:
    """Turn bond matrices into molecules; what fails is repaired where log-probabilities are given.

    Raises:
        OutOfTimeError: `matrices.timeout_s` passed; looked at before each matrix.
    """
    started = time.monotonic()
    reader = _Reader(matrices.formula, matrices.witness)
    readings = []
    for place, bond_class in enumerate(matrices.bond_class):
        passed = time.monotonic() - started
        if matrices.timeout_s is not None and passed > matrices.timeout_s:
            raise OutOfTimeError
        log_prob = None if matrices.bond_log_prob is None else matrices.bond_log_prob[place]
        readings.append(reader.read(bond_class, log_prob))
    return readings


def collect(
    generated: Generated, readings: Sequence[AssemblyResult], place: NDArray[np.int64]
) -> tuple[tuple[Structure, ...], Tallies]:
    """Merge what the samples became by InChIKey first block.

    Args:
        generated: The samples.
        readings: What each distinct matrix became.
        place: Of each sample among `readings`, shape (S,).

    Returns:
        Distinct molecules in alphabetical order of their keys, and the tallies.
    """
    log_likelihood = generated.log_likelihood.astype(np.float64)
    found: dict[str, _Tally] = {}
    rejected: Counter[str] = Counter()
    assembled = repaired = 0
    for number, reading in enumerate(readings):
        mine = log_likelihood[place == number]
        if not reading.molecules:
            rejected[reading.reason] += len(mine)
            continue
        best, *others = _by_block(reading.molecules)
        assembled += len(mine) * (not reading.repaired)
        repaired += len(mine) * reading.repaired
        found.setdefault(best.block, _Tally()).add(best, mine, reading.repaired)
        for other in others:
            found.setdefault(other.block, _Tally()).add_alternative(other, mine)
    for salt in _strays(found):
        assembled -= salt.samples - salt.repaired
        repaired -= salt.repaired
        rejected.update({_SALT: salt.samples} if salt.samples else {})
    structures = tuple(_structure(found[block], generated.fingerprint) for block in sorted(found))
    tallies = Tallies(
        sampled=len(log_likelihood),
        assembled=assembled,
        repaired=repaired,
        rejected=dict(sorted(rejected.items())),
        distinct=len(structures),
    )
    return structures, tallies


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


class _Reader:
    """Turns matrices of one formula into molecules and names each molecule once.

    Naming takes longer than assembling, and the same molecule is drawn with many atom labellings.
    """

    def __init__(self, formula: Formula, witness: Witness | None) -> None:
        self._formula = formula
        self._witness = witness
        self._named: dict[str, Named] = {}

    def read(
        self, bond_class: NDArray[np.int8], log_prob: NDArray[np.float16] | None
    ) -> AssemblyResult:
        """What a matrix is as it stands, after repair, or with atoms of rare kinds; in this order.

        Almost any bonds make up the hydrogens of a formula with a carbanion and a cation or two, or
        as an internal salt, which are no molecules that anybody meant: a bond drawn wrong is
        likelier by far.
        """
        if log_prob is None:
            return self._read(bond_class, TIERS)
        best = self._read(bond_class, ORDINARY)
        for tiers in (ORDINARY, (USUAL,)):
            if best.molecules and (tiers == ORDINARY or not best.molecules[0].is_salt):
                continue
            fixed = repair(self._formula, bond_class, log_prob.astype(np.float32), tiers)
            repaired = AssemblyResult(()) if fixed is None else self._read(fixed, tiers)
            if repaired.molecules:
                best = replace(repaired, repaired=True)
        return best if best.molecules else self._read(bond_class, TIERS)

    def _read(self, bond_class: NDArray[np.int8], tiers: Sequence[int]) -> AssemblyResult:
        result = assemble(self._formula, bond_class, tiers=tiers)
        if isinstance(result, Rejection):
            return AssemblyResult((), reason=result.reason)
        try:
            return AssemblyResult(self._names(result))
        except MoleculeError:
            return AssemblyResult((), reason="no InChI")

    def _names(self, assembled: Assembled) -> tuple[Named, ...]:
        found = []
        for mol in assembled.molecules:
            smiles = identity.canonical_smiles(mol)
            if smiles not in self._named:
                inchi = identity.inchi(mol)
                bits, is_salt = identity.fingerprint(mol), is_internal_salt(mol)
                has_charges = is_salt or is_zwitterion(mol)
                key = identity.inchikey_of(inchi)
                self._named[smiles] = Named(
                    smiles,
                    inchi,
                    key,
                    bits,
                    is_salt=is_salt,
                    placement=identity.charge_free_smiles(mol) if has_charges else "",
                    evidence=self._asked(mol, bits),
                )
            found.append(self._named[smiles])
        return tuple(found)

    def _asked(self, mol: Mol, bits: NDArray[np.uint16]) -> Evidence | None:
        if self._witness is None:
            return None
        try:
            return self._witness.ask(disassemble(mol), bits)
        except MoleculeError:  # no matrix of bonds would be read as this one
            return None


def _strays(found: dict[str, _Tally]) -> list[_Tally]:
    """Take out what only a wrong placement of charges made, in place.

    Of zwitterions that differ in the placement of charges alone the most frequent stays and counts
    the samples of all. Internal salts stay only where nothing else was drawn.

    Returns:
        The internal salts that were taken out.
    """
    best: dict[str, str] = {}
    for block in sorted(found, key=lambda block: (-found[block].samples, block)):
        placement = found[block].representative().placement
        kept = best.setdefault(placement, block) if placement else block
        if kept != block:
            found[kept].absorb(found.pop(block))
    salts = [block for block, tally in found.items() if tally.representative().is_salt]
    return [] if len(salts) == len(found) else [found.pop(block) for block in salts]


def _by_block(molecules: Sequence[Named]) -> list[Named]:
    blocks: dict[str, Named] = {}
    for molecule in molecules:
        blocks.setdefault(molecule.block, molecule)
    return list(blocks.values())


def _structure(tally: _Tally, fingerprint: NDArray[np.float32] | None) -> Structure:
    molecule = tally.representative()
    agreement: tuple[float, float] | tuple[None, None] = (None, None)
    if fingerprint is not None:
        agreement = fingerprint_agreement(molecule.bits, fingerprint)
    return Structure(
        smiles=molecule.smiles,
        inchi=molecule.inchi,
        inchikey=molecule.inchikey,
        samples=tally.samples,
        alternatives=tally.alternatives,
        repaired=tally.repaired,
        log_likelihood=tally.mean_log_likelihood(),
        fingerprint_log_likelihood=agreement[0],
        fingerprint_tanimoto=agreement[1],
        **({} if molecule.evidence is None else asdict(molecule.evidence)),
    )
