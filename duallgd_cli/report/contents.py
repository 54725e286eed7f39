"""A finished run as plain values: all that the pages show, and the one module that reads it.

Which fragments of a candidate explain which peaks is what the page marks under the pointer; the
fragments are those of the fragmentation score, so that it shows what was scored.

Every text that came from a file is made harmless for the eye here (no control characters, no
endless titles); the page itself never reads a text as anything but text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli import config
from duallgd_cli.chem.adduct import parent_formula, parse_adduct
from duallgd_cli.chem.elements import METALS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.chem.parts import matches
from duallgd_cli.data.fragmentation import CARRIED, explaining_fragments, fragments
from duallgd_cli.data.molecular_graph import graph_of_bonds
from duallgd_cli.errors import (
    Failure,
    FormulaError,
    MoleculeError,
    UnreadableError,
    printable,
)
from duallgd_cli.predict import journal
from duallgd_cli.predict.ladder import with_level
from duallgd_cli.predict.one_list import Ranking
from duallgd_cli.predict.parts import bond_certainty, likely_parts, sentence, telling
from duallgd_cli.predict.prediction import (
    OK,
    Candidate,
    HypothesisResult,
    LikelyPart,
    Prediction,
    Results,
    predictions_of,
)
from duallgd_cli.predict.run import record_path
from duallgd_cli.predict.settings import CERTAIN
from duallgd_cli.report.depiction import depictions
from duallgd_cli.spectra.features import CleaningSettings, Inputs, clean
from duallgd_cli.spectra.reading import read
from duallgd_cli.spectra.types import Source, Spectrum
from duallgd_cli.writers.formats import likeness

LONGEST_TEXT: Final = 300
_SHOWN_SCORES: Final = 4
_SHOWN_PARTS: Final = 12
# How a sub-formula ends that keeps metals or more than one charge.
_KEPT: Final = re.compile(rf"(?P<metals>(?:(?:{'|'.join(METALS)})\d?)*)(?:[+-]\d)?$")


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
    """A finished run, feature by feature, as plain values."""

    def __init__(self, names: Sequence[Path], top_k: int = 10) -> None:
        """Open the journals of a run.

        Args:
            names: Outputs that have journals beside them, or journals.
            top_k: Candidates shown of each feature; no more than the run wrote.

        Raises:
            UsageError: A journal is missing, unfinished, or of another run.
            UnreadableError: It was ranked by another version.
        """
        self._run = journal.read(names)
        self._output = names[0].with_name(names[0].name.removesuffix(".journal.jsonl"))
        self._header = self._run.header
        self._ranking = Ranking.recorded(self._header.model, self._header.settings, self._output)
        self._top_k = min(top_k, int(self._header.settings["top_k"]))
        self._certain = float(self._header.settings.get("certain", CERTAIN))
        self.missing_inputs: list[str] = []

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
            "calibrated_on": self._ranking.generated.n_spectra,
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
        measured = self._measured()
        for results in self._run.features():
            candidates, confidence_top10 = self._ranking.rank(results)
            ranked = predictions_of(results, candidates, confidence_top10, self._top_k)
            predictions = [*with_level(ranked, self._certain)]
            shown = next((p for p in predictions if p.status == OK), predictions[0])
            spectra = [measured[one.source] for one in results[0].spectra if one.source in measured]
            feature = _feature(results[0].feature, predictions, shown, spectra)
            found = likely_parts(results, candidates) if shown.candidates else ()
            certainty = bond_certainty(candidates, len(shown.candidates))
            for values, of_bonds in zip(feature["candidates"], certainty, strict=True):
                values["certainty"] = of_bonds
            yield feature | _parts(found, shown.candidates)

    def _measured(self) -> dict[Source, _Peaks]:
        """Cleaned spectra of the inputs that are still what they were; the others are named."""
        settings = config.parse(CleaningSettings, self._header.settings["cleaning"])
        found: dict[Source, _Peaks] = {}
        for entry in self._header.inputs:
            name = str(entry["name"])
            try:
                is_unchanged = Path(name).is_file() and Inputs((name,)).identity() == (entry,)
            except UnreadableError:
                is_unchanged = False
            if not is_unchanged:
                self.missing_inputs.append(readable(name))
                continue
            for item in read(name):
                cleaned = clean(item, settings)
                if cleaned.failure is None:
                    found[cleaned.source] = _peaks(cleaned)
        return found


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
    number: int, predictions: Sequence[Prediction], shown: Prediction, spectra: Sequence[_Peaks]
) -> dict[str, Any]:
    candidates = shown.candidates
    spectra = _shown_spectra(shown.hypotheses, spectra)
    drawings = depictions([candidate.smiles for candidate in candidates])
    return {
        "number": number,
        "id": readable(shown.feature_id or shown.spectrum_id),
        "spectra_ids": [
            [readable(p.spectrum_id), readable(p.source.file), p.source.index] for p in predictions
        ],
        "mz": shown.precursor_mz,
        "adduct": readable(shown.adduct),
        "formula": readable(shown.formula),
        "status": readable(shown.status),
        "confidence_top10": shown.confidence_top10,
        "remarks": _remarks(predictions),
        "hypotheses": [_hypothesis(outcome, spectra) for outcome in shown.hypotheses],
        "spectra": [spectrum.values() for spectrum in spectra],
        "candidates": [
            {**_candidate(candidate, shown.hypotheses), "drawing": drawing}
            for candidate, drawing in zip(candidates, drawings, strict=True)
        ],
    }


def _parts(parts: Sequence[LikelyPart], candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Parts that say most, with their atoms in each candidate, the three first of them in words.

    All others are listed by name, kind and probability alone.
    """
    smiles = [candidate.smiles for candidate in candidates]
    few, shown = telling(parts, smiles), telling(parts, smiles, _SHOWN_PARTS)
    return {
        "parts": [
            [
                part.name,
                part.kind,
                round(part.probability, 4),
                [sorted(set().union(*matches(part.smarts, one))) for one in smiles],
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
            peak.ppm,
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


def _candidate(candidate: Candidate, outcomes: Results) -> dict[str, Any]:
    hypothesis = next(
        place
        for place, outcome in enumerate(outcomes)
        if (outcome.formula, outcome.adduct) == (candidate.formula, candidate.adduct)
    )
    subformulas = [peak.formula for peak in outcomes[hypothesis].peaks]
    analogues = outcomes[hypothesis].known.get("analogues", {})
    return {
        "rank": candidate.rank,
        "smiles": candidate.smiles,
        "inchikey": candidate.inchikey,
        "formula": candidate.formula,
        "adduct": candidate.adduct,
        "samples": candidate.samples,
        "score": _short(candidate.score),
        "log_likelihood": None if (ll := candidate.log_likelihood) is None else _short(ll),
        "confidence": candidate.confidence,
        "scores": [[name, _short(value)] for name, value in candidate.extra_scores.items()],
        "hypothesis": hypothesis,
        "like": readable(likeness(analogues.get(candidate.inchikey14, {}))),
        "explains": explained_by(candidate.smiles, candidate.adduct, subformulas),
    }


def _short(value: float) -> float:
    return float(np.format_float_positional(value, _SHOWN_SCORES, fractional=False))


@lru_cache(maxsize=10_000)  # the candidates of a feature are asked for the same ones
def subformula_of(text: str) -> Formula | None:
    """A sub-formula as journals write it, without the metals and charge it may end with."""
    try:
        return Formula.parse(_KEPT.sub("", text))
    except FormulaError:
        return None


def neutral_loss(formula: str, adduct: str, subformula: str) -> str:
    """What an ion has lost where a fragment of this sub-formula is left, "" where that is unclear.

    Args:
        formula: Of the molecule.
        adduct: Name of the adduct.
        subformula: Of the fragment.
    """
    part, ion = subformula_of(subformula), parse_adduct(adduct)
    if part is None or isinstance(ion, Failure):
        return ""
    try:
        whole = parent_formula(Formula.parse(formula), ion)
        lost = Formula(tuple(a - b for a, b in zip(whole.counts, part.counts, strict=True)))
    except FormulaError:
        return ""
    kept = _KEPT.search(subformula)
    left = [*ion.metals]
    for symbol, n in re.findall(r"([A-Z][a-z]?)(\d*)", kept["metals"] if kept else ""):
        del left[left.index(symbol) : left.index(symbol) + int(n or 1)]
    return str(lost) + "".join(left)


def explained_by(smiles: str, adduct: str, subformulas: Sequence[str]) -> list[list[Any]]:
    """The sub-formulas that fragments of a candidate explain.

    Args:
        smiles: The candidate.
        adduct: Name of the adduct; of other adducts than `CARRIED` the charge's sign decides.
        subformulas: Of the explained peaks.

    Returns:
        Pairs of a place among `subformulas` and the fragment's atoms, by their RDKit numbers.
    """
    parsed = [(place, subformula_of(text)) for place, text in enumerate(subformulas)]
    known = [(place, formula) for place, formula in parsed if formula is not None]
    ion = parse_adduct(adduct)
    try:
        whole = disassemble(parse_smiles(smiles))
    except MoleculeError:
        return []
    graph = graph_of_bonds(whole.formula, whole.bond_class)
    if isinstance(ion, Failure) or not known or not len(graph.pair):
        return []
    found = fragments(graph, np.random.default_rng(0))  # as the fragmentation score draws them
    carried = 0 if ion.metals else CARRIED.get(ion.index, ion.polarity)
    rows, which, _ = explaining_fragments(found, carried, np.stack([f.array for _, f in known]))
    return [
        [known[row][0], sorted(whole.order[found.inside[fragment]].tolist())]
        for row, fragment in zip(rows.tolist(), which.tolist(), strict=True)
    ]
