"""Tables and plots of the two training studies: CSV, Markdown, results.json, SVG."""

import csv
import io
import json
import logging
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from duallgd_cli import __version__
from duallgd_cli.bench.ablations import CITATION, Row
from duallgd_cli.bench.judging import NOISE_STEPS
from duallgd_cli.bench.leak import Reading
from duallgd_cli.evaluate.bootstrap import Estimate
from duallgd_cli.files import write_atomically
from duallgd_cli.runtime import Runtime

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_log = logging.getLogger(__name__)

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_STYLES: Final = {"truth": "-", "random": ":", "formula": "--"}
_ORDER_TITLES: Final = {"truth": "true", "random": "random", "formula": "formula"}
_SHARES: Final = ("top_1", "top_10", "any_sample", "valid")


@dataclass(frozen=True)
class Table:
    """A table as it is shown, and what it rests on.

    Attributes:
        name: Of its files.
        title: Its heading.
        caption: What was done, in sentences.
        header: Column titles.
        rows: Cells, as texts.
        narrow: Columns that a terminal has room for.
        record: Everything behind it, for results.json.
    """

    name: str
    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: tuple[str, ...]
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Circumstances:
    """How a study was run, for its caption.

    Attributes:
        command: As it was typed.
        budget: In words.
        runtime: Device, precision and threads.
        seed: Of training.
        samples: Drawn for each molecule.
        steps: Network evaluations of each sample.
    """

    command: str
    budget: str
    runtime: Runtime
    seed: int
    samples: int
    steps: int

    def sentences(self, molecules: int, max_atoms: int) -> str:
        """The caption's part that both studies share."""
        return (
            f"`{self.command}`: {self.budget} an arm ({self.runtime}, {processor()}, torch "
            f"{torch.__version__}), one training seed ({self.seed}). Judged by {molecules} "
            f"molecules of at most {max_atoms} heavy atoms that none was trained on, given their "
            f"true fingerprints, {self.samples} samples of {self.steps} steps each, candidates "
            "ranked by frequency; 95 % bootstrap intervals over molecules."
        )


def ablation_table(rows: Sequence[Row], known: Circumstances, max_atoms: int) -> Table:
    """Our figures beside the paper's."""
    molecules = len(rows[0].result["orders"]["formula"]["molecules"])
    caption = (
        f"{known.sentences(molecules, max_atoms)} Honest protocol: atoms sorted by element. "
        f"Right of it {CITATION}: from spectra, trained in full, with the atoms of the true "
        "molecule in the order of its SMILES; compare the orders of rows, not the numbers."
    )
    header = (
        "variant", "parameters", "steps", "top-1 / %", "top-10 / %", "Tanimoto@10",
        "less full network", "valid / %", "NLL t=50", "250", "500",
        "paper top-1 / %", "paper top-10 / %", "paper Tanimoto@10",
    )  # fmt: skip
    record = {
        "rows": [
            {
                "name": row.variant.name,
                "title": row.variant.title,
                "changes": list(row.variant.changes),
                "steps": row.result["steps"],
                "parameters": row.result["parameters"],
                "noise_levels": row.result["orders"]["formula"]["noise_levels"],
                "estimates": _plain(row.estimates),
                "minus_full": _plain(row.minus_full),
                "paper": None if row.variant.paper is None else asdict(row.variant.paper),
            }
            for row in rows
        ]
    }
    cells = tuple(_ablation_cells(row) for row in rows)
    narrow = (*header[:1], *header[3:6], *header[11:])
    title = "What each part of the network is worth"
    return Table("ablations", title, caption, header, cells, narrow, _record(known, record))


def leak_table(readings: Sequence[Reading], known: Circumstances, max_atoms: int) -> Table:
    """Accuracy and bond F1 by the order in which the atoms are given."""
    molecules = len(readings[0].result["orders"]["truth"]["molecules"])
    caption = (
        f"{known.sentences(molecules, max_atoms)} F1 is that of typed bonds guessed from a graph "
        "noised to step t; at t = 500 it is pure noise. Element-sorted arms list the atoms by "
        "element whatever order they come in, so their rows are one; a fixed order of the targets "
        "lowers their cross entropy too, which is no leak, so compare arms by finished samples."
    )
    header = (
        "trained", "atoms given in", "steps", "top-1 / %", "any sample / %", "Tanimoto@10",
        "valid / %", *(f"F1 t={t}" for t in NOISE_STEPS), "CE t=250", "CE t=500",
    )  # fmt: skip
    record = {
        "rows": [
            {
                "name": one.setting.name,
                "title": one.setting.title,
                "order": one.order,
                "steps": one.result["steps"],
                "parameters": one.result["parameters"],
                "noise_levels": list(one.noise_levels),
                "estimates": _plain(one.estimates),
            }
            for one in readings
        ]
    }
    cells = tuple(_leak_cells(one) for one in _distinct(readings))
    narrow = (*header[:2], *header[3:6], "F1 t=250", "F1 t=500")
    title = "What is read from the order of the true molecule's atoms"
    return Table("leak", title, caption, header, cells, narrow, _record(known, record))


