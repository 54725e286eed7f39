"""Fields of a record: key synonyms, missing values, and the numbers and signs written in them.

Every dialect's keys are brought to one canonical name, so that the format readers only split
records into keys, values and peaks. Collision energy and instrument are read from free text by one
function each, for training data and predictions alike: the same words mean the same energy.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

_MISSING: Final = frozenset({"", "n/a", "na", "nan", "null", "none", "-", "?", "unknown"})
_STRUCTURE: Final = re.compile(r"smiles|inchi|selfies|mol_?(file|block)|^structure$", re.IGNORECASE)
_STRUCTURE_VALUE: Final = re.compile(r"InChI=1|\b[A-Z]{14}-[A-Z]{10}-[A-Z]\b")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CHARGE: Final = re.compile(r"([+-]?)(\d{0,3})([+-]?)", re.ASCII)
_ADDUCT_TEXT: Final = re.compile(r"(?<![A-Za-z])M(?=H\+|[^A-Za-z]|$)")

# Canonical names in the order in which they are tried: the first that is present wins.
PRECURSOR: Final = ("pepmass", "precursor_mz")
ADDUCT: Final = ("adduct", "ion")
IDENTIFIER: Final = ("feature_id", "spectrum_id", "identifier", "title", "compound_name", "scans")
INSTRUMENT: Final = ("instrument_type", "instrument", "filter string", "fragmentation_mode")

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
    "fragmentation_mode": "fragmentationmethod specialfragmentation",
    "retention_time": "rt rettime rtquery rtinseconds",
}
_SEPARATORS: Final = re.compile(r"[\s_/-]")
_NAMES: Final = {
    key: name for name, keys in _KEYS.items() for key in (_SEPARATORS.sub("", name), *keys.split())
}
NCE_REFERENCE_MZ: Final = 500.0  # a normalised energy is the energy in eV of an ion of this m/z
MAX_ENERGY_EV: Final = 1000.0

_ORBITRAP: Final = re.compile(
    r"orbi?t(r|\b)ap|fourier|exactive|exploris|\bfusion\b|lumos|\beclipse\b|\bastral\b|\bid-?x\b|velos|"
    r"\bft-?icr|icr\b|\bhcd\b|\bitft\b|\bqft\b|\bft-?ms\b|\bft\b|\bltq ?ft|apex[ -]qe?|solarix",
    re.IGNORECASE,
)
_TOF: Final = re.compile(
    r"tof|time[- ]of[- ]flight|maxis|\bimpact\b|xevo|synapt|\bx500|qstar|\blct\b|\b65[2-6]\d\b",
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
        stays = (name == "ionmode" and value.strip() == "-") or (
            name in PRECURSOR and value.strip().lower() == "nan"
        )
        absent = is_missing(value) or (name == "scans" and value.strip() == "-1")  # MS-DIAL
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
    text = fields.get("ms_level", "").strip().upper()
    if text in {"MS", "FULL MS"}:
        return 1
    match = re.fullmatch(r"(?:MS\s?)?\(?([1-9])\)?(?:\.0*)?", text, re.ASCII)
    return int(match[1]) if match else 2


def name_of(metadata: Mapping[str, str]) -> str:
    """What a record calls its compound, else its title, else ""."""
    return first(canonical(metadata), ("compound_name", "title"))


# A bare number under these keys is in minutes, by the habit of the programs that write them.
_MINUTES: Final = frozenset({"rtinminutes", "retentiontime", "rt in minutes", "retention time"})
_TIME: Final = re.compile(
    r"(?:pt)?\s*([\d.,]+)(?:\s*-\s*([\d.,]+))?\s*(s|sec|seconds|min|minutes|m)?"
)


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
    """Kind of mass analyser named by an instrument text.

    Returns:
        ``orbitrap`` (any Fourier-transform analyser), ``qtof`` (any time-of-flight one), or "".
    """
    if _ORBITRAP.search(text):
        return "orbitrap"
    return "qtof" if _TOF.search(text) else ""


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
