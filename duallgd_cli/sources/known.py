"""What the user says of the molecules of a run, and of those of one feature."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.errors import UsageError, clip, quote
from duallgd_cli.files import require_file, sha256
from duallgd_cli.runtime import databases_folder
from duallgd_cli.spectra.types import Feature
from duallgd_cli.tables import numbered_rows

if TYPE_CHECKING:  # settings are read where no rdkit is loaded
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.chem.molecule import Mol
    from duallgd_cli.sources.database import Database
    from duallgd_cli.sources.library import Library, Match
    from duallgd_cli.sources.structures import Analogues

logger = logging.getLogger(__name__)

_FEATURE: Final = "feature_id"
_COLUMNS: Final = ("core", "require", "forbid", "analogue")
_ALSO: Final = {"required": "require", "forbidden": "forbid", "analogues": "analogue"}
_BETWEEN: Final = "|"  # no SMILES and no SMARTS has it
_MOST_LINES: Final = 1_000_000
_MOST_MATCHES: Final = 10  # with the same precursor, among which one of the formula is looked for


@dataclass(frozen=True, slots=True)
class GuideFiles:
    """Files that say what is known of the molecules.

    Attributes:
        analogues: Of molecules that are like the unknown ones: .smi, .csv, .tsv or .sdf.
        libraries: Of spectra with structures: MSP, MGF, mzML or JSON.
        tables: CSV or TSV, by feature: feature_id, core, require, forbid, analogue.
        databases: Of structures to choose from instead of drawing any: as analogues, or the name of
            a database that was added.
    """

    analogues: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()

    def places(self) -> Iterator[tuple[str, str, Path]]:
        """Kind, name and place of each; it raises as `database.located` does."""
        from duallgd_cli.sources.database import located

        for kind, names in asdict(self).items():
            for name in names:
                if kind != "databases":
                    require_file(name)
                yield kind, name, located(name) if kind == "databases" else Path(name)

    def identity(self) -> dict[str, Any]:
        """Names and contents by kind, for the header of a journal."""
        from duallgd_cli.sources.database import Database

        contents: dict[str, list[dict[str, str]]] = {}
        for kind, name, place in self.places():
            is_named = place.parent == databases_folder()
            digest = Database.open(place).about.sha256 if is_named else sha256(place)
            contents.setdefault(kind, []).append({"name": name, "sha256": digest})
        return contents


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of the molecule of one feature."""

    guide: "Guide | None"  # what it must be like
    analogues: "tuple[tuple[Analogues, NDArray[np.bool_]], ...]" = ()  # and which are like it
    matches: "tuple[Match, ...]" = ()  # spectra of libraries with the same precursor, best first
    n_peaks: int = 0  # of the spectrum of the feature that has most
    databases: "tuple[Analogues | Database, ...]" = ()  # in which it may be

    @property
    def is_uncalibrated(self) -> bool:
        """Whether candidates are guided by something that confidence was not fitted with."""
        return self.guide is not None or any(allowed.any() for _, allowed in self.analogues)

    def within(self, formulas: Sequence[Formula]) -> "Known":
        """The same with those structures of the databases alone that have one of these formulas."""
        databases = (structures.of_formulas(formulas) for structures in self.databases)
        return replace(self, databases=tuple(databases))

    def isomers(self, formula: Formula) -> "Iterator[Mol]":
        """Molecules of the databases that have a formula, read when they are asked for."""
        each = (structures.of_formulas([formula]).molecules() for structures in self.databases)
        return chain.from_iterable(each)

    def graphs(self, probability: NDArray[np.float32], formula: Formula) -> list[MolecularGraph]:
        """Analogues to start samples of a formula from, see `Analogues.towards`."""
        each = (mols.towards(probability, formula, allowed) for mols, allowed in self.analogues)
        alike = sorted(chain.from_iterable(each), key=lambda pair: -pair[0])
        return [graph for _, graph in alike]

    def told(
        self, smiles: Mapping[str, str], formula: str, probability: NDArray[np.float32] | None
    ) -> dict[str, Any]:
        """What is said of the structures of a formula, as plain values.

        ``analogues`` has the nearest of each, if any; ``library_match`` the best spectrum of a
        library with the same precursor, and whether its structure is ``offered`` as a candidate.

        Args:
            smiles: Of the structures, by the first block of their InChIKey.
            formula: Of them all.
            probability: Predicted chance of each Morgan bit, (F,); None if nothing predicts it.
        """
        if probability is None:
            probability = np.zeros(FINGERPRINT_BITS, np.float32)
        wanted, analogues = Formula.parse(formula), dict[str, Any]()
        if smiles:
            near = [mols.near(probability, wanted, allowed) for mols, allowed in self.analogues]
            near += [structures.of_formulas([wanted]) for structures in self.databases]
            for block, text in smiles.items():
                nearest = [value for mols in near if (value := mols.nearest(text)) is not None]
                if nearest:
                    analogues[block] = max(nearest, key=lambda value: float(value["tanimoto"]))
        said = {"analogues": analogues, "library_match": self.match(wanted)}
        return {name: value for name, value in said.items() if value}

    def match(self, formula: Formula) -> dict[str, Any] | None:
        """The best match, of those of the formula if there are any, as `told` says it.

        One of the formula that is as the guide says is ``offered`` as a candidate, with the
        ``probability`` that it is right; ``found`` says whether the spectra are much alike.
        """
        from duallgd_cli.chem.identity import parse_smiles
        from duallgd_cli.sources.library import best_hit, probability_of

        hit = best_hit(self.matches, str(formula))
        if hit is None:
            return {**self.matches[0].values(), "offered": False} if self.matches else None
        best, rival = hit
        values = best.values()
        probability = probability_of(best.score, best.peaks, self.n_peaks, rival)
        fault = "" if self.guide is None else self.guide.fault(parse_smiles(values["smiles"]))
        return {
            **values,
            "offered": not fault,
            "found": best.is_found,
            "probability": round(probability, 4),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is known of the molecules of a run; too much to be sent to other processes."""

    guide: "Guide | None"  # what each of them must be like
    analogues: "tuple[Analogues, ...]" = ()
    libraries: "tuple[Library, ...]" = ()
    guides: "Mapping[str, Guide]" = field(default_factory=dict)  # of single features, by name
    databases: "tuple[Database, ...]" = ()

    @classmethod
    def read(cls, guide: "Guide | None", files: GuideFiles) -> "Knowledge":
        """Read files; it raises as `database`, `Library.read` and `read_guides` do."""
        from duallgd_cli.sources.database import opened, read_analogues
        from duallgd_cli.sources.library import Library

        guides: dict[str, Guide] = {}
        tables = [read_guides(Path(name)) for name in files.tables]
        for of_features, _ in tables:
            for name, of_table in of_features.items():
                guides[name] = guides[name].and_also(of_table) if name in guides else of_table
        alike = [read_analogues(Path(name)) for name in files.analogues]
        return cls(
            guide,
            (*alike, *(analogues for _, analogues in tables if analogues is not None)),
            tuple(Library.read(Path(name)) for name in files.libraries),
            guides,
            tuple(map(opened, files.databases)),
        )

    def of(self, feature: Feature) -> Known:
        """What is known of one feature."""
        guide, names = self.guide, names_in_guides(feature)
        for name in names:
            if of_table := self.guides.get(name):
                guide = of_table if guide is None else guide.and_also(of_table)
        analogues = [(mols, mols.of_feature(names)) for mols in self.analogues]
        if not self.libraries:
            return Known(guide, tuple(analogues), databases=self.databases)
        from duallgd_cli.sources.library import analogues_among
        from duallgd_cli.sources.structures import Analogues

        each = [match for library in self.libraries for match in library.search(feature.spectra)]
        matches = sorted(each, key=lambda match: -match.score)
        alike = Analogues.of(analogues_among(matches))
        if len(alike):
            analogues.append((alike, alike.of_feature(names)))
        same = tuple(match for match in matches if match.is_same)[:_MOST_MATCHES]
        n_peaks = max(spectrum.mz.size for spectrum in feature.spectra)
        return Known(guide, tuple(analogues), same, n_peaks, self.databases)


def names_in_guides(feature: Feature) -> tuple[str, ...]:
    """What a table of guides or of analogues may call a feature."""
    names = (feature.first.feature_id, feature.first.spectrum_id)
    return tuple(dict.fromkeys(filter(None, names)))


def read_guides(path: Path) -> "tuple[dict[str, Guide], Analogues | None]":
    """What the molecules of single features must be like, by feature, and molecules like them.

    Several values in a cell have ``|`` between them, and rows add up. Columns that are none of
    these are named in a warning.

    Args:
        path: CSV or TSV with ``feature_id`` and any of core, require, forbid and analogue.

    Raises:
        MissingInputError: There is no such file.
        UnreadableError: It does not name features, or is no text.
        UsageError: It says nothing, is too long, or a cell cannot be read.
    """
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.data.structures import StructureRow
    from duallgd_cli.sources.structures import Analogues, stored

    guides: defaultdict[str, Guide] = defaultdict(Guide)
    alike: list[StructureRow] = []
    for number, (line, row) in enumerate(numbered_rows(path, (_FEATURE,), _ALSO)):
        if number == 0 and (others := row.keys() - {_FEATURE, *_COLUMNS}):
            logger.warning("%s: not used are the columns %s", path, clip(", ".join(sorted(others))))
        if number >= _MOST_LINES:
            raise UsageError(f"{path} has more than {_MOST_LINES:,} rows; keep those needed")
        core, require, forbid, analogues = (
            tuple(filter(None, map(str.strip, row.get(column, "").split(_BETWEEN))))
            for column in _COLUMNS
        )
        guide, name = Guide(".".join(core) or None, require, forbid), row[_FEATURE]
        try:
            guide.check()
        except UsageError as error:
            raise UsageError(f"{path}, line {line}: {error}") from None
        if not name:
            raise UsageError(f"{path}, line {line}: no {_FEATURE}; say which feature it is of")
        if guide != Guide():
            guides[name] = guides[name].and_also(guide)
        alike += (StructureRow(smiles, "", line, "", name) for smiles in analogues)
    for wrong, kept in map(stored, alike):
        if isinstance(kept, str):
            raise UsageError(
                f"{path}, line {wrong.line}: analogue {quote(wrong.smiles)} is no molecule that "
                "samples can start from; write a SMILES such as CCO"
            )
    if not guides and not alike:
        raise UsageError(f"{path} says nothing of any feature; fill {', '.join(_COLUMNS)}")
    return dict(guides), Analogues.of(alike) if alike else None
