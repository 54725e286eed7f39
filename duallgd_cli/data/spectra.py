"""Labelled spectra to a prepared folder: annotated peaks and their molecules; needs rdkit once."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.data.labelled_spectra import (
    Labelled,
    LabelledSpectrum,
    RejectedSpectrum,
    UnusableRecordError,
    adduct_of,
    molecule_of,
    read_labelled_file,
    read_nplib1,
    refuse_misfit,
)
from duallgd_cli.data.pool import in_order
from duallgd_cli.data.prepared import (
    FOLDS,
    spectrum_arrays,
    spectrum_row,
    write,
    write_report,
)
from duallgd_cli.data.structures import ON_HOLDOUT, PreparedMolecule, pack
from duallgd_cli.errors import Failure, UnreadableError
from duallgd_cli.files import sha256
from duallgd_cli.spectra.annotation import AnnotationSettings, annotate
from duallgd_cli.spectra.features import CleaningSettings, clean
from duallgd_cli.spectra.types import INSTRUMENTS, Feature, Hypothesis, Spectrum

# Training spectra are cleaned and explained as those of a prediction are by default.
_CLEANING: Final = CleaningSettings()
_ANNOTATION: Final = AnnotationSettings()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSpectrum:
    """One spectrum of training data, still apart from the others.

    Attributes:
        number: Position of its record in the source, from 1.
        spectrum_id: As read.
        molecule: Its structure.
        row: Peaks and values by the names of `data.prepared.SPECTRUM_ARRAYS`.
        explained: Peaks looked at, those with a sub-formula, and their share of the intensity.
    """

    number: int
    spectrum_id: str
    molecule: PreparedMolecule
    row: dict[str, Any]
    explained: tuple[int, int, float]


def prepare_spectra(
    source: Path,
    out: Path,
    *,
    holdout: frozenset[str] = frozenset(),
    split: Path | None = None,
    workers: int = 1,
    advance: Callable[[int], None] = lambda records: None,
) -> dict[str, object]:
    """Prepare labelled spectra for training.

    Args:
        source: A table in the MassSpecGym layout (or an MGF or MSP with SMILES), or an NPLIB1
            folder.
        out: Folder for the arrays, the manifest and ``report.tsv`` of rejected records.
        holdout: InChIKey first blocks that must not be trained on; their spectra of fold train are
            left out and counted, those of other folds stay.
        split: Fold table of an NPLIB1 folder that holds several.
        workers: Processes.
        advance: Told how many records were done, for a progress display.

    Returns:
        The manifest.

    Raises:
        MissingInputError: No such file.
        UnreadableError: Nothing in it became training data.
    """
    spectra: list[PreparedSpectrum] = []
    rejected: list[RejectedSpectrum] = []
    train = FOLDS.index("train")
    for result in in_order(prepare_record, read_labelled(source, split), workers):
        if isinstance(result, RejectedSpectrum):
            rejected.append(result)
        elif result.molecule.inchikey in holdout and result.row["spectrum_fold"] == train:
            about = result.number, result.spectrum_id, ON_HOLDOUT, result.molecule.inchikey
            rejected.append(RejectedSpectrum(*about))
        else:
            spectra.append(result)
        advance(1)
    if not spectra:
        raise UnreadableError(f"{source} holds no spectrum that can be used; see its layout")
    arrays = _pack_spectra(spectra)
    reasons = Counter(r.reason for r in rejected)
    seen = {(s.molecule.inchikey, s.row["spectrum_fold"]) for s in spectra}
    folds = Counter(key for key, _ in seen)
    record: dict[str, object] = {
        "kind": "spectra",
        "source": {"file": source.name, "sha256": source_sha256(source)},
        "settings": {"cleaning": asdict(_CLEANING), "annotation": asdict(_ANNOTATION)},
        "molecules": len(arrays["fold"]),
        "spectra": len(spectra),
        "peak_rows": len(arrays["mz"]),
        "rejected": dict(reasons.most_common()),
        "holdout_keys": len(holdout),
        "holdout_removed": reasons.get(ON_HOLDOUT, 0),
        "without_explained_peak": sum(s.explained[1] == 0 for s in spectra),
        "molecules_in_several_folds": sum(n > 1 for n in folds.values()),
        "explained": _explained(spectra),
    }
    manifest = write(out, arrays, record)
    write_report(out / "report.tsv", RejectedSpectrum._fields, rejected)
    return manifest


def read_labelled(source: Path, split: Path | None = None) -> Iterator[Labelled]:
    """Read a data set whose layout is recognised by its form; see `prepare_spectra`.

    Raises:
        MissingInputError: No such file or folder.
        UnreadableError: Of no known layout.
    """
    if (source / "labels.tsv").is_file():
        return read_nplib1(source, split)
    if source.is_dir() or source.suffix == ".zip":
        raise UnreadableError(
            f"{source} is not of the NPLIB1 layout, which has a labels.tsv; make a table of "
            "MassBank's record files with 'duallgd data massbank'"
        )
    return read_labelled_file(source)


def prepare_record(record: Labelled) -> PreparedSpectrum | RejectedSpectrum:
    """Turn one record into training data, or say why it is none."""
    if isinstance(record, RejectedSpectrum):
        return record
    try:
        molecule = molecule_of(record.smiles)
        hypothesis = _hypothesis_of(record, molecule)
    except UnusableRecordError as refusal:
        reason, detail = refusal.args
        return RejectedSpectrum(record.number, record.feature.first.spectrum_id, reason, detail)
    found = annotate(hypothesis, _ANNOTATION)
    spectrum_id = record.feature.first.spectrum_id
    row = spectrum_row(found, spectrum_id, record.fold)
    explained = found.n_peaks, found.n_explained, found.explained_intensity
    return PreparedSpectrum(record.number, spectrum_id, molecule, row, explained)


def source_sha256(source: Path) -> str:
    """Digest of a file, or of the names and contents of all files of a folder."""
    if source.is_file():
        return sha256(source)
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(source).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


def _hypothesis_of(record: LabelledSpectrum, molecule: PreparedMolecule) -> Hypothesis:
    """What is known to be true of a record, its spectra cleaned."""
    formula = molecule.formula
    adduct = adduct_of(record.adduct_text)
    refuse_misfit(formula, adduct, record.feature.first.precursor_mz or None)
    spectra = [clean(spectrum, _CLEANING) for spectrum in record.feature.spectra]
    usable = tuple(spectrum for spectrum in spectra if isinstance(spectrum, Spectrum))
    if not usable:
        messages = {s.message for s in spectra if isinstance(s, Failure)}
        raise UnusableRecordError("no usable peaks", "; ".join(sorted(messages)))
    return Hypothesis(Feature(usable), formula, adduct)


def _pack_spectra(spectra: Sequence[PreparedSpectrum]) -> dict[str, NDArray[Any]]:
    """Join spectra, and their molecules once each, into the arrays of `data.prepared`."""
    first: dict[str, PreparedMolecule] = {}
    folds: dict[str, set[int]] = {}
    for spectrum in spectra:
        key = spectrum.molecule.inchikey
        first.setdefault(key, spectrum.molecule)
        folds.setdefault(key, set()).add(spectrum.row["spectrum_fold"])
    row = {key: index for index, key in enumerate(first)}
    # The largest index is the fold farthest from training: it decides where folds share a molecule.
    fold = np.array([max(folds[key]) for key in first], np.uint8)
    molecule = [row[s.molecule.inchikey] for s in spectra]
    return {
        **pack(list(first.values()), fold),
        **spectrum_arrays([s.row for s in spectra], molecule),
    }


def _explained(spectra: Sequence[PreparedSpectrum]) -> list[dict[str, object]]:
    """What sub-formulas explain, by adduct and instrument."""
    groups: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    for spectrum in spectra:
        measured_as = spectrum.row["adduct"], spectrum.row["instrument"]
        groups.setdefault(measured_as, []).append(spectrum.explained)
    return [
        {
            "adduct": ADDUCTS[adduct].name,
            "instrument": INSTRUMENTS[instrument] or "unknown",
            "spectra": len(group),
            "peaks": sum(n for n, _, _ in group),
            "peaks_explained": sum(n for _, n, _ in group),
            "mean_intensity_explained": float(np.mean([share for _, _, share in group])),
        }
        for (adduct, instrument), group in sorted(groups.items())
    ]
