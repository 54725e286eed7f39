"""A finished run as plain values: all that the pages show, from its journal alone.

Every text that came from a file is made harmless for the eye here (no control characters, no
endless titles); the page itself never reads a text as anything but text.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial as with_arguments
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from duallgd_cli import config
from duallgd_cli.chem.identity import ACYCLIC, family_name
from duallgd_cli.chem.parts import bond_environments, matches, molecule
from duallgd_cli.errors import printable
from duallgd_cli.predict import journal
from duallgd_cli.predict.explanation import fragments_of, isotopes_of, neutral_loss
from duallgd_cli.predict.parts import bond_certainty, likely_parts, sentence, telling
from duallgd_cli.predict.settings import ENDING, PredictSettings, record_path
from duallgd_cli.ranking.one_list import Ranking, chances, predictions_of
from duallgd_cli.report.depiction import depictions
from duallgd_cli.results import (
    OK,
    Candidate,
    FeatureResult,
    HypothesisResult,
    MeasuredPeaks,
    Prediction,
)
from duallgd_cli.runtime import in_order
from duallgd_cli.writers.formats import likeness
from duallgd_cli.writers.names import Names

LARGE: Final = 1000  # features of one page; of a run of more, few candidates are drawn
_SHOWN_CANDIDATES: Final = 10
_DRAWN_OF_MANY: Final = 3
_AT_ONCE: Final = 20  # features that a process takes
_SHOWN_SCORES: Final = 4  # significant digits
_DIGITS: Final = 6  # of probabilities
_SHOWN_PARTS: Final = 12
_OF_HYPOTHESIS: Final = (
    *("log_prior", "n_peaks", "n_explained", "explained_intensity"),
    *("sampled", "assembled", "repaired", "distinct"),
)
_OF_CANDIDATE: Final = ("rank", "smiles", "inchikey", "formula", "samples")
_OF_MATCH: Final = ("library", "name", "score", "matched_peaks", "probability")
LONGEST_TEXT: Final = 300
_LONGEST_LABEL: Final = 40
_Values: TypeAlias = dict[str, Any]  # for the page


def readable(value: object, longest: int = LONGEST_TEXT) -> str:
    """A text from a file on one line, without what steers a reader's eye, cut to a length."""
    text = str(value)
    return printable(text[:longest]) + "…" * (len(text) > longest)


