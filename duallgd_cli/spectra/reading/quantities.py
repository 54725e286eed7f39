"""Numbers of a record: precursor m/z, retention time and collision energy, from free text.

Each is read by one function, for training data and predictions alike: the same words mean the same.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from duallgd_cli.errors import clip, quote
from duallgd_cli.spectra.reading.ions import MISSING, Remarks, plain
from duallgd_cli.spectra.types import HIGHEST_MZ

_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS: Final = re.compile(r"(?<!\d)(?:\d{1,3}(?:,\d{3})+(?=\.\d)|\d,\d{3}(?![\d.]))", re.ASCII)
_PRECURSOR: Final = re.compile(rf"[\s(\[{{'\"]*(?:m/z\s*[=:]?\s*)?(?P<number>{_NUMBER.pattern})")
_AFTER_PRECURSOR: Final = re.compile(r"$|[\s,;:@/()\[\]{}±+-]|da\b|th\b", re.IGNORECASE)
_POINTS_FOR_THOUSANDS: Final = re.compile(r"\d\.(\d{3}),\d+")  # 1.195,5421: no ion has m/z 1.195
SAME_MZ_DA: Final = 0.01  # two m/z that differ by more are two

_LONGEST: Final = 200  # characters of any of these texts
NCE_REFERENCE_MZ: Final = 500.0  # a normalised energy is the energy in eV of an ion of this m/z
MAX_ENERGY_EV: Final = 1000.0
_UNSIGNED: Final = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+(?![\d.]))?", re.ASCII | re.IGNORECASE)
_DECIMAL_COMMA: Final = re.compile(r"^([^,]*\d),(\d(?!\d)|0\d+)([^,]*)$")
_NORMALISED: Final = re.compile(
    r"nce|%|nominal|normali[sz]ed|(?<![a-z])hcd|(?<![a-z])n\s?\d", re.IGNORECASE
)
_VOLTS: Final = re.compile(r"(?<![a-z])e?v(?:olts?)?\b", re.IGNORECASE)
# A normalised energy beside one in eV: NIST writes NCE=35% 14eV.
_NORMALISED_BESIDE: Final = re.compile(
    r"n?ce\s*[=:(]*\s*[\d./-]+\s*%|nce\s*[=:(]*\s*[\d./-]+|[\d./-]+\s*(?:%|\(?nce\)?)(?:\s*\(nominal\))?",
    re.IGNORECASE,
)
# A formula of m/z, a choice between energies, another quantity: no energy can be read.
_UNREADABLE: Final = re.compile(
    r"m/?z|\bor\b|scaled|kv\b|kev\b|sori|\barb|\ba\.?u\b", re.IGNORECASE
)
# Words whose digits are no energy, and clauses that repeat or add to the energy given first.
_NOISE: Final = re.compile(r"\bms ?\d\b|\s(with|by|at)\s.*|\+/?-.*|±.*", re.IGNORECASE)
_ACTIVATION: Final = re.compile(r"@(?:hcd|cid|uvpd|e[a-z]{1,3}d)(\d+(?:\.\d+)?)", re.IGNORECASE)

_LONGEST_TIME_MIN: Final = 120.0  # a larger number without a unit is in seconds
_TIME_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_KEY_UNIT: Final = re.compile(r"(?:in)?(s|secs?|seconds?|mins?|minutes?)$")
_WITH_UNIT: Final = re.compile(
    rf"({_NUMBER.pattern})\s*(?:(?:-|to)\s*({_NUMBER.pattern})\s*)?"
    r"[(\[]?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)?[)\].]?"
)
_ISO_TIME: Final = re.compile(r"pt(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?")
_PARTS: Final = re.compile(r"(?:([\d.]+)\s*h\w*)?\s*([\d.]+)\s*m\w*\s*([\d.]+)\s*s\w*")
_CLOCK: Final = re.compile(r"(?:(\d{1,2}):)?(\d{1,3}):(\d{2}(?:\.\d+)?)")


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


def precursor_of(stated: Sequence[tuple[str, str]], remarks: Remarks) -> float | None:
    """m/z of the precursor from all fields that give it, the first that does; 0 means missing.

    What is no positive number is said, and so are two values that differ.
    """
    values = [(key, text, mz_of(text)) for key, text in stated]
    possible = [(key, mz) for key, _, mz in values if mz is not None and 0 < mz < HIGHEST_MZ]
    if not possible:
        if wrong := next((text for _, text, mz in values if mz != 0), ""):
            remarks.warnings.append(
                f"precursor m/z {quote(wrong)} is not a positive number below {HIGHEST_MZ:,.0f}"
            )
        return None
    key, mz = possible[0]
    for other_key, other in possible[1:]:
        if abs(other - mz) > SAME_MZ_DA:
            remarks.warnings.append(
                f"precursor m/z {mz:g} ({clip(key)}) is used, not {other:g} ({clip(other_key)})"
            )
    return mz


def mz_of(text: str) -> float | None:
    """The m/z that a field begins with: ``195.0877 1000 1+``, ``(195.0877, None)``, ``1,195.54``.

    A comma is a decimal one (``195,0877``) unless three digits and a point, or nothing, follow.
    """
    written = text.strip("'\" \t")[:_LONGEST]
    if _POINTS_FOR_THOUSANDS.match(written):
        written = written.replace(".", "", 1)
    written = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), written, count=1)
    match = _PRECURSOR.match(written)
    if match is None or _AFTER_PRECURSOR.match(written, match.end()) is None:
        return None
    return finite(match["number"].replace(",", "."))


def retention_time(
    stated: Sequence[tuple[str, str]], remarks: Remarks, in_seconds: bool = False
) -> float | None:
    """Retention time in seconds, the middle of a range; None if the record has none.

    The unit stands beside the number, or in the key, of which nothing but letters is given. Where
    it stands nowhere and is not that of the format (`in_seconds`), a number up to 120 is in
    minutes, a larger one in seconds, and that is said.
    """
    found: list[tuple[str, float]] = []
    for key, text in stated:
        written = plain(text[:_LONGEST])
        value = number(written)
        if written in MISSING or (value is not None and value < 0):
            continue
        said = f"{clip(text)} ({clip(key)})"
        unit = _KEY_UNIT.search(key) if key.startswith(("rt", "ret")) else None
        in_key = unit[1] if unit else "s" if in_seconds or key == "rtime" else ""  # rtime is R's
        seconds = _seconds(written, in_key)
        is_bare = seconds is None and value is not None
        if is_bare and found:  # another field has said it, with its unit
            continue
        if is_bare and value is not None and _WITH_UNIT.fullmatch(written):
            in_minutes = value <= _LONGEST_TIME_MIN
            seconds = _seconds(written, "m" if in_minutes else "s")
            word = "minutes" if in_minutes else "seconds"
            remarks.assumptions.append(f"retention time {clip(text)} is read as {word}")
        if seconds is None:
            remarks.warnings.append(f"retention time {quote(text)} is not understood and left out")
        elif found and abs(seconds - found[0][1]) > max(1.0, 0.01 * seconds):
            remarks.warnings.append(f"retention time {found[0][0]} is used, not {said}")
        elif not found:
            found.append((said, seconds))
    return found[0][1] if found else None


def _seconds(written: str, unit: str) -> float | None:
    """Seconds that a text in lower case means; None if it has no unit and none is given."""
    for form in (_ISO_TIME, _PARTS, _CLOCK):
        match = form.fullmatch(written)
        if match is not None and any(match.groups()):
            parts = [finite(part or "0") for part in match.groups()]
            if None in parts:
                return None
            hours, minutes, seconds = (part or 0.0 for part in parts)
            return round(3600 * hours + 60 * minutes + seconds, 3)
    match = _WITH_UNIT.fullmatch(written)
    unit = (match[3] if match is not None and match[3] else unit)[:1]
    times = [number(part) for part in match.groups()[:2] if part] if match is not None else []
    known = [time for time in times if time is not None]
    if not unit or not known or len(known) < len(times):
        return None
    return round(sum(known) / len(known) * _TIME_UNITS[unit], 3)


def energy_of_filter(line: str) -> str:
    """The energy that a Thermo filter line names last: 35.00 of ``...195.09@hcd35.00 [50-200]``."""
    found = _ACTIVATION.findall(line)
    return f"{found[-1]} NCE" if found else ""


def collision_energy_ev(text: str, precursor_mz: float | None, instrument: str) -> float | None:
    """One collision energy in eV from text, or None where the text does not give one.

    Values in eV or V count as they are, also beside a normalised one (``NCE=35% 14eV``). Normalised
    energies (NCE, %, "nominal", HCD) and, on Orbitrap and FT instruments, numbers without a unit
    are converted as NCE x m/z / 500. Ramps, steps and lists (``20-40 eV``, ``15/30/45``, ``[20.0,
    35.0]``) become their mean. A choice (``15, 30 or 45``), a rule (``scaled by m/z``), arbitrary
    units, zero and anything beyond 1,000 eV are missing. `instrument` is an `instrument_class`.
    """
    if not text or len(text) > _LONGEST or _UNREADABLE.search(text):
        return None
    body = _DECIMAL_COMMA.sub(r"\1.\2\3", _NOISE.sub("", text))
    volts = _VOLTS.search(re.sub(r"\d", " ", body)) is not None
    if volts:
        in_volts = _NORMALISED_BESIDE.sub(" ", body)
        body = in_volts if _UNSIGNED.search(in_volts) else body
    numbers = [float(found) for found in _UNSIGNED.findall(body)]
    if not numbers:
        return None
    energy = sum(numbers) / len(numbers)
    if not volts and (_NORMALISED.search(body) or instrument == "orbitrap"):
        if precursor_mz is None:
            return None
        energy *= precursor_mz / NCE_REFERENCE_MZ
    return energy if 0 < energy <= MAX_ENERGY_EV else None
