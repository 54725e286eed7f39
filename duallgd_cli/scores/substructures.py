"""Scores by a molecule's substructures: are they what the spectrum predicts, and are they usual?

An environment is an atom with all that is up to three bonds away, by the number that Morgan
fingerprints give it before they are folded. Hundreds of thousands that known structures have are
kept as a Bloom filter: of each five bits are set, so that one in forty that was never seen passes
for known. C candidates, F fingerprint bits, E environments, B bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from duallgd_cli.chem.building_blocks import KnownEnds
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.joining import known_halves
from duallgd_cli.errors import WeightsError
from duallgd_cli.scores import Molecule, Score
from duallgd_cli.scores.fragments import BROKEN, DIGITS, FragmentScorer
from duallgd_cli.sources import Query

Array = NDArray[np.float64]

_LEAST_PROBABILITY: Final = 1e-4
_RADIUS: Final = 3
# What a single structure has says as little as what none has.
_COMMON: Final = 2
# Bits of the filter for each environment, and the odd numbers that spread its number over them.
_BITS_EACH, _FEWEST_BITS = 7, 64
_SPREAD: Final = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1], dtype=np.uint32
)


@dataclass(frozen=True, slots=True)
class FingerprintLikelihood:
    r"""Log-likelihood of the Morgan bits, :math:`\sum_b \log p(x_b) - \max_x \log p(x)`.

    At most 0, and 0 for the most probable bits.
    """

    name: str = "fingerprint_log_likelihood"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        on, p = _bits(query, molecules)
        best = np.log(np.maximum(p, 1 - p))
        return np.asarray((np.log(np.where(on, p, 1 - p)) - best).sum(1))


@dataclass(frozen=True, slots=True)
class FingerprintTanimoto:
    r"""Soft Tanimoto similarity, :math:`\sum_b \min(x_b, p_b) / \sum_b \max(x_b, p_b)`."""

    name: str = "fingerprint_tanimoto"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        on, p = _bits(query, molecules)
        shared = (on * p).sum(1)
        return np.asarray(shared / (p.sum() - shared + on.sum(1)))


def _bits(query: Query, molecules: Sequence[Molecule]) -> tuple[NDArray[np.bool_], Array]:
    """Bits of molecules, (C, F), and their predicted probabilities, (F,)."""
    on = np.zeros((len(molecules), query.fingerprint.size), np.bool_)
    for row, molecule in zip(on, molecules, strict=True):
        row[molecule.bits] = True
    p = query.fingerprint.astype(np.float64)
    return on, np.clip(p, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)


@dataclass(frozen=True, slots=True)
class OfEach:
    """A score that looks at one molecule after the other.

    Attributes:
        name: Of the score.
        value: Number of a molecule for a query.
    """

    name: str
    value: Callable[[Query, Molecule], float]

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        return np.array([round(self.value(query, molecule), DIGITS) for molecule in molecules])


def isomer_log_odds(query: Query, molecule: Molecule) -> float:
    """What the Morgan bits speak for a molecule beside its isomers, summed; 0 without an encoder.

    An encoder that says so is `Query.isomer_log_odds`.
    """
    odds = query.isomer_log_odds
    return 0.0 if odds is None else float(odds[molecule.bits].sum(dtype=np.float64))


def known_environments(mols: Iterable[Chem.Mol]) -> NDArray[np.uint8]:
    """The filter of all environments that at least two molecules have, (B,), B a power of two."""
    seen: Counter[int] = Counter()
    for mol in mols:
        seen.update(_environments(mol))
    common = [number for number, count in seen.items() if count >= _COMMON]
    n_bits = max(_FEWEST_BITS, 1 << (_BITS_EACH * len(common) - 1).bit_length())
    is_set = np.zeros(n_bits, np.bool_)
    is_set[_places(common, n_bits)] = True
    return np.packbits(is_set, bitorder="little")


def unknown_environments(mol: Chem.Mol, known: NDArray[np.uint8]) -> int:
    """How many environments of a molecule are none of those in a filter, (B,)."""
    places = _places(_environments(mol), 8 * known.size)
    is_set = known[places >> 3] >> (places & 7).astype(np.uint8) & 1
    return int(np.count_nonzero(~is_set.astype(np.bool_).all(1)))


@cache
def _generator() -> rdFingerprintGenerator.FingerprintGenerator64:
    return rdFingerprintGenerator.GetMorganGenerator(radius=_RADIUS)


def _environments(mol: Chem.Mol) -> list[int]:
    """Their numbers, of 32 bits, each once."""
    return list(_generator().GetSparseFingerprint(mol).GetOnBits())


def _places(numbers: list[int], n_bits: int) -> NDArray[np.int64]:
    """Bits of each environment, (E, 5): the highest of products modulo 2^32."""
    spread = np.array(numbers, np.int64).astype(np.uint32)[:, None] * _SPREAD
    return (spread >> np.uint32(33 - n_bits.bit_length())).astype(np.int64)


def fitted_scores(
    tensors: Mapping[str, NDArray[Any]], ends: KnownEnds
) -> tuple[tuple[Score, ...], FragmentScorer | None]:
    """All scores that a weights file holds, and what fragments speak for.

    Args:
        tensors: Of its re-ranker; none leave the two that need no fit.
        ends: Of the known molecules in the weights.

    Raises:
        WeightsError: One is missing or broken, or was fitted by another version.
    """
    agreement: tuple[Score, ...] = (FingerprintLikelihood(), FingerprintTanimoto())
    if not tensors:
        return agreement, None
    try:
        fragments, prevalence = FragmentScorer.of(tensors), tensors["log_prevalence"]
    except KeyError as error:
        raise WeightsError(
            f"the weights hold no {error} of a re-ranker; take the weights that come with this "
            "version"
        ) from None
    table = tensors.get("environments")
    is_filter = table is None or (
        table.dtype == np.uint8 and table.ndim == 1 and table.size.bit_count() == 1
    )
    if prevalence.shape != (FINGERPRINT_BITS,) or not is_filter:
        raise WeightsError(BROKEN)
    scores: dict[str, Callable[[Query, Molecule], float]] = {
        # Substructure prior: mean log share of known molecules with each of the Morgan bits.
        "familiarity": lambda _, one: float(prevalence[one.bits].mean()) if one.bits.size else 0.0,
        # How usual the two parts are that it falls into.
        "known_halves": lambda _, one: known_halves(one.mol, ends),
        "contrast": isomer_log_odds,
    }
    if table is not None:  # less 1 for each environment of an atom that no known structure has
        scores["known_environments"] = lambda _, one: 0.0 - unknown_environments(one.mol, table)
    # What fragments that are peaks speak for it, and what fragments that are none do.
    scores["peaks_found"] = lambda query, one: fragments.peaks(query, one.mol)[0]
    scores["peaks_missed"] = lambda query, one: fragments.peaks(query, one.mol)[1]
    return (*agreement, *(OfEach(name, value) for name, value in scores.items())), fragments
