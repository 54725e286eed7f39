"""From the keys, values and peaks of one record to a `Spectrum`, the same way for every format.

Every dialect's keys are brought to one canonical name, so that the format readers only split
records into keys, values and peaks. Collision energy and instrument are read from free text by one
function each, for training data and predictions alike: the same words mean the same energy.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, counted, printable, quote
from duallgd_cli.spectra.types import HIGHEST_MZ, UNIT_RESOLUTION, Source, Spectrum

MOST_PEAKS: Final = 1_000_000  # of one spectrum in text
LONGEST_LINE: Final = 1 << 25  # characters of a line, and of a record
TOO_LARGE: Final = (
    f"it is longer than {LONGEST_LINE >> 20} million characters or has more than {MOST_PEAKS:,} "
    "peaks; restore the file, or centroid the spectrum"
)
_FIELD_COST: Final = 100  # characters that an entry of a dictionary takes the place of
_MISSING: Final = frozenset({"", "n/a", "na", "nan", "null", "none", "-", "?", "unknown"})
_MEANT: Final = frozenset({("ionmode", "-"), ("pepmass", "nan"), ("precursor_mz", "nan")})
_STRUCTURE: Final = re.compile(r"smiles|inchi|selfies|mol_?(file|block)|^structure$", re.IGNORECASE)
_STRUCTURE_VALUE: Final = re.compile(r"InChI=1|\b[A-Z]{14}-[A-Z]{10}-[A-Z]\b")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CHARGE: Final = re.compile(r"([+-]?)(\d{0,3})([+-]?)", re.ASCII)
_ADDUCT_TEXT: Final = re.compile(r"(?<![A-Za-z])M(?=H\+|[^A-Za-z]|$)")

# Canonical names in the order in which they are tried: the first that is present wins.
PRECURSOR: Final = ("pepmass", "precursor_mz")
ADDUCT: Final = ("adduct", "ion")
IDENTIFIER: Final = ("feature_id", "spectrum_id", "identifier", "title", "compound_name", "scans")
INSTRUMENT: Final = (
    *("filter string", "analyzer", "instrument_type", "instrument"),
    "fragmentation_mode",
)

# The keys that programs and libraries write for each name, without spaces, "_", "-" and "/".
_KEYS: Final = {
    "adduct": "adducttype precursortype",
    # In SIRIUS .ms IONIZATION is the adduct; elsewhere it says ESI, which is skipped.
    "ion": "iontype ionization",
    "precursor_mz": "precursormass precursor mz",
    "charge": "precursorcharge",
    "ionmode": "polarity scanpolarity ionpolarity ionpol",
    "feature_id": "",
    "spectrum_id": "accession db#",
    "identifier": "id",
    "title": "recordtitle",
    "compound_name": "name",
    "scans": "scan scannumber",
    "spectype": "",
    "ms_level": "mstype spectrumtype",
    "collision_energy": "colenergy collision ce",
    "formula": "",
    "molecular_formula": "",
    "instrument_type": "",
    "instrument": "sourceinstrument instrumentation",
    "filter string": "filterline scanfilter thermofilter",
    "analyzer": "analyser massanalyzer massanalyser ms2analyzer ms2analyser detector",
    "fragmentation_mode": "fragmentationmethod specialfragmentation",
    "retention_time": "rt rettime rtquery rtinseconds",
}
_SEPARATORS: Final = re.compile(r"[\s_/-]")
_NAMES: Final = {
    key: name for name, keys in _KEYS.items() for key in (_SEPARATORS.sub("", name), *keys.split())
}
NCE_REFERENCE_MZ: Final = 500.0  # a normalised energy is the energy in eV of an ion of this m/z
MAX_ENERGY_EV: Final = 1000.0

# The ion trap of a hybrid, named where the analyser of the fragments stands: in a filter line, or
# after the activation (CID; IT). After an ion trap before it (IT-CID) another analyser may follow.
_TRAPPED: Final = re.compile(
    r"\bITMS\b|(?:;|\+|\bHCD|\bCID|\bETD)[ ,;/_-]*\(?IT\b(?![- ]?(?:FT|TOF|Orbi))"
)
_ORBITRAP: Final = re.compile(
    r"orbi?t(r|\b)ap|fourier|exactive|exploris|\bfusion\b|lumos|\beclipse\b|\bastral\b|\bastms\b|"
    r"\bid-?x\b|(?<!\bltq )(?<!\bltq-)\bvelos(?! p)|\bft-?icr|icr\b|\bhcd\b|\bitft\b|\bqft\b|"
    r"\bft-?ms\b|\bft\b|\bltq ?ft|apex[ -]qe?|solarix",
    re.IGNORECASE,
)
_TOF: Final = re.compile(
    r"tof|time[- ]of[- ]flight|maxis|\bimpact\b|xevo(?![ -]?tq)|synapt|\bx500|qstar|\blct\b|"
    r"\b65[2-6]\d\b",
    re.IGNORECASE,
)
# Ion traps and quadrupoles, by kind, by make and by model; where no Fourier-transform or
# time-of-flight analyser is named beside them.
_UNIT: Final = re.compile(
    r"(?-i:\b(?:Q|Qq|L)?IT\b)|ion[- ]?trap|linear[- ]trap|msd[- ]?trap|q[- ]?trap|\bqqq?\b|_qqq\b|"
    r"triple[- ]?(?:stage[- ]?)?quad|tandem[- ]quad|^ *quadrupole *$|(?:esi|apci|appi)-q\b|"
    r"\btq(?:[sdx]|ms|-?xs)?\b|\bsqd?(?:ms)?\b|\btsq|\bltq|\blcq|\blxq|velos p|amazon|\bhct|"
    r"esquire|quattro|\bzq\b|\bevoq\b|\bqsight\b|\bapi[- ]?(?:\d{3,4}|iii)\b|"
    r"sciex (?:[3-6]500|7500)\b|\b64[1-9]\d[a-d]?\b|\blcms-?(?:20[1-5]0|80\d\d)",
    re.IGNORECASE,
)
_UNSIGNED: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"^([^,]*\d),(\d)(?!\d)([^,]*)$")
_NORMALISED: Final = re.compile(r"nce|%|nominal|normali[sz]ed", re.IGNORECASE)
_VOLTS: Final = re.compile(r"(?<![a-z])e?v(?:olts?)?\b", re.IGNORECASE)
# A formula of m/z, a choice between energies, another quantity: no energy can be read.
_UNREADABLE: Final = re.compile(r"m/?z|\bor\b|scaled|kv\b|kev\b|sori", re.IGNORECASE)
# Words whose digits are no energy, and clauses that repeat or add to the energy given first.
_NOISE: Final = re.compile(r"\bms ?\d\b|\s(with|by|at)\s.*|\+/?-.*|±.*", re.IGNORECASE)
# A bare number under these keys is in minutes, by the habit of the programs that write them.
_MINUTES: Final = frozenset({"rtinminutes", "retentiontime", "rt in minutes", "retention time"})
_TIME: Final = re.compile(
    r"(?:pt)?\s*([\d.,]+)(?:\s*-\s*([\d.,]+))?\s*(s|sec|seconds|min|minutes|m)?"
)


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One record as a format reader splits it.

    Attributes:
        metadata: Keys lower case, values text, in the file's order.
        mz: float64 (P,), any order.
        intensity: float64 (P,); with another number of peaks the record cannot be used.
        trouble: Why the record cannot be used, else "".
        warnings: Sentences about what was repaired.
        energy_in_ev: The format defines a collision energy without unit to be in eV.
    """

    metadata: Mapping[str, str]
    mz: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    intensity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
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


