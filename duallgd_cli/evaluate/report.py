"""The files of an evaluation: results.json, tables as TSV, and plots."""

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from duallgd_cli import __version__
from duallgd_cli.evaluate import report_tables as tables
from duallgd_cli.evaluate.accuracy import Assessment
from duallgd_cli.evaluate.parts import Part
from duallgd_cli.evaluate.scoring import Scorer
from duallgd_cli.evaluate.suites.published import Published
from duallgd_cli.files import write_atomically

RESULTS: Final = "results.json"
PER_SPECTRUM: Final = "per_spectrum.tsv"
GROUPS: Final = "groups.tsv"
CALIBRATION: Final = "calibration.tsv"
METRICS: Final = "metrics.tsv"
RIVALS: Final = "rivals.tsv"
DECOMPOSITION: Final = "decomposition.tsv"
REFERENCE_RULES: Final = (
    "by the rules of the authors' code: match of the whole InChI among distinct valid InChIs, "
    "Tanimoto and MCES of canonical tautomers, MCES at most twice the bonds of the truth"
)
_FORMAT: Final = "duallgd-results-1"
_LIBRARIES: Final = ("torch", "numpy", "scipy", "rdkit")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where numbers come from; all of it goes into results.json.

    Attributes:
        title: Name of the data, as it may be called.
        track: ``formula known``, ``formula predicted`` or ``not stated``.
        data: Files with their hashes, fold and choice of spectra.
        prediction: Settings, weights and seed of the predictions, as far as known.
        remarks: Sentences that must accompany the numbers, such as an allowed leakage.
        published: Rows of others on the same benchmark.
        seed: Of the bootstrap.
    """

    title: str
    track: str
    data: Mapping[str, Any]
    prediction: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    published: Sequence[Published] = ()
    seed: int = 0


def results(assessment: Assessment, scorer: Scorer, provenance: Provenance) -> dict[str, Any]:
    """All numbers of an assessment, as plain values for JSON."""
    scores = assessment.scores
    return {
        "format": _FORMAT,
        "duallgd": __version__,
        "versions": {"python": platform.python_version(), **_versions()},
        "title": provenance.title,
        "track": provenance.track,
        "remarks": list(provenance.remarks),
        "data": {**provenance.data, "split_sha256": split_hash(scores.spectrum_id)},
        "prediction": dict(provenance.prediction),
        "scoring": {
            **({"reference_columns": REFERENCE_RULES} if scorer.reference else {}),
            "top_k": list(scorer.top_k),
            "match": "first block of the InChIKey",
            "tanimoto": "Morgan radius 2, 2048 bits",
            "mces": "myopic-mces, threshold 15, always_stronger_bound, capped at 100",
            "mces_limit_s": scorer.mces_limit_s,
            "seed": provenance.seed,
            "interval": "95 %, bootstrap, 2000 draws; molecules resampled unless `independent`",
        },
        "spectra": len(scores),
        "molecules": assessment.molecules,
        "statuses": dict(assessment.statuses),
        "predicted_but_not_in_truth": assessment.unknown,
        "mces_work": {
            name: {"pairs": len(work.needed), "timeouts": len(work.timeouts)}
            for name, work in scores.mces_work.items()
        },
        "candidates": _candidates(assessment),
        "metrics": {name: asdict(found) for name, found in assessment.summary.items()},
        "parts": [_part(part) for part in assessment.parts],
        "groups": [asdict(group) for group in assessment.groups],
        "published": [asdict(row) for row in provenance.published],
        "calibration": {name: asdict(table) for name, table in assessment.calibration.items()},
    }


def write_results(
    directory: Path, assessment: Assessment, found: Mapping[str, Any]
) -> dict[str, Path]:
    """Write results.json and the tables; returns what was written by kind.

    Args:
        directory: Exists.
        assessment: Behind the tables.
        found: What `results` made of it, possibly with more added.

    Raises:
        UsageError: A file cannot be written.
    """
    written = {
        PER_SPECTRUM: tables.per_spectrum(assessment),
        METRICS: tables.metrics(found),
        GROUPS: tables.groups(assessment.groups),
        CALIBRATION: tables.reliability(assessment.calibration),
        RIVALS: tables.rivals(found),
        DECOMPOSITION: tables.decomposition(found),
    }
    text = json.dumps(finite(found), indent=2, ensure_ascii=False)
    write_atomically(directory / RESULTS, [text + "\n"])
    for name, rows in written.items():
        write_atomically(directory / name, tsv(rows))
    return {name: directory / name for name in (RESULTS, *written)}


def tsv(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a tab-separated table; numbers with six digits."""
    for row in rows:
        yield "\t".join(_cell(value) for value in row) + "\n"


def split_hash(spectrum_ids: Iterable[str]) -> str:
    """SHA-256 of the sorted identifiers: two results with the same one scored the same spectra."""
    return hashlib.sha256("\n".join(sorted(spectrum_ids)).encode()).hexdigest()


def _candidates(assessment: Assessment) -> dict[str, float]:
    """Shares of all candidates that were given."""
    sums = {
        name: float(assessment.scores.columns[name].sum())
        for name in ("candidates", "valid", "formula_exact", "distinct")
    }
    total = sums.pop("candidates")
    return {"total": total} | {f"{n}_share": value / max(total, 1.0) for n, value in sums.items()}


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "title": part.title,
        "spectra": int(part.keep.sum()),
        "molecules": part.molecules,
        "metrics": {name: asdict(found) for name, found in part.summary.items()},
    }


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())


def finite(value: object) -> object:
    """JSON has no NaN: a number that does not exist becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _versions() -> dict[str, str]:
    found = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return found
