"""All that is known of the molecules of a run, and of those of one feature.

What was read of large files is kept under the SHA-256 of the file, in ``guide/`` of the folder that
`runtime.cache_folder` names. Deleting it costs the time of reading again and nothing else.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.errors import UsageError, clip, counted
from duallgd_cli.files import DAMAGED_ARRAYS, replaced, require_file, sha256
from duallgd_cli.runtime import cache_folder
from duallgd_cli.spectra.types import Feature

if TYPE_CHECKING:  # the network is measured where no rdkit is
    from duallgd_cli.chem.guide import Guide
    from duallgd_cli.chem.molecule import Mol
    from duallgd_cli.guide.analogues import Analogues
    from duallgd_cli.guide.library import Library, Match
    from duallgd_cli.guide.store import Database


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
        """Kind, name and place of each: the file, or the folder of a database of that name.

        Raises:
            MissingInputError: One does not exist.
            UnreadableError: One is no file.
        """
        from duallgd_cli.guide.store import located

        for kind, names in asdict(self).items():
            for name in names:
                if kind == "databases":
                    yield kind, name, located(name)
                else:
                    require_file(name)
                    yield kind, name, Path(name)

    def identity(self) -> dict[str, Any]:
        """Names and contents by kind, for the header of a journal.

        Raises:
            MissingInputError: One does not exist.
            UnreadableError: One cannot be read.
        """
        from duallgd_cli.guide.store import About

        found: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
        for kind, name, place in self.places():
            digest = About.read(place).sha256 if place.is_dir() else sha256(place)
            found[kind].append({"name": name, "sha256": digest})
        return dict(found)


logger = logging.getLogger(__name__)

_FOLDER: Final = "guide"
_LINE_END: Final = 10
_AT_ONCE: Final = 10_000  # lines
_MOST_REASONS: Final = 4


def kept(
    path: Path, kind: str, sought: str, make: Callable[[Path], Mapping[str, NDArray[Any]]]
) -> dict[str, Any]:
    """Arrays and lists of texts made of a file, from the cache where it holds them.

    Args:
        path: Of the file.
        kind: What is made of it, with the version of its arrays.
        sought: What the file must hold at least one of, in words.
        make: Makes them: ``smiles`` with ``left_out``, what a warning says, and any others; texts
            as `text_of` gives them.

    Raises:
        MissingInputError: There is no such file.
        UsageError: It holds nothing that was sought.
    """
    require_file(str(path))
    place = cache_folder() / _FOLDER / f"{sha256(path)}.{kind}.npz"
    made: dict[str, Any] = {}
    try:
        with np.load(place) as stored:
            made = dict(stored)
    except FileNotFoundError:
        pass
    except DAMAGED_ARRAYS:
        logger.warning("%s cannot be read, and is made again", place)
    if not made:
        made = dict(make(path))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with replaced(place) as partial, partial.open("wb") as stream:
                np.savez(stream, **made)
        except OSError as error:
            logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
    found = read_back(made)
    said = "; ".join(found.pop("left_out"))
    if not len(found["smiles"]):
        raise UsageError(f"{path} holds no {sought}: {said or 'it is empty'}")
    if said:
        logger.warning("%s: %s", path, said)
    return found


def left_out(reasons: Mapping[str, int], noun: str, plural: str = "") -> str:
    """What of a file cannot be used, in words: the most frequent reasons, and how many others."""
    first = sorted(reasons, key=lambda reason: (-reasons[reason], reason))[:_MOST_REASONS]
    said = [f"{counted(reasons[why], noun, plural)} left out ({clip(why)})" for why in first]
    if others := sum(reasons.values()) - sum(reasons[why] for why in first):
        said.append(f"{others} for other reasons")
    return "; ".join(said)


def line_of(text: str) -> bytes:
    """A text as one line; line breaks in it become blanks."""
    return f"{' '.join(text.split())}\n".encode("utf-8", "replace")


def text_of(lines: Iterable[str]) -> NDArray[np.uint8]:
    """Texts as an array, a line each."""
    return np.frombuffer(b"".join(map(line_of, lines)), np.uint8)


class Lines(Sequence[str]):
    """Texts that lie in one array: as strings a million would take three times as much."""

    def __init__(self, text: NDArray[np.uint8]) -> None:
        """Find the lines.

        Args:
            text: As `text_of` gives it.
        """
        self._text = text
        ends = np.flatnonzero(text == _LINE_END) + 1
        small = np.uint32 if text.size < 1 << 32 else np.int64
        self._ends = np.concatenate([np.zeros(1, ends.dtype), ends]).astype(small)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[row] for row in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        row = place % len(self)
        return bytes(self._text[self._ends[row] : self._ends[row + 1] - 1]).decode()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            ends = self._ends[start : start + _AT_ONCE + 1]
            yield from bytes(self._text[ends[0] : ends[-1]]).decode().split("\n")[:-1]


def read_back(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Arrays with `Lines` for the texts of `text_of`, which alone are flat bytes."""
    return {
        name: Lines(array) if array.dtype == np.uint8 and array.ndim == 1 else array
        for name, array in arrays.items()
    }


