"""How exactly the m/z of a spectrum are known: by its instrument and by their decimals.

Fragments of unit resolution tell no formulas apart, and nothing is calibrated for them: such a
spectrum is refused. Rounded m/z of an accurate instrument widen the tolerances.
"""

import re
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import Failure, counted, quote
from duallgd_cli.spectra.reading.record import (
    INSTRUMENT,
    PRECURSOR,
    canonical,
    first,
    instrument_class,
)
from duallgd_cli.spectra.types import UNIT_RESOLUTION, Spectrum

UNSUPPORTED: Final = "unsupported_measurement"
# Accurate m/z have four decimals. One that ends after no, one or two of them does so by chance once
# in ten to the power of 4, 3 or 2; so many together are none.
_ACCURATE: Final = 4
_NO_CHANCE: Final = 6
_MOST_ROUNDED: Final = 2  # decimals; three are as good as the tolerances
_FLOAT32: Final = 1e-7  # relative error of a number kept in 32 bits
_LONGEST: Final = 200  # characters of a text that holds a number
_NUMBER: Final = re.compile(r"\d+(?:[.,](\d*))?")


def resolved(spectrum: Spectrum) -> Spectrum:
    """A cleaned spectrum with the rounding of its m/z and what to say of it.

    Returns:
        One with a failure `UNSUPPORTED` where its fragments are of unit resolution.
    """
    failure = spectrum.failure
    if failure is not None and failure.status != "no_peaks":
        return spectrum
    if spectrum.instrument == UNIT_RESOLUTION:
        reason = f"{_named(spectrum)} measures fragments at unit resolution"
        return _refused(spectrum, reason, "correct the instrument fields if this is one")
    of_precursor = precursor_decimals(spectrum)
    of_peaks = peak_decimals(spectrum.mz, of_precursor)
    if of_peaks is not None and of_peaks < _MOST_ROUNDED:
        reason = f"all its peaks have m/z of at most {counted(of_peaks, 'decimal')}"
        reason = reason if of_peaks else "all its peaks have whole numbers as m/z"
        return _refused(spectrum, reason, "export it with all decimals if this is one")
    warnings = list(spectrum.warnings)
    if of_precursor is not None:
        warnings.append(
            f"the precursor m/z {spectrum.precursor_mz:.{of_precursor}f} is rounded: all formulas "
            f"within {_largest_error(of_precursor):g} of it are as likely; more decimals tell more"
        )
    if of_peaks is not None:
        warnings.append(
            f"the m/z of all its peaks are rounded to {of_peaks} decimals: they are explained "
            f"within {_largest_error(of_peaks):g}, and confidence is not calibrated for that"
        )
    return replace(
        spectrum,
        warnings=tuple(dict.fromkeys(warnings)),
        precursor_rounding_da=_largest_error(of_precursor),
        peak_rounding_da=_largest_error(of_peaks),
    )


def precursor_decimals(spectrum: Spectrum) -> int | None:
    """To how many decimals, 0 to 2, a precursor m/z is rounded; None where it is accurate.

    Zeros that a program appended are no decimals (195.1000); where two are left, one accurate m/z
    in a hundred ends like that, so that the zeros are believed.
    """
    mz = spectrum.precursor_mz
    if mz is None:
        return None
    decimals, written = _decimals(np.array([mz])), _written(spectrum, mz)
    if written is not None and written <= _MOST_ROUNDED:
        return written
    if decimals != _MOST_ROUNDED:
        return decimals
    rounded = round(mz, _MOST_ROUNDED)
    if mz == rounded:
        return decimals if written is None else None
    return decimals if mz == np.float32(rounded) else None


def peak_decimals(mz: NDArray[np.float64], of_precursor: int | None = None) -> int | None:
    """To how many decimals, 0 to 2, all peaks are rounded; None where they are not, or too few.

    A rounded precursor (see `precursor_decimals`) makes rounded peaks likelier.
    """
    decimals = _decimals(mz)
    if decimals is None:
        return None
    together = mz.size * (_ACCURATE - decimals)
    if of_precursor is not None:
        together += _ACCURATE - max(of_precursor, decimals)
    return decimals if together >= _NO_CHANCE else None


def _decimals(mz: NDArray[np.float64]) -> int | None:
    """The fewest decimals, 0 to 2, with which all can be written, if any."""
    for decimals in range(_MOST_ROUNDED + 1):
        if mz.size and (np.abs(mz - np.round(mz, decimals)) <= _FLOAT32 * mz).all():
            return decimals
    return None


def _written(spectrum: Spectrum, mz: float) -> int | None:
    """How many decimals of the precursor m/z stand in the file, None where it is no text."""
    text = first(canonical(spectrum.metadata), PRECURSOR)[:_LONGEST]
    for match in _NUMBER.finditer(text):
        if float(match[0].replace(",", ".")) == mz:
            return len(match[1] or "")
    return None


def _largest_error(decimals: int | None) -> float:
    return 0.0 if decimals is None else 0.5 * 10.0**-decimals


def _named(spectrum: Spectrum) -> str:
    """The instrument as the file calls it."""
    fields = canonical(spectrum.metadata)
    texts = (fields.get(name, "")[:_LONGEST] for name in INSTRUMENT)
    text = next((text for text in texts if instrument_class(text) == UNIT_RESOLUTION), "")
    return f"the instrument ({quote(text)})" if text else f"an {UNIT_RESOLUTION}"


def _refused(spectrum: Spectrum, reason: str, otherwise: str) -> Spectrum:
    message = (
        f"{reason}, which tells neither formulas nor structures apart; use a spectrum of an "
        f"Orbitrap or QTOF, or {otherwise}"
    )
    return replace(spectrum, failure=Failure(UNSUPPORTED, message, "read"))
