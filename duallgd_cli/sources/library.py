"""Spectral libraries with structures: what a spectrum is found as, and what it is like.

Spectra are read once and kept. A spectrum is compared by matchms with those that share peaks with
it: by the cosine score where the precursors agree, by the modified cosine score otherwise.

How probable it is that the best hit is right says a logistic model of hits whose structure has the
formula of the query. It was fitted on spectra of MassBank, each searched in those of all other
contributors: half of the weight is on libraries that hold the molecule, half on the same libraries
without it.

L spectra of a library, K peaks of all of them.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem import identity
from duallgd_cli.chem.elements import MAX_HEAVY_ATOMS
from duallgd_cli.chem.molecule import Mol, formula_of
from duallgd_cli.data.prepared import Screen
from duallgd_cli.data.structures import StructureRow, structure_of
from duallgd_cli.errors import FormulaError, MoleculeError, UsageError
from duallgd_cli.files import DAMAGED_ARRAYS, replaced, require_file, sha256
from duallgd_cli.runtime import cache_folder
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.reading.record import compound_name
from duallgd_cli.spectra.types import Spectrum

if TYPE_CHECKING:
    import matchms

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_KIND: Final = "library-3"
_MOST_SPECTRA: Final = 500_000
# Columns of a library that are numbers, and all that are kept of it.
_NUMBERS: Final = {
    "precursor_mz": np.float64, "polarity": np.int8, "n_peaks": np.int64,
    "mz": np.float64, "intensity": np.float32,
}  # fmt: skip
_TEXTS: Final = ("smiles", "names", "left_out")
_DTYPES: Final = dict.fromkeys(_TEXTS, np.uint8) | _NUMBERS
# Of a spectrum of the library the most intense peaks, wherever they lie.
KEPT: Final = CleaningSettings(max_peaks=100, isotope_margin_da=math.inf)
_LOOKED_UP: Final = 50  # peaks of a spectrum, for which others that share them are looked up
_COMPARED: Final = 200  # spectra that matchms compares, of each kind
_TOLERANCE_DA: Final = 0.02
_PRECURSOR_PPM: Final = 20.0
_LEAST_PEAKS: Final = 4
# Scores from which a spectrum is found, and from which its structure is an analogue.
_FOUND: Final = 0.7
_ALIKE: Final = 0.5
_MOST_ALIKE: Final = 6
# Of the logistic model.
_WEIGHTS: Final = {
    "constant": -0.177, "similarity": 2.062, "similarity_by_peaks": 0.926, "query_peaks": -0.26,
    "rival": -2.464, "margin": 2.848,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """A spectrum of a library that is like a measured one."""

    score: float  # cosine, or modified cosine where the precursors differ
    peaks: int  # matched
    smiles: str  # of its structure, as the library has it
    name: str  # of its compound, else ""
    library: str  # name of the file
    is_same: bool  # whether the precursors agree
    mz: tuple[float, ...] = ()
    intensity: tuple[float, ...] = ()  # of the base peak's

    @property
    def is_found(self) -> bool:
        """Whether the measured spectrum may be taken for this compound's."""
        return self.is_same and self.score >= _FOUND and self.peaks >= _LEAST_PEAKS

    def values(self) -> dict[str, Any]:
        """Plain values, with the names of the structure."""
        mol = identity.parse_smiles(self.smiles)
        inchi = identity.inchi(mol)
        return {
            "name": self.name,
            "library": self.library,
            "score": round(self.score, 4),
            "matched_peaks": self.peaks,
            "smiles": identity.canonical_smiles(mol),
            "inchi": inchi,
            "inchikey": identity.inchikey_of(inchi),
            "formula": _formula(mol),
            "mz": self.mz,
            "intensity": self.intensity,
        }


def _formula(mol: Mol) -> str:
    """The formula, "" with elements of no formula."""
    try:
        return str(formula_of(mol))
    except FormulaError:
        return ""


def _best_first(match: Match) -> tuple[float, int, str]:
    return -match.score, -match.peaks, match.smiles


def analogues_among(matches: Iterable[Match]) -> list[StructureRow]:
    """Structures of the best matches, each once, as rows of a file of analogues."""
    best: dict[str, StructureRow] = {}
    for match in sorted(matches, key=_best_first):
        if match.score >= _ALIKE and match.peaks >= _LEAST_PEAKS and len(best) < _MOST_ALIKE:
            best.setdefault(match.smiles, StructureRow(match.smiles, "", 0, match.name))
    return list(best.values())


def best_hit(matches: Iterable[Match], formula: str) -> tuple[Match, float | None] | None:
    """The best match whose precursor agrees and whose structure has a formula; None without any.

    Matches are as `Library.search` gives them. The score of the best one of another structure with
    this formula and precursor comes along, if there is any.
    """
    fitting = [match for match in matches if match.is_same and _named(match.smiles)[0] == formula]
    if not fitting:
        return None
    block = _named(fitting[0].smiles)[1]
    others = (match.score for match in fitting if _named(match.smiles)[1] != block)
    return fitting[0], max(others, default=None)