def write_table(folder: Path, table: Table) -> dict[str, Path]:
    """Write a table as CSV and Markdown, and results.json; returns the files by name."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows(table.rows)
    text = {
        f"{table.name}.csv": stream.getvalue(),
        f"{table.name}.md": markdown(table),
        "results.json": json.dumps(table.record, indent=1) + "\n",
    }
    for name, content in text.items():
        write_atomically(folder / name, [content])
    return {name: folder / name for name in text}


def markdown(table: Table) -> str:
    """The table with its caption."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"# {table.title}\n\n{table.caption}\n\n{body}\n"


def draw_leak(folder: Path, readings: Sequence[Reading]) -> Path | None:
    """Bond F1 by noise level as SVG; None where matplotlib is missing, which a message says."""
    if find_spec("matplotlib") is None:
        _log.warning("no plot: matplotlib is missing; pip install 'duallgd[evaluate]'")
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    path = folder / "leak.svg"
    # Letters as text, not as outlines, keep the file small.
    with mpl.rc_context({"svg.hashsalt": "duallgd", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(5.5, 5.2), layout="constrained")
        _plot_f1(figure.add_subplot(), _distinct(readings))
        figure.legend(loc="outside lower center", fontsize=7, handlelength=4)
        figure.savefig(path, metadata={"Date": None})
    return path


def processor() -> str:
    """Name of the processor, as far as the machine tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _plot_f1(axis: "Axes", readings: Sequence[Reading]) -> None:
    names = list(dict.fromkeys(one.setting.name for one in readings))
    for one in readings:
        label = f"{one.setting.title}; given: {_given(one)}"
        axis.plot(
            [level["t"] for level in one.noise_levels],
            [level["bond_f1"] for level in one.noise_levels],
            marker="o",
            ms=3,
            ls=_STYLES[one.order] if one.setting.atom_order != "formula" else "-",
            color=_COLOURS[names.index(one.setting.name) % len(_COLOURS)],
            label=label,
        )
    axis.set_xlabel("noise step t (500 is pure noise)")
    axis.set_ylabel("F1 of typed bonds")
    axis.set_ylim(0, 1)


def _distinct(readings: Sequence[Reading]) -> list[Reading]:
    """One reading of an arm to which every order is the same."""
    return [one for one in readings if one.setting.atom_order != "formula" or one.order == "truth"]


def _given(one: Reading) -> str:
    return "any order" if one.setting.atom_order == "formula" else _ORDER_TITLES[one.order]


def _leak_cells(one: Reading) -> tuple[str, ...]:
    by_step = {level["t"]: level for level in one.noise_levels}
    return (
        one.setting.title,
        _given(one),
        str(one.result["steps"]),
        *(_interval(one.estimates, name) for name in ("top_1", "any_sample", "tanimoto_10")),
        _mean(one.estimates, "valid"),
        *(_level(by_step, t, "bond_f1") for t in NOISE_STEPS),
        *(_level(by_step, t, "cross_entropy") for t in (250, 500)),
    )


def _ablation_cells(row: Row) -> tuple[str, ...]:
    by_step = {level["t"]: level for level in row.result["orders"]["formula"]["noise_levels"]}
    paper = row.variant.paper
    theirs = ("",) * 3
    if paper is not None:
        theirs = (f"{paper.top_1:.2f}", f"{paper.top_10:.2f}", f"{paper.tanimoto_10:.2f}")
    return (
        row.variant.title,
        f"{row.result['parameters']:,}",
        str(row.result["steps"]),
        *(_interval(row.estimates, name) for name in ("top_1", "top_10", "tanimoto_10")),
        _interval(row.minus_full, "tanimoto_10") if row.minus_full else "",
        _mean(row.estimates, "valid"),
        *(_level(by_step, t, "cross_entropy") for t in (50, 250, 500)),
        *theirs,
    )


def _level(by_step: Mapping[float, Mapping[str, float]], t: int, name: str) -> str:
    return f"{by_step[t][name]:.3f}" if t in by_step else ""


def _interval(estimates: Mapping[str, Estimate], name: str) -> str:
    one, digits, scale = estimates[name], 3, 1.0
    if math.isnan(one.mean):
        return "-"
    if name in _SHARES:
        digits, scale = 1, 100.0
    low, mean, high = (f"{scale * part:.{digits}f}" for part in (one.low, one.mean, one.high))
    return f"{mean} ({low} to {high})"


def _mean(estimates: Mapping[str, Estimate], name: str) -> str:
    return f"{100 * estimates[name].mean:.1f}"


def _plain(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
    return {name: asdict(one) for name, one in estimates.items()}


def _record(known: Circumstances, rows: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "duallgd": __version__,
        "command": known.command,
        "budget": known.budget,
        "runtime": str(known.runtime),
        "processor": processor(),
        "torch": torch.__version__,
        "seed": known.seed,
        "samples": known.samples,
        "steps": known.steps,
        **rows,
    }
