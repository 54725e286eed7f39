"""Plots of an evaluation, each as PNG and SVG, drawn from the contents of results.json alone."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from duallgd_cli.evaluate.metrics import is_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# Endings, and what leaves date and program out: the same results give the same bytes.
_ENDINGS: Final = {"png": {"Software": None}, "svg": {"Date": None}}
_APART: Final = 0.09  # of two series at one place
# Names of all that is drawn.
PLOTS: Final = tuple(
    f"{name}.{ending}" for name in ("by_*", "parts", "calibration") for ending in _ENDINGS
)


def write_plots(directory: Path, found: Mapping[str, Any]) -> None:
    """Draw what there is to draw.

    Args:
        directory: Exists; plots go into its folder ``plots``.
        found: Contents of results.json.
    """
    # Remarks that begin in capitals, such as LEAKAGE, change what the numbers mean.
    heads = [remark.partition(":")[0] for remark in found.get("remarks", ())]
    stamp = ", ".join(head for head in heads if head.isupper())
    if drawings := drawings_of(found):
        save_drawings(directory / "plots", drawings, stamp)


def drawings_of(found: Mapping[str, Any]) -> "dict[str, Callable[[], Figure]]":
    """What there is to draw, by the name of its file."""
    drawings: dict[str, Callable[[], Figure]] = {}
    for by in dict.fromkeys(group["by"] for group in found["groups"]):
        groups = [group for group in found["groups"] if group["by"] == by]
        drawings[f"by_{by}"] = partial(_groups, by, groups)
    kinds: dict[str, Callable[[], Figure]] = {
        "parts": lambda: _groups("parts of the test set", _parts(found)),
        "calibration": lambda: _calibration(found["calibration"]),
    }
    return drawings | {name: draw for name, draw in kinds.items() if found.get(name)}


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


def _figure(columns: int, title: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.4), layout="constrained")
    figure.suptitle(title)
    return figure


def _parts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All of the test set and its parts, as groups to draw."""
    shown = [n for n in found["metrics"] if n.startswith(("accuracy@", "mces@", "tanimoto@"))]
    return [
        {
            "label": part["title"],
            "spectra": part["spectra"],
            "estimates": {name: part["metrics"][name]["per_spectrum"] for name in shown},
        }
        for part in ({**found, "title": "all"}, *found["parts"])
    ]


def _groups(by: str, groups: Sequence[Mapping[str, Any]]) -> "Figure":
    """Accuracy, Tanimoto similarity and MCES distance of each group, each in a panel."""
    kinds = {"accuracy / %": "accuracy", "Tanimoto similarity": "tanimoto", "MCES distance": "mces"}
    names = list(groups[0]["estimates"])
    panels = {
        label: [name for name in names if kind in name]
        for label, kind in kinds.items()
        if any(kind in name for name in names)
    }
    figure = _figure(1, by.replace("_", " "))
    figure.set_size_inches(max(4.2, 0.6 * len(groups) + 1.8) * len(panels), 3.6)
    labels = [f"{group['label']}\nn = {group['spectra']}" for group in groups]
    for number, (label, shown) in enumerate(panels.items(), 1):
        axis = figure.add_subplot(1, len(panels), number)
        for series, name in enumerate(shown):
            estimates = [group["estimates"][name] for group in groups]
            # Beside each other, so that intervals do not hide each other.
            places = [at + _APART * (series - (len(shown) - 1) / 2) for at in range(len(groups))]
            scale = 100.0 if is_share(name) else 1.0
            _points(axis, places, estimates, names.index(name), name, scale)
        axis.set_xticks(range(len(groups)), labels, rotation=30 if len(groups) > 5 else 0)
        axis.set_ylabel(label)
        axis.set_ylim(0, 1 if label.startswith("Tanimoto") else None)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _points(
    axis: "Axes",
    places: Sequence[float],
    estimates: Sequence[Mapping[str, float]],
    series: int,
    label: str,
    scale: float = 1.0,
) -> None:
    """Means with their intervals, in the style of a series."""
    import matplotlib as mpl

    style = list(mpl.rcParams["axes.prop_cycle"])[series % 7] | {"linestyle": "none"}
    mean, low, high = (
        scale * np.array([one[end] for one in estimates]) for end in ("mean", "low", "high")
    )
    reach = np.maximum(0.0, [mean - low, high - mean])
    axis.errorbar(places, mean, yerr=reach, label=label, **style)


def _calibration(tables: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """Observed against stated probability; a calibrated one lies on the diagonal."""
    figure = _figure(len(tables), "calibration")
    for number, (name, table) in enumerate(tables.items()):
        axis = figure.add_subplot(1, len(tables), number + 1)
        axis.plot([0, 1], [0, 1], "k:", lw=0.8)
        stated = [part["stated"] for part in table["bins"]]
        observed = [part["observed"] for part in table["bins"]]
        _points(axis, stated, observed, 0, name)
        axis.set_xlabel(f"stated {name}")
        axis.set_ylabel("observed share")
        axis.set_title(f"expected error {table['expected_error']:.3f}")
    return figure
