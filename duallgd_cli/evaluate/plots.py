"""Plots of an evaluation, one for each table, drawn from the contents of results.json alone."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# Endings, and what leaves date and program out: the same results give the same bytes.
_ENDINGS: Final = {"png": {"Software": None}, "svg": {"Date": None}}
_KINDS: Final = ("accuracy", "tanimoto", "mces")
_APART: Final = 0.16  # of two series at one place
# Tables that are drawn; a plot has its table's name.
DRAWN: Final = ("metrics", "groups", "formula_accuracy", "calibration")
PLOTS: Final = tuple(f"{name}.{ending}" for name in DRAWN for ending in _ENDINGS)


def write_plots(directory: Path, results: Mapping[str, Any]) -> None:
    """Draw what there is to draw."""
    # Remarks that begin in capitals, such as LEAKAGE, change what the numbers mean.
    heads = [remark.partition(":")[0] for remark in results.get("remarks", ())]
    stamp = ", ".join(head for head in heads if head.isupper())
    drawings: dict[str, Callable[[], Figure]] = {}
    if results.get("metrics"):
        drawings["metrics"] = partial(
            _estimates, [{**results, "by": "", "label": "all"}], "metrics"
        )
    for name in ("groups", "formula_accuracy"):
        if results.get(name):
            rows = [{**group, "metrics": group["estimates"]} for group in results[name]]
            drawings[name] = partial(_estimates, rows, name)
    if results.get("calibration"):
        drawings["calibration"] = partial(_calibration, results["calibration"])
    if drawings:
        save_drawings(directory / "plots", drawings, stamp)


def save_drawings(
    folder: Path, drawings: Mapping[str, Callable[[], "Figure"]], stamp: str = ""
) -> None:
    """Draw figures and write each as PNG and SVG; without matplotlib a message says that none is.

    Args:
        folder: Made if needed, within an existing one.
        drawings: What draws a figure, by its file's name without ending.
        stamp: Said above every figure, "" for nothing.
    """
    if find_spec("matplotlib") is None:
        logger.warning("no plots: matplotlib is missing; pip install 'duallgd[plots]'")
        return
    import matplotlib as mpl

    folder.mkdir(exist_ok=True)
    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        for name, draw in drawings.items():
            figure = draw()
            if stamp:
                figure.suptitle(f"{figure.get_suptitle()}\n{stamp}")
            for ending, metadata in _ENDINGS.items():
                figure.savefig(folder / f"{name}.{ending}", metadata=metadata)


def _estimates(rows: Sequence[Mapping[str, Any]], title: str) -> "Figure":
    """A line a row of the table, a panel for each kind of metric, a mark and interval a metric."""
    from matplotlib.figure import Figure

    panels = {
        kind: names
        for kind in _KINDS
        if (names := [n for n in rows[0]["metrics"] if kind in n and "oracle" not in n])
    }
    size = (2 + 3 * len(panels), 1.6 + 0.26 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title.replace("_", " "))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (kind, names) in zip(axes, panels.items(), strict=True):
        for number, name in enumerate(names):
            shown = [row["metrics"][name] for row in rows]
            mean, low, high = (
                np.array([one[end] for one in shown], float) for end in ("mean", "low", "high")
            )
            y = np.arange(len(rows)) + _APART * (number - (len(names) - 1) / 2)
            reach = np.maximum(0.0, [mean - low, high - mean])
            axis.errorbar(mean, y, xerr=reach, fmt="os^Dv"[number % 5], ms=3, label=name)
        axis.set_xlabel("MCES distance" if kind == "mces" else kind)
        axis.legend(fontsize=6)
    labels = [f"{row['by'].replace('_', ' ')} {row['label']} ({row['spectra']})" for row in rows]
    axes[0].set_yticks(range(len(rows)), labels)
    axes[0].invert_yaxis()
    return figure


def _calibration(tables: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """Observed against stated probability; a calibrated one lies on the diagonal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(tables), 3.4), layout="constrained")
    for axis, (name, table) in zip(
        figure.subplots(1, len(tables), squeeze=False)[0], tables.items(), strict=True
    ):
        axis.plot([0, 1], [0, 1], "k:", lw=0.8)
        stated = [part["stated"] for part in table["bins"]]
        mean, low, high = (
            np.array([part["observed"][end] for part in table["bins"]])
            for end in ("mean", "low", "high")
        )
        axis.errorbar(stated, mean, yerr=np.maximum(0.0, [mean - low, high - mean]), fmt="o")
        axis.set(xlabel=f"stated {name}", ylabel="observed proportion")
        axis.set_title(f"expected error {table['expected_error']:.3f}")
    return figure
