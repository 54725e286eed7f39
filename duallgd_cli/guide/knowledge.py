"""All that is known of the molecules of a run, and of those of one feature."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.guide.files import GuideFiles
from duallgd_cli.spectra.types import Feature

if TYPE_CHECKING:  # the network is measured where no rdkit is
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.guide.analogues import Analogues, GuideTable
    from duallgd_cli.guide.library import Library, Match

_MOST_MATCHES: Final = 10  # with the same precursor, among which one of the formula is looked for


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
        matches: Spectra of libraries with the same precursor, best first.
        is_short: Whether too few samples had the required parts: more start from molecules that
            have them.
    """

    guide: "Guide | None"
    analogues: "tuple[tuple[Analogues, NDArray[np.bool_]], ...]" = ()
    matches: "tuple[Match, ...]" = ()
    is_short: bool = False

    @property
    def says_something(self) -> bool:
        """Whether anything is known of the feature."""
        return self.guide is not None or any(one.any() for _, one in self.analogues)

    def graphs(self, probability: NDArray[np.float32], formula: Formula) -> list[MolecularGraph]:
        """Analogues to start samples of a formula from; see `Analogues.towards`."""
        return [
            graph
            for analogues, allowed in self.analogues
            for graph in analogues.towards(probability, formula, allowed)
        ]

    def told(self, structures: Iterable[Drawn], formula: str) -> dict[str, Any]:
        """What is said of the structures of a formula, as plain values.

        ``analogues`` has the nearest of each, if any; ``library_match`` the best spectrum of a
        library with the same precursor, and whether its structure is ``offered`` as a candidate.
        """
        nearest = {one.block: self._nearest(one.smiles) for one in structures}
        analogues = {key: one for key, one in nearest.items() if one is not None}
        match = self._match(formula)
        return {
            **({"analogues": analogues} if analogues else {}),
            **({"library_match": match} if match else {}),
        }

    def _nearest(self, smiles: str) -> Mapping[str, Any] | None:
        each = (analogues.nearest(smiles, allowed) for analogues, allowed in self.analogues)
        return max(filter(None, each), key=lambda one: float(one["tanimoto"]), default=None)

    def _match(self, formula: str) -> dict[str, Any] | None:
        """The best match, of those of the formula if there are any."""
        described = [(one, one.values()) for one in self.matches]
        described.sort(key=lambda both: both[1]["formula"] != formula)
        for one, values in described:
            fits = one.is_found and values["formula"] == formula
            return {**values, "offered": fits and not self._breaks(values["smiles"])}
        return None

    def _breaks(self, smiles: str) -> str:
        from duallgd_cli.chem.identity import parse_smiles

        return "" if self.guide is None else self.guide.fault(parse_smiles(smiles))


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is known of the molecules of a run.

    Attributes:
        guide: What each of them must be like, or None.
        analogues: Molecules that are like them.
        libraries: Spectra that may be theirs.
        tables: What single ones must be like.
    """

    guide: "Guide | None"
    analogues: "tuple[Analogues, ...]" = ()
    libraries: "tuple[Library, ...]" = ()
    tables: "tuple[GuideTable, ...]" = ()

    @classmethod
    def read(cls, guide: "Guide | None", files: GuideFiles) -> "Knowledge":
        """Read files.

        Args:
            guide: What each molecule must be like, or None.
            files: See `analogues.Analogues.read`, `library.Library.read` and
                `analogues.GuideTable.read`.

        Raises:
            UsageError: Something cannot be read, or says nothing.
            MissingInputError: A file does not exist.
            UnreadableError: A file is of no known format.
        """
        from duallgd_cli.guide.analogues import Analogues, GuideTable
        from duallgd_cli.guide.library import Library

        tables = tuple(GuideTable.read(Path(name)) for name in files.tables)
        alike = [Analogues.read(Path(name)) for name in files.analogues]
        return cls(
            guide,
            (*alike, *(one.analogues for one in tables if one.analogues is not None)),
            tuple(Library.read(Path(name)) for name in files.libraries),
            tables,
        )

    def of(self, feature: Feature) -> Known:
        """What is known of one feature."""
        names, guide = names_of(feature), self.guide
        for table in self.tables:
            guide = table.of_feature(names, guide)
        analogues = [(one, one.of_feature(names)) for one in self.analogues]
        if not self.libraries:
            return Known(guide, tuple(analogues))
        from duallgd_cli.guide.analogues import Analogues
        from duallgd_cli.guide.library import analogues_among

        matches = [one for library in self.libraries for one in library.search(feature.spectra)]
        matches.sort(key=lambda one: -one.score)
        if rows := analogues_among(matches):
            alike = Analogues.of(rows)
            analogues += [(alike, alike.of_feature(names))] if len(alike) else []
        same = tuple(one for one in matches if one.is_same)[:_MOST_MATCHES]
        return Known(guide, tuple(analogues), same)


def names_of(feature: Feature) -> Sequence[str]:
    """What a table may call a feature: its id, or that of its first spectrum."""
    first = feature.first
    return [name for name in (first.feature_id, first.spectrum_id) if name]
