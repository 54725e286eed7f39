"""What comes out of a prediction, before ranking (`HypothesisResult`) and after (`Prediction`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, get_type_hints

from duallgd_cli.chem.adduct import parse_adduct
from duallgd_cli.errors import Failure, counted, printable
from duallgd_cli.spectra.reading.record import compound_name
from duallgd_cli.spectra.types import GIVEN, Source, Spectrum

T = TypeVar("T")

OK = "ok"
_TALLIES: Final = ("sampled", "assembled", "repaired", "rejected", "distinct")
_OF_THE_FEATURE: Final = frozenset({"feature", "spectra", "position"})
_LONGEST_WORD: Final = 200
_MOST_NAMED: Final = 50  # spectra of one feature that each of them names


@dataclass(frozen=True, slots=True)
class SpectrumReference:
    """One measured spectrum of a feature, by name; a text that nothing says is "".

    Attributes:
        source: File and index.
        spectrum_id: Identifier, not necessarily unique.
        feature_id: FEATURE_ID of the file.
        compound_id: What features of one molecule share.
        answered_by: The feature, with its ion, that answers for the compound of this one.
        scans: SCANS or native id.
        precursor_mz: m/z, or None.
        formula_text: Formula as written in the file.
        adduct_text: Adduct as written in the file.
        adduct_source: Where the adduct comes from, see `Hypothesis`.
        status: ``ok``, or one word for what went wrong with it.
        message: Why it did.
        name: Name of the compound or title.
        rt_seconds: Retention time, or None.
        collision_energy: As written.
        warnings: What is odd, but nothing that `message` or `assumptions` say.
        assumptions: What was guessed, because the file does not say it.
    """

    source: Source
    spectrum_id: str
    feature_id: str = ""
    compound_id: str = ""
    answered_by: str = ""
    scans: str = ""
    precursor_mz: float | None = None
    formula_text: str = ""
    adduct_text: str = ""
    adduct_source: str = ""
    status: str = OK
    message: str = ""
    name: str = ""
    rt_seconds: float | None = None
    collision_energy: str = ""
    warnings: str = ""
    assumptions: str = ""

    @classmethod
    def of(cls, spectrum: Spectrum) -> "SpectrumReference":
        """Name a spectrum, with what there is to say of it: each sentence stands in one field."""
        failure, guessed = spectrum.failure, spectrum.assumptions
        odd = [text for text in spectrum.warnings if text not in guessed]
        return cls(
            source=spectrum.source,
            spectrum_id=spectrum.spectrum_id,
            feature_id=spectrum.feature_id,
            compound_id=spectrum.compound_id,
            answered_by=spectrum.answered_by,
            scans=spectrum.scans,
            precursor_mz=spectrum.precursor_mz,
            formula_text=spectrum.formula_text,
            adduct_text=spectrum.adduct_text,
            adduct_source=spectrum.adduct_source if spectrum.adduct_text else "",
            status=failure.status if failure else OK,
            message=sentences(failure.message) if failure else "",
            name=compound_name(spectrum.metadata),
            rt_seconds=spectrum.retention_time_s,
            collision_energy=spectrum.collision_energy_text,
            warnings=sentences(*odd),
            assumptions=sentences(*guessed),
        )

    @property
    def remarks(self) -> str:
        """All that is said of it, for a table that has one column for it."""
        return sentences(self.message, self.warnings, self.assumptions)


def references(spectra: Iterable[Spectrum]) -> tuple[SpectrumReference, ...]:
    """Names of all spectra of a feature, those that a consensus was made of in its place.

    What is said of a consensus holds for each of these; they are in the order of their file.
    """
    named: list[SpectrumReference] = []
    for spectrum in spectra:
        whole = SpectrumReference.of(spectrum)
        named += [
            replace(whole, source=part.source, spectrum_id=part.spectrum_id, scans=part.scans)
            for part in spectrum.merged or (spectrum,)
        ]
    return tuple(sorted(named, key=lambda reference: reference.source.index))


class Structure(NamedTuple):
    """A distinct molecule among the proposals of one hypothesis, not yet ranked.

    A run of a million features holds tens of millions: tuples are made in a fifth of the time.

    Attributes:
        smiles: Canonical, without stereochemistry, as InChI and InChIKey (27 characters) are.
        inchi: Standard InChI.
        inchikey: Its key.
        samples: How many proposals it was; structures of the user's database are none.
        repaired: How many of `samples` needed repair to become a molecule.
        log_likelihood: Mean over the samples drawn that became it; None where none was drawn.
        sources: Names of the sources that proposed it, in alphabetical order.
        family: Pieces that it shares with its family, see `chem.identity`.
        scaffold: SMILES of its Murcko scaffold, or ``acyclic``.
        scores: By name of the score; see `scores`.
    """

    smiles: str
    inchi: str
    inchikey: str
    samples: int
    repaired: int
    log_likelihood: float | None
    sources: tuple[str, ...] = ()
    family: str = ""
    scaffold: str = ""
    scores: Mapping[str, float] = MappingProxyType({})

    @property
    def block(self) -> str:
        """First block of the InChIKey, the identity of a molecule here."""
        return self.inchikey[:14]


_N_VALUES: Final = len(Structure._fields) - 1  # before its scores


class ExplainedPeak(NamedTuple):
    """A sub-formula that explains a peak; a peak may have several.

    Attributes:
        mz: Measured.
        intensity: Relative to the base peak.
        formula: Of the fragment, a kept metal included.
        ppm: Signed mass error.
    """

    mz: float
    intensity: float
    formula: str
    ppm: float


@dataclass(frozen=True, slots=True)
class HypothesisResult:
    """What one hypothesis of a feature gave, structures or the reason why there are none.

    Attributes:
        status: ``ok``, or the status of a `Failure`.
        message: Sentences for the user.
        formula: Of the hypothesis, "" where there was none.
        adduct: Its name, likewise.
        n_heavy: Heavy atoms of the formula.
        log_prior: Of the formula source.
        structures: Distinct molecules, in no promised order.
        sampled: Samples drawn.
        assembled: Those that became a molecule as drawn.
        repaired: Those that became one after repair.
        rejected: Those that did not, by reason.
        distinct: Molecules by InChIKey first block.
        n_peaks: Peaks looked at.
        n_explained: Peaks explained by a sub-formula.
        explained_intensity: Share of the intensity explained, 0 to 1.
        peaks: The explained peaks.
        notes: Remarks for the run record, not for the outputs.
        seconds: Wall time; in the journal and the run record alone.
        feature: 0-based index of the feature in the whole input.
        spectra: Of the feature; those with a status other than ``ok`` took no part.
        position: Of the hypothesis among those of its feature, from 0.
        formula_source: ``file`` (or one formula for all), ``table`` or ``predicted``.
        adduct_source: See `Hypothesis`; "" where nothing says.
        known: What the user's files say, as plain values: ``analogues``, the nearest of each
            structure by its `Structure.block`, and ``library_match``; {} without such files.
    """

    status: str
    message: str = ""
    formula: str = ""
    adduct: str = ""
    n_heavy: int = 0
    log_prior: float = 0.0
    structures: tuple[Structure, ...] = ()
    sampled: int = 0
    assembled: int = 0
    repaired: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    distinct: int = 0
    n_peaks: int = 0
    n_explained: int = 0
    explained_intensity: float = 0.0
    peaks: tuple[ExplainedPeak, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    feature: int = 0
    spectra: tuple[SpectrumReference, ...] = ()
    position: int = 0
    formula_source: str = GIVEN
    adduct_source: str = ""
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tallies(self) -> dict[str, Any]:
        """What became of the samples, by name."""
        return {name: getattr(self, name) for name in _TALLIES}


# Of all hypotheses of one feature, in order.
Results: TypeAlias = Sequence[HypothesisResult]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed structure, ranked; `Structure` says what fields of the same name are.

    Attributes:
        rank: From 1.
        formula: Of the hypothesis it belongs to; always its own formula.
        adduct: Of that hypothesis.
        score: What candidates are ranked by; the logarithm of a weight.
        confidence: Calibrated probability that this is the right structure.
        extra_scores: Further numbers by name: the features behind the score, ``repaired`` samples.
        family_confidence: Summed confidence of all candidates of its family, written or not.
        scaffold_confidence: Summed confidence of all candidates with its scaffold.
    """

    rank: int
    smiles: str
    inchi: str
    inchikey: str
    formula: str
    adduct: str
    samples: int
    log_likelihood: float | None
    score: float
    confidence: float
    extra_scores: Mapping[str, float] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    family: str = ""
    family_confidence: float = 0.0
    scaffold: str = ""
    scaffold_confidence: float = 0.0

    @property
    def inchikey14(self) -> str:
        """First block of the InChIKey."""
        return self.inchikey[:14]


