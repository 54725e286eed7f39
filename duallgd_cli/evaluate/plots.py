"""The pictures of an evaluation: scores of every group, and stated against observed probability."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS: Final = ("groups.png", "calibration.png")
_SCORES: Final = {"accuracy@1": -0.14, "accuracy@10": 0.14}  # with where they stand in a line


def save_plot(path: Path, draw: "Callable[[Figure], None]") -> bool:
    """Draw a figure into a PNG file; False without matplotlib, which draws nothing."""
    if find_spec("matplotlib") is None:
        return False
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        figure = Figure(layout="constrained")
        draw(figure)
        # Without date and program, the same results give the same bytes.
        figure.savefig(path, metadata={"Software": None})
    return True


def write_plots(folder: Path, results: Mapping[str, Any]) -> None:
    """Draw what there is to draw; without matplotlib nothing is."""
    for name, draw in zip(PLOTS, (_groups, _calibration), strict=True):
        if results[name.removesuffix(".png")]:
            save_plot(folder / name, partial(draw, results))


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
