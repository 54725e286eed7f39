"""What fields of a record say: its ion, precursor m/z, retention time and collision energy.

Programs spell these in some hundred ways, under keys that overlap: an ION may be an adduct, a
polarity or an ion source. Text that is there and not understood never counts as none given.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.errors import Failure, clip, quote
from duallgd_cli.spectra.types import HIGHEST_MZ

_WORDS_FOR_NONE: Final = (
    "n/a na nan null none - -- ? unknown unk n.a. n.d. n/d unspecified undefined missing [] {} ()"
)
MISSING: Final = frozenset(
    {"", "not available", "not specified", "not given", *_WORDS_FOR_NONE.split()}
)
MOST_CHARGES: Final = 20  # of an ion; a larger number is no charge
# Values by canonical name of their key, each with the key as written.
Stated = Mapping[str, Sequence[tuple[str, str]]]


class Charge(NamedTuple):
    """A charge as written."""

    size: int  # 0 if unknown
    sign: int  # 0 where none is written
    choices: int = 1  # how many charges the text names


_SIGNS: Final = {"+": 1, "-": -1}
_DASHES: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))
_SPACED_SIGN: Final = re.compile(r"(?<=\S)\s[+-]\s(?=\S)")  # ESI - QTOF
_IN_BRACKETS: Final = re.compile(r"[(\[{]\s*([+-])\s*[)\]}]")
_SIGN: Final = re.compile(r"(?<![a-z0-9])[+-]|[+-](?![a-z0-9])")
# Words and letters, and terms of PSI-MS.
_POSITIVE: Final = re.compile(r"pos|plus|(?:^|[\s(_-])p(?=$|[\s)_-])|1000130")
_NEGATIVE: Final = re.compile(r"neg|minus|(?:^|[\s(_-])n(?=$|[\s)_-])|1000129")
_FILTER_LINE: Final = re.compile(r"^\s*(?:\w+\s+)?(?:\{[^}]*\}\s+)?([+-])\s+[pc]\b")
# Of Bruker's DataAnalysis: Cmpd 4, -MS2(181.0495), 24.7eV, 3.2min
_TITLE: Final = re.compile(r"(?:^|[\s,;])([+-])\s?MS[n\d]?\(")
# Words of ion sources and instruments that say nothing of the polarity.
_SOURCE_WORDS: Final = (
    "esi apci appi maldi dart desi nsi nanoesi nesi hesi esims lc gc ms ce uplc uhplc hplc fia di "
    "nano ldi si ci ei fab fd fi ap lcms gcms msms lcmsms lcesi electrospray ionization ionisation "
    "ion mode source heated spray jet stream ajs dual turbo ionspray turbospray captivespray v any "
    "qtof tof qq qqq it itft qft orbitrap ft b h ii"
)
_SOURCES: Final = frozenset(_SOURCE_WORDS.split())
_CHARGE: Final = re.compile(
    r"(?:z\s*=\s*)?([+-]*)\s*(\d{0,9})(?:\.0+)?\s*([+-]*)(?:\s*(pos|neg|plus|minus)[a-z]*)?",
    re.ASCII,
)
_WORD_SIGNS: Final = {"pos": "+", "plus": "+", "neg": "-", "minus": "-"}
_CHOICES: Final = re.compile(
    r"\s*(?:[,;/|&]|\band\b|\bor\b|\bto\b)\s*|(?<=[+-])\s+(?=\d)|(?<=\d)\s+(?=[+-]\d)"
)
# [M+?]+, [M-?]2-: an adduct of which only the charge is known; MS-DIAL and SIRIUS write it.
_ONLY_CHARGE: Final = re.compile(r"\[?m ?[+-] ?\?\]?(\d?[+-]|[+-]\d)")
_LIKE_ADDUCT: Final = re.compile(
    r"(?<![A-Za-z])[Mm](?=(?:H|Na|K|Li|NH4|Cl)?(?:[^A-Za-z]|$))|^\[?(?:Cat|C)\]?\d?\+"
)
_POLARITIES: Final = frozenset(
    ["positive", "pos", "p", "plus", "negative", "neg", "n", "minus", "ve", "polarity"]
)
_COLUMN: Final = re.compile(r"\s*[;\t]\s*|,?\s+")
_SIGNED_COLUMN: Final = re.compile(r"\d+[+-]|[+-]\d+[+-]?")
_CHARGE_COLUMN: Final = re.compile(r"[+-]?\d+[+-]|[+-]\d+|\d{1,2}(?:\.0)?|[+-]")
_LONGEST: Final = 200  # characters of any of these texts

ELECTRON: Final = re.compile(
    r"(?<![a-z])(?:gc)?ei(?:ms)?(?![a-z])|electron[ -]?(?:ioni[sz]|impact)", re.IGNORECASE
)
_OF_ADDUCT: Final = ("adduct", "ion", "ionization", "other adduct")
_OF_ION: Final = (*_OF_ADDUCT, "ionmode", "charge", "instrument_type")


def plain(text: str) -> str:
    """A text in lower case, with one kind of dash and digit."""
    normal = unicodedata.normalize("NFKC", text.translate(_DASHES)).translate(_DASHES)
    return normal.strip().lower()


@lru_cache(maxsize=4096)  # the records of a file say the same again and again
def polarity_of(text: str) -> int | None:
    """1 or -1 from any usual spelling: ``Positive``, ``NEG``, ``ESI-``, ``-ve``, ``(+)``, ``1-``.

    It is 0 where the text says nothing of it (an ion source, N/A), None where it is not understood.
    """
    written = plain(text)
    if written in MISSING and written != "-":
        return 0
    if len(written) > _LONGEST:
        return None
    line = _FILTER_LINE.match(written)
    signs = {line[1]} if line else set()
    if not signs:
        signs |= {"+"} if _POSITIVE.search(written) else set()
        signs |= {"-"} if _NEGATIVE.search(written) else set()
    if not signs:
        written = _SPACED_SIGN.sub("  ", written)
        signs = set(_IN_BRACKETS.findall(written)) or set(_SIGN.findall(written))
    if signs:
        return _SIGNS[signs.pop()] if len(signs) == 1 else None
    words = set(re.findall(r"[a-z]+|\d+", written))
    return 1 if written == "1" else 0 if words and words <= _SOURCES else None


@lru_cache(maxsize=4096)
def charge_of(text: str) -> Charge | None:
    """A charge from any usual spelling, the lowest of several; None where it is not understood."""
    written = plain(text).strip("[](){}\"' ").rstrip(",")
    if written.rstrip("+-") in MISSING and not re.fullmatch(r"[+-]+", written):  # NA+
        return Charge(0, 0)
    if len(written) > _LONGEST or written in ("-", "--"):  # for none, or for negative
        return None
    sizes, signs = [], set()
    for choice in _CHOICES.split(written):
        match = _CHARGE.fullmatch(choice)
        if match is None:
            return None
        before, digits, after, word = match.groups("")
        marks = {*before, *after, *_WORD_SIGNS.get(word, "")}
        repeated = max(len(before), len(after))
        size = int(digits) if digits else repeated
        if len(marks) > 1 or size > MOST_CHARGES or not (digits or marks):
            return None
        if digits and repeated not in (0, 1, size):
            return None
        sizes.append(size)
        # 0+ stands for unknown; nobody writes a minus without meaning it.
        signs |= marks if size or not digits or "-" in marks else set()
    if len(signs) > 1:
        return None
    return Charge(min(sizes), _SIGNS[signs.pop()] if signs else 0, len(set(sizes)))


def ion_of(stated: Stated, warnings: list[str], assumptions: list[str]) -> Mapping[str, Any]:
    """Fields of `Spectrum` on the ion of a record; what there is to say of them is added."""
    own = {
        name: [(_cut(key), _cut(text)) for key, text in stated.get(name, ())] for name in _OF_ION
    }
    adduct_text = _adduct(own, warnings, assumptions)
    signs: list[tuple[int, str]] = []
    sizes: list[int] = []
    unread_modes, unread_charges = [], []
    modes, charges = _modes_and_charges(own, stated.get("pepmass", ()))
    for key, text in modes:
        sign = polarity_of(text)
        if plain(text) == "0":
            sign = -1
            assumptions.append(f"{clip(key)} 0 is read as negative, as R writes it")
        elif plain(text) == "-1" and key == "polarity":
            sign = 0
            assumptions.append("polarity -1 counts as unknown, as R writes it")
        if sign is None:
            unread_modes.append(f"{clip(key)} {quote(text)} is not understood")
        signs += [(sign, f"{clip(key)} {clip(text)}")] if sign else []
    for key, text in charges:
        charge = charge_of(text)
        if charge is None:
            unread_charges.append(f"{clip(key)} {quote(text)} is not understood")
            continue
        if charge.choices > 1:
            assumptions.append(f"{clip(key)} {quote(text)} is read as {charge.size}, the lowest")
        sizes += [charge.size] if charge.size else []
        # The sign of no charge, 0-, counts where nothing else has one.
        counts = charge.sign and (charge.size or not signs)
        signs += [(charge.sign, f"{clip(key)} {clip(text)}")] if counts else []
    signs += _signs_of_others(own, stated)
    polarity, first = signs[0] if signs else (0, "")
    other = next((words for sign, words in signs if sign != polarity), "")
    if other:
        warnings.append(f"{first} and {other} contradict each other; {first} is taken")
    warnings.extend(unread_modes + unread_charges)
    # A polarity that another field tells is no loss; a charge may be a multiple one.
    lost = [words for words in unread_charges if not polarity or re.search(r"\d", words)]
    lost += [] if polarity else unread_modes
    return {
        "charge": (sizes[0] if sizes else 0) * (polarity or 1),
        "polarity": polarity,
        "adduct_text": adduct_text,
        "unread_ion": (*lost, "")[0],
    }


def _cut(text: str) -> str:
    """A text of an ordinary length; of one that is too long to mean anything the beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _modes_and_charges(
    own: Stated, masses: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Texts that say a polarity and those that say a charge, under keys of adducts and m/z too."""
    modes, charges = [*own["ionmode"]], [*own["charge"]]
    for key, text in masses:
        # Charges that follow the m/z: the third column, or the second if it has a sign.
        _, second, third, *_ = (*_COLUMN.split(plain(text[:_LONGEST]).strip("[]()")), "", "")
        if _SIGNED_COLUMN.fullmatch(second):
            charges.append((_cut(f"second column of {key}"), second))
        if _CHARGE_COLUMN.fullmatch(third):
            charges.append((_cut(f"third column of {key}"), third))
    for key, text in (*own["adduct"], *own["ion"]):
        only = _ONLY_CHARGE.fullmatch(plain(text))
        if only is not None:
            charges.append((key, only[1] if len(only[1]) > 1 else f"1{only[1]}"))
        elif _is_bare_polarity(text):
            modes.append((key, text))
            charges += [] if charge_of(text) is None else [(key, text)]
    return modes, charges


def _signs_of_others(own: Stated, stated: Stated) -> Iterator[tuple[int, str]]:
    """Polarities that fields say which are of something else, with their words."""
    for name in ("ionization", "instrument_type"):
        for key, text in own[name]:
            if sign := _sign_of_source(text):
                yield sign, f"{clip(key)} {clip(text)}"
    for name, form in (("filter string", _FILTER_LINE), ("title", _TITLE)):
        for key, text in stated.get(name, ()):
            if line := form.search(text[:_LONGEST]):
                yield _SIGNS[line[1]], f"{clip(_cut(key))} {line[1]}"


def _sign_of_source(text: str) -> int:
    """Polarity that the name of an ion source or of an instrument may hold, else 0."""
    written = plain(text[:_LONGEST])
    if {word[:3] for word in re.findall(r"[a-z]+", written)} & {"pos", "neg"}:
        return polarity_of(written) or 0
    marks = {*_IN_BRACKETS.findall(written), *re.findall(r"[a-z]\s?([+-])$", written)}
    return _SIGNS[marks.pop()] if len(marks) == 1 else 0


def _is_bare_polarity(text: str) -> bool:
    """Whether a text is a polarity or a charge and nothing else, such as ``ESI+``."""
    words = set(re.findall(r"[a-z]+", plain(text)))
    if not words <= _SOURCES | _POLARITIES or polarity_of(text) not in (1, -1):
        return False
    return not isinstance(parse_adduct(text), Adduct)  # +H


def _adduct(stated: Stated, warnings: list[str], assumptions: list[str]) -> str:
    """Adduct as written, the first that is understood; "" where there is none.

    A bare polarity or charge (``ION=positive``) and an ion source (``ESI``) are none.
    """
    read: list[tuple[str, str, Adduct | Failure]] = []
    for name in _OF_ADDUCT:
        for key, text in stated.get(name, ()):
            if _ONLY_CHARGE.fullmatch(plain(text)) or _is_bare_polarity(text):
                continue
            adduct = parse_adduct(text)
            is_source = polarity_of(text) == 0 or ELECTRON.search(text) is not None
            is_adduct = isinstance(adduct, Adduct) or _LIKE_ADDUCT.search(text) is not None
            if is_adduct or (name == "adduct" and not is_source):
                read.append((key, text, adduct))
            elif name == "ion" and not is_source:
                warnings.append(f"{clip(key)} {quote(text)} is not understood")
    if not read:
        return ""
    key, text, adduct = next((field for field in read if isinstance(field[2], Adduct)), read[0])
    if isinstance(adduct, Adduct):
        warnings.extend(
            f"{clip(key)} {clip(text)} is used, not {clip(other_key)} {clip(other)}"
            for other_key, other, meant in read
            if meant != adduct
        )
        if not _LIKE_ADDUCT.search(text):
            assumptions.append(f"{clip(key)} {quote(text)} is read as {adduct.name}")
    return text


_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS: Final = re.compile(r"(?<!\d)(?:\d{1,3}(?:,\d{3})+(?=\.\d)|\d,\d{3}(?![\d.]))", re.ASCII)
_PRECURSOR: Final = re.compile(rf"[\s(\[{{'\"]*(?:m/z\s*[=:]?\s*)?(?P<number>{_NUMBER.pattern})")
_AFTER_PRECURSOR: Final = re.compile(r"$|[\s,;:@/()\[\]{}±+-]|da\b|th\b", re.IGNORECASE)
_POINTS_FOR_THOUSANDS: Final = re.compile(r"\d\.(\d{3}),\d+")  # 1.195,5421: no ion has m/z 1.195
SAME_MZ_DA: Final = 0.01  # two m/z that differ by more are two
NCE_REFERENCE_MZ: Final = 500.0  # a normalised energy is the energy in eV of an ion of this m/z
MAX_ENERGY_EV: Final = 1000.0
_UNSIGNED: Final = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+(?![\d.]))?", re.ASCII | re.IGNORECASE)
_DECIMAL_COMMA: Final = re.compile(r"^([^,]*\d),(\d(?!\d)|0\d+)([^,]*)$")
_NORMALISED: Final = re.compile(
    r"nce|%|nominal|normali[sz]ed|(?<![a-z])(?:hcd|n\s?\d)", re.IGNORECASE
)
_VOLTS: Final = re.compile(r"(?<![a-z])e?v(?:olts?)?\b", re.IGNORECASE)
# A normalised energy beside one in eV: NIST writes NCE=35% 14eV.
_NORMALISED_BESIDE: Final = re.compile(
    r"n?ce\s*[=:(]*\s*[\d./-]+\s*%|nce\s*[=:(]*\s*[\d./-]+|[\d./-]+\s*(?:%|\(?nce\)?)(?:\s*\(nominal\))?",
    re.IGNORECASE,
)
# A formula of m/z, a choice between energies, another quantity: no energy can be read.
_UNREADABLE: Final = re.compile(r"m/?z|\bor\b|scaled|ke?v\b|sori|\barb|\ba\.?u\b", re.IGNORECASE)
# Words whose digits are no energy, and clauses that repeat or add to the energy given first.
_NOISE: Final = re.compile(r"\bms ?\d\b|\s(with|by|at)\s.*|\+/?-.*|±.*", re.IGNORECASE)
_LONGEST_TIME_MIN: Final = 120.0  # a larger number without a unit is in seconds
_TIME_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "mil": 1e-3}
# What is said of a time without a unit, by `retention_time`.
GUESSED_TIME: Final = re.compile(r"retention time .+ is read as (minutes|seconds)$")
_KEY_UNIT: Final = re.compile(r"(?:in)?(s|secs?|seconds?|mins?|minutes?)$")
_WITH_UNIT: Final = re.compile(
    rf"({_NUMBER.pattern})\s*(?:(?:-|to)\s*({_NUMBER.pattern})\s*)?"
    r"[(\[]?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|milliseconds?)?[)\].]?"
)
_ISO_TIME: Final = re.compile(
    r"p(?:0+y)?(?:0+m)?(?:0+d)?t(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?"
)
_PARTS: Final = re.compile(r"(?:([\d.]+)\s*h\w*)?\s*([\d.]+)\s*m\w*\s*([\d.]+)\s*s\w*")
_CLOCK: Final = re.compile(r"(?:(\d{1,2}):)?(\d{1,3}):(\d{2}(?:\.\d+)?)")


def number(text: str) -> float | None:
    """The first number of a text (``181.0495 12000``, ``181,0495``), None without a finite one."""
    match = _NUMBER.match(text.strip())
    return None if match is None else finite(match[0].replace(",", "."))


def finite(text: str) -> float | None:
    """A finite number that is the whole text; None for others, ``9_1.05`` too."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def precursor_of(stated: Sequence[tuple[str, str]], warnings: list[str]) -> float | None:
    """m/z of the precursor, by the first field that gives it; what is wrong with others is said."""
    values = [(key, text, mz_of(text)) for key, text in stated]
    possible = [(key, mz) for key, _, mz in values if mz is not None and 0 < mz < HIGHEST_MZ]
    if not possible:
        if wrong := next((text for _, text, mz in values if mz != 0), ""):
            warnings.append(
                f"precursor m/z {quote(wrong)} is not a positive number below {HIGHEST_MZ:,.0f}"
            )
        return None
    key, mz = possible[0]
    for other_key, other in possible[1:]:
        if abs(other - mz) > SAME_MZ_DA:
            warnings.append(
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
    stated: Sequence[tuple[str, str]],
    warnings: list[str],
    assumptions: list[str],
    in_seconds: bool = False,
) -> float | None:
    """Retention time in seconds, the middle of a range; None if the record has none.

    The unit stands beside the number, or in the key, or is that of the format (`in_seconds`); else
    a number up to 120 is in minutes, a larger one in seconds, and that is said.
    """
    said, used = "", None
    for key, text in stated:
        written = plain(text[:_LONGEST])
        value = number(written)
        if written in MISSING or (value is not None and value < 0):
            continue
        unit = _KEY_UNIT.search(key) if key.startswith(("rt", "ret")) else None
        in_key = unit[1] if unit else "s" if in_seconds or key == "rtime" else ""  # rtime is R's
        seconds = seconds_of(written, in_key)
        if seconds is None and value is not None:
            if used is not None:  # another field has said it, with its unit
                continue
            if _WITH_UNIT.fullmatch(written):
                word = "minutes" if value <= _LONGEST_TIME_MIN else "seconds"
                seconds = seconds_of(written, word)
                assumptions.append(f"retention time {clip(text)} is read as {word}")
        if seconds is None:
            warnings.append(f"retention time {quote(text)} is not understood and left out")
            continue
        this = f"{clip(text)} ({clip(key)})"
        if used is None:
            said, used = this, seconds
        elif abs(seconds - used) > max(1.0, 0.01 * seconds):
            warnings.append(f"retention time {said} is used, not {this}")
    return used


def seconds_of(written: str, unit: str) -> float | None:
    """Seconds that a text in lower case means; None if it has no unit and none is given."""
    for form in (_ISO_TIME, _PARTS, _CLOCK):
        match = form.fullmatch(written)
        if match is not None and any(match.groups()):
            parts = [finite(part or "0") for part in match.groups()]
            if None in parts:
                return None
            hours, minutes, seconds = (part or 0.0 for part in parts)
            return round(3600 * hours + 60 * minutes + seconds, 3)
    if (match := _WITH_UNIT.fullmatch(written)) is None:
        return None
    unit = match[3] or unit
    unit = unit[:3] if unit.startswith("mil") else unit[:1]
    times = [number(part) for part in match.groups()[:2] if part]
    known = [time for time in times if time is not None]
    if not unit or len(known) < len(times):
        return None
    return round(sum(known) / len(known) * _TIME_UNITS[unit], 3)


def collision_energy_ev(text: str, precursor_mz: float | None, instrument: str) -> float | None:
    """One collision energy in eV from text, or None where the text does not give one.

    Values in eV or V count as they are, also beside a normalised one (``NCE=35% 14eV``). Normalised
    energies (NCE, %, "nominal", HCD) and, on Orbitrap and FT instruments, numbers without a unit
    are converted as NCE x m/z / 500. Ramps, steps and lists become their mean; a choice (``15, 30
    or 45``), a rule, arbitrary units, zero and anything beyond 1,000 eV are missing.
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
