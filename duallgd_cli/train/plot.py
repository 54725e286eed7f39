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
    """Draw what the logs of a run's stages hold, as PNG and SVG in its folder ``plots``.

    Without matplotlib a message says that nothing is drawn.

    Returns:
        The logs that were read.

    Raises:
        MissingInputError: There is no log.
    """
    logs = sorted(run.glob("*/metrics.jsonl"))
    if not logs:
        raise MissingInputError(
            f"{run} holds no stage with a metrics.jsonl; give the folder of a run of duallgd train"
        )
    if find_spec("matplotlib") is None:
        logger.warning("no plots: matplotlib is missing; pip install 'duallgd[plots]'")
        return []
    import matplotlib as mpl

    (run / "plots").mkdir(exist_ok=True)
    for path in logs:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # one may be half written
        with mpl.rc_context(fname=str(resources.files("duallgd_cli") / "figures.mplstyle")):
            figure = _curves(rows)
            for ending, metadata in _ENDINGS.items():
                figure.savefig(run / "plots" / f"{path.parent.name}.{ending}", metadata=metadata)
    return logs


def _curves(rows: list[dict[str, Any]]) -> "Figure":
    """Every figure over the steps; those of a step that was taken again count as last seen."""
    from matplotlib.figure import Figure

    curves: dict[str, dict[int, float]] = {}
    for row in rows:
        for name in row.keys() - _OF_THE_RUN:
            curves.setdefault(name, {})[row["step"]] = row[name]
    n_rows = max(1, -(-len(curves) // _COLUMNS))
    figure = Figure(figsize=(3.2 * _COLUMNS, 2.2 * n_rows), layout="constrained")
    for place, (name, values) in enumerate(sorted(curves.items()), 1):
        axis = figure.add_subplot(n_rows, _COLUMNS, place)
        axis.plot(*zip(*sorted(values.items()), strict=True), marker=".")
        axis.set_title(name.replace("_", " "))
        axis.set_xlabel("step")
    return figure
