"""Pictures: of an evaluation, and of the figures of a training run. All that loads matplotlib."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from duallgd_cli.errors import MissingInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

PLOTS: Final = ("groups.png", "calibration.png")
_SCORES: Final = {"accuracy@1": -0.14, "accuracy@10": 0.14}  # with where they stand in a line
# What a line of a run's log holds that is no figure of how good the network is.
_OF_THE_RUN: Final = frozenset({"step", "norm", "count", "s", "fp_threshold"})
_COLUMNS: Final = 3


def _can_draw() -> bool:
    return find_spec("matplotlib") is not None


def _save(path: Path, draw: "Callable[[Figure], None]") -> None:
    """Draw a figure into a PNG file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        figure = Figure(layout="constrained")
        draw(figure)
        # Without date and program, the same results give the same bytes.
        figure.savefig(path, metadata={"Software": None})


def write_plots(folder: Path, results: Mapping[str, Any]) -> None:
    """Draw what there is to draw; without matplotlib nothing is."""
    for name, draw in zip(PLOTS, (_groups, _calibration), strict=True):
        if results[name.removesuffix(".png")] and _can_draw():
            _save(folder / name, partial(draw, results))


def _groups(results: Mapping[str, Any], figure: "Figure") -> None:
    """Shares of right answers with their intervals: all spectra, then a line a group."""
    everything = {"by": "", "label": "all", "spectra": results["spectra"]}
    rows = [{**everything, "estimates": results["metrics"]}, *results["groups"]]
    figure.set_size_inches(6, 1.2 + 0.24 * len(rows))
    axes = figure.subplots()
    for name, offset in _SCORES.items():
        mean, reach = _intervals([row["estimates"][name] for row in rows])
        place = np.arange(len(rows)) + offset
        axes.errorbar(mean, place, xerr=reach, fmt="o", markersize=3, label=name)
    labels = [f"{row['by'].replace('_', ' ')} {row['label']} ({row['spectra']})" for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("share of right answers, 95 % interval")
    axes.legend()


def _calibration(results: Mapping[str, Any], figure: "Figure") -> None:
    """Observed against stated probability; a calibrated one lies on the diagonal."""
    figure.set_size_inches(4.2, 3.4)
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color="0.6", linewidth=1)
    for name, table in results["calibration"].items():
        stated = np.array([part["stated"] for part in table["bins"]])
        mean, reach = _intervals([part["observed"] for part in table["bins"]])
        label = name.replace("_", " ")
        axes.errorbar(stated, mean, yerr=reach, fmt="o", markersize=3, label=label)
    axes.set(xlabel="stated probability", ylabel="share that is right")
    axes.legend()


def _intervals(estimates: list[Mapping[str, float]]) -> tuple[Any, Any]:
    """Means, and how far their intervals reach down and up."""
    mean, low, high = (
        np.array([one[end] for one in estimates], float) for end in ("mean", "low", "high")
    )
    return mean, np.maximum(0.0, [mean - low, high - mean])


def plot_run(run: Path) -> list[Path]:
    """Draw what the logs of a run's stages hold, as PNG in its folder ``plots``; return the logs.

    Without matplotlib a message says that nothing is drawn.

    Raises:
        MissingInputError: There is no log.
    """
    logs = sorted(run.glob("*/metrics.jsonl"))
    if not logs:
        raise MissingInputError(
            f"{run} holds no stage with a metrics.jsonl; give the folder of a run of duallgd train"
        )
    if not _can_draw():
        logger.warning("no plots: matplotlib is missing; pip install 'duallgd[plots]'")
        return []
    (run / "plots").mkdir(exist_ok=True)
    for path in logs:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # one may be half written
        _save(run / "plots" / f"{path.parent.name}.png", partial(_curves, rows))
    return logs


def _curves(rows: list[dict[str, Any]], figure: "Figure") -> None:
    """Every figure over the steps; those of a step that was taken again count as last seen."""
    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        for name in row.keys() - _OF_THE_RUN:
            curves.setdefault(name, {})[row["step"]] = row[name]
    n_rows = max(1, -(-len(curves) // _COLUMNS))
    figure.set_size_inches(3.2 * _COLUMNS, 2.2 * n_rows)
    for place, (name, values) in enumerate(sorted(curves.items()), 1):
        axis = figure.add_subplot(n_rows, _COLUMNS, place)
        axis.plot(*zip(*sorted(values.items()), strict=True), marker=".")
        axis.set_title(name.replace("_", " "))
        axis.set_xlabel("step")
