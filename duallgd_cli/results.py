"""What comes out of a prediction, before ranking (`HypothesisResult`) and after (`Prediction`)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import flatten
from duallgd_cli.errors import printable
from duallgd_cli.spectra.reading.record import compound_name
from duallgd_cli.spectra.types import (
    GIVEN,
    AnnotatedSpectrum,
    IsotopePattern,
    Source,
    Spectrum,
)

OK = "ok"
# Share of the intensity below which the peaks are taken for those of something else, or of an ion
# trap: 1.2 % of the molecules of fold val are below it, 64 % with errors of 0.12 Da.
LEAST_EXPLAINED: Final = 0.1
_LONGEST_WORD: Final = 200
# Fields of a spectrum that name it; those of a spectrum that is part of a consensus come first.
_OF_A_PART: Final = ("source", "spectrum_id", "scans", "usi")
_OF_A_SPECTRUM: Final = (
    *(*_OF_A_PART, "feature_id", "compound_id", "answered_by", "precursor_mz"),
    *("formula_text", "adduct_text"),
)


@dataclass(frozen=True, slots=True)
class SpectrumReference:
    """One measured spectrum of a feature, by name; a text that nothing says is ""."""

    source: Source  # file and index
    spectrum_id: str  # identifier, not necessarily unique
    feature_id: str = ""  # FEATURE_ID of the file
    compound_id: str = ""  # what features of one molecule share
    answered_by: str = ""  # the feature, with its ion, that answers for the compound of this one
    scans: str = ""  # SCANS or native id
    usi: str = ""  # Universal Spectrum Identifier
    precursor_mz: float | None = None  # m/z, or None
    formula_text: str = ""  # formula as written in the file
    adduct_text: str = ""  # adduct as written in the file
    adduct_source: str = ""  # where the adduct comes from, see `Hypothesis`
    status: str = OK  # ``ok``, or one word for what went wrong with it
    message: str = ""  # why it did
    name: str = ""  # name of the compound or title
    rt_seconds: float | None = None  # retention time, or None
    collision_energy: str = ""  # as written
    warnings: str = ""  # what is odd, but nothing that `message` or `assumptions` say
    assumptions: str = ""  # what was guessed, because the file does not say it

    @property
    def file(self) -> str:
        """Where it was read."""
        return self.source.file

    @property
    def index(self) -> int:
        """Its place in that file, from 0."""
        return self.source.index

    @property
    def remarks(self) -> str:
        """All that is said of it, for a table that has one column for it."""
        return sentences(self.message, self.warnings, self.assumptions)


def references(spectra: Iterable[Spectrum]) -> tuple[SpectrumReference, ...]:
    """Names of all spectra of a feature, those that a consensus was made of in its place.

    What is said of a consensus holds for each of these; they are in the order of their file. Each
    sentence stands in one field.
    """
    named: list[SpectrumReference] = []
    for spectrum in spectra:
        failure, guessed = spectrum.failure, spectrum.assumptions
        odd = [text for text in spectrum.warnings if text not in guessed]
        whole = SpectrumReference(
            **{name: getattr(spectrum, name) for name in _OF_A_SPECTRUM},
            adduct_source=spectrum.adduct_source if spectrum.adduct_text else "",
            status=failure.status if failure else OK,
            message=sentences(failure.message) if failure else "",
            name=compound_name(spectrum.metadata),
            rt_seconds=spectrum.retention_time_s,
            collision_energy=spectrum.collision_energy_text,
            warnings=sentences(*odd),
            assumptions=sentences(*guessed),
        )
        parts = spectrum.merged or (spectrum,)
        own = ({name: getattr(part, name) for name in _OF_A_PART} for part in parts)
        named += [replace(whole, **values) for values in own]
    return tuple(sorted(named, key=lambda reference: reference.source.index))


class Structure(NamedTuple):
    """A distinct molecule among the proposals of one hypothesis, not yet ranked.

    A run of a million features holds tens of millions: tuples are made in a fifth of the time.
    """

    smiles: str  # canonical, without stereochemistry, as InChI and InChIKey (27 characters) are
    inchi: str  # standard InChI
    inchikey: str  # its key
    samples: int  # how many proposals it was; structures of the user's database are none
    repaired: int  # how many of `samples` needed repair to become a molecule
    log_likelihood: float | None  # mean over the samples drawn that became it, None of none
    sources: tuple[str, ...] = ()  # names of the sources that proposed it, in alphabetical order
    family: str = ""  # pieces that it shares with its family, see `chem.identity`
    scaffold: str = ""  # SMILES of its Murcko scaffold, or ``acyclic``
    scores: Mapping[str, float] = MappingProxyType({})  # by name of the score; see `scores`

    @property
    def block(self) -> str:
        """First block of the InChIKey, the identity of a molecule here."""
        return self.inchikey[:14]


class ExplainedPeak(NamedTuple):
    """A sub-formula that explains a peak; a peak may have several."""

    mz: float  # measured
    intensity: float  # relative to the base peak
    formula: str  # of the fragment, a kept metal included
    ppm: float  # signed mass error


@dataclass(frozen=True, slots=True)
class HypothesisResult:
    """What one hypothesis of a feature gave, structures or the reason why there are none."""

    status: str  # ``ok``, or the status of a `Failure`
    message: str = ""  # sentences for the user
    formula: str = ""  # of the hypothesis, "" where there was none
    adduct: str = ""  # its name, likewise
    n_heavy: int = 0  # heavy atoms of the formula
    log_prior: float = 0.0  # of the formula source
    structures: tuple[Structure, ...] = ()  # distinct molecules, in no promised order
    sampled: int = 0  # samples drawn
    assembled: int = 0  # those that became a molecule as drawn
    repaired: int = 0  # those that became one after repair
    rejected: Mapping[str, int] = field(default_factory=dict)  # those that did not, by reason
    n_peaks: int = 0  # peaks looked at
    n_explained: int = 0  # peaks explained by a sub-formula
    explained_intensity: float = 0.0  # share of the intensity explained, 0 to 1
    peaks: tuple[ExplainedPeak, ...] = ()  # the explained peaks
    notes: tuple[str, ...] = ()  # remarks for the run record, not for the outputs
    seconds: float = 0.0  # wall time; in the journal and the run record alone
    formula_source: str = GIVEN  # ``file`` (or one formula for all), ``table`` or ``predicted``
    adduct_source: str = ""  # see `Hypothesis`; "" where nothing says
    # what the user's files say, as plain values: ``analogues``, the nearest of each structure by
    # its `Structure.block`, and ``library_match``; {} without such files
    known: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, annotated: AnnotatedSpectrum) -> "HypothesisResult":
        """What is known of a hypothesis before anything is drawn."""
        hypothesis, unexplained = annotated.hypothesis, ""
        if not annotated.n_explained:
            unexplained = (
                f"none of the {annotated.n_peaks} peaks is explained by {hypothesis.formula}; "
                "predicted from the formula alone, with less confidence"
            )
        elif annotated.explained_intensity < LEAST_EXPLAINED:
            unexplained = (
                f"{hypothesis.formula} explains {annotated.explained_intensity:.1%} of the "
                "intensity of the peaks: check formula, adduct and instrument; less confidence is "
                "stated"
            )
        peaks = list[ExplainedPeak]()
        columns = (annotated.mz, annotated.intensity, annotated.subformula, annotated.carrier)
        for mz, intensity, counts, number, ppm in zip(*columns, annotated.ppm, strict=True):
            carrier = hypothesis.adduct.carriers[number]
            charge = f"{carrier.charge:+d}" if abs(carrier.charge) > 1 else ""
            formula = f"{Formula(tuple(counts.tolist()))}{carrier.metals}{charge}"
            # float32 to the shortest decimal that is the same one, not its long double expansion
            shortest = float(str(mz)), float(str(intensity))
            peaks.append(ExplainedPeak(*shortest, formula, round(float(ppm), 2)))
        return cls(
            status=OK,
            message=sentences(*hypothesis.notes, unexplained),
            formula=str(hypothesis.formula),
            adduct=hypothesis.adduct.name,
            n_heavy=hypothesis.formula.n_heavy,
            log_prior=hypothesis.log_prior,
            formula_source=hypothesis.source,
            adduct_source=hypothesis.adduct_source,
            n_peaks=annotated.n_peaks,
            n_explained=annotated.n_explained,
            explained_intensity=float(annotated.explained_intensity),
            peaks=tuple(peaks),
        )

    @property
    def distinct(self) -> int:
        """Distinct molecules."""
        return len(self.structures)


# Of all hypotheses of one feature, in order.
Results: TypeAlias = Sequence[HypothesisResult]


class MeasuredPeaks(NamedTuple):
    """The peaks of a spectrum, cleaned."""

    label: str  # its collision energy, or which one it is
    mz: Sequence[float]  # ascending
    intensity: Sequence[float]  # relative to the base peak, in single precision

    @classmethod
    def of(cls, spectrum: Spectrum) -> "MeasuredPeaks":
        """The peaks of a spectrum that was cleaned."""
        energy = spectrum.collision_energy_ev
        label = spectrum.collision_energy_text if energy is None else f"{energy:.3g} eV"
        intensity = spectrum.intensity.astype(np.float32)
        # float32 to the shortest decimal that is the same one, not its long double expansion
        shortest = tuple(float(str(height)) for height in intensity)
        label = label or f"spectrum {spectrum.source.index}"
        return cls(label, tuple(spectrum.mz.tolist()), shortest)


class FeatureResult(NamedTuple):
    """What was measured of one feature, and what its hypotheses gave."""

    number: int  # of the feature in the whole input, from 0
    spectra: tuple[SpectrumReference, ...]  # those whose status is not ``ok`` took no part
    peaks: tuple[MeasuredPeaks, ...] = ()  # of each of them that has peaks
    intensity: float | None = None  # of its precursor, where that is strongest in MS1
    isotopes: IsotopePattern | None = None  # of its ion in MS1
    hypotheses: tuple[HypothesisResult, ...] = ()  # in order, one at least once it is predicted


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed structure, ranked; `Structure` says what fields of the same name are."""

    rank: int  # from 1
    smiles: str
    inchi: str
    inchikey: str
    formula: str  # of the hypothesis it belongs to; always its own formula
    adduct: str  # of that hypothesis
    samples: int
    log_likelihood: float | None
    score: float  # what candidates are ranked by; the logarithm of a weight
    confidence: float  # calibrated probability that this is the right structure
    extra_scores: Mapping[str, float] = field(default_factory=dict)  # behind the score, by name
    sources: tuple[str, ...] = ()
    family: str = ""
    family_confidence: float = 0.0  # summed over all candidates of its family, written or not
    scaffold: str = ""
    scaffold_confidence: float = 0.0  # summed confidence of all candidates with its scaffold

    @property
    def inchikey14(self) -> str:
        """First block of the InChIKey."""
        return self.inchikey[:14]


