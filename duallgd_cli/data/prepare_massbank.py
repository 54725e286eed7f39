"""Rebuild the MassBank data set from a release: which records are kept, and in what layout."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from duallgd_cli.chem.adduct import Adduct, fits, parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.labelled_spectra import Labelled, LabelledSpectrum, RejectedSpectrum
from duallgd_cli.data.massbank_records import MassBankRecord, read_release
from duallgd_cli.data.prepared import FOLDS
from duallgd_cli.errors import FormulaError, MoleculeError, UnreadableError
from duallgd_cli.files import open_text
from duallgd_cli.spectra.energy import collision_energy_ev, instrument_class
from duallgd_cli.spectra.types import Feature, Source, Spectrum

COLUMNS: Final = (
    "identifier", "mzs", "intensities", "smiles", "inchikey", "formula", "precursor_mz",
    "parent_mass", "adduct", "instrument_type", "collision_energy", "fold", "ion_mode",
    "instrument", "collision_energy_text", "resolution", "license",
)  # fmt: skip
MAX_PEAKS: Final = 512
MIN_HEAVY_ATOMS: Final = 4
MAX_HEAVY_ATOMS: Final = 100
_PRECURSOR_DA: Final = 0.02
_PRECURSOR_PPM: Final = 20.0
_IONISATION: Final = re.compile(r"ESI|APCI", re.IGNORECASE)
_ANALYSER: Final = re.compile(r"TOF|FT|ORBITRAP", re.IGNORECASE)
_OPEN_LICENSE: Final = re.compile(r"CC0|CC[- ]?BY(-SA)?( \d\.\d)?|dl-de/by-2-0", re.IGNORECASE)


class _RefusedError(Exception):
    """A record is left out; holds the reason and the detail of `RejectedSpectrum`."""


@dataclass(frozen=True, slots=True)
class _Structure:
    """What the data set says of a molecule."""

    smiles: str
    inchikey: str
    formula: Formula


@dataclass(frozen=True, slots=True, eq=False)
class KeptRecord:
    """A record that passed every filter.

    Attributes:
        record: As published.
        structure: Its molecule.
        adduct: Its ion.
        spectrum: Its peaks, ascending m/z, base peak 1, at most `MAX_PEAKS`.
    """

    record: MassBankRecord
    structure: _Structure
    adduct: Adduct
    spectrum: Spectrum


def rebuild_massbank(
    release: Path,
    out: Path,
    folds: Mapping[str, str] | None = None,
    *,
    holdout: frozenset[str] = frozenset(),
    advance: Callable[[int], None] = lambda records: None,
) -> dict[str, object]:
    """Write the open high-resolution MS2 spectra of a MassBank release as one table.

    Args:
        release: Folder or zip of record files, or the MSP release with its ``MassBank.json``.
        out: ``.tsv``, ``.tsv.gz`` or ``.tsv.xz`` to write; ``NAME.report.tsv`` beside it lists what
            was left out and why.
        folds: Fold of each InChIKey first block; molecules not named go to train.
        holdout: InChIKey first blocks that are left out altogether.
        advance: Told how many records were done.

    Returns:
        Totals before hold-outs, totals written, and the number left out by reason.

    Raises:
        MissingInputError: No such release.
        UnreadableError: None of its records passes the filters.
    """
    rejected: list[RejectedSpectrum] = []
    molecules: set[str] = set()
    written: Counter[str] = Counter()
    out.parent.mkdir(parents=True, exist_ok=True)
    with open_text(out, "w") as stream:
        table = csv.writer(stream, delimiter="\t", lineterminator="\n")
        table.writerow(COLUMNS)
        for item in screen(release, advance):
            if isinstance(item, RejectedSpectrum):
                rejected.append(item)
                continue
            key = item.structure.inchikey
            molecules.add(key)
            if key in holdout:
                written["held out"] += 1
                continue
            table.writerow(_row(item, (folds or {}).get(key, "train")))
            written["spectra"] += 1
    if not molecules:
        raise UnreadableError(f"{release} holds no record that passes the filters")
    with out.with_name(out.name + ".report.tsv").open("w", encoding="utf-8", newline="") as stream:
        report = csv.writer(stream, delimiter="\t", lineterminator="\n")
        report.writerow(("number", "spectrum_id", "reason", "detail"))
        report.writerows((r.number, r.spectrum_id, r.reason, r.detail) for r in rejected)
    return {
        "spectra_before_holdout": written.total(),
        "molecules_before_holdout": len(molecules),
        "spectra": written["spectra"],
        "molecules": len(molecules - holdout),
        "holdout_keys": len(holdout),
        "holdout_removed": written["held out"],
        "rejected": dict(Counter(r.reason for r in rejected).most_common()),
    }


def read_massbank(release: Path) -> Iterator[Labelled]:
    """Yield the records of a release that pass the filters as labelled spectra of fold train."""
    for item in screen(release):
        if isinstance(item, RejectedSpectrum):
            yield item
        else:
            number = item.spectrum.source.index + 1
            feature = Feature((item.spectrum,))
            yield LabelledSpectrum(
                feature, item.structure.smiles, item.adduct.name, "train", number
            )


def screen(
    release: Path, advance: Callable[[int], None] = lambda records: None
) -> Iterator[KeptRecord | RejectedSpectrum]:
    """Apply the filters of the data set to every record of a release, in order.

    Kept are MS2 spectra by ESI or APCI on a TOF, Orbitrap or other FT analyser, under an open
    licence without NC and ND, of one connected neutral molecule (or a permanent cation as [M]+) of
    the supported elements with 4 to 100 heavy atoms, with a supported adduct and a recorded
    precursor m/z within 0.02 Da or 20 ppm; the same peaks of the same ion are kept once.
    """
    seen: set[tuple[str, int, bytes]] = set()
    for index, record in enumerate(read_release(release)):
        try:
            kept = _kept(record, Source(release.name, index))
            peaks = kept.spectrum.mz.tobytes() + kept.spectrum.intensity.tobytes()
            identity = (kept.structure.inchikey, kept.adduct.index, peaks)
            if identity in seen:
                raise _RefusedError("duplicate", "the same peaks of the same ion stand above")
            seen.add(identity)
            yield kept
        except _RefusedError as refusal:
            yield RejectedSpectrum(index + 1, record.text("accession"), *refusal.args)
        advance(1)


def _kept(record: MassBankRecord, source: Source) -> KeptRecord:
    _refuse_the_unsuitable(record)
    adduct = parse_adduct(record.text("adduct"))
    if adduct is None:
        raise _RefusedError("unsupported adduct", record.text("adduct"))
    structure = _structure_of(record.text("smiles"))
    if not fits(structure.formula, adduct):
        detail = f"{structure.formula} as {adduct.name}"
        raise _RefusedError("adduct does not fit the molecule", detail)
    measured = _precursor(record, precursor_mz(structure.formula, adduct))
    return KeptRecord(record, structure, adduct, _spectrum(record, source, adduct, measured))


def _refuse_the_unsuitable(record: MassBankRecord) -> None:
    """Refuse by what the record says of itself."""
    instrument = record.text("instrument_type")
    if record.text("deprecated"):
        raise _RefusedError("deprecated record", record.text("deprecated"))
    if record.text("ms_type").upper() != "MS2":
        raise _RefusedError("not an MS2 spectrum", record.text("ms_type"))
    if not (_IONISATION.search(instrument) and _ANALYSER.search(instrument)):
        raise _RefusedError("not ESI or APCI on a TOF or FT analyser", instrument)
    if not _OPEN_LICENSE.fullmatch(record.text("license")):
        raise _RefusedError("licence not open", record.text("license"))


def _structure_of(smiles: str) -> _Structure:
    found = _structure(smiles)
    if isinstance(found, _RefusedError):
        raise found
    return found


# Records of one molecule stand together. A refusal is remembered as well, hence returned.
@lru_cache(maxsize=4096)
def _structure(smiles: str) -> _Structure | _RefusedError:
    try:
        mol = parse_smiles(smiles)
        formula = disassemble(mol).formula
        if not MIN_HEAVY_ATOMS <= formula.n_heavy <= MAX_HEAVY_ATOMS:
            return _RefusedError("too few or too many atoms", f"{formula.n_heavy} heavy atoms")
        return _Structure(canonical_smiles(mol), inchikey_block(mol), formula)
    except FormulaError as error:
        return _RefusedError("unsupported element", str(error))
    except MoleculeError as error:
        return _RefusedError("unusable structure", str(error))


def _precursor(record: MassBankRecord, expected: float) -> float:
    text = record.text("precursor_mz")
    try:
        measured = float(text)
    except ValueError:
        raise _RefusedError("no precursor m/z", text) from None
    allowed = max(_PRECURSOR_DA, _PRECURSOR_PPM * 1e-6 * expected)
    if not abs(measured - expected) <= allowed:
        raise _RefusedError("precursor m/z differs", f"{text}, expected {expected:.4f}")
    return measured


def _spectrum(record: MassBankRecord, source: Source, adduct: Adduct, measured: float) -> Spectrum:
    positive = np.isfinite(record.mz) & (record.mz > 0) & (record.intensity > 0)
    mz, intensity = record.mz[positive], record.intensity[positive]
    if not mz.size:
        raise _RefusedError("no usable peaks", f"{record.mz.size} peaks")
    strongest = np.argsort(-intensity, kind="stable")[:MAX_PEAKS]
    order = strongest[np.argsort(mz[strongest], kind="stable")]
    analyser = record.text("instrument_type")
    instrument = instrument_class(analyser) or instrument_class(record.text("instrument"))
    energy_text = record.text("collision_energy_text")
    return Spectrum(
        source=source,
        spectrum_id=record.text("accession"),
        mz=mz[order],
        intensity=intensity[order] / intensity.max(),
        precursor_mz=measured,
        polarity=adduct.polarity,
        adduct_text=adduct.name,
        collision_energy_text=energy_text,
        collision_energy_ev=collision_energy_ev(energy_text, measured, instrument),
        instrument=instrument,
    )


def _row(kept: KeptRecord, fold: str) -> list[str]:
    """The cells of `COLUMNS`."""
    record, spectrum, formula = kept.record, kept.spectrum, kept.structure.formula
    energy = spectrum.collision_energy_ev
    return [
        spectrum.spectrum_id,
        ",".join(f"{value:.10g}" for value in spectrum.mz),
        ",".join(f"{value:.4g}" for value in spectrum.intensity),
        kept.structure.smiles,
        kept.structure.inchikey,
        str(formula),
        record.text("precursor_mz"),
        f"{formula.mass:.5f}",
        kept.adduct.name,
        {"orbitrap": "Orbitrap", "qtof": "QTOF"}.get(spectrum.instrument, ""),
        "" if energy is None else f"{energy:.2f}",
        fold,
        "positive" if kept.adduct.polarity > 0 else "negative",
        record.text("instrument"),
        record.text("collision_energy_text"),
        record.text("resolution"),
        record.text("license"),
    ]


def read_folds(path: Path) -> dict[str, str]:
    """Fold of each molecule from a table with columns inchikey and fold, such as a built data set.

    Raises:
        MissingInputError: No such file.
        UnreadableError: A column is missing, or a molecule stands in two folds.
    """
    folds: dict[str, str] = {}
    with open_text(path, errors="replace") as stream:
        names = [name.strip().lower() for name in next(stream, "").rstrip("\r\n").split("\t")]
        if not {"inchikey", "fold"} <= set(names):
            raise UnreadableError(f"{path} must have columns inchikey and fold; found {names}")
        key_column, fold_column = names.index("inchikey"), names.index("fold")
        for line in stream:
            cells = line.rstrip("\r\n").split("\t")
            key, fold = cells[key_column][:14], cells[fold_column].strip().lower()
            if fold not in FOLDS or folds.setdefault(key, fold) != fold:
                raise UnreadableError(f"{path} puts {key} into fold {fold!r} and elsewhere")
    return folds
