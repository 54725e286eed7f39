"""All that is known of the molecules of a run, and of those of one feature."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.spectra.types import Feature

if TYPE_CHECKING:  # the network is measured where no rdkit is
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.guide.analogues import Analogues


class Drawn(Protocol):
    """A molecule that was drawn."""

    @property
    def smiles(self) -> str:
        """Canonical."""

    @property
    def block(self) -> str:
        """First block of its InChIKey."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of the molecule of one feature.

    Attributes:
        guide: What it must be like, or None.
        analogues: Known molecules, and which of them are like it.
    """

    guide: "Guide | None"
    analogues: "tuple[tuple[Analogues, NDArray[np.bool_]], ...]" = ()

    def graphs(self, probability: NDArray[np.float32], formula: Formula) -> list[MolecularGraph]:
        """Analogues to start samples of a formula from; see `Analogues.towards`."""
        return [
            graph
            for analogues, allowed in self.analogues
            for graph in analogues.towards(probability, formula, allowed)
        ]

    def told(self, structures: Iterable[Drawn]) -> dict[str, Any]:
        """What is said of structures, as plain values: of each the nearest analogue, if any."""
        nearest = {one.block: self._nearest(one.smiles) for one in structures}
        found = {key: one for key, one in nearest.items() if one is not None}
        return {"analogues": found} if found else {}

    def _nearest(self, smiles: str) -> Mapping[str, Any] | None:
        each = (analogues.nearest(smiles, allowed) for analogues, allowed in self.analogues)
        return max(filter(None, each), key=lambda one: float(one["tanimoto"]), default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is known of the molecules of a run.

    Attributes:
        guide: What each of them must be like, or None.
        analogues: Molecules that are like them.
    """

    guide: "Guide | None"
    analogues: "tuple[Analogues, ...]" = ()

    @classmethod
    def read(cls, guide: "Guide | None", analogues: Sequence[str] = ()) -> "Knowledge":
        """Read files.

        Args:
            guide: What each molecule must be like, or None.
            analogues: Files of molecules, see `analogues.Analogues.read`.

        Raises:
            UsageError: Something cannot be read, or says nothing.
            MissingInputError: A file does not exist.
            UnreadableError: A file is of no known format.
        """
        from duallgd_cli.guide.analogues import Analogues

        return cls(guide, tuple(Analogues.read(Path(name)) for name in analogues))

    def of(self, feature: Feature) -> Known:
        """What is known of one feature."""
        names = names_of(feature)
        return Known(self.guide, tuple((one, one.of_feature(names)) for one in self.analogues))


def names_of(feature: Feature) -> Sequence[str]:
    """What a table may call a feature: its id, or that of its first spectrum."""
    first = feature.first
    return [name for name in (first.feature_id, first.spectrum_id) if name]