@dataclass(frozen=True, slots=True)
class LikelyPart:
    """A part that the true structure of a feature may contain, whatever its first candidate is."""

    kind: str  # such as ``sugar`` or ``ring system``
    name: str  # of the catalogue, or the SMILES of a ring system without a name
    smarts: str  # pattern that finds it
    probability: float  # that the true structure contains it, calibrated
    prior: float  # share of known structures of the formula that do
    share: float  # share of the candidates that do, weighted by confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(SpectrumReference):
    """The one result of one spectrum."""

    formula: str = ""  # of the first hypothesis, else as written in the file
    adduct: str = ""  # likewise
    hypotheses: tuple[HypothesisResult, ...] = ()  # what was tried, with all that samples gave
    candidates: tuple[Candidate, ...] = ()  # ranked, best first, at most top-k
    # calibrated probability that the first ten hold the right structure; not limited by top-k
    confidence_top10: float = 0.0
    group: tuple[Source, ...] = ()  # the spectra read together, this one included
    seconds: float = 0.0  # wall time of the whole feature
    parts: tuple[LikelyPart, ...] | None = None  # likeliest first; None if nobody asked
    level: str = ""  # the finest that is certain, of `one_list.LEVELS`; "" if it was not predicted
    schymanski: str = ""  # the confidence level that it corresponds to

    def analogue_of(self, candidate: Candidate) -> Mapping[str, Any]:
        """The nearest of the user's molecules, see `Analogues.nearest`, or {}."""
        nearest = (
            tried.known.get("analogues", {}).get(candidate.inchikey14, {})
            for tried in self.hypotheses
            if (tried.formula, tried.adduct) == (candidate.formula, candidate.adduct)
        )
        return next(nearest, {})

    @property
    def library_match(self) -> Mapping[str, Any]:
        """The best spectrum of a library with the same precursor, see `Known.told`, or {}."""
        each = [tried.known.get("library_match", {}) for tried in self.hypotheses]
        offered = (match for match in each if match.get("offered"))
        return next(offered, next(filter(None, each), {}))


