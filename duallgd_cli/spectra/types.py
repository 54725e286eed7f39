"""The words spoken between the rooms before any tensor exists.

Letters: P peaks, K annotated peaks. Arrays are never changed after construction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import Adduct
from duallgd_cli.chem.elements import METALS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import Failure

# Where the formula of a hypothesis comes from, and its adduct, as the last three do alone.
GIVEN, TABLE, PREDICTED = "file", "table", "predicted"
OPTION, INFERRED, LINKED = "option", "inferred", "linked"  # the last: by ions of the same molecule
HIGHEST_MZ: Final = 1e6  # beyond any analyser: a broken number
HALF_WINDOW: Final = 0.5  # m/z, of an isolation window that the file does not give
# Instruments by their index in prepared data and in the networks; "" is unknown.
INSTRUMENTS: Final = ("", "orbitrap", "qtof")
UNIT_RESOLUTION: Final = "ion trap or quadrupole"  # a class that no network knows

# Metals that fragments keep, by their index there; "" is none.
CARRIED_METALS: Final = ("", "Na", "K")

# Isotopes of an ion that an MS1 spectrum is read for, by nominal mass from the monoisotopic one.
ISOTOPES: Final = (-2, -1, 1, 2, 4)


def instrument_index(name: str) -> int:
    """Index into `INSTRUMENTS`; that of unknown for one that is not listed."""
    return INSTRUMENTS.index(name) if name in INSTRUMENTS else 0


def carrier_indices(adduct: Adduct) -> NDArray[np.int64]:
    """Index into `CARRIED_METALS` of each carrier of an adduct, as networks know it, shape (C,).

    They know fragments of one molecule and one charge; whatever single metal these keep counts as
    that of the nearest trained adduct. Others are -1.
    """
    metal = "".join(adduct.trained.metals)
    indices = []
    for carrier in adduct.carriers:
        is_trained = carrier.molecules == 0 and abs(carrier.charge) == 1
        if carrier.metals:
            is_trained = is_trained and metal != "" and carrier.metals in METALS
        indices.append(CARRIED_METALS.index(metal if carrier.metals else "") if is_trained else -1)
    return np.array(indices)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a spectrum stands: the file as the user named it, and its 0-based index in it."""

    file: str
    index: int


