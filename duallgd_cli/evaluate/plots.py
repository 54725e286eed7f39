"""The pictures of an evaluation: scores of every group, and stated against observed probability."""

from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS: Final = ("groups.png", "calibration.png")
_SCORES: Final = {"accuracy@1": -0.14, "accuracy@10": 0.14}  # with where they stand in a line


def write_plots(folder: Path, results: Mapping[str, Any]) -> None:
    """Draw what there is to draw; without matplotlib nothing is."""
    if find_spec("matplotlib") is None:
        return
    import matplotlib as mpl

    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        for kind, name, draw in zip(("groups", "calibration"), PLOTS, _PICTURES, strict=True):
            if results[kind]:
                # Without date and program, the same results give the same bytes.
                draw(results).savefig(folder / name, metadata={"Software": None})


def _groups(results: Mapping[str, Any]) -> "Figure":
    """Shares of right answers with their intervals: all spectra, then a line a group."""
    from matplotlib.figure import Figure

    everything = {"by": "", "label": "all", "spectra": results["spectra"]}
    rows = [{**everything, "estimates": results["metrics"]}, *results["groups"]]
    figure = Figure(figsize=(6, 1.2 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for name, offset in _SCORES.items():
        place = np.arange(len(rows)) + offset
        _draw(axes, [row["estimates"][name] for row in rows], place, across=True, label=name)
    labels = [f"{row['by'].replace('_', ' ')} {row['label']} ({row['spectra']})" for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("share of right answers, 95 % interval")
    axes.legend()
    return figure


def _calibration(results: Mapping[str, Any]) -> "Figure":
    """Observed against stated probability; a calibrated one lies on the diagonal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color="0.6", linewidth=1)
    for name, table in results["calibration"].items():
        stated = np.array([part["stated"] for part in table["bins"]])
        observed = [part["observed"] for part in table["bins"]]
        _draw(axes, observed, stated, across=False, label=name.replace("_", " "))
    axes.set(xlabel="stated probability", ylabel="share that is right")
    axes.legend()
    return figure


def _draw(axes: Any, estimates: list[Any], place: Any, *, across: bool, label: str) -> None:  # noqa: ANN401
    """Estimates with their intervals, across or upwards from where they stand."""
    mean, low, high = (
        np.array([one[end] for one in estimates], float) for end in ("mean", "low", "high")
    )
    reach = np.maximum(0.0, [mean - low, high - mean])
    at, error = ((mean, place), "xerr") if across else ((place, mean), "yerr")
    axes.errorbar(*at, **{error: reach}, fmt="o", markersize=3, label=label)


_PICTURES: Final = (_groups, _calibration)
