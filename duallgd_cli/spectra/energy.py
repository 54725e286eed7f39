"""Collision energy and instrument as one reading of free text, for training data and predictions.

The same words must mean the same energy wherever a spectrum comes from, so both sides of the
project call `collision_energy_ev` on the text as recorded, and nothing else.
"""

import re
from typing import Final

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
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"^([^,]*\d),(\d)(?!\d)([^,]*)$")
_NORMALISED: Final = re.compile(r"nce|%|nominal|normali[sz]ed", re.IGNORECASE)
_VOLTS: Final = re.compile(r"(?<![a-z])e?v(?:olts?)?\b", re.IGNORECASE)
# A formula of m/z, a choice between energies, another quantity: no energy can be read.
_UNREADABLE: Final = re.compile(r"m/?z|\bor\b|scaled|kv\b|kev\b|sori", re.IGNORECASE)
# Words whose digits are no energy, and clauses that repeat or add to the energy given first.
_NOISE: Final = re.compile(r"\bms ?\d\b|\s(with|by|at)\s.*|\+/?-.*|±.*", re.IGNORECASE)


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
    numbers = [float(number) for number in _NUMBER.findall(body)]
    if not numbers:
        return None
    energy = sum(numbers) / len(numbers)
    volts = _VOLTS.search(re.sub(r"\d", " ", body)) is not None
    if not volts and (_NORMALISED.search(body) or instrument == "orbitrap"):
        if precursor_mz is None:
            return None
        energy *= precursor_mz / NCE_REFERENCE_MZ
    return energy if 0 < energy <= MAX_ENERGY_EV else None
