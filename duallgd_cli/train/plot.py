"""`duallgd train --plot`: the figures of a run over its steps, a plot for each stage."""

import json
import logging
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duallgd_cli.errors import MissingInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# What a line of the log holds that is no figure of how good the network is.
_OF_THE_RUN: Final = frozenset({"step", "norm", "count", "s", "fp_threshold"})
_COLUMNS: Final = 3
# Endings, and what leaves date and program out: the same logs give the same bytes.
_ENDINGS: Final = {"png": {"Software": None}, "svg": {"Date": None}}


def plot_run(run: Path) -> list[Path]:
    """Draw what the logs of a stage or a recipe hold, as PNG and SVG in its folder ``plots``.

    Without matplotlib a message says that nothing is drawn.

    Returns:
        The logs that were read.

    Raises:
        MissingInputError: There is no log.
    """
    logs = [path for path in (run, *sorted(run.glob("*"))) if (path / "metrics.jsonl").is_file()]
    if not logs:
        raise MissingInputError(
            f"{run} holds no metrics.jsonl; give the folder of a run of duallgd train"
        )
    if find_spec("matplotlib") is None:
        logger.warning("no plots: matplotlib is missing; pip install 'duallgd[plots]'")
        return []
    import matplotlib as mpl

    (run / "plots").mkdir(exist_ok=True)
    for folder in logs:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # one may be half written
        with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
            figure = _curves(rows)
            for ending, metadata in _ENDINGS.items():
                name = f"{folder.resolve().name}.{ending}"
                figure.savefig(run / "plots" / name, metadata=metadata)
    return [folder / "metrics.jsonl" for folder in logs]


def _curves(rows: list[dict[str, Any]]) -> "Figure":
    """Every figure over the steps; those of a step that was taken again count as last seen."""
    from matplotlib.figure import Figure

    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        for name in row.keys() - _OF_THE_RUN:
            curves.setdefault(name, {})[row["step"]] = row[name]
    n_columns = min(_COLUMNS, len(curves)) or 1
    n_rows = -(-len(curves) // n_columns) or 1
    figure = Figure(figsize=(3.2 * n_columns, 2.2 * n_rows), layout="constrained")
    for place, (name, values) in enumerate(sorted(curves.items()), 1):
        axis = figure.add_subplot(n_rows, n_columns, place)
        steps = sorted(values)
        axis.plot(steps, [values[step] for step in steps], marker="." if len(steps) < 30 else "")
        axis.set_title(name.replace("_", " "))
        axis.set_xlabel("step")
    return figure
