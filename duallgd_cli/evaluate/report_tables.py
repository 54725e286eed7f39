"""Tables of an evaluation as rows for TSV files."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duallgd_cli.evaluate.accuracy import Assessment
from duallgd_cli.evaluate.calibration import Reliability
from duallgd_cli.evaluate.stratify import Stratum

Rows = Iterator[Sequence[object]]

_ENDS = ("mean", "low", "high")
_KINDS = ("per_spectrum", "per_molecule", "independent")
ALL = "all"


def per_spectrum(assessment: Assessment) -> Rows:
    """One row a spectrum: its scores, and what else is known of it."""
    scores = assessment.scores
    names, notes = list(scores.columns), list(assessment.notes)
    yield ["spectrum_id", "molecule", "smiles", *names, *notes]
    for row, truth in enumerate(assessment.truths):
        values = [float(scores.columns[name][row]) for name in names]
        known = [assessment.notes[name][row] for name in notes]
        cells = ["" if value is None else value for value in known]
        yield [truth.spectrum_id, truth.molecule, truth.smiles, *values, *cells]


def metrics(found: Mapping[str, Any]) -> Rows:
    """One row a metric, of all spectra and of each part, with all three kinds of intervals."""
    ends = [kind if end == "mean" else f"{kind}_{end}" for kind in _KINDS for end in _ENDS]
    yield ["part", "spectra", "molecules", "metric", *ends]
    for part in ({"name": ALL, **found}, *found["parts"]):
        for name, kinds in part["metrics"].items():
            values = [kinds[kind][end] for kind in _KINDS for end in _ENDS]
            yield [part["name"], part["spectra"], part["molecules"], name, *values]


def rivals(found: Mapping[str, Any]) -> Rows:
    """One row a rival and metric: its mean over spectra, and ours minus it."""
    ends = [f"{prefix}{end}" for prefix in ("", "ours_minus_theirs_") for end in _ENDS]
    yield ["rival", "part", "metric", *ends]
    for rival, record in found["rivals"].items():
        for part, numbers in ({ALL: record} | record["parts"]).items():
            for name, kinds in numbers["metrics"].items():
                estimates = (kinds["per_spectrum"], numbers["ours_minus_theirs"][name])
                yield [rival, part, name, *(e[end] for e in estimates for end in _ENDS)]


def decomposition(found: Mapping[str, Any]) -> Rows:
    """One row a step from the perfect bond matrix to the first candidate."""
    yield ["step", "share_right", "low", "high"]
    for name, share in found["decomposition"].items():
        yield [name, *(share[end] for end in _ENDS)]


def groups(strata: Sequence[Stratum]) -> Rows:
    """One row a group of spectra."""
    names = list(strata[0].estimates) if strata else []
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    yield ["by", "group", "spectra", "molecules", *ends]
    for group in strata:
        estimates = [group.estimates[name] for name in names]
        values = [value for e in estimates for value in (e.mean, e.low, e.high)]
        yield [group.by, group.label, group.spectra, group.molecules, *values]


def reliability(tables: Mapping[str, Reliability]) -> Rows:
    """One row a bin of stated probability."""
    yield ["of", "cases", "stated", "observed", "observed_low", "observed_high"]
    for name, table in tables.items():
        for part in table.bins:
            observed = part.observed
            yield [name, part.count, part.stated, observed.mean, observed.low, observed.high]
