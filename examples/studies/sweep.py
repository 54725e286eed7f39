"""Speed against quality: evaluations that differ in one setting, compared.

    for n in 1 2 5 10 20 50; do
      duallgd evaluate --benchmark massbank.tsv --fold val --limit 50 --steps $n -o sweep/$n
    done
    python examples/studies/sweep.py steps sweep/* -o sweep/steps

A row a value: seconds a spectrum, how many times faster than the slowest, and the metrics. A star
marks what no faster value equals in Tanimoto similarity, the least noisy metric.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from command import run, show
from matplotlib.figure import Figure
from rich.table import Table

from duallgd_cli.errors import MissingInputError, UsageError
from duallgd_cli.evaluate.plots import save_drawings
from duallgd_cli.evaluate.report import RESULTS

Row = Mapping[str, Any]


def compared(setting: str, results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Value of the setting, seconds a spectrum, speed-up and metrics of each, by value.

    Args:
        setting: Of sampling, such as steps.
        results: Contents of results.json of each evaluation.

    Raises:
        UsageError: They are of different spectra.
    """
    if len({found["data"]["split_sha256"] for found in results}) != 1:
        raise UsageError("the evaluations are of different spectra; compare those of the same")
    predictions = [found["prediction"] for found in results]
    # Of the clock where every run went through at one go; else the mean of the spectra's own
    # times, which overlap where one is assembled while the next is drawn.
    seconds = [prediction["run_seconds_per_spectrum"] for prediction in predictions]
    if None in seconds:
        seconds = [prediction["samples"]["seconds_per_spectrum"] for prediction in predictions]
    rows = [
        {
            "value": found["prediction"]["settings"]["sampling"][setting],
            "seconds": taken,
            "speed_up": max(seconds) / taken if taken > 0 else 1.0,
            **{n: ways["per_spectrum"]["mean"] for n, ways in found["metrics"].items() if "@" in n},
        }
        for taken, found in zip(seconds, results, strict=True)
    ]
    return sorted(rows, key=lambda row: row["value"])


def front(rows: Sequence[Row], name: str) -> list[float]:
    """Values on the Pareto front of speed and one metric: no faster value is as good.

    Args:
        rows: As `compared` gives them.
        name: Of the metric; distances are better the smaller they are.
    """
    sign = -1.0 if "mces" in name else 1.0
    best, values = float("-inf"), []
    for row in sorted(rows, key=lambda row: -row["speed_up"]):
        if sign * row[name] > best:
            best = sign * row[name]
            values.append(row["value"])
    return values


def plot(setting: str, rows: Sequence[Row], name: str) -> Figure:
    """Quality against speed-up; filled points are those that no faster value equals."""
    figure = Figure(figsize=(4.2, 3.4), layout="constrained")
    axis, best = figure.add_subplot(), front(rows, name)
    for row in rows:
        at = (row["speed_up"], row[name])
        face = "C1" if row["value"] in best else "white"
        axis.plot(*at, "s", color="C1", markerfacecolor=face)
        axis.annotate(f" {row['value']:g}", at, fontsize=7)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"speed-up over {setting}")
    axis.set_ylabel(name)
    return figure


def main(
    setting: Annotated[str, typer.Argument(help="steps, samples or another number of sampling.")],
    folders: Annotated[list[Path], typer.Argument(help="Of duallgd evaluate, one a value.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Plot to write, without its ending.")
    ] = None,
) -> None:
    """Compare evaluations over the values of a setting."""
    paths = [folder / RESULTS for folder in folders if folder.is_dir()]
    if absent := [str(path) for path in paths if not path.is_file()]:
        raise MissingInputError(f"{absent[0]} does not exist; name folders of duallgd evaluate")
    rows = compared(setting, [json.loads(path.read_text(encoding="utf-8")) for path in paths])
    names = list(rows[0])[3:]
    weighed = next(name for name in names if name.startswith("tanimoto"))
    best = front(rows, weighed)
    table = Table(setting, "s/spectrum", "speed-up", "front", *names)
    for row in rows:
        figures = (f"{row[name]:.3f}" for name in ("seconds", "speed_up"))
        star = "*" if row["value"] in best else ""
        table.add_row(str(row["value"]), *figures, star, *(f"{row[name]:.3f}" for name in names))
    show(table)
    if output is not None:
        save_drawings(output.parent, {output.name: lambda: plot(setting, rows, weighed)})


if __name__ == "__main__":
    run(main)