def place_name(source: Source) -> str:
    """``<file stem>:<index>``, the identifier of a record that has none."""
    stem = "stdin" if source.file == "-" else PurePath(source.file).name.split(".")[0]
    return f"{printable(stem)}:{source.index}"


def unreadable(source: Source, reason: str, spectrum_id: str = "") -> Spectrum:
    """What stands in place of a record that could not be read."""
    failure = Failure("unreadable", reason, "read")
    return Spectrum(source, spectrum_id or place_name(source), failure=failure)


def build(record: Record, source: Source, keep_structures: bool) -> Spectrum:
    """The spectrum of a record."""
    recorded = {key: printable(value).strip() for key, value in record.metadata.items()}
    known = canonical(recorded)
    spectrum_id = first(known, IDENTIFIER) or place_name(source)
    trouble = record.trouble
    if not trouble and record.mz.size != record.intensity.size:
        trouble = f"it has {record.mz.size} m/z values and {record.intensity.size} intensities"
    if trouble:
        return unreadable(source, trouble, spectrum_id)
    precursor_mz, warnings = _precursor(known)
    charge, polarity = _charge(known)
    instrument = instrument_of(known)
    energy = known.get("collision_energy", "")
    energy_text = f"{energy} eV" if record.energy_in_ev and number(energy) else energy
    energy_ev = collision_energy_ev(energy_text, precursor_mz, instrument)
    metadata = recorded if keep_structures else without_structures(recorded)
    ms_level = level_of(known)
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
        adduct_text=adduct_of(known),
        formula_text=formula_of(known),
        collision_energy_text=energy,
        collision_energy_ev=energy_ev,
        retention_time_s=retention_time_s(recorded),
        instrument=instrument,
        ms_level=ms_level,
        metadata=metadata,
        warnings=(*record.warnings, *warnings, *_remarks(record, ms_level, energy, energy_ev)),
    )


