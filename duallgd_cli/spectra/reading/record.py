"""From the keys, values and peaks of one record to a `Spectrum`, the same way for every format."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, counted, printable, quote
from duallgd_cli.spectra.reading import fields as of
from duallgd_cli.spectra.reading.fields import collision_energy_ev, instrument_class
from duallgd_cli.spectra.types import HIGHEST_MZ, Source, Spectrum, Unreadable

MOST_PEAKS: Final = 1_000_000  # of one spectrum in text
LONGEST_LINE: Final = 1 << 25  # characters of a line, and of a record
TOO_LARGE: Final = (
    f"it is longer than {LONGEST_LINE >> 20} million characters or has more than {MOST_PEAKS:,} "
    "peaks; restore the file, or centroid the spectrum"
)
_FIELD_COST: Final = 100  # characters that an entry of a dictionary takes the place of


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record as a format reader splits it.

    Attributes:
        metadata: Keys lower case, values text, in the file's order.
        mz: float64 (P,), any order.
        intensity: float64 (P,).
        trouble: Why the record cannot be used, else "".
        warnings: Sentences about what was repaired.
        energy_in_ev: The format defines a collision energy without unit to be in eV.
    """

    metadata: Mapping[str, str]
    mz: NDArray[np.float64]
    intensity: NDArray[np.float64]
    trouble: str = ""
    warnings: tuple[str, ...] = ()
    energy_in_ev: bool = False


@dataclass(slots=True)
class Block:
    """Fields and peak lines of one record of a text format, as far as they fit.

    Attributes:
        metadata: Keys lower case; of a repeated key the first value that is not empty counts.
        peaks: Peak lines.
        trouble: `TOO_LARGE` once there was more than one spectrum can have; the rest is left out.
        size: Characters so far.
    """

    metadata: dict[str, str] = field(default_factory=dict)
    peaks: list[str] = field(default_factory=list)
    trouble: str = ""
    size: int = 0

    def add_field(self, key: str, value: str) -> None:
        """Take a field."""
        self.count(len(key) + len(value) + _FIELD_COST)
        if not self.trouble and not self.metadata.get(key):
            self.metadata[key] = value

    def add_peak(self, line: str) -> None:
        """Take a line of peaks."""
        self.count(len(line))
        if len(self.peaks) >= MOST_PEAKS:
            self.trouble = TOO_LARGE
        if not self.trouble:
            self.peaks.append(line)

    def count(self, characters: int) -> None:
        """Take note of what a line holds."""
        self.size += characters
        if self.size > LONGEST_LINE:
            self.trouble = TOO_LARGE


def name_of(source: Source) -> str:
    """``<file stem>:<index>``, the identifier of a record that has none."""
    stem = "stdin" if source.file == "-" else PurePath(source.file).name.split(".")[0]
    return f"{printable(stem)}:{source.index}"


def build(record: Record, source: Source, keep_structures: bool) -> Spectrum | Unreadable:
    """The spectrum of a record, or why there is none."""
    recorded = {key: printable(value).strip() for key, value in record.metadata.items()}
    known = of.canonical(recorded)
    spectrum_id = of.first(known, of.IDENTIFIER) or name_of(source)
    if record.trouble:
        return Unreadable(source, spectrum_id, Failure("unreadable", record.trouble, "read"))
    precursor_mz, warnings = _precursor(known)
    charge, polarity = _charge(known)
    classes = (instrument_class(known.get(name, "")) for name in of.INSTRUMENT)
    instrument = next((name for name in classes if name), "")
    energy = known.get("collision_energy", "")
    energy_text = f"{energy} eV" if record.energy_in_ev and of.number(energy) else energy
    energy_ev = collision_energy_ev(energy_text, precursor_mz, instrument)
    metadata = recorded if keep_structures else of.without_structures(recorded)
    ms_level = of.level_of(known)
    order = np.argsort(record.mz, kind="stable")
    return Spectrum(
        source=source,
        spectrum_id=spectrum_id,
        mz=record.mz[order],
        intensity=record.intensity[order],
        precursor_mz=precursor_mz,
        feature_id=known.get("feature_id", ""),
        scans=known.get("scans", ""),
        charge=charge,
        polarity=polarity,
        adduct_text=of.adduct_of(known),
        formula_text=of.formula_of(known),
        collision_energy_text=energy,
        collision_energy_ev=energy_ev,
        instrument=instrument,
        ms_level=ms_level,
        metadata=metadata,
        warnings=(
            *record.warnings,
            *warnings,
            *_higher_level(ms_level),
            *_unread_energy(energy, energy_ev),
            *_impossible_peaks(record),
        ),
    )