_MOST_MATCHES: Final = 10  # with the same precursor, among which one of the formula is looked for


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of the molecule of one feature.

    Attributes:
        guide: What it must be like, or None.
        analogues: Known molecules, and which of them are like it.
        matches: Spectra of libraries with the same precursor, best first.
        n_peaks: Of the spectrum of the feature that has most.
        databases: Molecules one of which it is taken to be; none where candidates are drawn.
    """

    guide: "Guide | None"
    analogues: "tuple[tuple[Analogues, NDArray[np.bool_]], ...]" = ()
    matches: "tuple[Match, ...]" = ()
    n_peaks: int = 0
    databases: "tuple[Analogues | Database, ...]" = ()

    @property
    def is_uncalibrated(self) -> bool:
        """Whether candidates are guided by something that confidence was not fitted with."""
        return self.guide is not None or any(one.any() for _, one in self.analogues)

    def within(self, formulas: Sequence[Formula]) -> "Known":
        """The same with those structures of the databases alone that have one of these formulas."""
        return replace(self, databases=tuple(one.of_formulas(formulas) for one in self.databases))

    def isomers(self, formula: Formula) -> "Iterator[Mol]":
        """Molecules of the databases that have a formula, read when they are asked for."""
        each = (one.of_formulas([formula]).molecules() for one in self.databases)
        return chain.from_iterable(each)

    def graphs(self, probability: NDArray[np.float32], formula: Formula) -> list[MolecularGraph]:
        """Analogues to start samples of a formula from, most alike first; few or none.

        See `Analogues.towards`.
        """
        each = (one.towards(probability, formula, allowed) for one, allowed in self.analogues)
        found = chain.from_iterable(each)
        return [graph for _, graph in sorted(found, key=lambda one: -one[0])]

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
        wanted = Formula.parse(formula)
        near = [one.near(probability, wanted, asked) for one, asked in self.analogues if smiles]
        near += [one.of_formulas([wanted]) for one in self.databases if smiles]
        analogues = {}
        for block, text in smiles.items():
            each = [found for one in near if (found := one.nearest(text)) is not None]
            if each:
                analogues[block] = max(each, key=lambda one: float(one["tanimoto"]))
        match = self.match(wanted)
        return {
            **({"analogues": analogues} if analogues else {}),
            **({"library_match": match} if match else {}),
        }

    def match(self, formula: Formula) -> dict[str, Any] | None:
        """The best match, of those of the formula if there are any, as `told` says it.

        One of the formula that is as the guide says is ``offered`` as a candidate, with the
        ``probability`` that it is right; ``found`` says whether the spectra are much alike.
        """
        from duallgd_cli.chem.identity import parse_smiles
        from duallgd_cli.guide.hit_probability import best_hit, probability_of

        hit = best_hit(self.matches, str(formula), self.n_peaks)
        if hit is None:
            return {**self.matches[0].values(), "offered": False} if self.matches else None
        best, about = hit
        values = best.values()
        fault = "" if self.guide is None else self.guide.fault(parse_smiles(values["smiles"]))
        return {
            **values,
            "offered": not fault,
            "found": best.is_found,
            "probability": round(probability_of(about), 4),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What is known of the molecules of a run.

    Attributes:
        guide: What each of them must be like, or None.
        analogues: Molecules that are like them.
        libraries: Spectra that may be theirs.
        guides: What those of single features must be like, by name.
        databases: Molecules to choose from, if there are any.
    """

    guide: "Guide | None"
    analogues: "tuple[Analogues, ...]" = ()
    libraries: "tuple[Library, ...]" = ()
    guides: "Mapping[str, Guide]" = field(default_factory=dict)
    databases: "tuple[Database, ...]" = ()

    @property
    def is_small(self) -> bool:
        """Whether what `of` gives can be sent to other processes, once it is `within` formulas."""
        return not self.analogues

    @classmethod
    def read(cls, guide: "Guide | None", files: GuideFiles) -> "Knowledge":
        """Read files.

        Args:
            guide: What each molecule must be like, or None.
            files: See `analogues.Analogues.read`, `library.Library.read`, `store.opened` and
                `analogues.read_guides`.

        Raises:
            UsageError: Something cannot be read, or says nothing.
            MissingInputError: A file does not exist.
            UnreadableError: A file is of no known format.
        """
        from duallgd_cli.guide.analogues import Analogues, read_guides
        from duallgd_cli.guide.library import Library
        from duallgd_cli.guide.store import opened

        guides: dict[str, Guide] = {}
        tables = [read_guides(Path(name)) for name in files.tables]
        for of_features, _ in tables:
            for name, own in of_features.items():
                guides[name] = guides[name].and_also(own) if name in guides else own
        alike = [Analogues.read(Path(name)) for name in files.analogues]
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
            if own := self.guides.get(name):
                guide = own if guide is None else guide.and_also(own)
        analogues = [(one, one.of_feature(names)) for one in self.analogues]
        if not self.libraries:
            return Known(guide, tuple(analogues), databases=self.databases)
        from duallgd_cli.guide.analogues import Analogues
        from duallgd_cli.guide.library import analogues_among

        matches = [one for library in self.libraries for one in library.search(feature.spectra)]
        matches.sort(key=lambda one: -one.score)
        if rows := analogues_among(matches):
            alike = Analogues.of(rows)
            analogues += [(alike, alike.of_feature(names))] if len(alike) else []
        same = tuple(one for one in matches if one.is_same)[:_MOST_MATCHES]
        n_peaks = max(one.mz.size for one in feature.spectra)
        return Known(guide, tuple(analogues), same, n_peaks, self.databases)


def names_in_guides(feature: Feature) -> tuple[str, ...]:
    """What a table of guides or of analogues may call a feature."""
    names = (feature.first.feature_id, feature.first.spectrum_id)
    return tuple(dict.fromkeys(filter(None, names)))
