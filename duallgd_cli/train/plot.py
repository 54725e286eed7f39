"""`duallgd train --plot`: the figures of a run over its steps, a plot for each stage."""

import json
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duallgd_cli.errors import MissingInputError
from duallgd_cli.evaluate.plots import save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# What a line of the log holds that is no figure of how good the network is.
_OF_THE_RUN: Final = frozenset({"step", "norm", "count", "s", "fp_threshold"})
_COLUMNS: Final = 3


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
    (run / "plots").mkdir(exist_ok=True)
    for path in logs:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # one may be half written
        picture = run / "plots" / f"{path.parent.name}.png"
        if not save_plot(picture, partial(_curves, rows)):
            logger.warning("no plots: matplotlib is missing; pip install 'duallgd[plots]'")
            return []
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