@dataclass(frozen=True, slots=True)
class LikelyPart:
    """A part that the true structure of a feature may contain, whatever its first candidate is.

    Attributes:
        kind: Such as ``sugar`` or ``ring system``.
        name: Of the catalogue, or the SMILES of a ring system without a name.
        smarts: Pattern that finds it.
        probability: That the true structure contains it, calibrated.
        prior: Share of known structures of the formula that do.
        share: Share of the candidates that do, weighted by confidence.
    """

    kind: str
    name: str
    smarts: str
    probability: float
    prior: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(SpectrumReference):
    """The one result of one spectrum.

    Attributes:
        formula: Of the first hypothesis, else as written in the file.
        adduct: Likewise.
        hypotheses: What was tried; their structures are all that the samples gave.
        candidates: Ranked, best first, at most top-k.
        confidence_top10: Calibrated probability that the first ten hold the right structure; not
            limited by top-k.
        group: The spectra read together, this one included.
        seconds: Wall time of the whole feature.
        parts: What the true structure contains, likeliest first; None if nobody asked.
        level: The finest level that is certain, one of `one_list.LEVELS`; "" of a spectrum that was
            not predicted.
        schymanski: The confidence level that it corresponds to.
    """

    formula: str = ""
    adduct: str = ""
    hypotheses: tuple[HypothesisResult, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    confidence_top10: float = 0.0
    group: tuple[Source, ...] = ()
    seconds: float = 0.0
    parts: tuple[LikelyPart, ...] | None = None
    level: str = ""
    schymanski: str = ""

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


def predictions_of(
    results: Results,
    candidates: tuple[Candidate, ...],
    confidence_top10: float,
    top_k: int,
) -> list[Prediction]:
    """The predictions of a feature's spectra, in their order.

    Spectra read together share their candidates; one that could not be used has its own status
    and none.

    Args:
        results: Of all hypotheses of the feature.
        candidates: All of them, as `ranking.rank` orders them.
        confidence_top10: That the first ten hold the right one.
        top_k: How many candidates are kept.
    """
    first, predictions = results[0], []
    # What is read together; likewise what cannot be used for one reason, such as a whole feature.
    alike: defaultdict[object, tuple[Source, ...]] = defaultdict(tuple)
    for one in first.spectra:
        alike[one.status, one.status == OK or one.remarks] += (one.source,)
    together = alike[OK, True]
    # What accompanies candidates is a warning; hypotheses share many of them.
    failed = [one for one in results if one.status != OK or not candidates]
    odd = [text for one in results if one not in failed for text in one.message.split("; ")]
    said = [one.message for one in failed]
    if len(results) > 1:
        said = [f"{one.formula} {one.adduct}: {one.message}" for one in failed if one.message]
    for spectrum in first.spectra:
        adduct = parse_adduct(spectrum.adduct_text)
        written = spectrum.adduct_text if isinstance(adduct, Failure) else adduct.name
        values = {own.name: getattr(spectrum, own.name) for own in fields(SpectrumReference)}
        if first.adduct:
            values["adduct_source"] = first.adduct_source
        prediction = Prediction(
            **values,
            formula=first.formula or spectrum.formula_text,
            adduct=first.adduct or written,
            group=alike[spectrum.status, spectrum.status == OK or spectrum.remarks],
            seconds=sum(result.seconds for result in results),
        )
        if spectrum.status == OK:
            prediction = replace(prediction, hypotheses=tuple(results))
            others = [str(source.index) for source in together if source != spectrum.source]
            if spectrum.source != together[0] and len(others) > _MOST_NAMED:
                others = [others[0], f"{len(others) - 1} more"]  # the first alone says all of them
            read = f"read together with index {', '.join(others)}" if others else ""
            refused = (result.status for result in results if result.status != OK)
            told, guessed = (*spectrum.warnings.split("; "), *odd), spectrum.assumptions.split("; ")
            prediction = replace(
                prediction,
                status=OK if candidates else next(refused, "no_candidate"),
                message=sentences(*said, read, _in_library(prediction.library_match)),
                candidates=candidates[:top_k],
                confidence_top10=confidence_top10,
                warnings=sentences(*(text for text in told if text not in guessed)),
            )
        predictions.append(prediction)
    return predictions


def _in_library(match: Mapping[str, Any]) -> str:
    """What a spectral library says of a feature, "" if nothing."""
    if not match:
        return ""
    found = "found in" if match.get("found") else "nearest of its mass in"
    matched = f"cosine {match['score']:.2f}, {counted(match['matched_peaks'], 'peak')}"
    return f"{found} {match['library']}: {match['name'] or match['smiles']} ({matched})"


def sentences(*parts: str) -> str:
    """Join remarks into one line, each remark once; of an absurdly long word the beginning."""
    cleaned = (
        " ".join(
            word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}..."
            for word in printable(part).split()
        )
        for part in parts
    )
    return "; ".join(dict.fromkeys(part for part in cleaned if part))


