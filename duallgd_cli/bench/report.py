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
from duallgd_cli.bench.accuracy import Assessment
from duallgd_cli.bench.suites.published import Published
from duallgd_cli.evaluation.calibration import Reliability
from duallgd_cli.evaluation.scoring import Scorer
from duallgd_cli.evaluation.stratify import Stratum
from duallgd_cli.inference.writers import write_atomically

RESULTS: Final = "results.json"
PER_SPECTRUM: Final = "per_spectrum.tsv"
GROUPS: Final = "groups.tsv"
CALIBRATION: Final = "calibration.tsv"
_FORMAT: Final = "duallgd-results-1"
_LIBRARIES: Final = ("torch", "numpy", "rdkit", "myopic_mces", "highspy")


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
    """

    title: str
    track: str
    data: Mapping[str, Any]
    prediction: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    published: Sequence[Published] = ()


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
            "top_k": list(scorer.top_k),
            "match": "first block of the InChIKey",
            "tanimoto": "Morgan radius 2, 2048 bits",
            "mces": "myopic-mces, threshold 15, always_stronger_bound, capped at 100",
            "mces_limit_s": scorer.mces_limit_s,
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
        "metrics": {name: asdict(found) for name, found in assessment.summary.items()},
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
    tables = {
        PER_SPECTRUM: _per_spectrum(assessment),
        GROUPS: _groups(assessment.groups),
        CALIBRATION: _reliability(assessment.calibration),
    }
    text = json.dumps(finite(found), indent=2, ensure_ascii=False)
    write_atomically(directory / RESULTS, [text + "\n"])
    for name, rows in tables.items():
        write_atomically(directory / name, tsv(rows))
    return {name: directory / name for name in (RESULTS, *tables)}


def tsv(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a tab-separated table; numbers with six digits."""
    for row in rows:
        yield "\t".join(_cell(value) for value in row) + "\n"


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split_hash(spectrum_ids: Iterable[str]) -> str:
    """SHA-256 of the sorted identifiers: two results with the same one scored the same spectra."""
    return hashlib.sha256("\n".join(sorted(spectrum_ids)).encode()).hexdigest()


def _per_spectrum(assessment: Assessment) -> Iterator[Sequence[object]]:
    scores = assessment.scores
    names = list(scores.columns)
    yield ["spectrum_id", "molecule", "smiles", *names]
    for row, truth in enumerate(assessment.truths):
        values = [float(scores.columns[name][row]) for name in names]
        yield [truth.spectrum_id, truth.molecule, truth.smiles, *values]


def _groups(groups: Sequence[Stratum]) -> Iterator[Sequence[object]]:
    names = list(groups[0].estimates) if groups else []
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    yield ["by", "group", "spectra", "molecules", *ends]
    for group in groups:
        parts = [
            value
            for name in names
            for value in (
                group.estimates[name].mean,
                group.estimates[name].low,
                group.estimates[name].high,
            )
        ]
        yield [group.by, group.label, group.spectra, group.molecules, *parts]


def _reliability(tables: Mapping[str, Reliability]) -> Iterator[Sequence[object]]:
    yield ["of", "cases", "stated", "observed", "observed_low", "observed_high"]
    for name, table in tables.items():
        for part in table.bins:
            observed = part.observed
            yield [name, part.count, part.stated, observed.mean, observed.low, observed.high]


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
