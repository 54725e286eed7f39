"""Several values of one setting, compared: what speed costs in quality.

Every value is an evaluation in a folder of its own. The report of the sweep is that of its last
value, the rows that compare them added.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from duallgd_cli.evaluate.report import make_folder, write_results, write_table
from duallgd_cli.evaluate.settings import EvaluateSettings

SWEEP: Final = "sweep.tsv"


def swept(
    settings: EvaluateSettings, evaluate: Callable[[EvaluateSettings], dict[str, Any] | None]
) -> dict[str, Any]:
    """Evaluate every value; returns what results.json of the sweep holds.

    Args:
        settings: With a sweep.
        evaluate: Predicts and scores a benchmark under the settings of one value.

    Raises:
        UsageError: The folder cannot be made or written.
    """
    assert settings.sweep is not None
    make_folder(settings.folder)
    setting, values = settings.sweep
    runs = []
    for value in values:
        one = _with_value(settings, setting, value)
        found = evaluate(one)
        assert found is not None  # no shard
        runs.append(found)
    # Those that a report writes; the spectra and their truth lie in the folder of each value.
    for path in one.folder.glob("*.tsv"):
        if path.name not in ("spectra.tsv", "truth.tsv"):
            shutil.copyfile(path, settings.folder / path.name)
    rows = _compared(values, runs)
    write_table(settings.folder / SWEEP, _table_rows(rows), runs[-1]["track"])
    found = {**runs[-1], "sweep": {"setting": setting, "rows": rows}}
    write_results(settings.folder, found)
    return found


def _with_value(settings: EvaluateSettings, setting: str, value: int) -> EvaluateSettings:
    """The settings of one value of a sweep: a folder of its own, and no rivals."""
    before = settings.prediction.sampling
    sampling = (
        replace(before, steps=value) if setting == "steps" else replace(before, samples=value)
    )
    return replace(
        settings,
        out=settings.folder / f"{setting}-{value}",
        prediction=replace(settings.prediction, sampling=sampling),
        rivals=False,
        decompose=False,
    )


def _compared(values: Sequence[int], runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Speed-up, in seconds a spectrum relative to the slowest value, and quality of every value."""
    predictions = [run["prediction"] for run in runs]
    # Of the clock where every run went through at one go; else the mean of the spectra's own
    # times, which overlap where one is assembled while the next is drawn.
    seconds = [prediction["run_seconds_per_spectrum"] for prediction in predictions]
    if None in seconds:
        seconds = [prediction["samples"]["seconds_per_spectrum"] for prediction in predictions]
    rows: list[dict[str, Any]] = [
        {
            "value": value,
            "seconds_per_spectrum": taken,
            "speed_up": max(seconds) / taken if taken > 0 else 1.0,
            "metrics": {
                name: ways["per_spectrum"] for name, ways in run["metrics"].items() if "@" in name
            },
        }
        for value, taken, run in zip(values, seconds, runs, strict=True)
    ]
    fronts = {name: front(rows, name) for name in rows[0]["metrics"]}
    return [
        {**row, "on_front": [name for name, on in fronts.items() if row["value"] in on]}
        for row in rows
    ]


def front(rows: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    """Values on the Pareto front of speed and one metric: no faster value is as good.

    Args:
        rows: With ``value``, ``speed_up`` and the means of ``metrics``.
        name: Of the metric; distances are better the smaller they are.
    """
    sign = -1.0 if "mces" in name else 1.0
    best, values = float("-inf"), []
    for row in sorted(rows, key=lambda row: -row["speed_up"]):
        quality = sign * row["metrics"][name]["mean"]
        if quality > best:
            best = quality
            values.append(row["value"])
    return values


def _table_rows(rows: Sequence[Mapping[str, Any]]) -> Iterable[list[object]]:
    names = list(rows[0]["metrics"])
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    yield ["value", "seconds_per_spectrum", "speed_up", "on_front", *ends]
    for row in rows:
        values = [row["metrics"][name][end] for name in names for end in ("mean", "low", "high")]
        cells = [row["value"], row["seconds_per_spectrum"], row["speed_up"]]
        yield [*cells, ",".join(row["on_front"]), *values]