def _precursor(known: Mapping[str, str]) -> tuple[float | None, tuple[str, ...]]:
    """m/z of the precursor; 0 means missing, and what is no positive number is said to be."""
    wrong = ""
    for name in PRECURSOR:
        text = known.get(name, "").strip()
        # The first number of 1_95.1 is 1, which nobody means.
        value = None if "_" in text.partition(" ")[0] else number(text)
        if value is not None and 0 < value < HIGHEST_MZ:
            return value, ()
        if name in known and value != 0:
            wrong = known[name]
    if not wrong:
        return None, ()
    return None, (f"precursor m/z {quote(wrong)} is not a positive number below {HIGHEST_MZ:,.0f}",)


def _charge(known: Mapping[str, str]) -> tuple[int, int]:
    """Signed charge and polarity; an unsigned charge takes its sign from the ion mode."""
    charge, has_sign = signed_charge(known.get("charge", ""))
    modes = (known.get("ionmode", ""), *(known.get(name, "") for name in ADDUCT))
    polarity = next((p for p in map(polarity_of, modes) if p), 0)
    if not has_sign:
        return (-charge if polarity < 0 else charge), polarity
    return charge, polarity or (1 if charge > 0 else -1)


def _remarks(record: Record, ms_level: int, energy: str, energy_ev: float | None) -> Iterator[str]:
    """What to say of what is read, but not as one might think."""
    if ms_level > 2:
        yield (
            f"an MS{ms_level} spectrum is read as if it were MS2: its precursor is a fragment, so "
            "the formula must be the fragment's"
        )
    # 0 and words mean that there is no energy.
    if energy_ev is None and number(energy) != 0 and re.search(r"\d", energy):
        yield (
            f"collision energy {quote(energy)} gives no one value in eV and counts as missing; "
            "write it like 35 eV"
        )
    # Zeros are ordinary; where no peak is possible the failure says so.
    mz, intensity = record.mz, record.intensity
    possible = np.isfinite(intensity) & (intensity >= 0) & (mz >= 0) & (mz < HIGHEST_MZ)
    lost = mz.size - int(possible.sum())
    if 0 < lost < mz.size:
        yield f"{lost} of {mz.size} peaks had no possible m/z and intensity and were left out"


