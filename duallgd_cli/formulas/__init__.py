"""The formulas that a feature may have, ranked with calibrated probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS, PERMANENT_CATION, Adduct, parse_adduct
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import ConfigError, Failure
from duallgd_cli.formulas.composition import (
    HEAVIEST_DA,
    FormulaSpace,
    known_formulas,
    parse_elements,
)
from duallgd_cli.formulas.peaks import NO_PEAKS, peaks_of
from duallgd_cli.formulas.scoring import (
    candidates,
    coverage,
    evidence,
    formula_model,
    log_probabilities,
    scorer_features,
)
from duallgd_cli.spectra.cleaning import UNSUPPORTED
from duallgd_cli.spectra.formulas import (
    MIN_HEAVY_ATOMS,
    contradictions,
    doubts,
    monoisotopic,
    unnamed_ion,
)
from duallgd_cli.spectra.types import OPTION, PREDICTED, Feature, Hypothesis, Spectrum

ALL_ELEMENTS: Final = "CHNOPSFClBrIBSiSe"
_ORBITRAP_PPM: Final = 5.0
_OTHER_PPM: Final = 10.0
MOST_PPM: Final = 100.0
_CONTRADICTED: Final = -5.0  # errors of 10 % bring the right formula below it once in 300 patterns
_MOST_HEAVY_ATOMS: Final = 100  # beyond the networks, and beyond what scores were fitted on
_COARSEST_DA: Final = 0.1  # rounding of a precursor; beyond it nearly every formula fits
# A file whose adduct contradicts its charge or ion mode is wrong about one of them, and nothing
# says about which.
_CONTRADICTED_SHARE: Final = 0.5
ENOUGH: Final = 0.95  # of the probability of all that are listed: less likely ones are not tried

Found: TypeAlias = list[tuple[Adduct, NDArray[np.int16]]]


@dataclass(frozen=True, slots=True)
class FormulaSettings:
    """Which formulas are looked for where a spectrum has none.

    Attributes:
        precursor_ppm: Largest difference between theoretical and measured precursor m/z, ppm; None
            for 5 with Orbitraps and 10 with other instruments.
        elements: That a molecule may hold, each with its largest number if one follows, such as
            CHNOPS or CHNOCl2.
    """

    precursor_ppm: float | None = None
    elements: str = ALL_ELEMENTS

    def __post_init__(self) -> None:
        if self.precursor_ppm is not None and not 0 < self.precursor_ppm <= MOST_PPM:
            raise ConfigError(
                f"precursor_ppm must be above 0 and at most {MOST_PPM:g} to look for formulas, "
                f"not {self.precursor_ppm}"
            )
        parse_elements(self.elements)

    def tolerance_ppm(self, instrument: str) -> float:
        """Largest difference for ``orbitrap``, ``qtof`` or an unknown instrument."""
        if self.precursor_ppm is not None:
            return self.precursor_ppm
        return _ORBITRAP_PPM if instrument == "orbitrap" else _OTHER_PPM


@dataclass(frozen=True, slots=True)
class RankedFormula:
    """A formula with an adduct that a feature may have."""

    formula: Formula  # of the molecule, or of the permanent cation
    adduct: Adduct
    log_probability: float  # calibrated, natural logarithm
    ppm: float  # measured minus theoretical precursor m/z
    explained_intensity: float  # share of the intensity of the strongest 40 peaks
    explained_peaks: int  # how many of them have an explanation
    known_structures: int  # with this formula, in the table that comes with duallgd; at most 765
    isotope_score: float | None = None  # log weight by the pattern, 0 for one as predicted

    @property
    def probability(self) -> float:
        """That the molecule has this formula and this adduct."""
        return float(np.exp(self.log_probability))


def rank_formulas(feature: Feature, settings: FormulaSettings) -> list[RankedFormula] | Failure:
    """Every formula of a feature that is not out of the question, the most probable first.

    An adduct that the file names is taken as it is; otherwise all that the polarity allows are
    tried, each formula with each.

    Returns:
        At most 200, or why there are none.
    """
    feature = monoisotopic(feature)
    spectrum = feature.first
    if spectrum.adduct_text:
        adduct = parse_adduct(spectrum.adduct_text)
        if isinstance(adduct, Failure):
            return adduct
        adducts = [adduct]
    elif (failure := unnamed_ion(spectrum)) is not None:
        return failure
    else:
        adducts = [one for one in ADDUCTS if spectrum.polarity in (0, one.polarity)]
    mz, rounding_da = spectrum.precursor_mz, spectrum.precursor_rounding_da
    if mz is None:
        message = (
            "no usable precursor m/z is given, so no formula can be looked for; add or correct it "
            "in the file"
        )
        return Failure("no_precursor", message)
    if rounding_da > _COARSEST_DA:
        message = (
            f"the precursor m/z {mz:.0f} is a whole number, so that thousands of formulas fit; "
            "write it with four decimals, or give the formula"
        )
        return Failure(UNSUPPORTED, message)
    known, model = known_formulas(), formula_model()
    found = possible_formulas(mz, spectrum.instrument, adducts, settings, rounding_da)
    if not any(len(formulas) for _, formulas in found):
        names = " ".join(adduct.name for adduct in adducts)
        ppm = settings.tolerance_ppm(spectrum.instrument) + rounding_da / mz * 1e6
        message = (
            f"no formula of {settings.elements} fits m/z {mz:.4f} within {ppm:g} ppm as {names} "
            f"({_MOST_HEAVY_ATOMS} heavy atoms and {HEAVIEST_DA:g} Da at most); check precursor "
            "and adduct, raise --precursor-ppm or allow more --elements"
        )
        return Failure("no_formula", message)
    instrument = spectrum.instrument
    best = candidates(found, mz, instrument, known, model, feature.isotopes, rounding_da)
    # Fragments of a multiply charged ion with fewer charges lie above it.
    highest_mz = (mz + rounding_da) * max(abs(adduct.charge) for adduct in adducts)
    peaks = peaks_of(feature.spectra, highest_mz)
    seen = evidence(best, peaks, model)
    if not seen.explained.any():  # what nothing explains speaks for nothing
        peaks = NO_PEAKS
        seen = evidence(best, peaks, model)
    scores = model.scorer(scorer_features(best, seen, peaks, mz, instrument))
    covered = coverage(settings.tolerance_ppm(instrument), instrument)
    if _is_halved(spectrum, adducts[0]):
        covered *= _CONTRADICTED_SHARE
    log_probability = log_probabilities(
        scores, model, covered, best.isotopes, without_peaks=not peaks.mz.size
    )
    is_cation = best.adduct == PERMANENT_CATION.index
    share = seen.explained @ (peaks.intensity / max(peaks.intensity.sum(), 1e-12))
    return [
        RankedFormula(
            Formula(tuple(best.formula[row].tolist()), int(is_cation[row])),
            best.adducts[int(best.adduct[row])],
            float(log_probability[row]),
            float(best.ppm[row]),
            float(share[row]),
            int(seen.explained[row].sum()),
            int(best.structures[row].sum()),
            None if feature.isotopes is None else float(best.isotopes[row]),
        )
        for row in np.argsort(-log_probability, kind="stable")
    ]


def remarks(feature: Feature, ranked: Sequence[RankedFormula]) -> list[str]:
    """What a chemist must know of ranked formulas, beside each formula's own numbers."""
    spectrum, adduct = feature.first, ranked[0].adduct
    said = contradictions(spectrum, adduct) if spectrum.adduct_text else []
    if _is_halved(spectrum, adduct):
        said.append("probabilities are halved, since one of the two is wrong")
    if spectrum.monoisotopic_mz is not None:
        said.append(f"formulas are those of m/z {spectrum.monoisotopic_mz:.4f}")
    if not any(one.explained_peaks for one in ranked):
        has_peaks = any(one.mz.size for one in feature.spectra)
        reason = "no formula explains a peak" if has_peaks else "there are no peaks to explain"
        said.append(f"{reason}: ranked by mass and by known structures alone")
    scores = [one.isotope_score for one in ranked if one.isotope_score is not None]
    if scores and max(scores) <= _CONTRADICTED:
        said.append(
            "the isotope pattern of MS1 fits none of the formulas: check precursor, adduct and "
            "--elements, or another ion lies among the isotopes"
        )
    return said


