"""A spectrum ready to be explained: its peaks cleaned, and how exactly their m/z are known.

Fragments of unit resolution tell no formulas apart, and nothing is calibrated for them: such a
spectrum is refused. Rounded m/z of an accurate instrument widen the tolerances.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.config import require, require_range
from duallgd_cli.errors import Failure, counted, quote
from duallgd_cli.spectra.ms1 import charge_of
from duallgd_cli.spectra.reading.record import INSTRUMENT, canonical, instrument_class
from duallgd_cli.spectra.types import HIGHEST_MZ, UNIT_RESOLUTION, Spectrum

_FAINTEST: Final = 1e-12  # relative to the base peak, beyond any detector: as good as zero
UNSUPPORTED: Final = "unsupported_measurement"
# Accurate m/z have four decimals. One that ends after no, one or two of them does so by chance once
# in ten to the power of 4, 3 or 2; so many together are none.
_ACCURATE: Final = 4
_NO_CHANCE: Final = 6
_MOST_ROUNDED: Final = 2  # decimals; three are as good as the tolerances
_FLOAT32: Final = 1e-7  # relative error of a number kept in 32 bits
_LONGEST: Final = 200  # characters of a text that names an instrument


@dataclass(frozen=True, slots=True)
class CleaningSettings:
    """Which peaks are kept.

    Attributes:
        max_peaks: The most intense peaks that are kept, at least 1.
        isotope_margin_da: Peaks above the precursor m/z, times its charges, plus this many Da are
            dropped: nothing of an ion lies there but its isotopes.
    """

    max_peaks: int = 512
    isotope_margin_da: float = 3.0

    def __post_init__(self) -> None:
        require_range(self, "max_peaks", least=1)
        margin_da = self.isotope_margin_da
        require(margin_da >= 0, f"isotope_margin_da must be 0 or more, not {margin_da}")


def clean(spectrum: Spectrum, settings: CleaningSettings) -> Spectrum:
    """A spectrum ready to be explained, or with a failure: another answers, nothing is left.

    Drops peaks without a positive, possible m/z and intensity and those above the precursor;
    adds up peaks of equal m/z; makes the base peak 1; keeps the `max_peaks` most intense. A second
    cleaning changes nothing. (What nothing explains is still predicted, from its formula.)
    """
    if spectrum.failure is not None:
        return spectrum
    if spectrum.answered_by:
        message = (
            f"feature {spectrum.answered_by} answers for its compound; --by feature predicts both"
        )
        return replace(spectrum, failure=Failure("same_compound", message))
    mz, intensity = spectrum.mz, spectrum.intensity
    measured = np.isfinite(mz) & np.isfinite(intensity) & (mz > 0) & (intensity > 0)
    measured &= mz < HIGHEST_MZ
    limit = np.inf
    if spectrum.precursor_mz is not None:
        # Fragments of a multiply charged ion with fewer charges lie above it.
        charges = abs(charge_of(spectrum)) or 1
        limit = spectrum.precursor_mz * charges + settings.isotope_margin_da
    kept = measured & (mz <= limit)
    if not kept.any():
        message = "the spectrum has no peaks; export MS2 spectra together with their peaks"
        if measured.any():
            message = (
                f"all peaks ({int(measured.sum())}) lie above the precursor (m/z {limit:.4f} with "
                "isotopes); check the precursor m/z"
            )
        elif mz.size:
            peaks = counted(mz.size, "peak")
            message = f"no possible m/z and intensity above 0 in {peaks}; restore the file"
        failure = Failure("no_peaks", message)
        return replace(spectrum, mz=mz[:0], intensity=intensity[:0], failure=failure)
    # Scaled first, so that sums of huge intensities stay finite.
    mz, intensity = mz[kept], intensity[kept] / intensity[kept].max()
    if not (mz[1:] > mz[:-1]).all():
        mz, inverse = np.unique(mz, return_inverse=True)
        intensity = np.bincount(inverse, weights=intensity, minlength=mz.size).astype(np.float64)
    intensity = intensity / intensity.max()
    real = intensity >= _FAINTEST
    mz, intensity = mz[real], intensity[real]
    if mz.size > settings.max_peaks:  # of equal intensities the lower m/z goes first
        chosen = np.sort(np.argsort(-intensity, kind="stable")[: settings.max_peaks])
        mz, intensity = mz[chosen], intensity[chosen]
    return replace(spectrum, mz=mz, intensity=intensity)


def resolved(spectrum: Spectrum) -> Spectrum:
    """A cleaned spectrum with the rounding of its m/z and what to say of it.

    Returns:
        One with a failure `UNSUPPORTED` where its fragments are of unit resolution.
    """
    if spectrum.failure is not None and spectrum.failure.status != "no_peaks":
        return spectrum
    of_precursor = precursor_decimals(spectrum)
    of_peaks = peak_decimals(spectrum.mz, of_precursor)
    precursor_da, peaks_da = (
        0.0 if n is None else 0.5 * 10.0**-n for n in (of_precursor, of_peaks)
    )
    reason, otherwise = "", "export it with all decimals if this is one"
    if spectrum.instrument == UNIT_RESOLUTION:
        fields = canonical(spectrum.metadata)
        texts = (fields.get(name, "")[:_LONGEST] for name in INSTRUMENT)
        text = next((text for text in texts if instrument_class(text) == UNIT_RESOLUTION), "")
        named = f"the instrument ({quote(text)})" if text else f"an {UNIT_RESOLUTION}"
        reason = f"{named} measures fragments at unit resolution"
        otherwise = "correct the instrument fields if this is one"
    elif of_peaks is not None and of_peaks < _MOST_ROUNDED:
        decimals = f"m/z of at most {counted(of_peaks, 'decimal')}"
        reason = f"all its peaks have {decimals if of_peaks else 'whole numbers as m/z'}"
    if reason:
        message = (
            f"{reason}, which tells neither formulas nor structures apart; use a spectrum of an "
            f"Orbitrap or QTOF, or {otherwise}"
        )
        return replace(spectrum, failure=Failure(UNSUPPORTED, message))
    warnings = list(spectrum.warnings)
    if of_precursor is not None:
        warnings.append(
            f"the precursor m/z {spectrum.precursor_mz:.{of_precursor}f} is rounded: all formulas "
            f"within {precursor_da:g} of it are as likely; more decimals tell more"
        )
    if of_peaks is not None:
        warnings.append(
            f"the m/z of all its peaks are rounded to {of_peaks} decimals: they are explained "
            f"within {peaks_da:g}, and confidence is not calibrated for that"
        )
    return replace(
        spectrum,
        warnings=tuple(dict.fromkeys(warnings)),
        precursor_rounding_da=precursor_da,
        peak_rounding_da=peaks_da,
    )


def precursor_decimals(spectrum: Spectrum) -> int | None:
    """To how many decimals, 0 to 2, a precursor m/z is rounded; None where it is accurate.

    Zeros that a program appended are no decimals (195.1000); where two are left, one accurate m/z
    in a hundred ends like that, so that the zeros are believed.
    """
    mz = spectrum.precursor_mz
    if mz is None:
        return None
    decimals, text = _decimals(np.array([mz])), spectrum.precursor_text
    written = len(text.partition(".")[2]) if text and float(text) == mz else None
    if written is not None and written <= _MOST_ROUNDED:
        return written
    if decimals != _MOST_ROUNDED:
        return decimals
    rounded = round(mz, _MOST_ROUNDED)
    is_rounded = written is None if mz == rounded else mz == np.float32(rounded)
    return decimals if is_rounded else None


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