def peaks(lines: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """m/z and intensity from lines of two or more columns.

    Returns:
        float64 (P,), float64 (P,), and the number of lines without two numbers.
    """
    text = " ".join(lines)
    tokens = text.split(None, 2 * len(lines))
    # NumPy reads numbers as Python does, see `finite`.
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
        return Record(block.metadata, trouble=block.trouble)
    mz, intensity, bad = peaks(lines)
    trouble = ""
    if bad and not mz.size:
        trouble = f"no m/z and intensity in {counted(bad, 'peak line')}; restore the file"
    elif bad:
        warnings = (*warnings, f"{bad} of {len(lines)} peak lines were not readable and left out")
    return Record(block.metadata, mz, intensity, trouble, warnings, energy_in_ev)


@lru_cache(maxsize=4096)
def canonical_key(key: str) -> str:
    """The one name for all spellings of a key, given in lower case; other keys as they are."""
    return _NAMES.get(_SEPARATORS.sub("", key), key)


def canonical(metadata: Mapping[str, str]) -> dict[str, str]:
    """Fields under canonical names, missing values left out; of duplicates the first counts.

    A precursor m/z that is not a number (``nan``) stays, so that somebody can say so.
    """
    fields: dict[str, str] = {}
    for key, value in metadata.items():
        name = canonical_key(key)
        stays = (name, value.strip().lower()) in _MEANT
        absent = is_missing(value) or (name == "scans" and value.strip() == "-1")  # MS-DIAL
        absent |= name == "ms_level" and _level(value) is None  # SPECTRUMTYPE: Centroid
        if stays or not absent:
            fields.setdefault(name, value)
    return fields


def first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Value of the first name that is present, else ""."""
    return next((fields[name] for name in names if name in fields), "")


def is_missing(value: str) -> bool:
    """Whether a value says that there is none: ``N/A``, ``na``, ``null``, empty and the like."""
    return value.strip().lower() in _MISSING


def without_structures(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata without SMILES, InChI, InChIKey and other structures, whatever their key."""
    return {
        key: value
        for key, value in metadata.items()
        if not _STRUCTURE.search(key) and not _STRUCTURE_VALUE.search(value)
    }


def formula_of(fields: Mapping[str, str]) -> str:
    """FORMULA, then MOLECULAR_FORMULA, then any key that contains FORMULA (ion formulas last)."""
    others = sorted((key for key in fields if "formula" in key), key=lambda key: "precursor" in key)
    return first(fields, ("formula", "molecular_formula", *others))


def adduct_of(fields: Mapping[str, str]) -> str:
    """Adduct as written, from ADDUCT, ION and their synonyms or any key that contains ADDUCT.

    A bare polarity or charge (``ION=positive``, ``[M+?]+``) and an ion source (``ESI``) are none.
    """
    others = (key for key in fields if "adduct" in key)
    texts = (fields.get(name, "").strip() for name in (*ADDUCT, *others))
    return next((t for t in texts if _ADDUCT_TEXT.search(t) and not polarity_of(t)), "")


def number(text: str) -> float | None:
    """The first number of a text (``181.0495 12000``, ``181,0495``), None without a finite one."""
    match = _NUMBER.match(text.strip())
    return None if match is None else finite(match[0].replace(",", "."))


def finite(text: str) -> float | None:
    """A finite number that is the whole text; None for anything else.

    Python's own reading also takes ``9_1.05`` and the digits of other scripts: nobody means those.
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def signed_charge(text: str) -> tuple[int, bool]:
    """Charge and whether its sign is written: ``1+``, ``+1``, ``1-``, ``2``, ``0+``.

    Returns:
        (0, False) for 0, for a choice such as ``2+ and 3+`` and for anything else.
    """
    match = _CHARGE.fullmatch(text.strip().replace("\u2212", "-"))
    if match is None or not any(match.groups()) or (match[1] and match[3]):
        return 0, False
    sign = match[1] or match[3]
    size = int(match[2] or 1)
    return (-size if sign == "-" else size), bool(sign) and size > 0


def polarity_of(text: str) -> int:
    """1 or -1 from an ion mode (``Positive``, ``NEG``, ``p``, ``+``, ``1-``), else 0."""
    word = text.strip().lower().replace("\u2212", "-")
    if word[:3] == "pos" or word in {"p", "+", "1", "1+", "+1", "[m+?]+", "[m+?]1+"}:
        return 1
    return -1 if word[:3] == "neg" or word in {"n", "-", "-1", "1-", "[m-?]-", "[m+?]-"} else 0


def level_of(fields: Mapping[str, str]) -> int:
    """MS level: the digit of ``2``, ``MS2`` or ``MS1``; 1 for correlated MS blocks; else 2."""
    if fields.get("spectype", "").strip().upper() == "CORRELATED MS":
        return 1
    return _level(fields.get("ms_level", "")) or 2


def _level(text: str) -> int | None:
    """The MS level that a text gives; None for others, such as ``Centroid`` and ``MSn``."""
    known = r"(?:FULL )?MS|(?:MS\s?)?\(?([1-9])\)?(?:\.0*)?"
    match = re.fullmatch(known, text.strip().upper(), re.ASCII)
    return int(match[1] or 1) if match else None


def compound_name(metadata: Mapping[str, str]) -> str:
    """What a record calls its compound, else its title, else ""."""
    return first(canonical(metadata), ("compound_name", "title"))


def retention_time_s(metadata: Mapping[str, str]) -> float | None:
    """Retention time of a record in seconds, the middle of a range; None if it has none."""
    for key, text in metadata.items():
        if canonical_key(key) != "retention_time" and key not in _MINUTES:
            continue
        match = _TIME.fullmatch(text.strip().lower())
        times = [number(part) for part in match.groups()[:2] if part] if match else []
        if match is None or not times or None in times:
            continue
        in_minutes = match[3].startswith("m") if match[3] else key in _MINUTES
        middle = sum(time for time in times if time is not None) / len(times)
        return round(middle * (60 if in_minutes else 1), 3)
    return None


def instrument_class(text: str) -> str:
    """Kind of mass analyser that an instrument text names for fragments.

    Returns:
        ``orbitrap`` (any Fourier-transform analyser), ``qtof`` (any time-of-flight one),
        `UNIT_RESOLUTION` (ion traps and quadrupoles), or "".
    """
    kinds = ((_TRAPPED, UNIT_RESOLUTION), (_ORBITRAP, "orbitrap"), (_TOF, "qtof"))
    pairs = (*kinds, (_UNIT, UNIT_RESOLUTION))
    return next((name for words, name in pairs if words.search(text)), "")


def instrument_of(fields: Mapping[str, str]) -> str:
    """Class of the analyser that recorded a spectrum, see `instrument_class`.

    The filter line of the scan decides; then an ion trap that is named for the fragments, since
    hybrids are called by their better analyser; then the first field that names a class.

    Args:
        fields: Under canonical names.
    """
    texts = [fields.get(name, "") for name in INSTRUMENT]
    if not instrument_class(texts[0]) and any(map(_TRAPPED.search, texts)):
        return UNIT_RESOLUTION
    return next(filter(None, map(instrument_class, texts)), "")


def collision_energy_ev(text: str, precursor_mz: float | None, instrument: str) -> float | None:
    """One collision energy in eV from text, or None where the text does not give one.

    Values in eV or V count as they are. Normalised energies (NCE, %, "nominal") and, on Orbitrap
    and FT instruments, numbers without a unit are converted as NCE x m/z / 500. Ramps, steps and
    lists (``20-40 eV``, ``15/30/45``, ``[20.0, 35.0]``) become their mean. A choice (``15, 30 or
    45``), a rule (``scaled by m/z``), zero and anything beyond 1,000 eV are missing.

    Args:
        text: As recorded.
        precursor_mz: m/z of the precursor; None makes a normalised energy missing.
        instrument: Result of `instrument_class`.
    """
    if not text or _UNREADABLE.search(text):
        return None
    body = _DECIMAL_COMMA.sub(r"\1.\2\3", _NOISE.sub("", text))
    numbers = [float(number) for number in _UNSIGNED.findall(body)]
    if not numbers:
        return None
    energy = sum(numbers) / len(numbers)
    volts = _VOLTS.search(re.sub(r"\d", " ", body)) is not None
    if not volts and (_NORMALISED.search(body) or instrument == "orbitrap"):
        if precursor_mz is None:
            return None
        energy *= precursor_mz / NCE_REFERENCE_MZ
    return energy if 0 < energy <= MAX_ENERGY_EV else None
