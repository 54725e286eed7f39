"""`duallgd formulas`: the ranked formulas of each feature as rows, without any network."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from duallgd_cli.chem.adduct import Adduct, parse_adduct
from duallgd_cli.errors import Failure, UsageError
from duallgd_cli.files import claim
from duallgd_cli.formulas import rank_formulas, remarks
from duallgd_cli.predict.run import RunSummary
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.results import OK, references, sentences
from duallgd_cli.spectra.cleaning import CleaningSettings, clean, resolved
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.types import PREDICTED, Feature
from duallgd_cli.writers.formats import SPECTRUM_COLUMNS, resolve_format, table, write_pieces

COLUMNS: Final = (
    *SPECTRUM_COLUMNS, "rank", "formula", "probability", "ppm", "explained_intensity",
    "explained_peaks", "known_structures", "isotope_score", "status", "message", "adduct_source",
    "assumptions",
)  # fmt: skip


def write_formulas(request: PredictRequest) -> RunSummary:
    """Rank the formulas of every feature and write them as they come.

    Raises:
        UsageError: The output is impossible, or would cost the user a file.
        MissingInputError: An input does not exist.
        UnreadableError: Nothing can be read.
    """
    output_format = resolve_format(request.output, request.format)
    if output_format in {"sdf", "mztab"}:
        raise UsageError(
            f"formulas are written as csv, tsv or jsonl; {output_format} holds structures"
        )
    settings = request.settings
    summary, started = RunSummary(request.output), time.perf_counter()
    with Inputs(request.inputs) as inputs:
        claim({"the output": request.output}, request.inputs, force=request.force)
        features = inputs.features(*settings.grouping)
        rows = (row for item in features for row in _rows(item, settings, summary))
        write_pieces(table(COLUMNS, rows, output_format), request.output)
    return replace(summary, n_ms1=inputs.n_ms1, seconds=time.perf_counter() - started)


def _rows(
    item: Feature, settings: PredictSettings, summary: RunSummary
) -> Iterator[Mapping[str, Any]]:
    """Rows of a feature, at least one."""
    same = ("spectrum_id", "feature_id", "scans", "precursor_mz", "adduct_source")
    named = dict.fromkeys(COLUMNS) | {
        **{name: getattr(item.first, name) for name in same},
        "file": item.first.source.file,
        "index": item.first.source.index,
        "adduct": item.first.adduct_text,
        "assumptions": sentences(*item.first.assumptions),
    }
    if not item.first.adduct_text:
        named["adduct_source"] = ""
    measured = tuple(resolved(clean(one, CleaningSettings())) for one in item.spectra)
    with_peaks = tuple(one for one in measured if one.failure is None)
    bare = tuple(one for one in measured if one.failure and one.failure.status == "no_peaks")
    used = with_peaks or bare or measured
    feature = Feature(used)
    ranked = (feature.first.failure if used is measured else None) or rank_formulas(
        feature, settings.formula_search
    )
    said = [*feature.first.warnings]
    if not isinstance(ranked, Failure):
        spectrum = feature.first
        adduct = parse_adduct(spectrum.adduct_text)
        said += [adduct.note] if isinstance(adduct, Adduct) else []
        if not spectrum.adduct_text:
            mode = {1: "of positive ions ", -1: "of negative ions "}.get(spectrum.polarity, "")
            said.append(f"no adduct is given: all {mode}were tried")
        said += remarks(feature, ranked)
    else:  # what it repeats is said once
        said = [text for text in said if text not in ranked.message]
    others = ", ".join(str(other.source.index) for other in references(item.spectra)[1:])
    together = f"read together with index {others}" if others else ""
    left_out = [
        f"index {one.source.index} is left out: {one.failure.message}"
        for one in measured
        if one.failure and one not in used
    ]
    message = sentences(*said, together, *left_out)
    if isinstance(ranked, Failure):
        summary.counts[ranked.status] += 1
        summary.messages.setdefault(ranked.status, ranked.message)
        yield named | {"status": ranked.status, "message": sentences(ranked.message, message)}
        return
    summary.counts[OK] += 1
    summary.n_candidates += len(ranked[: settings.top_k])
    for number, one in enumerate(ranked[: settings.top_k], start=1):
        yield named | {
            "adduct": one.adduct.name,
            "rank": number,
            "formula": str(one.formula),
            "probability": float(f"{one.probability:.4g}"),
            "ppm": round(one.ppm, 2),
            "explained_intensity": round(one.explained_intensity, 4),
            "explained_peaks": one.explained_peaks,
            "known_structures": one.known_structures,
            "adduct_source": named["adduct_source"] or PREDICTED,
            "isotope_score": None if one.isotope_score is None else round(one.isotope_score, 2),
            "status": OK,
            "message": message,
        }
