"""Assess predictions against the truth: scores, groups, calibration, and what is missing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.calibration import Reliability, reliability
from duallgd_cli.evaluate.parts import Part, parts
from duallgd_cli.evaluate.scoring import Entry, Scorer, Scores, Summary, score
from duallgd_cli.evaluate.stratify import Stratum, similarity_strata, strata
from duallgd_cli.evaluate.tables import Predicted, Truth

NOT_PREDICTED = "not_predicted"


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """Everything that was found out about one set of predictions.

    Attributes:
        truths: The spectra, in the order of `scores`.
        scores: Of each spectrum.
        summary: Means and intervals by column.
        statuses: Spectra by the predictions' status; ``not_predicted`` where they have no row.
        unknown: Predicted spectra that the truth does not have; they are left out.
        groups: Metrics of groups of spectra.
        parts: Of the test set, such as those of the public benchmarks; may overlap.
        notes: What else is known of each spectrum, by name, as long as `truths`; None where a
            number does not exist.
        calibration: By what is calibrated: ``confidence`` of the first candidate, and
            ``confidence_top10``, each only where the predictions state it.
    """

    truths: tuple[Truth, ...]
    scores: Scores
    summary: Mapping[str, Summary]
    statuses: Mapping[str, int]
    unknown: int
    groups: tuple[Stratum, ...]
    calibration: Mapping[str, Reliability] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    notes: Mapping[str, Sequence[object]] = field(default_factory=dict)

    @property
    def molecules(self) -> int:
        """Distinct true molecules."""
        return len(set(self.scores.molecule))


@dataclass(frozen=True, slots=True)
class Extra:
    """What is known of spectra beyond a table of predictions, by spectrum; any may be missing.

    Attributes:
        explained_peaks: Peaks with a sub-formula.
        nearest_training: Tanimoto similarity to the nearest training molecule.
        confidence_top10: Stated probability that the first ten hold the right structure.
        seconds: Wall time of the prediction.
    """

    explained_peaks: Mapping[str, float] = field(default_factory=dict)
    nearest_training: Mapping[str, float] = field(default_factory=dict)
    confidence_top10: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def assess(
    truths: Sequence[Truth],
    predicted: Mapping[str, Predicted],
    scorer: Scorer,
    extra: Extra | None = None,
    advance: Callable[[int], None] = lambda done: None,
    *,
    seed: int = 0,
) -> Assessment:
    """Score predictions; a spectrum of the truth without predictions counts as wrong.

    Args:
        truths: What the spectra are.
        predicted: Ranked structures by spectrum.
        scorer: What to compute.
        extra: Further numbers about the spectra.
        advance: Called with the number of spectra scored.
        seed: Of the bootstrap.

    Raises:
        UsageError: Not one identifier of the truth is among the predictions.
    """
    extra = extra or Extra()
    names = {truth.spectrum_id for truth in truths}
    if not names & set(predicted):
        raise UsageError(
            f"none of the {len(names)} spectra of the truth is among the {len(predicted)} "
            f"predicted ones; identifiers look like {next(iter(names), '')!r} there and "
            f"{next(iter(predicted), '')!r} here"
        )
    nothing = Predicted((), (), NOT_PREDICTED)
    found = [predicted.get(truth.spectrum_id, nothing) for truth in truths]
    entries = [
        Entry(truth.spectrum_id, truth.molecule, truth.smiles, ranked.smiles)
        for truth, ranked in zip(truths, found, strict=True)
    ]
    scores = score(entries, scorer, advance)
    groups = strata(
        scores,
        truths,
        headline(scorer),
        {"explained_peaks": extra.explained_peaks, "nearest_training": extra.nearest_training},
        seed=seed,
    )
    apart = parts(scores, truths, seed=seed)
    for part in apart if extra.nearest_training else ():
        inside = [truth for truth, kept in zip(truths, part.keep, strict=True) if kept]
        groups += similarity_strata(
            scores.subset(part.keep),
            inside,
            headline(scorer),
            extra.nearest_training,
            by=f"nearest_training_{part.name}",
            seed=seed,
        )
    return Assessment(
        truths=tuple(truths),
        scores=scores,
        summary=scores.summary(seed),
        statuses=dict(Counter(ranked.status for ranked in found).most_common()),
        unknown=len(set(predicted) - names),
        groups=tuple(groups),
        calibration=_calibration(scores, found, extra, seed),
        parts=tuple(apart),
        notes=_notes(truths, found, extra),
    )


def headline(scorer: Scorer) -> list[str]:
    """The columns that tables show: accuracy, MCES and Tanimoto for each k."""
    kinds = ("accuracy", "mces", "tanimoto") if scorer.mces else ("accuracy", "tanimoto")
    return [f"{kind}@{k}" for k in scorer.top_k for kind in kinds]


def _notes(
    truths: Sequence[Truth], found: Sequence[Predicted], extra: Extra
) -> dict[str, list[object]]:
    by_spectrum = {
        "confidence_top10": extra.confidence_top10,
        "explained_peaks": extra.explained_peaks,
        "nearest_training": extra.nearest_training,
        "seconds": extra.seconds,
    }
    stated = [ranked.confidence[0] if ranked.confidence else float("nan") for ranked in found]
    return {
        "status": [ranked.status for ranked in found],
        "confidence": [value if isfinite(value) else None for value in stated],
        **{
            name: [values.get(truth.spectrum_id) for truth in truths]
            for name, values in by_spectrum.items()
        },
    }


def _calibration(
    scores: Scores, found: Sequence[Predicted], extra: Extra, seed: int
) -> dict[str, Reliability]:
    nan = float("nan")
    stated = {
        "confidence": ([ranked.confidence[0] if ranked.confidence else nan for ranked in found], 1),
        "confidence_top10": ([extra.confidence_top10.get(i, nan) for i in scores.spectrum_id], 10),
    }
    tables = {}
    for name, (probability, k) in stated.items():
        right = scores.columns.get(f"accuracy@{k}")
        if right is None:
            continue
        table = reliability(np.array(probability), right, scores.molecule, seed=seed)
        if table is not None:
            tables[name] = table
    return tables
