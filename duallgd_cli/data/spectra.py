"""Labelled spectra to a prepared folder: annotated peaks and their molecules; needs rdkit once."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from duallgd_cli.chem.adduct import Adduct, fits, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles, smiles_of_inchi
from duallgd_cli.data.prepared import FOLDS, spectrum_arrays, spectrum_row, write, write_report
from duallgd_cli.data.structures import ON_HOLDOUT, PreparedMolecule, pack, prepare_molecule
from duallgd_cli.errors import FormulaError, MoleculeError, UnreadableError
from duallgd_cli.files import require_input, sha256
from duallgd_cli.runtime import in_order
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.cleaning import CleaningSettings, clean
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.reading.record import is_missing
from duallgd_cli.spectra.types import Feature, Hypothesis


@dataclass(frozen=True, slots=True, eq=False)
class LabelledSpectrum:
    """One case to learn from: the spectra of an ion, and the structure they belong to."""

    feature: Feature  # spectra as read, not yet cleaned
    smiles: str  # SMILES of the molecule
    fold: str  # train, val, test or dev
    number: int  # position of the record in its source, from 1


class RejectedSpectrum(NamedTuple):
    """A record that did not become training data."""

    number: int  # position of the record in its source, from 1
    spectrum_id: str  # identifier as written, else ""
    reason: str  # A short phrase, the same for all records with this trouble
    detail: str  # what was found in this one


Labelled = LabelledSpectrum | RejectedSpectrum
_PRECURSOR_DA: Final = 0.02
_PRECURSOR_PPM: Final = 20.0


class UnusableRecordError(Exception):
    """A record is no training data; holds the reason and the detail of `RejectedSpectrum`."""


@lru_cache(maxsize=4096)  # records of one molecule stand together
def molecule_of(smiles: str) -> PreparedMolecule:
    """The molecule of a record, or an `UnusableRecordError` that says why it is of no use."""
    try:
        return prepare_molecule(parse_smiles(smiles))
    except FormulaError as error:
        raise UnusableRecordError("unsupported element", str(error)) from None
    except MoleculeError as error:
        raise UnusableRecordError("unusable structure", str(error)) from None
    except UnreadableError as error:
        raise UnusableRecordError("too few or too many atoms", str(error)) from None


def adduct_of(text: str) -> Adduct:
    """The adduct of a record, or an `UnusableRecordError` where networks are not trained on it."""
    adduct = parse_adduct(text)
    if not isinstance(adduct, Adduct) or adduct != adduct.trained:
        raise UnusableRecordError("unsupported adduct", text)
    return adduct


def refuse_misfit(formula: Formula, adduct: Adduct, measured: float | None) -> None:
    """Compare what a record says of its ion with its precursor m/z, where there is one.

    Raises:
        UnusableRecordError: The molecule cannot be that ion, or the ion has another m/z.
    """
    if not fits(formula, adduct):
        raise UnusableRecordError("adduct does not fit the molecule", f"{formula} as {adduct.name}")
    expected = precursor_mz(formula, adduct)
    allowed = max(_PRECURSOR_DA, _PRECURSOR_PPM * 1e-6 * expected)
    if measured is not None and not abs(measured - expected) <= allowed:
        raise UnusableRecordError(
            "precursor m/z differs", f"{measured:.4f}, expected {expected:.4f}"
        )


# Training spectra are cleaned and explained as those of a prediction are by default.
_CLEANING: Final = CleaningSettings()
_ANNOTATION: Final = AnnotationSettings()


# A molecule, and what `spectrum_row` makes of its spectrum with, as ``explained_intensity``, the
# share that peaks with a sub-formula have of the intensity.
Prepared = tuple[PreparedMolecule, dict[str, Any]]


def prepare_spectra(
    source: Path,
    out: Path,
    *,
    holdout: frozenset[str] = frozenset(),
    workers: int = 1,
    advance: Callable[[int], None] = lambda records: None,
) -> dict[str, object]:
    """Prepare labelled spectra for training, and return the manifest.

    Args:
        source: A table in the MassSpecGym layout, or any spectrum file with SMILES.
        out: Folder for the arrays, the manifest and ``report.tsv`` of rejected records.
        holdout: InChIKey first blocks that must not be trained on; their spectra of fold train are
            left out and counted, those of other folds stay.
        workers: Processes.
        advance: Told how many records were done, for a progress display.

    Raises:
        MissingInputError: No such file.
        UnreadableError: Nothing in it became training data.
    """
    spectra: list[Prepared] = []
    rejected: list[RejectedSpectrum] = []
    work = partial(prepare_record, holdout=holdout)
    for result in in_order(work, read_labelled(source), workers):
        if isinstance(result, RejectedSpectrum):
            rejected.append(result)
        else:
            spectra.append(result)
        advance(1)
    if not spectra:
        raise UnreadableError(f"{source} holds no spectrum that can be used; see its layout")
    first: dict[str, PreparedMolecule] = {}
    folds: defaultdict[str, set[int]] = defaultdict(set)
    for molecule, row in spectra:
        first.setdefault(molecule.inchikey, molecule)
        folds[molecule.inchikey].add(row["spectrum_fold"])
    place = {key: index for index, key in enumerate(first)}
    rows = [row for _, row in spectra]
    # The largest index is the fold farthest from training: it decides where folds share a molecule.
    fold = np.array([max(folds[key]) for key in first], np.uint8)
    arrays: dict[str, Any] = {
        **pack(list(first.values()), fold),
        **spectrum_arrays(rows, [place[molecule.inchikey] for molecule, _ in spectra]),
    }
    reasons = Counter(r.reason for r in rejected)
    record: dict[str, object] = {
        "kind": "spectra",
        "source": {"file": source.name, "sha256": sha256(source)},
        "settings": {"cleaning": asdict(_CLEANING), "annotation": asdict(_ANNOTATION)},
        "molecules": len(arrays["fold"]),
        "spectra": len(spectra),
        "peak_rows": len(arrays["mz"]),
        "rejected": dict(reasons.most_common()),
        "holdout_keys": len(holdout),
        "holdout_removed": reasons.get(ON_HOLDOUT, 0),
        "without_explained_peak": sum(row["explained_intensity"] == 0 for row in rows),
        "molecules_in_several_folds": sum(len(several) > 1 for several in folds.values()),
        "mean_intensity_explained": float(np.mean([row["explained_intensity"] for row in rows])),
    }
    manifest = write(out, arrays, record)
    write_report(out / "report.tsv", RejectedSpectrum._fields, rejected)
    return manifest


def read_labelled(source: Path) -> Iterator[Labelled]:
    """Read a data set whose layout is recognised by its form.

    That is a table in the MassSpecGym layout, or any spectrum file whose records name a SMILES or
    an InChI, plain or packed. The energy is taken from collision_energy_text where there is such a
    column, since a prediction starts from text as well. A record without a fold belongs to train.

    Raises:
        MissingInputError: No such file or folder.
        UnreadableError: Of no known layout.
    """
    if source.is_dir() or source.suffix == ".zip":
        raise UnreadableError(
            f"{source} is no table; make one of MassBank's record files with recipes/massbank.py, "
            "of NPLIB1 with recipes/nplib1.py, both in a clone of duallgd"
        )
    require_input(str(source))
    for spectrum in read(str(source), keep_structures=True):
        smiles, inchi = (
            "" if is_missing(text) else text.strip().strip('"')
            for text in (spectrum.metadata.get(name, "") for name in ("smiles", "inchi"))
        )
        smiles = smiles or smiles_of_inchi(inchi)
        fold = spectrum.metadata.get("fold", "").strip().lower() or "train"
        number, trouble = spectrum.source.index + 1, None
        if spectrum.failure is not None:
            trouble = "unreadable", spectrum.failure.message
        elif spectrum.ms_level != 2:
            trouble = "not an MS2 spectrum", f"MS level {spectrum.ms_level}"
        elif not smiles:
            trouble = "no structure", "no SMILES or InChI"
        elif fold not in FOLDS:
            trouble = "unknown fold", fold
        if trouble:
            yield RejectedSpectrum(number, spectrum.spectrum_id, *trouble)
        else:
            bare = replace(spectrum, metadata={})
            yield LabelledSpectrum(Feature((bare,)), smiles, fold, number)


def prepare_record(
    record: Labelled, holdout: frozenset[str] = frozenset()
) -> Prepared | RejectedSpectrum:
    """Turn one record into training data, or say why it is none."""
    if isinstance(record, RejectedSpectrum):
        return record
    first = record.feature.first
    try:
        molecule, adduct = molecule_of(record.smiles), adduct_of(first.adduct_text)
        refuse_misfit(molecule.formula, adduct, first.precursor_mz or None)
        spectra = [clean(spectrum, _CLEANING) for spectrum in record.feature.spectra]
        usable = tuple(spectrum for spectrum in spectra if spectrum.failure is None)
        if not usable:
            messages = {spectrum.failure.message for spectrum in spectra if spectrum.failure}
            raise UnusableRecordError("no usable peaks", "; ".join(sorted(messages)))
        if record.fold == "train" and molecule.inchikey in holdout:
            raise UnusableRecordError(ON_HOLDOUT, molecule.inchikey)
    except UnusableRecordError as refusal:
        return RejectedSpectrum(record.number, first.spectrum_id, *refusal.args)
    found = annotate(Hypothesis(Feature(usable), molecule.formula, adduct), _ANNOTATION)
    row = spectrum_row(found, first.spectrum_id, record.fold)
    return molecule, row | {"explained_intensity": found.explained_intensity}
