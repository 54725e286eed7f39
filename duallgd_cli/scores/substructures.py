"""Scores by a molecule's substructures: are they what the spectrum predicts, and are they usual?

C candidates, F fingerprint bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.building_blocks import KnownEnds
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.environments import unknown_environments
from duallgd_cli.chem.joining import known_halves
from duallgd_cli.errors import WeightsError
from duallgd_cli.scores import Molecule, Score
from duallgd_cli.scores.fragments import DIGITS, FragmentScorer
from duallgd_cli.sources import Query

Array = NDArray[np.float64]

_LEAST_PROBABILITY: Final = 1e-4


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
class IsomerLogOdds:
    """What the Morgan bits speak for a molecule beside its isomers, summed."""

    name: str = "contrast"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,); 0 for all where no encoder says."""
        odds = query.isomer_log_odds
        if odds is None:
            return np.zeros(len(molecules))
        sums = (float(odds[one.bits].sum(dtype=np.float64)) for one in molecules)
        return np.array([round(value, DIGITS) for value in sums])


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
        return np.array([round(self.value(query, one), DIGITS) for one in molecules])


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
            "version, or run 'duallgd weights evidence'"
        ) from None
    table = tensors.get("environments")
    is_broken = prevalence.shape != (FINGERPRINT_BITS,)
    if table is not None:  # its bytes are a power of two
        is_filter = table.dtype == np.uint8 and table.ndim == 1 and table.size.bit_count() == 1
        is_broken = is_broken or not is_filter
    if is_broken:
        raise WeightsError(
            "the re-ranker in the weights is broken; fetch or copy the weights again"
        )

    def familiarity(query: Query, one: Molecule) -> float:
        """Substructure prior: mean log share of known molecules with each of the Morgan bits."""
        del query
        return float(prevalence[one.bits].mean()) if one.bits.size else 0.0

    scores: list[Score] = [
        *agreement,
        OfEach("familiarity", familiarity),
        # How usual the two parts are that it falls into.
        OfEach("known_halves", lambda _, one: known_halves(one.mol, ends)),
        IsomerLogOdds(),
    ]
    if table is not None:  # less 1 for each environment of an atom that no known structure has
        environments = partial(unknown_environments, known=table)
        scores.append(OfEach("known_environments", lambda _, one: 0.0 - environments(one.mol)))
    # What fragments that are peaks speak for it, and what fragments that are none do.
    scores += [
        OfEach("peaks_found", lambda query, one: fragments.peaks(query, one.mol)[0]),
        OfEach("peaks_missed", lambda query, one: fragments.peaks(query, one.mol)[1]),
    ]
    return tuple(scores), fragments
