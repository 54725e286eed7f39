"""Labelled spectra of many files: one table of all, and from a table to a prepared folder.

Whatever `spectra.reading` reads is taken, with the structure as SMILES or InChI. The table, in the
MassSpecGym layout, holds folds train and val; the molecules of all other folds, and those on
hold-out lists, are left out.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from duallgd_cli.chem.adduct import Adduct, fits, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parent
from duallgd_cli.chem.molecule import usable
from duallgd_cli.data.prepared import (
    FOLDS,
    Screen,
    in_blocks,
    spectrum_arrays,
    spectrum_row,
    write_blocks,
)
from duallgd_cli.data.structures import (
    ON_HOLDOUT,
    PreparedMolecule,
    pack,
    prepare_molecule,
    structure_of,
)
from duallgd_cli.errors import MissingInputError, MoleculeError, UnreadableError
from duallgd_cli.files import sha256, write_atomically
from duallgd_cli.runtime import available_cores, in_order
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Feature, Hypothesis, Spectrum

T = TypeVar("T")
COLUMNS: Final = (
    "identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz", "adduct",
    "instrument_type", "collision_energy", "fold",
)  # fmt: skip
_HASHED: Final = 1 << 32
_PRECURSOR_DA: Final = 0.02
_PRECURSOR_PPM: Final = 20.0
# Training spectra are cleaned and explained as those of a prediction are by default.
_CLEANING: Final = CleaningSettings()
_ANNOTATION: Final = AnnotationSettings()


class RejectedSpectrum(NamedTuple):
    """A record that did not become training data, and why."""

    number: int  # in its source, from 1
    spectrum_id: str
    reason: str  # the same for all records with this trouble
    detail: str  # what is so in this one


class UnusableRecordError(Exception):
    """A record is no training data; holds the reason and the detail of `RejectedSpectrum`."""


# A molecule, what `spectrum_row` makes of its spectrum, and the share of the intensity that peaks
# with a sub-formula have.
Prepared = tuple[PreparedMolecule, dict[str, Any], float]


def screened(work: Callable[[Spectrum], T], spectrum: Spectrum) -> T | RejectedSpectrum:
    """What work makes of a record, or why it is left out."""
    try:
        return work(spectrum)
    except UnusableRecordError as refusal:
        return RejectedSpectrum(spectrum.source.index + 1, spectrum.spectrum_id, *refusal.args)


def label_of(spectrum: Spectrum) -> tuple[PreparedMolecule, str, str]:
    """Molecule, SMILES and fold, train by default, of a record; else `UnusableRecordError`."""
    smiles = parent(structure_of(spectrum.metadata))
    fold = spectrum.metadata.get("fold", "").strip().lower() or "train"
    if spectrum.failure is not None:
        raise UnusableRecordError("unreadable", spectrum.failure.message)
    if spectrum.ms_level != 2:
        raise UnusableRecordError("not an MS2 spectrum", f"MS level {spectrum.ms_level}")
    if not smiles:
        raise UnusableRecordError("no structure", "no SMILES or InChI")
    if fold not in FOLDS:
        raise UnusableRecordError("unknown fold", fold)
    return molecule_of(smiles), smiles, fold


def gather_spectra(
    sources: Sequence[Path],
    table: Path,
    keys: Path,
    *,
    holdout: frozenset[str] = frozenset(),
    validation: float = 0.0,
    seed: int = 1,
) -> dict[str, int]:
    """Write the spectra of files, and of folders of them, that may be looked at as one table.

    ``report.tsv`` beside it says of each record left out why. First blocks of the hold-out are left
    out altogether; those that must not be trained on are written, too. Of the molecules of fold
    train a share is moved to fold val, by the seed and the molecule alone.

    Returns:
        Numbers of spectra by fold, of molecules that are held out or in several folds, and of
        records left out by reason.
    """
    counts, held, trained = Counter[str](), set(holdout), set[str]()
    taken, repeats, screen = set[str](), Counter[str](), Screen()

    def rows() -> Iterator[Sequence[str]]:
        for path in _files_of(sources):
            for spectrum in read(str(path), keep_structures=True):
                row = screened(partial(_cells, holdout=holdout), spectrum)
                if isinstance(row, RejectedSpectrum):
                    screen.refuse(row.reason, path.name, *row)
                    continue
                block, name = row["inchikey"], row["identifier"]
                digest = hashlib.sha256(f"{seed} {block}".encode()).digest()
                is_drawn = int.from_bytes(digest[:4], "big") / _HASHED < validation
                if row["fold"] == "train" and is_drawn:
                    row["fold"] = "val"
                (trained if row["fold"] == "train" else held).add(block)
                counts[row["fold"]] += 1
                while row["identifier"] in taken:  # the truth is looked up by it
                    repeats[name] += 1
                    row["identifier"] = f"{name}-{repeats[name] + 1}"
                taken.add(row["identifier"])
                if row["fold"] in ("train", "val"):
                    yield [row[name] for name in COLUMNS]

    write_atomically(table, ("\t".join(cells) + "\n" for cells in chain([COLUMNS], rows())))
    report = table.with_name("report.tsv")
    screen.write(report, "file", *RejectedSpectrum._fields)
    if not trained - held:
        raise UnreadableError(
            "there is no spectrum with a structure to train on; name structures as SMILES or "
            f"InChI, and fold train if there are folds; {report} says why each record was left out"
        )
    write_atomically(keys, (f"{block}\n" for block in sorted(held)))
    of_folds = {"held out": len(held), "in several folds": len(trained & held)}
    return {**counts, **screen.counts(), **of_folds}


def _files_of(sources: Iterable[Path]) -> Iterator[Path]:
    """The files, and those in the folders, in order; none may be missing."""
    for source in sources:
        if not source.exists():
            raise MissingInputError(f"{source} does not exist; check the paths of the recipe")
        inside = [path for path in sorted(source.rglob("*")) if path.is_file()]
        if source.is_dir() and not inside:
            raise MissingInputError(f"{source} is empty; put files of spectra into it")
        yield from inside if source.is_dir() else (source,)


def _cells(spectrum: Spectrum, holdout: frozenset[str]) -> dict[str, str]:
    """Cells of a record by `COLUMNS`, or an `UnusableRecordError`."""
    molecule, smiles, fold = label_of(spectrum)
    if molecule.inchikey in holdout:
        raise UnusableRecordError(ON_HOLDOUT, smiles)
    energy, precursor = (
        "" if number is None else repr(float(number))
        for number in (spectrum.collision_energy_ev, spectrum.precursor_mz)
    )
    mzs, intensities = (
        ",".join(map(repr, values.tolist())) for values in (spectrum.mz, spectrum.intensity)
    )
    cells = (
        spectrum.spectrum_id, mzs, intensities, smiles, molecule.inchikey, str(molecule.formula),
        precursor, spectrum.adduct_text, spectrum.instrument, energy, fold,
    )  # fmt: skip
    return dict(zip(COLUMNS, cells, strict=True))


def prepare_spectra(
    source: Path,
    out: Path,
    holdout: frozenset[str] = frozenset(),
    advance: Callable[[int], None] = lambda records: None,
) -> dict[str, object]:
    """Prepare labelled spectra for training, a block in memory at a time; return the manifest.

    A molecule of several folds counts as of the one that is farthest from training. Of held-out
    molecules, by first block, spectra of fold train are left out; ``report.tsv`` says so.
    """
    screen = Screen()
    folds: dict[str, set[int]] = {}  # of each molecule, by its first block, in the order of rows
    explained: list[float] = []

    def usable() -> Iterator[Prepared]:
        work = partial(screened, partial(_prepared, holdout=holdout))
        records = read(str(source), keep_structures=True)
        for result in in_order(work, records, available_cores()):
            if isinstance(result, RejectedSpectrum):
                screen.refuse(result.reason, *result)
            else:
                yield result
            advance(1)

    def blocks() -> Iterator[dict[str, Any]]:
        place: dict[str, int] = {}
        for block in in_blocks(usable()):
            fresh: list[PreparedMolecule] = []  # that come for the first time
            for molecule, row, intensity in block:
                if molecule.inchikey not in place:
                    place[molecule.inchikey] = len(place)
                    fresh.append(molecule)
                folds.setdefault(molecule.inchikey, set()).add(int(row["spectrum_fold"]))
                explained.append(intensity)
            rows = [place[molecule.inchikey] for molecule, *_ in block]
            arrays = spectrum_arrays([row for _, row, _ in block], rows)
            yield (pack(fresh) if fresh else {}) | arrays
        if not folds:
            raise UnreadableError(f"{source} holds no spectrum that can be used; see its layout")
        # The largest index is the fold farthest from training.
        yield {"fold": np.array([max(several) for several in folds.values()], np.uint8)}

    def record() -> dict[str, object]:
        return {
            "kind": "spectra",
            "source": {"file": source.name, "sha256": sha256(source)},
            "settings": {"cleaning": asdict(_CLEANING), "annotation": asdict(_ANNOTATION)},
            "molecules": len(folds),
            "spectra": len(explained),
            "rejected": screen.counts(),
            "holdout_keys": len(holdout),
            "holdout_removed": screen.reasons[ON_HOLDOUT],
            "without_explained_peak": explained.count(0),
            "molecules_in_several_folds": sum(len(several) > 1 for several in folds.values()),
            "mean_intensity_explained": float(np.mean(explained)),
        }

    manifest = write_blocks(out, blocks(), record)
    screen.write(out / "report.tsv", *RejectedSpectrum._fields)
    return manifest


def _prepared(spectrum: Spectrum, holdout: frozenset[str]) -> Prepared:
    """Training data of a record, or an `UnusableRecordError`."""
    molecule, _, fold = label_of(spectrum)
    adduct = adduct_of(spectrum.adduct_text)
    refuse_misfit(molecule.formula, adduct, spectrum.precursor_mz or None)
    cleaned = clean(spectrum, _CLEANING)
    if cleaned.failure is not None:
        raise UnusableRecordError("no usable peaks", cleaned.failure.message)
    if fold == "train" and molecule.inchikey in holdout:
        raise UnusableRecordError(ON_HOLDOUT, molecule.inchikey)
    found = annotate(Hypothesis(Feature((cleaned,)), molecule.formula, adduct), _ANNOTATION)
    return molecule, spectrum_row(found, fold), found.explained_intensity


@lru_cache(maxsize=4096)  # records of one molecule stand together
def molecule_of(smiles: str) -> PreparedMolecule:
    """The molecule of a record, or an `UnusableRecordError` that says why it is of no use."""
    try:
        return prepare_molecule(usable(smiles))
    except MoleculeError as error:
        raise UnusableRecordError(error.reason, str(error)) from None


def adduct_of(text: str) -> Adduct:
    """The adduct of a record, or an `UnusableRecordError` where networks are not trained on it."""
    adduct = parse_adduct(text)
    if not isinstance(adduct, Adduct) or adduct != adduct.trained:
        raise UnusableRecordError("unsupported adduct", text)
    return adduct


def refuse_misfit(formula: Formula, adduct: Adduct, measured: float | None) -> None:
    """Refuse a record whose molecule cannot be its ion, or whose precursor m/z is another."""
    if not fits(formula, adduct):
        raise UnusableRecordError("adduct does not fit the molecule", f"{formula} as {adduct.name}")
    expected = precursor_mz(formula, adduct)
    allowed = max(_PRECURSOR_DA, _PRECURSOR_PPM * 1e-6 * expected)
    if measured is not None and not abs(measured - expected) <= allowed:
        raise UnusableRecordError(
            "precursor m/z differs", f"{measured:.4f}, expected {expected:.4f}"
        )
