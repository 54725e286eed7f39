"""Four panels as in the paper: time and memory of attention over pairs and of the sampling loop."""

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duallgd_cli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour, marker, and marker of the paper: told apart in black and white too.
_KERNELS: Final = {"softmax": ("C1", "s", "X"), "favor": ("C0", "o", "*")}
_NAMES: Final = {"softmax": "exact softmax", "favor": "FAVOR+"}
_LINES: Final = {"plain": "--", "fast": "-"}
_PANELS: Final = (
    ("attention", "time", "attention over pairs, one step"),
    ("attention", "memory", "attention over pairs"),
    ("loop", "time", "sampling loop"),
    ("loop", "memory", "sampling loop"),
)
# Absolute figures of the paper's appendix "Scalability Analysis" (label app:scalability), stated at
# N = 100 alone, one molecule: part, kernel, seconds (attention: of one step; loop: of 500), MiB.
CITATION: Final = "paper, appendix Scalability Analysis, NVIDIA H200"
POINTS: Final = (
    ("attention", "softmax", 24.5e-3, 2.3 * 1024),
    ("attention", "favor", 3.0e-3, 125.0),
    ("loop", "softmax", 18.2, 2.6 * 1024),
    ("loop", "favor", 7.5, 375.0),
)
_PAPER_ATOMS, _PAPER_STEPS = 100, 500
# Below this a peak above what was loaded is one page or two.
_LEAST_MIB: Final = 0.1


def require_matplotlib() -> None:
    """Find out before an hour of measuring whether its plot can be drawn.

    Raises:
        UsageError: It cannot.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs matplotlib, which is not installed; pip install 'duallgd[plots]', or "
            "leave --plot away"
        )


def write_plot(folder: Path, found: Mapping[str, Any]) -> None:
    """Draw the four panels as ``scaling.png`` and ``scaling.svg``.

    Args:
        folder: Exists.
        found: Contents of results.json.
    """
    import matplotlib as mpl

    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        figure = figure_of(found)  # without a date: the same results give the same bytes
        figure.savefig(folder / "scaling.png", metadata={"Software": None})
        figure.savefig(folder / "scaling.svg", metadata={"Date": None})


def figure_of(found: Mapping[str, Any]) -> "Figure":
    """The four panels, from the contents of results.json."""
    from matplotlib.figure import Figure

    rows = found["rows"]
    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    for number, (part, quantity, title) in enumerate(_PANELS):
        axis = figure.add_subplot(2, 2, number + 1)
        _panel(axis, [row for row in rows if row["part"] == part], quantity)
        axis.set_title(f"({'abcd'[number]}) {title}", loc="left")
    handles, labels = figure.axes[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle(_heading(found, rows))
    return figure


def _panel(axis: "Axes", rows: Sequence[Mapping[str, Any]], quantity: str) -> None:
    for kernel, (colour, marker, _) in _KERNELS.items():
        for path, line in _LINES.items():
            chosen = [row for row in rows if (row["kernel"], row["path"]) == (kernel, path)]
            if not chosen:
                continue
            x = [row["atoms"] for row in chosen]
            y = [max(_LEAST_MIB, row["memory_mib"]) for row in chosen]
            if quantity == "time":
                y = [row[f"{row['clock']}_s"] for row in chosen]
                if path == "fast":
                    floor, label = [row["floor_s"] for row in chosen], f"{_NAMES[kernel]}, floor"
                    axis.plot(x, floor, ":", lw=1, marker=marker, ms=2, color=colour, label=label)
            label = f"{_NAMES[kernel]}, {path}"
            face = colour if path == "fast" else "white"
            axis.plot(x, y, line, marker=marker, mfc=face, color=colour, label=label)
    for part, kernel, seconds, mib in POINTS:
        if rows and part == rows[0]["part"]:
            # The paper's loop takes 500 steps; its time is scaled to as many as were run here.
            share = rows[0]["steps"] / _PAPER_STEPS if part == "loop" else 1.0
            value = mib if quantity == "memory" else seconds * share
            colour, _, marker = _KERNELS[kernel]
            style: dict[str, Any] = {"marker": marker, "ms": 10, "ls": "", "mec": "black"}
            label = f"{_NAMES[kernel]}, {CITATION}"
            axis.plot([_PAPER_ATOMS], [value], color=colour, label=label, **style)
    axis.set(xscale="log", yscale="log", xlabel="heavy atoms N")
    axis.set_ylabel("time / s" if quantity == "time" else "peak memory above network / MiB")
    sizes = sorted({row["atoms"] for row in rows} | {_PAPER_ATOMS})
    axis.set_xticks(sizes, [str(n) for n in sizes], fontsize=7)
    axis.minorticks_off()
    axis.grid()


def _heading(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    machine, row = found["machine"], rows[0]
    loops = [r for r in rows if r["part"] == "loop"] or [row]
    where = machine["accelerator"] or f"{machine['cpu']}, {machine['threads']} thread(s)"
    scaled = (
        "" if loops[0]["steps"] == _PAPER_STEPS else f"; paper's loop x {loops[0]['steps']}/500"
    )
    return (
        f"{row['weights']} ({row['parameters'] / 1e6:.1f} M parameters), {row['precision']}, "
        f"{where}\n"
        f"loop: {loops[0]['samples']} candidate(s), {loops[0]['steps']} steps{scaled}; "
        f"{row['clock']} time"
    )
