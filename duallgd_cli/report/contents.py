"""A finished run as plain values: all that the pages show, and the one module that reads it.

Which fragments of a candidate explain which peaks is what the page marks under the pointer; the
fragments are those of the fragmentation score, so that it shows what was scored.

Every text that came from a file is made harmless for the eye here (no control characters, no
endless titles); the page itself never reads a text as anything but text.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from functools import partial as with_arguments
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli import config
from duallgd_cli.chem.adduct import parent_formula, parse_adduct
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import ACYCLIC, family_name
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.chem.parts import matches, molecule
from duallgd_cli.errors import (
    Failure,
    FormulaError,
    UnreadableError,
    printable,
)
from duallgd_cli.predict import journal
from duallgd_cli.predict.parts import bond_certainty, likely_parts, sentence, telling
from duallgd_cli.predict.run import record_path
from duallgd_cli.predict.settings import CERTAIN
from duallgd_cli.ranking.ladder import chances, formula_chance, with_level
from duallgd_cli.ranking.one_list import Ranking
from duallgd_cli.report.depiction import depictions
from duallgd_cli.results import (
    OK,
    Candidate,
    HypothesisResult,
    LikelyPart,
    Prediction,
    Results,
    predictions_of,
    references,
)
from duallgd_cli.runtime import in_order
from duallgd_cli.scores.explanation import KEPT, explained_by, subformula_of
from duallgd_cli.spectra.features import CleaningSettings, Inputs, clean
from duallgd_cli.spectra.run import FeatureSettings
from duallgd_cli.spectra.types import Source, Spectrum
from duallgd_cli.writers.formats import likeness

LARGE: Final = 1000  # features of one page; of a run of more, few candidates are drawn
LONGEST_TEXT: Final = 300
_SHOWN_CANDIDATES: Final = 10
_DRAWN_OF_MANY: Final = 3
_AT_ONCE: Final = 20  # features that a process takes
_SHOWN_SCORES: Final = 4
_DIGITS: Final = 6  # of probabilities
_SHOWN_PARTS: Final = 12
# What the answers of each level are certain to.
_LEVEL_WORDS: Final = {
    "structure": "the structure",
    "family": "the family",
    "scaffold": "the scaffold",
    "parts": "parts of the structure",
    "formula": "the formula",
}
_OF_MATCH: Final = ("library", "name", "score", "matched_peaks", "probability")


@dataclass(frozen=True, slots=True, eq=False)
class _Peaks:
    """A cleaned spectrum: what it is called, m/z and intensity, (P,) each."""

    label: str
    mz: NDArray[np.float64]
    intensity: NDArray[np.float64]

    def identities(self) -> list[tuple[float, float]]:
        """What the journal knows each peak by."""
        return [_key(*peak) for peak in zip(self.mz, self.intensity, strict=True)]

    def values(self) -> dict[str, Any]:
        """For the page."""
        mz, intensity = self.mz.round(5).tolist(), self.intensity.round(5).tolist()
        return {"label": self.label, "mz": mz, "intensity": intensity}


class ReportedRun:
    """A finished run, feature by feature, as plain values.

    Attributes:
        n_features: Of the run.
        drawn: Families of which the best candidate is drawn; all others are listed. None for all.
        certain: Probability from which on an answer counts as certain.
        missing_inputs: Inputs that are gone or changed.
        key: The same of the same run alone.
    """

    def __init__(self, names: Sequence[Path], top_k: int | None = None, workers: int = 1) -> None:
        """Open the journals of a run.

        Args:
            names: Outputs that have journals beside them, or journals.
            top_k: Candidates shown of each feature, no more than the run wrote; None for ten, of
                which a large run draws the first few.
            workers: Processes.

        Raises:
            UsageError: A journal is missing, unfinished, or of another run.
            UnreadableError: It was ranked by another version.
        """
        self._run = journal.read(names, workers=workers)
        self._output = names[0].with_name(names[0].name.removesuffix(".journal.jsonl"))
        self._header = self._run.header
        self._workers = workers
        self.n_features = self._run.n_features
        self.drawn = None if top_k or self.n_features <= LARGE else _DRAWN_OF_MANY
        ranking = Ranking.recorded(self._header.model, self._header.settings, self._output)
        self.certain = float(self._header.settings.get("certain", CERTAIN))
        self._values = with_arguments(
            _values,
            ranking=ranking,
            top_k=int(self._header.settings["top_k"]),
            most=top_k or _SHOWN_CANDIDATES,
            drawn=self.drawn,
            certain=self.certain,
        )
        self._calibrated_on = ranking.generated.n_spectra
        self._inputs, self.missing_inputs = _unchanged(self._header.inputs)
        told = [self._header.settings, self._header.model.get("sha256"), self._header.inputs]
        text = json.dumps(told, default=str, sort_keys=True)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]

    def about(self) -> dict[str, Any]:
        """What was run with what: versions, weights, inputs, settings, counts as far as known."""
        header = self._header
        record = _record(self._output)
        settings = config.flatten(json.loads(json.dumps(dict(header.settings))))
        return {
            "output": readable(self._output.name),
            "version": readable(header.version),
            "weights": readable(str(header.model.get("name", ""))),
            "weights_sha256": readable(str(header.model.get("sha256", ""))),
            "remark": readable(str(header.model.get("remark", ""))),
            "calibrated_on": self._calibrated_on,
            "inputs": [[readable(str(i["name"])), i["bytes"], i["sha256"]] for i in header.inputs],
            "settings": [
                [name, "by default" if value is None else readable(str(value))]
                for name, value in settings.items()
            ],
            "versions": [[k, readable(str(v))] for k, v in record.get("versions", {}).items()],
            "platform": readable(str(record.get("platform", ""))),
            "times": [[k, readable(str(v))] for k, v in record.get("times", {}).items()],
            "notes": [[readable(k), v] for k, v in record.get("notes", {}).items()],
            "ms1": self._run.totals.get("ms1", 0),
        }

    def features(self) -> Iterator[dict[str, Any]]:
        """Every feature in the order of the input, with spectra, candidates and explanations."""
        measured = _Measured(self._inputs, self._header.settings)
        asked = (
            (results, *measured.take([one.source for one in results[0].spectra]))
            for results in self._run.features()
        )
        yield from in_order(self._values, asked, self._workers, at_a_time=_AT_ONCE)


def _values(
    asked: tuple[Results, Sequence[_Peaks], float | None],
    ranking: Ranking,
    top_k: int,
    most: int,
    drawn: int | None,
    certain: float,
) -> dict[str, Any]:
    """What is shown of a feature: its results and its spectra as plain values.

    Args:
        asked: Results, spectra and the intensity of the precursor.
        ranking: Of the run.
        top_k: Candidates that the run wrote; the level is that of them all.
        most: Of them that are shown.
        drawn: See `ReportedRun`.
        certain: Likewise.
    """
    results, spectra, intensity = asked
    candidates, confidence_top10 = ranking.rank(results)
    parts = likely_parts(results, candidates)
    ranked = (
        replace(one, parts=parts if one.hypotheses else ())
        for one in predictions_of(results, candidates, confidence_top10, top_k)
    )
    predictions = [*with_level(ranked, certain)]
    best = next((p for p in predictions if p.status == OK), predictions[0])
    shown = replace(best, candidates=best.candidates[:most])
    families = _families(shown.candidates)
    places = [*range(len(shown.candidates))]
    if drawn is not None:
        places = sorted(places_of[0] for _, _, places_of in families[:drawn])
    feature = _feature(results[0].feature, predictions, shown, spectra, places)
    certainty = bond_certainty(candidates, len(shown.candidates))
    for place in places:
        feature["candidates"][place]["certainty"] = certainty[place]
    smiles = [candidate.smiles for candidate in shown.candidates]
    return (
        feature
        | {"families": families, "intensity": intensity}
        | _ladder(best, certain)
        | _parts(parts if smiles else (), smiles, [smiles[place] for place in places])
    )


def _families(candidates: Sequence[Candidate]) -> list[tuple[str, float, list[int]]]:
    """Families in words, what their candidates sum to, and the places of these, best first."""
    together: dict[object, list[int]] = {}
    for place, candidate in enumerate(candidates):
        together.setdefault(candidate.family or place, []).append(place)
    return [
        (
            family_name(candidates[first].family) if others else "",
            round(candidates[first].family_confidence, _DIGITS),
            [first, *others],
        )
        for first, *others in together.values()
    ]


def _ladder(prediction: Prediction, certain: float) -> dict[str, Any]:
    """Answers from the structure to the formula with their probabilities, and which is certain."""
    if not prediction.level:
        return {"level": "", "certain": "", "schymanski": "", "ladder": []}
    candidates, parts = prediction.candidates, prediction.parts or ()
    reached = chances(candidates, formula_chance(prediction), parts)
    answers = {"formula": readable(prediction.formula)}
    if candidates:
        scaffold = max(candidates, key=lambda one: one.scaffold_confidence).scaffold
        answers |= {
            "structure": f"candidate {max(candidates, key=lambda one: one.confidence).rank}",
            "family": family_name(max(candidates, key=lambda one: one.family_confidence).family),
            "scaffold": "no rings" if scaffold == ACYCLIC else scaffold,
        }
    if parts:
        answers["parts"] = parts[0].name
    said = f"nothing is certain: no answer reaches {certain:g}"
    if prediction.level in reached:
        said = f"certain to {_LEVEL_WORDS[prediction.level]}: {reached[prediction.level]:.2f}"
    return {
        "level": prediction.level,
        "certain": said,
        "schymanski": prediction.schymanski,
        "ladder": [
            [name, round(value, 4), answers[name]]
            for name, value in reached.items()
            if answers.get(name)
        ],
    }


class _Measured:
    """Cleaned spectra of features, read on as they are asked for: what is held is asked for later.

    Features are those of the run, so a consensus spectrum is what it was when it was explained.
    """

    def __init__(self, names: Sequence[str], settings: Mapping[str, Any]) -> None:
        self._names = frozenset(names)
        self._cleaning = config.parse(CleaningSettings, settings["cleaning"])
        of_runs = config.parse(FeatureSettings, settings.get("features", {}))
        inputs = Inputs(tuple(names), level=logging.DEBUG)
        by, adduct = settings.get("group_by", "feature"), settings.get("adduct")
        self._features = inputs.features(by, adduct, of_runs)
        self._held: dict[Source, tuple[list[_Peaks], float | None]] = {}

    def take(self, sources: Sequence[Source]) -> tuple[list[_Peaks], float | None]:
        """Spectra with peaks and the intensity of the precursor of the feature read from these.

        Each can be had once.
        """
        while sources[0].file in self._names and sources[0] not in self._held:
            feature = next(self._features, None)
            if feature is None:
                break
            cleaned = [clean(one, self._cleaning) for one in feature.spectra]
            peaks = [_peaks(one) for one in cleaned if one.failure is None]
            first = references(feature.spectra)[0].source
            self._held[first] = peaks, feature.precursor_intensity
        return self._held.pop(sources[0], ([], None))


def _unchanged(inputs: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Names of the inputs that are still what they were, and of the others."""
    same: list[str] = []
    missing: list[str] = []
    for entry in inputs:
        name = str(entry["name"])
        try:
            is_same = Path(name).is_file() and Inputs((name,)).identity() == (entry,)
        except UnreadableError:
            is_same = False
        (same if is_same else missing).append(name if is_same else readable(name))
    return same, missing


