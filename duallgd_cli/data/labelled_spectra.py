"""Spectra with known structures, as public data sets lay them out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.data.prepare_structures import open_text
from duallgd_cli.data.prepared import FOLDS
from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.energy import collision_energy_ev, instrument_class
from duallgd_cli.spectra.types import Feature, Source, Spectrum

TABLE_COLUMNS: Final = ("mzs", "intensities", "smiles", "adduct")
_MISSING: Final = frozenset({"", "nan", "none", "n/a", "na"})


@dataclass(frozen=True, slots=True, eq=False)
class LabelledSpectrum:
    """One case to learn from: the spectra of an ion, and the structure they belong to.

    Attributes:
        feature: Spectra as read, not yet cleaned.
        smiles: Of the molecule.
        adduct_text: As written.
        fold: train, val, test or dev.
        line: Line or number of the record in its source, from 1.
    """

    feature: Feature
    smiles: str
    adduct_text: str
    fold: str
    line: int


@dataclass(frozen=True, slots=True)
class RejectedSpectrum:
    """A record that did not become training data.

    Attributes:
        line: Line or number of the record in its source, from 1.
        spectrum_id: Identifier as written, else "".
        reason: A short phrase, the same for all records with this trouble.
        detail: What was found in this one.
    """

    line: int
    spectrum_id: str
    reason: str
    detail: str


Record = LabelledSpectrum | RejectedSpectrum


def read_labelled(source: Path) -> Iterator[Record]:
    """Read labelled spectra from a table in the MassSpecGym layout.

    Raises:
        MissingInputError: No such file.
        UnreadableError: It is of no known layout.
    """
    yield from read_table(source)


def read_table(source: Path) -> Iterator[Record]:
    """Read a table in the MassSpecGym column layout, plain or compressed.

    Columns mzs, intensities, smiles and adduct are needed; identifier, precursor_mz,
    instrument_type, collision_energy (eV), collision_energy_text (as recorded, preferred) and fold
    are used where present.

    Raises:
        MissingInputError: No such file.
        UnreadableError: A needed column is missing.
    """
    with open_text(source) as stream:
        names = [name.strip().lower() for name in next(stream, "").rstrip("\r\n").split("\t")]
        missing = [name for name in TABLE_COLUMNS if name not in names]
        if missing:
            raise UnreadableError(
                f"{source} has no column {', '.join(missing)}; expected tab-separated columns as "
                "in MassSpecGym"
            )
        for line, text in enumerate(stream, 2):
            values = text.rstrip("\r\n").split("\t")
            if len(values) != len(names):
                detail = f"{len(values)} fields, expected {len(names)}"
                yield RejectedSpectrum(line, values[0][:64], "wrong number of fields", detail)
                continue
            yield _from_row(dict(zip(names, values, strict=True)), source, line)


def _from_row(row: Mapping[str, str], source: Path, line: int) -> Record:
    spectrum_id = row.get("identifier", "") or f"{source.stem}:{line}"
    try:
        mz, intensity = numbers(row["mzs"]), numbers(row["intensities"])
    except ValueError as error:
        return RejectedSpectrum(line, spectrum_id, "unreadable peaks", str(error))
    if mz.size != intensity.size:
        detail = f"{mz.size} m/z and {intensity.size} intensities"
        return RejectedSpectrum(line, spectrum_id, "unreadable peaks", detail)
    fold = row.get("fold", "train").strip().lower()
    if fold not in FOLDS:
        return RejectedSpectrum(line, spectrum_id, "unknown fold", fold)
    instrument = instrument_class(row.get("instrument_type", ""))
    precursor_mz = number(row.get("precursor_mz", ""))
    order = np.argsort(mz, kind="stable")
    spectrum = Spectrum(
        source=Source(source.name, line - 2),
        spectrum_id=spectrum_id,
        mz=mz[order],
        intensity=intensity[order],
        precursor_mz=precursor_mz,
        adduct_text=row["adduct"],
        collision_energy_ev=_energy_ev(row, precursor_mz, instrument),
        instrument=instrument,
    )
    return LabelledSpectrum(Feature((spectrum,)), row["smiles"], row["adduct"], fold, line)


def _energy_ev(row: Mapping[str, str], precursor_mz: float | None, instrument: str) -> float | None:
    """Energy from the text as recorded; from the number of the column only where there is none."""
    text = row.get("collision_energy_text", "").strip()
    if text.lower() in _MISSING:
        energy = number(row.get("collision_energy", ""))
        text = "" if energy is None else f"{energy} eV"
    return collision_energy_ev(text, precursor_mz, instrument)


def numbers(text: str) -> NDArray[np.float64]:
    """Comma-separated numbers.

    Raises:
        ValueError: One of them is no number.
    """
    return np.array(text.split(","), dtype=np.float64) if text.strip() else np.zeros(0)


def number(text: str) -> float | None:
    """A finite positive number, or None where a field is missing or holds anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
