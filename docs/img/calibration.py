"""The plot of docs/accuracy.md: stated and observed probability, as the shipped weights record it.

    python docs/img/calibration.py

Prints the table that it draws, and writes ``calibration.svg`` beside this script.
"""

from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

import duallgd_cli

WIDTH, HEIGHT = 4.2, 3.4  # inches


def main() -> None:
    """Draw the cross-validated bins of the first candidate and of the first ten."""
    validation = duallgd_cli.load().record["ranking_validation"]
    style.use(Path(duallgd_cli.__file__).with_name("figures.mplstyle"))
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color="0.6", linewidth=1, zorder=0)
    for part, label in (("first", "first candidate"), ("first_ten", "among the first ten")):
        bins = validation[part]["bins"]
        stated = [entry["stated"] for entry in bins]
        right = [entry["observed"]["mean"] for entry in bins]
        low = [entry["observed"]["mean"] - entry["observed"]["low"] for entry in bins]
        high = [entry["observed"]["high"] - entry["observed"]["mean"] for entry in bins]
        axes.errorbar(stated, right, yerr=(low, high), label=label)
        for entry in bins:
            print(
                f"{label:20} {int(entry['count']):5} stated {entry['stated']:.3f} "
                f"right {entry['observed']['mean']:.3f}"
            )
    axes.set(xlabel="stated probability", ylabel="proportion that is right")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