@dataclass(frozen=True, slots=True)
class Header:
    """What a run is, as plain values; two runs are the same run if their headers are equal."""

    version: str  # of duallgd
    settings: Mapping[str, Any]  # all settings, and the content of the formula table
    model: Mapping[str, Any]  # SHA-256 and name of the weights, and the ranking model
    inputs: tuple[Mapping[str, Any], ...]  # name, size in bytes and SHA-256 of each input, in order
    shard: str = "1/1"  # such as ``2/8``

    def differences(self, other: "Header") -> str:
        """The first changes from this header to the other, as part of a sentence; "" if none."""
        before, after = self._flat(), other._flat()
        changed = [
            f"{name} {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
            for name in before | after
            if before.get(name) != after.get(name)
        ]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        return f"{', '.join(changed[:3])}{more}"

    def _flat(self) -> dict[str, Any]:
        plain = {
            "version": self.version,
            "settings": self.settings,
            "weights": {**self.model, "name": ""},  # the content counts, not where it lies
            "input": {entry["name"]: dict(entry) for entry in self.inputs},
            "inputs": [entry["name"] for entry in self.inputs],
            "shard": self.shard,
        }
        return flatten(json.loads(json.dumps(plain)))


def sentences(*parts: str) -> str:
    """Join remarks into one line, each remark once; of an absurdly long word the beginning."""
    cleaned = (" ".join(map(_clipped, printable(part).split())) for part in parts)
    return "; ".join(dict.fromkeys(filter(None, cleaned)))


def _clipped(word: str) -> str:
    return word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}..."
