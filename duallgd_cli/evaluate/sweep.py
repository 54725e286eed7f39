"""Speed against quality: the same benchmark with several values of one sampling setting."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.benchmark import BenchmarkRequest, check, run_benchmark
from duallgd_cli.evaluate.plots import write_plots
from duallgd_cli.evaluate.report import tsv, write_results
from duallgd_cli.evaluate.run import Advance, Evaluated, make_folder, no_progress
from duallgd_cli.files import write_atomically
from duallgd_cli.predict.generation import LoadedModel
from duallgd_cli.predict.run import Progress

SETTINGS: Final = ("steps", "samples")
SWEEP: Final = "sweep.tsv"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values of one setting.

    Attributes:
        setting: ``steps`` or ``samples``.
        values: Ascending and distinct.
    """

    setting: str
    values: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Sweep":
        """Read ``steps=1,2,5``.

        Raises:
            UsageError: The text is not of that form.
        """
        setting, _, listed = text.partition("=")
        parts = [part.strip() for part in listed.split(",")]
        if setting.strip() not in SETTINGS or not all(p.isdigit() and int(p) for p in parts):
            raise UsageError(f"--sweep {text!r} is not like steps=1,2,5 or samples=10,100")
        return cls(setting.strip(), tuple(sorted({int(part) for part in parts})))

    def applied(self, sampling: SamplingSettings, value: int) -> SamplingSettings:
        """The settings with one of the values."""
        if self.setting == "steps":
            return replace(sampling, steps=value)
        return replace(sampling, samples=value)


def run_sweep(
    request: BenchmarkRequest,
    sweep: Sweep,
    model: LoadedModel,
    progress: Progress | None = None,
    advance: Advance = no_progress,
) -> Evaluated:
    """Evaluate every value in a folder of its own; the report is the last value's plus the sweep.

    Speed-up is in seconds a spectrum, relative to the slowest value of the same run.

    Args:
        request: The benchmark; its output folder holds those of the values.
        sweep: What varies.
        model: Predicts.
        progress: Told how each prediction goes.
        advance: Called with the number of spectra scored and of all.

    Raises:
        UsageError: A shard is asked for, or as `run_benchmark`.
        UnreadableError: As `run_benchmark`.
        InterruptedRunError: As `run_benchmark`.
    """
    if request.shard.count > 1:
        raise UsageError("--sweep and --shard exclude each other; shard each value by itself")
    make_folder(request.output)
    checked = check(request, model)
    runs = []
    for value in sweep.values:
        sampling = sweep.applied(request.settings.sampling, value)
        one = replace(
            request,
            output=request.output / f"{sweep.setting}-{value}",
            settings=replace(request.settings, sampling=sampling),
            with_rivals=False,
            rivals={},
            with_oracle=False,
        )
        evaluated = run_benchmark(one, model, progress, advance, checked)
        assert evaluated is not None  # no shard
        runs.append(evaluated)
    rows = _rows(sweep, runs)
    found = {**runs[-1].results, "sweep": {"setting": sweep.setting, "rows": rows}}
    files = write_results(request.output, runs[-1].assessment, found)
    files |= write_plots(request.output, found)
    path = request.output / SWEEP
    write_atomically(path, tsv(_table(rows)))
    return Evaluated(found, runs[-1].assessment, {**files, SWEEP: path})


def _rows(sweep: Sweep, runs: Sequence[Evaluated]) -> list[dict[str, Any]]:
    seconds = _seconds(runs)
    rows: list[dict[str, Any]] = [
        {
            "value": value,
            "seconds_per_spectrum": taken,
            "speed_up": max(seconds) / taken if taken > 0 else 1.0,
            "metrics": {
                name: asdict(summary.per_spectrum)
                for name, summary in run.assessment.summary.items()
                if "@" in name
            },
        }
        for value, taken, run in zip(sweep.values, seconds, runs, strict=True)
    ]
    fronts = {name: front(rows, name) for name in rows[0]["metrics"]}
    return [
        {**row, "on_front": [name for name, values in fronts.items() if row["value"] in values]}
        for row in rows
    ]


def _seconds(runs: Sequence[Evaluated]) -> list[float]:
    """Seconds a spectrum of each run: of the clock where every run went through at one go.

    Else the mean of the spectra's own times, which overlap where one is assembled while the next is
    drawn.
    """
    predictions = [run.results["prediction"] for run in runs]
    whole = [prediction["run_seconds_per_spectrum"] for prediction in predictions]
    if None not in whole:
        return whole
    return [prediction["samples"]["seconds_per_spectrum"] for prediction in predictions]


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


def _table(rows: Sequence[dict[str, Any]]) -> list[list[object]]:
    names = list(rows[0]["metrics"])
    ends = [part for name in names for part in (name, f"{name}_low", f"{name}_high")]
    head = ["value", "seconds_per_spectrum", "speed_up", "on_front"]
    lines: list[list[object]] = [[*head, *ends]]
    for row in rows:
        values = [row["metrics"][name][part] for name in names for part in ("mean", "low", "high")]
        cells = [row["value"], row["seconds_per_spectrum"], row["speed_up"]]
        lines.append([*cells, ",".join(row["on_front"]), *values])
    return lines