def _is_halved(spectrum: Spectrum, adduct: Adduct) -> bool:
    """Whether the file gives an adduct and contradicts it; who names one for all knows of it."""
    is_from_file = spectrum.adduct_text != "" and spectrum.adduct_source != OPTION
    return is_from_file and contradictions(spectrum, adduct) != []


def possible_formulas(
    mz: float,
    instrument: str,
    adducts: Sequence[Adduct],
    settings: FormulaSettings,
    rounding_da: float = 0.0,
) -> Found:
    """Formulas of molecules that give an ion at this precursor m/z, for each adduct.

    The error of rounding comes on top of the tolerance.
    """
    space = _space(settings.elements)
    ppm = settings.tolerance_ppm(instrument)
    found: Found = []
    for adduct in adducts:
        mass = adduct.neutral_mass(mz)
        tolerance_da = (ppm * 1e-6 * mz + rounding_da) * abs(adduct.charge) / adduct.molecules
        if not 0 < mass <= HEAVIEST_DA - tolerance_da:
            continue
        formulas = space.find(mass, tolerance_da, int(adduct is PERMANENT_CATION))
        heavy = formulas[:, :-1].sum(axis=1)
        fits = (heavy >= MIN_HEAVY_ATOMS) & (heavy <= _MOST_HEAVY_ATOMS)
        fits &= (formulas * adduct.molecules + np.array(adduct.change) >= 0).all(axis=1)
        found.append((adduct, formulas[fits]))
    return found


@cache
def _space(elements: str) -> FormulaSpace:
    return FormulaSpace(known_formulas().rarer, parse_elements(elements))


def predicted_formulas(
    feature: Feature, settings: FormulaSettings, max_heavy_atoms: int, most: int
) -> list[Hypothesis] | Failure:
    """The most probable formulas of a feature, whatever its file says.

    They hold 95 % of what all have, as far as they are not too many.
    """
    ranked = rank_formulas(feature, settings)
    if isinstance(ranked, Failure):
        return ranked
    # A narrow tolerance leaves probability to formulas beyond it, which no further one holds.
    enough = ENOUGH * math.fsum(one.probability for one in ranked)
    chosen: list[RankedFormula] = []
    for one in ranked[:most]:
        if sum(better.probability for better in chosen) < enough:
            chosen.append(one)
    fitting = [one for one in chosen if one.formula.n_heavy <= max_heavy_atoms]
    if not fitting:
        message = (
            f"the likeliest formula {chosen[0].formula} has {chosen[0].formula.n_heavy} heavy "
            f"atoms and the limit is {max_heavy_atoms}; raise max_heavy_atoms"
        )
        return Failure("too_large", message)
    total, said = math.fsum(one.probability for one in fitting), remarks(feature, ranked)
    is_given = feature.first.adduct_text != ""
    return [
        Hypothesis(
            monoisotopic(feature),
            one.formula,
            one.adduct,
            one.log_probability,
            tuple(filter(None, [one.adduct.note, *said, *doubts(feature.first, one.adduct)])),
            source=PREDICTED,
            adduct_source=feature.first.adduct_source if is_given else PREDICTED,
            share=one.probability / total,
        )
        for one in fitting
    ]