class ReportedRun:
    """A finished run, feature by feature, as plain values."""

    def __init__(
        self,
        runs: Sequence[Path],
        top_k: int | None = None,
        workers: int = 1,
        names: Path | None = None,
    ) -> None:
        """Open the journals of a run, by their own names or those of outputs beside them.

        Of each feature `top_k` candidates are shown, no more than the run wrote; else ten, of which
        a large run draws the first few.

        Raises:
            UsageError: A journal is missing, unfinished, or of another run.
            UnreadableError: It was ranked by another version, or the table is none.
        """
        self._run = journal.read(runs)
        self._output = runs[0].with_name(runs[0].name.removesuffix(ENDING))
        self._workers = workers
        header = self._run.header
        self.n_features = self._run.n_features
        # Families of which the best candidate is drawn, None for all; all others are listed.
        self.drawn = None if top_k or self.n_features <= LARGE else _DRAWN_OF_MANY
        self.certain = float(header.settings["certain"])
        ranking = Ranking.recorded(header.model, header.settings, self._output)
        self._calibrated_on = ranking.generated.n_spectra
        self._values = with_arguments(
            _values,
            ranking=ranking,
            top_k=int(header.settings["top_k"]),
            most=top_k or _SHOWN_CANDIDATES,
            drawn=self.drawn,
            certain=self.certain,
            names=None if names is None else Names(names),
        )
        about = [header.settings, header.model.get("sha256"), header.inputs]
        text = json.dumps(about, default=str, sort_keys=True)
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]  # the same of the same run alone

    def about(self, options: Mapping[str, str]) -> _Values:
        """What was run with what: versions, weights, inputs, settings, counts as far as known.

        Settings go by the options of the command line for them, others as ``--set`` takes them.
        """
        header, model = self._run.header, self._run.header.model
        try:
            record = json.loads(record_path(self._output).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            record = {}
        texts, of_option = dict[str, str](), defaultdict[str, set[str]](set)
        for name, value in config.flatten(json.loads(json.dumps(dict(header.settings)))).items():
            each = value if isinstance(value, list) else [value]  # files have a name
            words = (str(one["name"] if isinstance(one, dict) else one) for one in each)
            texts[name] = "by default" if value in (None, []) else readable(", ".join(words))
            of_option[options.get(name, "")].add(texts[name])
        is_setting = config.flatten(config.dump(PredictSettings())).keys()
        settings = {}
        for name, text in texts.items():
            option = options.get(name, "")
            if not option or len(of_option[option]) > 1:
                option = f"--set {name}" if name in is_setting else name
            settings[option] = text
        return {
            "output": readable(self._output.name),
            "version": readable(header.version),
            "weights": readable(model.get("name", "")),
            "weights_sha256": readable(model.get("sha256", "")),
            "remark": readable(model.get("remark", "")),
            "calibrated_on": self._calibrated_on,
            "inputs": [[readable(i["name"]), i["bytes"], i["sha256"]] for i in header.inputs],
            "settings": [*settings.items()],
            "platform": readable(record.get("platform", "")),
            **{
                name: [[*map(readable, pair)] for pair in record.get(name, {}).items()]
                for name in ("versions", "times", "notes")
            },
            "ms1": self._run.totals.get("ms1", 0),
        }

    def features(self) -> Iterator[_Values]:
        """Every feature in the order of the input, with spectra, candidates and explanations."""
        features = self._run.features()
        yield from in_order(self._values, features, self._workers, at_a_time=_AT_ONCE)


def _values(
    feature: FeatureResult,
    ranking: Ranking,
    top_k: int,
    most: int,
    drawn: int | None,
    certain: float,
    names: Names | None,
) -> _Values:
    """What is shown of a feature; of `top_k` candidates, which say the level, `most` are shown."""
    candidates, confidence_top10 = ranking.rank(feature.hypotheses)
    parts = likely_parts(feature.hypotheses, candidates)
    predictions = predictions_of(feature, candidates, confidence_top10, top_k, certain, parts)
    best = next((p for p in predictions if p.status == OK), predictions[0])
    shown = replace(best, candidates=best.candidates[:most])
    match = best.library_match
    values = {
        "number": feature.number,
        "id": readable(shown.feature_id or shown.spectrum_id),
        "name": readable(shown.name),
        "spectra_ids": [
            [readable(p.spectrum_id), readable(p.source.file), p.source.index] for p in predictions
        ],
        "mz": shown.precursor_mz,
        "rt": shown.rt_seconds,
        "intensity": feature.intensity,
        "compound": readable(shown.compound_id),
        "adduct": readable(shown.adduct),
        "formula": readable(shown.formula),
        "status": readable(shown.status),
        "confidence_top10": shown.confidence_top10,
        "remarks": [
            readable(text)
            for text in dict.fromkeys("; ".join(p.remarks for p in predictions).split("; "))
            if text and not text.startswith("read together")  # which is shown otherwise
        ],
        "isotopes": isotopes_of(feature.isotopes, shown.formula, shown.adduct),
        "hypotheses": [_hypothesis(outcome, feature.peaks) for outcome in shown.hypotheses],
        "spectra": [
            {
                "label": readable(label, _LONGEST_LABEL),
                **{"mz": np.round(mz, 5).tolist(), "intensity": np.round(heights, 5).tolist()},
            }
            for label, mz, heights in feature.peaks
        ],
        "library": _match(match) | {"mz": match["mz"], "intensity": match["intensity"]}
        if "mz" in match else None,
        **_candidates(shown, candidates, drawn, names),
        **_ladder(best, certain),
    }  # fmt: skip
    smiles = [candidate.smiles for candidate in shown.candidates]
    few, some = telling(parts, smiles), telling(parts, smiles, _SHOWN_PARTS)
    in_drawings = [one["smiles"] for one in values["candidates"] if "drawing" in one]
    return values | {
        "parts": [
            [part.name, part.kind, round(part.probability, 4),
             [sorted(set().union(*matches(part.smarts, one))) for one in in_drawings]]
            for part in some
        ],
        "other_parts": [
            [part.name, part.kind, round(part.probability, 2)]
            for part in (parts if smiles else ()) if part not in some
        ],
        "sentence": sentence(few),
        "part": [few[0].name, round(few[0].probability, 4)] if few else None,
    }  # fmt: skip


def _candidates(
    shown: Prediction, ranked: Sequence[Candidate], drawn: int | None, names: Names | None
) -> _Values:
    """Candidates that are shown, and their families; all that are `ranked` say what is certain."""
    together = defaultdict[object, list[int]](list)
    for place, one in enumerate(shown.candidates):
        together[one.family or place].append(place)
    families = list[tuple[str, float, list[int]]]()
    for members in together.values():
        first = shown.candidates[members[0]]
        name = family_name(first.family) if len(members) > 1 else ""
        families.append((name, round(first.family_confidence, _DIGITS), members))
    places = [*range(len(shown.candidates))]
    if drawn is not None:
        places = sorted(members[0] for _, _, members in families[:drawn])
    values = []
    for one in shown.candidates:
        of_one: _Values = {name: getattr(one, name) for name in _OF_CANDIDATE}
        of_one["confidence"] = round(one.confidence, _DIGITS)
        of_one["sources"] = [*map(readable, one.sources)]
        if names is not None:
            called = (readable(text) for text in names.of(one.inchikey).values())
            of_one |= zip(("name", "class"), called, strict=True)
        values.append(of_one)
    molecules = [molecule(shown.candidates[place].smiles) for place in places]
    certainty = bond_certainty(ranked, len(values))
    bonds = bond_environments([shown.candidates[place].smiles for place in places])
    in_all = set(bonds[0]).intersection(*bonds) if bonds else set()
    ions = [(one.formula, one.adduct) for one in shown.hypotheses]
    for place, mol, own in zip(places, molecules, bonds, strict=True):
        one = shown.candidates[place]
        hypothesis = ions.index((one.formula, one.adduct))
        result = shown.hypotheses[hypothesis]
        match = result.known.get("library_match", {})
        is_matched = match.get("offered") and match["inchikey"] == one.inchikey
        scores = {"score": one.score, "log_likelihood": one.log_likelihood, **one.extra_scores}
        values[place] |= {
            "adduct": one.adduct,
            "scores": [
                [name, None if value is None else float(f"{value:.{_SHOWN_SCORES}g}")]
                for name, value in scores.items()
            ],
            "hypothesis": hypothesis,
            "like": readable(likeness(shown.analogue_of(one))),
            "library_match": _match(match) if is_matched else None,
            "explains": fragments_of(mol, one.adduct, result.peaks),
            "certainty": [
                None if bond in in_all else share
                for bond, share in zip(own, certainty[place], strict=True)
            ],
        }
    for place, drawing in zip(places, depictions(molecules), strict=True):  # which changes them
        values[place]["drawing"] = drawing
    return {"candidates": values, "families": families}


def _ladder(prediction: Prediction, certain: float) -> _Values:
    """Answers from the structure to the formula with their probabilities, and which is certain."""
    if not prediction.level:
        return {"level": "", "certain": "", "schymanski": "", "ladder": []}
    candidates, parts = prediction.candidates, prediction.parts or ()
    reached = chances(prediction)
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
        words = f"the {prediction.level}".replace("the parts", "parts of the structure")
        said = f"certain to {words}: {reached[prediction.level]:.2f}"
    rungs = ((name, round(value, 4), answers.get(name)) for name, value in reached.items())
    return {
        "level": prediction.level,
        "certain": said,
        "schymanski": prediction.schymanski,
        "ladder": [rung for rung in rungs if rung[2]],
    }


def _hypothesis(result: HypothesisResult, spectra: Sequence[MeasuredPeaks]) -> _Values:
    """A formula; what it explains are rows of spectrum, peak, sub-formula, ppm, neutral loss."""
    place = {
        (np.float32(mz), height): (which, peak)
        for which, one in enumerate(spectra)
        for peak, (mz, height) in enumerate(zip(one.mz, one.intensity, strict=True))
    }
    return {
        **{name: readable(getattr(result, name)) for name in ("formula", "adduct", "status")},
        **{name: getattr(result, name) for name in _OF_HYPOTHESIS},
        "explained": [
            [
                *place[np.float32(peak.mz), peak.intensity],
                peak.formula,
                round(peak.ppm, 3),
                neutral_loss(result.formula, result.adduct, peak.formula),
            ]
            for peak in result.peaks
        ],
    }


def _match(match: Mapping[str, Any]) -> _Values:
    """The spectrum of a library that a candidate was found by."""
    values = {name: match[name] for name in _OF_MATCH if name in match}
    return {name: readable(v) if isinstance(v, str) else v for name, v in values.items()}