@dataclass(frozen=True, slots=True)
class IsotopePattern:
    """What MS1 spectra show of an ion."""

    # of the monoisotopic ion, above 0, then of `ISOTOPES`; 0 where nothing is seen
    intensity: tuple[float, ...]
    faintest: float  # peak of each spectrum, added up as the intensities are

    def __add__(self, other: "IsotopePattern") -> "IsotopePattern":
        """Of both spectra together."""
        both = zip(self.intensity, other.intensity, strict=True)
        return IsotopePattern(tuple(a + b for a, b in both), self.faintest + other.faintest)


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """One spectrum as read; every field but `source` and `spectrum_id` may be missing."""

    source: Source
    spectrum_id: str  # best identifier of the record, or ``<file stem>:<index>``; not always unique
    mz: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (P,), ascending
    intensity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # (P,)
    precursor_mz: float | None = None
    precursor_text: str = ""  # the same as the file writes it, whose decimals say how exact it is
    feature_id: str = ""  # FEATURE_ID of the file
    compound_id: str = ""  # what features of one molecule share
    answered_by: str = ""  # the feature, with its ion, that answers for its compound
    scans: str = ""  # SCANS or native scan id of the file
    usi: str = ""  # Universal Spectrum Identifier
    charge: int = 0  # signed, 0 if unknown
    polarity: int = 0  # 1, -1, or 0 if unknown
    # what the file says of charge or polarity that was not understood, where nothing else tells it:
    # without an adduct no ion may be assumed
    unread_ion: str = ""
    adduct_text: str = ""  # as written
    adduct_source: str = GIVEN  # or `TABLE`, `LINKED`, `OPTION`
    # what other ions of the molecule tell it to be, with probabilities, likeliest first
    adducts: tuple[tuple[str, float], ...] = ()
    formula_text: str = ""  # as written under the recognised field names
    collision_energy_text: str = ""
    collision_energy_ev: float | None = None
    retention_time_s: float | None = None  # the middle of a range
    precursor_intensity: float | None = None  # as the file gives it, above 0
    isolation_window: tuple[float, float] | None = None  # its ends, m/z
    instrument: str = ""  # "orbitrap", "qtof", `UNIT_RESOLUTION` or "" (unknown)
    ms_level: int = 2  # also where the file does not say
    # every field of the record, keys lower case
    metadata: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # sentences for the `message` column
    # sentences on what was guessed; outputs repeat them among the warnings
    assumptions: tuple[str, ...] = ()
    isotopes: IsotopePattern | None = None  # where the file has MS1 spectra that show them
    # that of the ion of which MS1 spectra show the precursor to be an isotope
    monoisotopic_mz: float | None = None
    # largest error that rounding makes of the precursor m/z, see `cleaning.resolved`, and of peaks
    precursor_rounding_da: float = 0.0
    peak_rounding_da: float = 0.0
    merged: tuple["Spectrum", ...] = ()  # what a consensus was made of, without peaks
    failure: Failure | None = None  # why it has no peaks to go on with; it still gets its row

    def warned(self, *warnings: str) -> Self:
        """The same with further warnings."""
        return replace(self, warnings=(*self.warnings, *filter(None, warnings)))

    def assumed(self, *assumptions: str) -> Self:
        """The same with further assumptions."""
        return replace(self, assumptions=(*self.assumptions, *assumptions))


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """One or more spectra of one ion (collision energies, duplicates), predicted as one case."""

    # of MS2, at least one; of a feature of a run one for each collision energy
    spectra: tuple[Spectrum, ...]
    ms1: tuple[Spectrum, ...] = ()  # of a run: what the MS1 scans nearest show around its ion
    precursor_intensity: float | None = None  # of a run: where the ion is strongest

    @property
    def first(self) -> Spectrum:
        """The spectrum that names the feature."""
        return self.spectra[0]

    @property
    def isotopes(self) -> IsotopePattern | None:
        """Of its ion, as the first spectrum has it whose MS1 spectra show them."""
        return next((s.isotopes for s in self.spectra if s.isotopes is not None), None)


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """What one feature might be: a formula and an adduct."""

    feature: Feature
    formula: Formula  # of the molecule (neutral, or of the permanent cation for [M]+)
    adduct: Adduct
    # log of the formula source's weight, or of the probability of a predicted formula
    log_prior: float = 0.0
    notes: tuple[str, ...] = ()  # sentences for the `message` column, such as an inferred adduct
    source: str = GIVEN  # or `TABLE` or `PREDICTED`
    adduct_source: str = GIVEN  # as of a spectrum, or `INFERRED`, or `PREDICTED` with the formula
    share: float = 1.0  # of the samples of the feature


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedSpectrum:
    """Peaks of one feature explained by sub-formulas of its ion; a peak may have several rows."""

    hypothesis: Hypothesis
    subformula: NDArray[np.int16]  # counts of the fragment without its metals, (K, N_ELEMENTS)
    intensity: NDArray[np.float32]  # peak intensity relative to the base peak, (K,)
    ppm: NDArray[np.float32]  # signed mass error, (K,)
    mz: NDArray[np.float32]  # as measured, (K,)
    share: NDArray[np.float32]  # 1 / number of rows of the same peak, (K,)
    # what the fragment keeps: index into the adduct's `carriers`, (K,); 0 is a single charge alone
    carrier: NDArray[np.int8]
    energy_ev: NDArray[np.float32]  # collision energy of the peak's spectrum, NaN if missing, (K,)
    n_peaks: int  # peaks looked at, of which `n_explained` have rows
    n_explained: int
    explained_intensity: float  # share of the summed intensity, 0 to 1


def as_trained(
    annotated: AnnotatedSpectrum,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int16]]:
    """A spectrum as if its adduct were the nearest one that networks were trained on.

    Returns:
        The rows that this one may have; of all rows `carrier_indices`, (K,); the atoms of the whole
        ion without its metal, (N_ELEMENTS,).
    """
    formula, adduct = annotated.hypothesis.formula, annotated.hypothesis.adduct
    carrier = carrier_indices(adduct)[annotated.carrier]
    parent = np.maximum(formula.array + np.array(adduct.trained.change, np.int16), 0)
    possible = carrier >= 0
    if adduct != adduct.trained:
        possible &= (annotated.subformula <= parent).all(axis=1)
    return np.flatnonzero(possible), carrier, parent