def _precursor(known: Mapping[str, str]) -> tuple[float | None, tuple[str, ...]]:
    """m/z of the precursor; 0 means missing, and what is no positive number is said to be."""
    wrong = ""
    for name in of.PRECURSOR:
        text = known.get(name, "").strip()
        # The first number of 1_95.1 is 1, which nobody means.
        value = None if "_" in text.partition(" ")[0] else of.number(text)
        if value is not None and 0 < value < HIGHEST_MZ:
            return value, ()
        if name in known and value != 0:
            wrong = known[name]
    if not wrong:
        return None, ()
    return None, (f"precursor m/z {quote(wrong)} is not a positive number below {HIGHEST_MZ:,.0f}",)


def _charge(known: Mapping[str, str]) -> tuple[int, int]:
    """Signed charge and polarity; an unsigned charge takes its sign from the ion mode."""
    charge, has_sign = of.signed_charge(known.get("charge", ""))
    modes = (known.get("ionmode", ""), *(known.get(name, "") for name in of.ADDUCT))
    polarity = next((p for p in map(of.polarity_of, modes) if p), 0)
    if not has_sign:
        return (-charge if polarity < 0 else charge), polarity
    return charge, polarity or (1 if charge > 0 else -1)


def _higher_level(ms_level: int) -> tuple[str, ...]:
    if ms_level < 3:
        return ()
    return (
        f"an MS{ms_level} spectrum is read as if it were MS2: its precursor is a fragment, so the "
        "formula must be the fragment's",
    )


def _unread_energy(text: str, energy_ev: float | None) -> tuple[str, ...]:
    """What to say of an energy that is given and cannot be used; 0 and words mean that none is."""
    if energy_ev is not None or of.number(text) == 0 or not re.search(r"\d", text):
        return ()
    return (
        f"collision energy {quote(text)} gives no one value in eV and counts as missing; "
        "write it like 35 eV",
    )


def _impossible_peaks(record: Record) -> tuple[str, ...]:
    """What to say of peaks that cleaning leaves out because of their numbers; zeros are ordinary.

    Where no peak is possible the failure says so.
    """
    mz, intensity = record.mz, record.intensity
    possible = np.isfinite(intensity) & (intensity >= 0) & (mz >= 0) & (mz < HIGHEST_MZ)
    lost = mz.size - int(possible.sum())
    if not 0 < lost < mz.size:
        return ()
    return (f"{lost} of {mz.size} peaks had no possible m/z and intensity and were left out",)


def peaks(lines: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """m/z and intensity from lines of two or more columns.

    Returns:
        float64 (P,), float64 (P,), and the number of lines without two numbers.
    """
    text = " ".join(lines)
    tokens = text.split(None, 2 * len(lines))
    # NumPy reads numbers as Python does, see `fields.finite`.
    if len(tokens) == 2 * len(lines) and text.isascii() and "_" not in text:
        with contextlib.suppress(ValueError):
            values = np.array(tokens, dtype=np.float64)
            return values[0::2], values[1::2], 0
    pairs = [pair for line in lines if (pair := _pair(line)) is not None]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1], len(lines) - len(pairs)


def _pair(line: str) -> tuple[float, float] | None:
    """Two numbers of a line; further columns are left aside, decimal commas understood."""
    columns = line.replace(";", " ").replace(":", " ").split(None, 2)
    if len(columns) == 1:
        columns = line.split(",", 2)
    if not all(column.isascii() and "_" not in column for column in columns[:2]):
        return None
    try:
        return float(columns[0].replace(",", ".")), float(columns[1].replace(",", "."))
    except (ValueError, IndexError):
        return None


def peak_record(
    block: Block,
    lines: Sequence[str],
    warnings: tuple[str, ...] = (),
    energy_in_ev: bool = False,
) -> Record:
    """A record from its fields and peak lines, with what could not be read said in it."""
    if block.trouble:
        return unreadable_record(block.metadata, block.trouble)
    mz, intensity, bad = peaks(lines)
    trouble = ""
    if bad and not mz.size:
        trouble = f"no m/z and intensity in {counted(bad, 'peak line')}; restore the file"
    elif bad:
        warnings = (*warnings, f"{bad} of {len(lines)} peak lines were not readable and left out")
    return Record(block.metadata, mz, intensity, trouble, warnings, energy_in_ev)


def unreadable_record(metadata: Mapping[str, str], trouble: str) -> Record:
    """A record that cannot be used, and why."""
    return Record(metadata, np.zeros(0), np.zeros(0), trouble)
