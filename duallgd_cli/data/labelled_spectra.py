"""Spectra with known structures, as public data sets lay them out."""

import lzma
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from duallgd_cli.chem.adduct import Adduct, fits, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.data.prepared import FOLDS
from duallgd_cli.data.structures import PreparedMolecule, prepare_molecule
from duallgd_cli.errors import (
    DuallgdError,
    FormulaError,
    MissingInputError,
    MoleculeError,
    UnreadableError,
    UsageError,
    quote,
)
from duallgd_cli.files import table_rows
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.reading.record import collision_energy_ev, instrument_class
from duallgd_cli.spectra.types import Feature, Spectrum, Unreadable


@dataclass(frozen=True, slots=True, eq=False)
class LabelledSpectrum:
    """One case to learn from: the spectra of an ion, and the structure they belong to.

    Attributes:
        feature: Spectra as read, not yet cleaned.
        smiles: SMILES of the molecule.
        adduct_text: As written.
        fold: train, val, test or dev.
        number: Position of the record in its source, from 1.
    """

    feature: Feature
    smiles: str
    adduct_text: str
    fold: str
    number: int


class RejectedSpectrum(NamedTuple):
    """A record that did not become training data.

    Attributes:
        number: Position of the record in its source, from 1.
        spectrum_id: Identifier as written, else "".
        reason: A short phrase, the same for all records with this trouble.
        detail: What was found in this one.
    """

    number: int
    spectrum_id: str
    reason: str
    detail: str


Labelled = LabelledSpectrum | RejectedSpectrum
_PRECURSOR_DA: Final = 0.02
_PRECURSOR_PPM: Final = 20.0


class UnusableRecordError(Exception):
    """A record is no training data; holds the reason and the detail of `RejectedSpectrum`."""


@lru_cache(maxsize=4096)  # records of one molecule stand together
def molecule_of(smiles: str) -> PreparedMolecule:
    """The molecule of a record.

    Raises:
        UnusableRecordError: It is none that can be trained on.
    """
    try:
        return prepare_molecule(parse_smiles(smiles))
    except FormulaError as error:
        raise UnusableRecordError("unsupported element", str(error)) from None
    except MoleculeError as error:
        raise UnusableRecordError("unusable structure", str(error)) from None
    except UnreadableError as error:
        raise UnusableRecordError("too few or too many atoms", str(error)) from None


def adduct_of(text: str) -> Adduct:
    """The adduct of a record.

    Raises:
        UnusableRecordError: It is none that networks are trained on.
    """
    adduct = parse_adduct(text)
    if not isinstance(adduct, Adduct) or adduct != adduct.trained:
        raise UnusableRecordError("unsupported adduct", text)
    return adduct


def refuse_misfit(formula: Formula, adduct: Adduct, measured: float | None) -> None:
    """Compare what a record says of its ion.

    Args:
        formula: Formula of the molecule.
        adduct: Adduct of the ion.
        measured: Precursor m/z, or None if the record has none.

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


def read_labelled_file(source: Path) -> Iterator[Labelled]:
    """Read a table in the MassSpecGym layout, or any spectrum file whose records name a SMILES.

    The energy is taken from collision_energy_text where there is such a column, since a prediction
    starts from text as well. A record without a fold belongs to train.

    Args:
        source: TSV, MGF or MSP, plain, .gz or .xz.

    Raises:
        MissingInputError: No such file.
        UnreadableError: It is no spectrum file.
    """
    if not source.is_file():
        raise MissingInputError(f"{source} does not exist; check the path")
    with lzma.open(source) if source.suffix == ".xz" else nullcontext() as raw:
        for item in read(str(source), keep_structures=True, raw=cast("BinaryIO | None", raw)):
            number = item.source.index + 1
            if isinstance(item, Unreadable):
                reason = item.failure.message
                yield RejectedSpectrum(number, item.spectrum_id, "unreadable", reason)
            else:
                yield _labelled(item, number)


def read_nplib1(folder: Path, split: Path | None = None) -> Iterator[Labelled]:
    """Read the NPLIB1 layout: ``labels.tsv``, ``spec_files/NAME.ms`` and a split table.

    Args:
        folder: Holds ``labels.tsv`` with columns spec, smiles and ionization.
        split: Table with columns name and split; found in the folder if None and there is one.

    Raises:
        MissingInputError: A table is missing.
        UnreadableError: A table lacks a column.
        UsageError: There are several split tables and none was chosen.
    """
    labels = table_rows(folder / "labels.tsv", ("spec", "smiles"), errors="replace")
    rows = table_rows(split or _only_split(folder), ("name", "split"), errors="replace")
    folds = {row["name"]: row["split"].lower() for row in rows}
    for number, label in enumerate(labels, 1):
        yield _nplib1_record(folder, label, folds, number)


def _labelled(spectrum: Spectrum, number: int) -> Labelled:
    smiles = spectrum.metadata.get("smiles", "").strip()
    fold = spectrum.metadata.get("fold", "").strip().lower() or "train"
    if spectrum.ms_level != 2:
        detail = f"MS level {spectrum.ms_level}"
        return RejectedSpectrum(number, spectrum.spectrum_id, "not an MS2 spectrum", detail)
    if not smiles:
        return RejectedSpectrum(number, spectrum.spectrum_id, "no structure", "no field SMILES")
    if fold not in FOLDS:
        return RejectedSpectrum(number, spectrum.spectrum_id, "unknown fold", fold)
    bare = replace(spectrum, metadata={})
    return LabelledSpectrum(Feature((bare,)), smiles, spectrum.adduct_text, fold, number)


def _nplib1_record(
    folder: Path, label: Mapping[str, str], folds: Mapping[str, str], number: int
) -> Labelled:
    name, fold = label["spec"], folds.get(label["spec"], "")
    if fold not in FOLDS:
        return RejectedSpectrum(number, name, "in no fold", f"split table says {quote(fold)}")
    try:
        items = list(read(str(folder / "spec_files" / f"{name}.ms")))
    except DuallgdError as error:
        return RejectedSpectrum(number, name, "unreadable", str(error))
    instrument = instrument_class(label.get("instrument", ""))
    spectra = [
        _with_instrument(item, name, instrument)
        for item in items
        if isinstance(item, Spectrum) and item.ms_level == 2
    ]
    if not spectra:
        return RejectedSpectrum(number, name, "no usable peaks", "no MS2 block in its file")
    adduct = label.get("ionization") or spectra[0].adduct_text
    return LabelledSpectrum(Feature(tuple(spectra)), label["smiles"], adduct, fold, number)


def _with_instrument(spectrum: Spectrum, name: str, instrument: str) -> Spectrum:
    """The spectrum named as its label is, its energy read with the instrument of the label."""
    instrument = spectrum.instrument or instrument
    energy_ev = collision_energy_ev(
        spectrum.collision_energy_text, spectrum.precursor_mz, instrument
    )
    return replace(
        spectrum,
        spectrum_id=name,
        instrument=instrument,
        collision_energy_ev=energy_ev,
        metadata={},
    )


def _only_split(folder: Path) -> Path:
    found = sorted([*folder.glob("split*.tsv"), *folder.glob("splits/*.tsv")])
    if not found:
        raise MissingInputError(f"{folder} holds no split table; name one")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise UsageError(f"{folder} holds several split tables ({names}); name one")
    return found[0]