def readable(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text from a file on one line, without what steers a reader's eye.

    Args:
        text: Anything.
        longest: Characters kept; what is cut off is told by an ellipsis.
    """
    return printable(text[:longest]) + ("…" if len(text) > longest else "")


def _record(output: Path) -> dict[str, Any]:
    try:
        values = json.loads(record_path(output).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _peaks(spectrum: Spectrum) -> _Peaks:
    energy = spectrum.collision_energy_text or ""
    if spectrum.collision_energy_ev is not None:
        energy = f"{spectrum.collision_energy_ev:g} eV"
    label = readable(energy, 40) or f"spectrum {spectrum.source.index}"
    return _Peaks(label, spectrum.mz, spectrum.intensity)


def _key(mz: float, intensity: float) -> tuple[float, float]:
    """A peak by the single precision that explanations are kept in."""
    return float(np.float32(mz)), float(np.float32(intensity))


def _feature(
    number: int,
    predictions: Sequence[Prediction],
    shown: Prediction,
    spectra: Sequence[_Peaks],
    drawn: Sequence[int],
) -> dict[str, Any]:
    """A feature with its candidates, of which those at some places are drawn."""
    spectra = _shown_spectra(shown.hypotheses, spectra)
    molecules = {place: molecule(shown.candidates[place].smiles) for place in drawn}
    described = {
        place: _candidate(shown.candidates[place], mol, shown.hypotheses)
        for place, mol in molecules.items()
    }
    drawings = depictions([*molecules.values()])  # which changes them
    for values, drawing in zip(described.values(), drawings, strict=True):
        values["drawing"] = drawing
    return {
        "number": number,
        "id": readable(shown.feature_id or shown.spectrum_id),
        "spectra_ids": [
            [readable(p.spectrum_id), readable(p.source.file), p.source.index] for p in predictions
        ],
        "mz": shown.precursor_mz,
        "rt": shown.rt_seconds,
        "compound": readable(shown.compound_id),
        "adduct": readable(shown.adduct),
        "formula": readable(shown.formula),
        "status": readable(shown.status),
        "confidence_top10": shown.confidence_top10,
        "remarks": _remarks(predictions),
        "hypotheses": [_hypothesis(outcome, spectra) for outcome in shown.hypotheses],
        "spectra": [spectrum.values() for spectrum in spectra],
        "candidates": [
            described.get(place) or _listed(candidate)
            for place, candidate in enumerate(shown.candidates)
        ],
    }


def _parts(
    parts: Sequence[LikelyPart], smiles: Sequence[str], drawn: Sequence[str]
) -> dict[str, Any]:
    """Parts that say most, with their atoms in each drawing, the three first of them in words.

    All others are listed by name, kind and probability alone.
    """
    few, shown = telling(parts, smiles), telling(parts, smiles, _SHOWN_PARTS)
    return {
        "parts": [
            [
                part.name,
                part.kind,
                round(part.probability, 4),
                [sorted(set().union(*matches(part.smarts, one))) for one in drawn],
            ]
            for part in shown
        ],
        "other_parts": [
            [part.name, part.kind, round(part.probability, 2)]
            for part in parts
            if part not in shown
        ],
        "sentence": sentence(few),
        "part": [few[0].name, round(few[0].probability, 4)] if few else None,
    }


def _remarks(predictions: Sequence[Prediction]) -> list[str]:
    """Sentences of all spectra, each once; which were read together is shown otherwise."""
    said = [remark for one in predictions for remark in one.message.split("; ")]
    told = [remark for remark in dict.fromkeys(said) if not remark.startswith("read together")]
    return [readable(remark) for remark in told if remark]


def _hypothesis(outcome: HypothesisResult, spectra: Sequence[_Peaks]) -> dict[str, Any]:
    return {
        "formula": readable(outcome.formula),
        "adduct": readable(outcome.adduct),
        "log_prior": outcome.log_prior,
        "status": readable(outcome.status),
        "n_peaks": outcome.n_peaks,
        "n_explained": outcome.n_explained,
        "explained_intensity": outcome.explained_intensity,
        "sampled": outcome.sampled,
        "assembled": outcome.assembled,
        "repaired": outcome.repaired,
        "distinct": outcome.distinct,
        "explained": _explained(outcome, spectra),
    }


def _explained(outcome: HypothesisResult, spectra: Sequence[_Peaks]) -> list[list[Any]]:
    """Rows in the journal's order: spectrum, peak, sub-formula, ppm, neutral loss."""
    place = {
        key: (which, peak)
        for which, spectrum in enumerate(spectra)
        for peak, key in enumerate(spectrum.identities())
    }
    return [
        [
            *place[_key(peak.mz, peak.intensity)],
            peak.formula,
            round(peak.ppm, 3),
            neutral_loss(outcome.formula, outcome.adduct, peak.formula),
        ]
        for peak in outcome.peaks
    ]


def _shown_spectra(outcomes: Results, spectra: Sequence[_Peaks]) -> Sequence[_Peaks]:
    """The spectra, or the explained peaks alone where the input is gone, and the label says so."""
    explained = {_key(p.mz, p.intensity): p for outcome in outcomes for p in outcome.peaks}
    measured = {key for spectrum in spectra for key in spectrum.identities()}
    if spectra and measured >= explained.keys():
        return spectra
    peaks = sorted((peak.mz, peak.intensity) for peak in explained.values())
    if not peaks:
        return []
    return [_Peaks("explained peaks only", *map(np.array, zip(*peaks, strict=True)))]


def _candidate(candidate: Candidate, mol: Mol | None, outcomes: Results) -> dict[str, Any]:
    hypothesis = next(
        place
        for place, outcome in enumerate(outcomes)
        if (outcome.formula, outcome.adduct) == (candidate.formula, candidate.adduct)
    )
    subformulas = [peak.formula for peak in outcomes[hypothesis].peaks]
    known = outcomes[hypothesis].known
    analogues, match = known.get("analogues", {}), known.get("library_match", {})
    is_matched = match.get("offered") and match["inchikey"] == candidate.inchikey
    return {
        **_listed(candidate),
        "adduct": candidate.adduct,
        "score": _short(candidate.score),
        "log_likelihood": None if (ll := candidate.log_likelihood) is None else _short(ll),
        "scores": [[name, _short(value)] for name, value in candidate.extra_scores.items()],
        "hypothesis": hypothesis,
        "like": readable(likeness(analogues.get(candidate.inchikey14, {}))),
        "library_match": _match(match) if is_matched else None,
        "explains": explained_by(mol, candidate.adduct, subformulas),
    }


def _listed(candidate: Candidate) -> dict[str, Any]:
    """All that is said of a candidate that is not drawn."""
    names = ("rank", "smiles", "inchikey", "formula", "samples", "confidence")
    values = {name: getattr(candidate, name) for name in names}
    values["confidence"] = round(candidate.confidence, _DIGITS)
    return values | {"sources": [readable(name) for name in candidate.sources]}


def _match(match: Mapping[str, Any]) -> dict[str, Any]:
    """The spectrum of a library that a candidate was found by."""
    values = {name: match[name] for name in _OF_MATCH if name in match}
    return {name: readable(v) if isinstance(v, str) else v for name, v in values.items()}


def _short(value: float) -> float:
    return float(f"{value:.{_SHOWN_SCORES}g}")


@lru_cache(maxsize=1000)
def _ion(formula: str, adduct: str) -> tuple[Formula, tuple[str, ...]] | None:
    """Atoms and metals of an ion, None where they are unclear."""
    ion = parse_adduct(adduct)
    try:
        return (
            None
            if isinstance(ion, Failure)
            else (parent_formula(Formula.parse(formula), ion), ion.metals)
        )
    except FormulaError:
        return None


def neutral_loss(formula: str, adduct: str, subformula: str) -> str:
    """What an ion has lost where a fragment of this sub-formula is left, "" where that is unclear.

    Args:
        formula: Of the molecule.
        adduct: Name of the adduct.
        subformula: Of the fragment.
    """
    part, whole = subformula_of(subformula), _ion(formula, adduct)
    if part is None or whole is None:
        return ""
    atoms, metals = whole
    try:
        lost = Formula(tuple(a - b for a, b in zip(atoms.counts, part.counts, strict=True)))
    except FormulaError:
        return ""
    kept = KEPT.search(subformula)
    left = [*metals]
    for symbol, n in re.findall(r"([A-Z][a-z]?)(\d*)", kept["metals"] if kept else ""):
        del left[left.index(symbol) : left.index(symbol) + int(n or 1)]
    return str(lost) + "".join(left)