@lru_cache(maxsize=10_000)  # libraries have many spectra of one compound
def _named(smiles: str) -> tuple[str, str]:
    """Formula and first block of the InChIKey."""
    mol = identity.parse_smiles(smiles)
    return _formula(mol), identity.inchikey_block(mol)


def probability_of(
    similarity: float, matched_peaks: int, query_peaks: int, next_similarity: float | None = None
) -> float:
    """The probability that the structure of a hit is the right one, between 0 and 1.

    It rises with the similarity and with matched peaks, and falls as another structure comes near.
    Before anything is measured, it is taken for even whether the library holds the molecule.

    Args:
        similarity: Score of its `Match`.
        matched_peaks: Of it.
        query_peaks: Of the spectrum that was searched, cleaned.
        next_similarity: Of the best other structure, see `best_hit`.
    """
    log_odds = (
        _WEIGHTS["constant"]
        + _WEIGHTS["similarity"] * similarity
        + _WEIGHTS["similarity_by_peaks"] * similarity * math.log(max(1, matched_peaks))
        + _WEIGHTS["query_peaks"] * math.log(max(1, query_peaks))
    )
    if next_similarity is not None:
        log_odds += _WEIGHTS["rival"]
        log_odds += _WEIGHTS["margin"] * (similarity - next_similarity)
    return 1 / (1 + math.exp(-log_odds))


@dataclass(frozen=True, eq=False)
class Library:
    """Spectra of known compounds."""

    name: str  # of the file
    smiles: Sequence[str]  # of each spectrum's structure
    names: Sequence[str]  # of each spectrum's compound, else ""
    precursor_mz: Floats  # (L,)
    polarity: NDArray[np.int8]  # 1, -1 or 0 if unknown, (L,)
    n_peaks: NDArray[np.int64]  # (L,)
    mz: Floats  # of the peaks of one spectrum after the other, ascending in each, (K,)
    intensity: NDArray[np.float32]  # of the base peak's, (K,)

    @classmethod
    def read(cls, path: Path) -> "Library":
        """Spectra of a file that have a structure; what cannot be used is counted in a warning.

        Args:
            path: MSP, MGF, mzML, or JSON as GNPS and matchms write it.

        Raises:
            MissingInputError: There is no such file.
            UnreadableError: It is of another format.
            UsageError: No spectrum has a structure, there are too many, or matchms is not there.
        """
        require_file(str(path))
        _similarity()
        place = cache_folder() / "guide" / f"{sha256(path)}.{_KIND}.npz"
        arrays = _kept(place) or _made(path, place)
        smiles, names, reasons = (
            arrays.pop(name).tobytes().decode().splitlines() for name in _TEXTS
        )
        said = "".join(reasons)
        if not smiles:
            raise UsageError(f"{path} holds no spectrum with a structure: {said or 'it is empty'}")
        if said:
            logger.warning("%s: %s", path, said)
        return cls(path.name, smiles, names, **arrays)

    def search(self, spectra: Iterable[Spectrum]) -> list[Match]:
        """Spectra of the library that are like any of these, each once, best first."""
        best: dict[int, Match] = {}
        for spectrum in spectra:
            for row, match in self._like(spectrum):
                if row not in best or match.score > best[row].score:
                    best[row] = match
        return sorted(best.values(), key=_best_first)

    def _like(self, spectrum: Spectrum) -> Iterator[tuple[int, Match]]:
        """Row and match of each spectrum that shares peaks with one."""
        precursor = spectrum.precursor_mz
        if precursor is None or not spectrum.mz.size:
            return
        modified, cosine = _similarity()
        able = self.polarity * spectrum.polarity >= 0
        close = np.abs(self.precursor_mz - precursor) <= precursor * _PRECURSOR_PPM * 1e-6
        # About the score that shared peaks give, and that shared neutral losses do, (L,) each.
        top = np.argsort(-spectrum.intensity, kind="stable")[:_LOOKED_UP]
        mz, weight = spectrum.mz[top], np.sqrt(spectrum.intensity[top])
        weight = weight / np.linalg.norm(weight)
        direct = self._shared(*self._by_mz, mz, weight)
        shifted = self._shared(*self._by_loss, precursor - mz, weight)
        measured = _for_matchms(spectrum.mz, spectrum.intensity, precursor)
        ends = np.cumsum(self.n_peaks)
        for is_same, scorer, share in (
            (True, cosine, np.where(able & close, direct, 0)),
            (False, modified, np.where(able & ~close, direct + shifted, 0)),
        ):
            best = np.argsort(-share, kind="stable")[:_COMPARED]
            for row in best[share[best] > 0].tolist():
                peaks = slice(ends[row] - self.n_peaks[row], ends[row])
                other = _for_matchms(self.mz[peaks], self.intensity[peaks], self.precursor_mz[row])
                pair = scorer.pair(other, measured)
                score, matched = float(pair["score"]), int(pair["matches"])
                text = self.smiles[row], self.names[row], self.name
                shown = (self.mz[peaks].round(4), self.intensity[peaks].astype(float).round(4))
                of_peaks = (tuple(values.tolist()) for values in shown)
                yield row, Match(score, matched, *text, is_same, *of_peaks)

    def _shared(
        self, ordered: Floats, peak: NDArray[np.int32], values: Floats, weight: Floats
    ) -> Floats:
        """Sum of products of weights of each spectrum's peaks that lie near these values, (L,)."""
        first = np.searchsorted(ordered, values - _TOLERANCE_DA)
        last = np.searchsorted(ordered, values + _TOLERANCE_DA)
        hits = np.concatenate([peak[a:b] for a, b in zip(first, last, strict=True)])
        total = np.repeat(weight, last - first) * self._weight[hits]
        return np.bincount(self._row[hits], total, len(self.smiles)).astype(np.float64)

    @cached_property
    def _row(self) -> NDArray[np.int32]:
        return np.repeat(np.arange(len(self.n_peaks), dtype=np.int32), self.n_peaks)

    @cached_property
    def _weight(self) -> Floats:
        squares = np.bincount(self._row, self.intensity)
        return np.asarray(np.sqrt(self.intensity / squares[self._row]))

    @cached_property
    def _by_mz(self) -> tuple[Floats, NDArray[np.int32]]:
        return _ordered(self.mz)

    @cached_property
    def _by_loss(self) -> tuple[Floats, NDArray[np.int32]]:
        return _ordered(self.precursor_mz[self._row] - self.mz)