def plain_values(results: Results) -> dict[str, Any]:
    """Results of a feature for a line of JSON; long lists go without names, which would be most."""
    first = results[0]
    return {
        "feature": first.feature,
        "spectra": [
            {**asdict(one), "source": [one.source.file, one.source.index]} for one in first.spectra
        ],
        "hypotheses": [
            {
                **{
                    own.name: getattr(result, own.name)
                    for own in fields(result)
                    if own.name not in _OF_THE_FEATURE
                },
                "scores": [*result.structures[0].scores] if result.structures else [],
                "structures": [
                    (*one[:_N_VALUES], *one.scores.values()) for one in result.structures
                ],
            }
            for result in results
        ],
    }


def results_of(values: Mapping[str, Any]) -> tuple[HypothesisResult, ...]:
    """The results of a feature, from what `plain_values` gave; KeyError, TypeError, ValueError."""
    spectra = tuple(
        _checked(SpectrumReference(**{**one, "source": _checked(Source(*one["source"]))}))
        for one in values["spectra"]
    )
    results = []
    for position, own in enumerate(values["hypotheses"]):
        names = own.pop("scores")
        own["structures"] = tuple(_structure(row, names) for row in own["structures"])
        own["peaks"] = tuple(_checked(ExplainedPeak._make(row)) for row in own["peaks"])
        own["notes"] = tuple(own["notes"])
        of_the_feature = {"feature": values["feature"], "spectra": spectra, "position": position}
        results.append(_checked(HypothesisResult(**own, **of_the_feature)))
    return tuple(results)


def _structure(row: Sequence[Any], names: Sequence[str]) -> Structure:
    scores = dict(zip(names, row[_N_VALUES:], strict=True))
    if not all(isinstance(value, float | int) for value in scores.values()):
        raise TypeError(row)
    made = Structure._make([*row[:_N_VALUES], scores])
    return _checked(made._replace(sources=tuple(made.sources)))


def _checked(value: T) -> T:
    """The value, if its plain fields are of their types; else TypeError."""
    of: type = type(value)
    for name, kind in _kinds(of).items():
        if not isinstance(getattr(value, name), kind):
            raise TypeError(value)
    return value


@cache
def _kinds(of: type) -> dict[str, tuple[type, ...]]:
    """The types that JSON may have given each plain field of a class."""
    kinds = {
        str: (str,),
        int: (int,),
        float: (float, int),
        float | None: (float, int, NoneType),
        Mapping[str, int]: (dict,),
        Mapping[str, float]: (dict,),
        Mapping[str, Any]: (dict,),
        tuple[str, ...]: (tuple,),
    }
    return {name: kinds[hint] for name, hint in get_type_hints(of).items() if hint in kinds}
