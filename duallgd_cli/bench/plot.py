"""Time and memory against the number of atoms, one panel for each part of the network."""

from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from duallgd_cli.errors import UsageError

# Colour and marker: told apart in black and white too.
_KERNELS: Final = {"softmax": ("C1", "s", "exact softmax"), "favor": ("C0", "o", "FAVOR+")}
_QUANTITIES: Final = {"time_s": "time / s", "memory_mib": "peak memory above network / MiB"}
_LEAST: Final = 1e-6  # of what a logarithm can show


def require_matplotlib() -> None:
    """Find out before minutes of measuring whether its plot can be drawn."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--plot needs matplotlib, which is not installed; pip install 'duallgd[plots]', or "
            "leave --plot away"
        )


def write_plot(folder: Path, study: Mapping[str, Any]) -> None:
    """Draw ``scaling.png`` and ``scaling.svg``."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, machine = study["rows"], study["machine"]
    parts = list(dict.fromkeys(row["part"] for row in rows))
    where = machine["accelerator"] or f"{machine['cpu']}, {machine['threads']} thread(s)"
    last = rows[-1]
    with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
        figure = Figure(figsize=(4 * len(parts), 7), layout="constrained")
        grid = figure.subplots(len(_QUANTITIES), len(parts), squeeze=False)
        for panels, (column, label) in zip(grid, _QUANTITIES.items(), strict=True):
            for axis, part in zip(panels, parts, strict=True):
                for kernel, (colour, marker, name) in _KERNELS.items():
                    own = [r for r in rows if (r["part"], r["kernel"]) == (part, kernel)]
                    x, y = [r["atoms"] for r in own], [max(_LEAST, r[column]) for r in own]
                    axis.plot(x, y, marker=marker, color=colour, label=name)
                axis.set(xscale="log", yscale="log", xlabel="heavy atoms", title=part)
            panels[0].set_ylabel(label)
        grid[0][0].legend()
        figure.suptitle(
            f"{last['weights']}, {last['precision']}, {where}; loop of {last['samples']} "
            f"candidate(s), {last['steps']} steps"
        )
        # Without a date: the same results give the same bytes.
        figure.savefig(folder / "scaling.png", metadata={"Software": None})
        figure.savefig(folder / "scaling.svg", metadata={"Date": None})