def _ordered(values: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """Values in ascending order, and where each of them stood."""
    order = np.argsort(values, kind="stable").astype(np.int32)
    return values[order], order


def _similarity() -> tuple[Any, Any]:
    """The modified cosine and the cosine of matchms.

    Raises:
        UsageError: It is not installed.
    """
    try:
        from matchms import similarity
    except ImportError:
        raise UsageError("--library needs matchms; pip install duallgd[library]") from None
    modified = getattr(similarity, "ModifiedCosineGreedy", None) or similarity.ModifiedCosine
    return tuple(
        scorer(tolerance=_TOLERANCE_DA, intensity_power=0.5)
        for scorer in (modified, similarity.CosineGreedy)
    )


def _for_matchms(mz: NDArray[Any], intensity: NDArray[Any], precursor: float) -> "matchms.Spectrum":
    from matchms import Spectrum as Compared

    peaks = mz.astype(np.float64), intensity.astype(np.float64)
    return Compared(*peaks, {"precursor_mz": float(precursor)}, metadata_harmonization=False)


def _kept(place: Path) -> dict[str, NDArray[Any]]:
    """What was made of a file before, {} where it is to be made."""
    try:
        with np.load(place) as stored:
            return dict(stored)
    except FileNotFoundError:
        return {}
    except DAMAGED_ARRAYS:
        logger.warning("%s cannot be read, and is made again", place)
        return {}


def _made(path: Path, place: Path) -> dict[str, NDArray[Any]]:
    """The columns of a file's spectra, and what is left out, kept for the next run."""
    arrays = _arrays(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replaced(place) as partial, partial.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)
    return arrays


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Texts are one array, a line each."""
    n_spectra, screen = 0, Screen()
    columns = {name: bytearray() for name in _DTYPES}  # lists would take ten times
    for spectrum in islice(read(str(path), keep_structures=True), _MOST_SPECTRA + 1):
        n_spectra += 1
        structure = identity.parent(structure_of(spectrum.metadata))
        item = clean(spectrum, KEPT)
        if why := _fault(item, structure):
            screen.refuse(why)
            continue
        numbers = (item.precursor_mz, item.polarity, item.mz.size, item.mz, item.intensity)
        columns["smiles"] += _line(structure)
        columns["names"] += _line(compound_name(item.metadata) or item.spectrum_id)
        for name, values in zip(_NUMBERS, numbers, strict=True):
            columns[name] += np.asarray(values, _DTYPES[name]).tobytes()
    if n_spectra > _MOST_SPECTRA:
        raise UsageError(
            f"{path} holds more than {_MOST_SPECTRA:,} spectra; keep those of likely compounds"
        )
    columns["left_out"] += _line(screen.left_out("spectrum", "spectra"))
    return {name: np.frombuffer(column, _DTYPES[name]) for name, column in columns.items()}


def _line(text: str) -> bytes:
    return f"{' '.join(text.split())}\n".encode("utf-8", "replace")


def _fault(item: Spectrum, smiles: str) -> str:
    """Why a spectrum of a library is of no use, "" if it is."""
    if item.failure is not None and item.failure.status == "unreadable":
        return "not readable"
    if not smiles:
        return "without a structure"
    if item.precursor_mz is None:
        return "without a precursor"
    return "without peaks" if item.failure is not None else _structure_fault(smiles)


@lru_cache(maxsize=100_000)  # libraries have many spectra of one compound
def _structure_fault(smiles: str) -> str:
    """Why a structure can be no molecule here, "" if it can; of whatever elements it is."""
    try:
        mol = identity.parse_smiles(smiles)
        if mol.GetNumHeavyAtoms() > MAX_HEAVY_ATOMS:
            return f"more than {MAX_HEAVY_ATOMS} heavy atoms"
        identity.inchi(mol)
    except MoleculeError as error:
        return error.reason
    return ""
