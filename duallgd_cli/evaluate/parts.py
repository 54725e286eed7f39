"""Parts of a test set that are reported apart, such as the molecules of each public benchmark.

A spectrum may belong to several: a molecule that two benchmarks hold out counts in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.evaluate.scoring import Scores, Summary
from duallgd_cli.evaluate.tables import Truth

COLUMN: Final = "benchmark"
_BETWEEN: Final = "+"
_TITLES: Final = {"nplib1": "NPLIB1 part", "massspecgym": "MassSpecGym part"}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One part of the spectra.

    Attributes:
        name: Value of the column ``benchmark`` that its spectra share, such as ``nplib1``.
        keep: Which of all spectra belong to it, bool (B,).
        molecules: Distinct true molecules.
        summary: Means and intervals of every column over its spectra.
    """

    name: str
    keep: NDArray[np.bool_]
    molecules: int
    summary: Mapping[str, Summary]

    @property
    def title(self) -> str:
        """What it is called in reports."""
        return title_of(self.name)


def title_of(name: str) -> str:
    """What a part is called in reports."""
    return _TITLES.get(name, f"part {name}")


def masks(truths: Sequence[Truth]) -> dict[str, NDArray[np.bool_]]:
    """Which spectra belong to each part, bool (B,); empty where no spectrum names one."""
    names = [
        {name for name in truth.fields.get(COLUMN, "").split(_BETWEEN) if name} for truth in truths
    ]
    return {
        part: np.array([part in named for named in names]) for part in sorted(set().union(*names))
    }


def parts(scores: Scores, truths: Sequence[Truth], *, seed: int = 0) -> list[Part]:
    """Summarise every part.

    Args:
        scores: Of the spectra.
        truths: The same spectra in the same order.
        seed: Of the bootstrap.
    """
    found = []
    for name, keep in masks(truths).items():
        inside = scores.subset(keep)
        found.append(Part(name, keep, len(set(inside.molecule)), inside.summary(seed)))
    return found
