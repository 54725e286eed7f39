"""How much of an accuracy is read from the order of the atoms.

    python examples/studies/leak.py --data prepared/structures --budget 3m -o leak

The published system lists the true molecule's atoms in the order of its canonical SMILES, and its
pair tokens tell the lower atom from the higher. This study trains the authors' network at a narrow
size once so and once with atoms sorted by element, as a formula lists them; and ours beside them.
All see the same molecules ('duallgd data structures'), the same true fingerprints and the same
budget. Each is judged with the atoms given in the true order, in a random one and in the formula's.
Prints what examples/benchmarks/leak.md holds; the same command again goes on where it was.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import command
import typer
from arms import Arm, Budget, Result, Study, at_step, estimates, interval, plain, write_table
from atom_orders import AtomOrder, OrderSelection, prepare_orders
from judging import NOISE_STEPS, HeldOut, even_jumps

from duallgd_cli.cli import options
from duallgd_cli.cli.display import counting
from duallgd_cli.model.settings import FULL
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.settings import run_settings

SETTINGS: Final = Path(__file__).with_suffix(".yaml")
ORDERS: Final[tuple[AtomOrder, ...]] = ("truth", "random", "formula")
_ORDER_TITLES: Final = {"truth": "true", "random": "random", "formula": "formula"}
_STYLES: Final = {"truth": "-", "random": ":", "formula": "--"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One arm of the study.

    Attributes:
        title: In tables.
        variant: Which network, of `networks.VARIANTS`.
        atom_order: In which it is trained.
        blind: Whether it gets no fingerprint at all.
    """

    title: str
    variant: str
    atom_order: AtomOrder
    blind: bool = False


SETTINGS_OF: Final = {
    "published": Setting("as published: true order", "published", "truth"),
    "published-blind": Setting(
        "as published, no fingerprint: true order alone", "published", "truth", blind=True
    ),
    "sorted": Setting("same network, element-sorted", "published", "formula"),
    "duallgd": Setting("our network, element-sorted", FULL, "formula"),
}


def leak(
    data: command.Data,
    output: command.Output,
    budget: command.TimeBudget = None,
    steps: command.Steps = None,
    arms: Annotated[
        str | None,
        typer.Option(help="Some of published, published-blind, sorted, duallgd, with commas."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=2, help="Molecules of 6 to 12 heavy atoms, at most.")
    ] = 8_000,
    molecules: command.Molecules = 200,
    samples: command.Samples = 10,
    config: command.Config = str(SETTINGS),
    overrides: options.Assignments = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
) -> None:
    """What the published system reads from the order of the true molecule's atoms.

    Trains the authors' network at a narrow size with atoms in the order of the true canonical
    SMILES, as published, and with atoms sorted by element; and ours. Each is judged with the atoms
    given in the true order, in a random one and in the formula's. The order is derived with rdkit,
    once, into `data` in the output folder.
    """
    study = Study(
        output,
        Budget.parse(budget, steps),
        run_settings(config, overrides or []),
        even_jumps(samples),
        molecules,
        Runtime.resolve(device, precision, compile="off", threads=threads),
    )
    names = command.names_in(arms, "arm", SETTINGS_OF)
    selection = OrderSelection(largest=study.max_atoms, limit=limit, held_out=molecules)
    with counting("molecules put together") as advance:
        prepare_orders(data, output / "data", selection, advance)
    write_leak(study, trained(study, output / "data", names))


def trained(study: Study, data: Path, names: Sequence[str]) -> dict[str, Result]:
    """Train and judge every arm that is not finished yet.

    Args:
        study: What all arms have in common.
        data: Folder made by `atom_orders.prepare_orders`; ``NAME-blind`` lies beside it.
        names: Arms, in the order of the table.
    """
    common = study.settings_of(data)
    results: dict[str, Result] = {}
    for name in names:
        setting = SETTINGS_OF[name]
        folder = data.with_name(f"{data.name}-blind") if setting.blind else data
        settings = replace(common, model=replace(common.model, variant=setting.variant))
        one = HeldOut(folder, limit=study.molecules, max_atoms=study.max_atoms, truth=data)
        results[name] = study.run(
            Arm(name, setting.title, settings, folder, setting.atom_order),
            [replace(one, order=order) for order in ORDERS],
        )
    return results


def write_leak(study: Study, results: Mapping[str, Result]) -> None:
    """Write and print accuracy and bond F1 by the order in which the atoms are given; draw F1."""
    every = [(name, order) for name in results for order in ORDERS]
    # One row of an arm to which every order is the same.
    distinct = [
        (name, order)
        for name, order in every
        if SETTINGS_OF[name].atom_order != "formula" or order == "truth"
    ]
    record = [
        {
            "name": name,
            "title": SETTINGS_OF[name].title,
            "order": order,
            "steps": results[name]["steps"],
            "parameters": results[name]["parameters"],
            "noise_levels": results[name]["orders"][order]["noise_levels"],
            "estimates": plain(estimates([results[name]["orders"][order]["finished"]])),
        }
        for name, order in every
    ]
    caption = (
        f"{study.caption(next(iter(results.values())))} F1 is that of typed bonds guessed from a "
        "graph noised to step t; at t = 500 it is pure noise. Element-sorted arms list the atoms "
        "by element whatever order they come in, so their rows are one; a fixed order of the "
        "targets lowers their cross entropy too, which is no leak, so compare arms by finished "
        "samples."
    )
    header = (
        "trained", "atoms given in", "steps", "top-1 / %", "any sample / %", "Tanimoto@10",
        "valid / %", *(f"F1 t={t}" for t in NOISE_STEPS), "CE t=250", "CE t=500",
    )  # fmt: skip
    draw(study.output / "leak.svg", results, distinct)
    write_table(
        study.output / "leak",
        ("What is read from the order of the true molecule's atoms", caption),
        header,
        [_cells(name, order, results[name]) for name, order in distinct],
        lambda cells: (*cells[:2], *cells[3:6], cells[9], cells[11]),
        study.record(record),
    )


def draw(path: Path, results: Mapping[str, Result], rows: Sequence[tuple[str, AtomOrder]]) -> None:
    """Draw bond F1 by noise level as SVG; without matplotlib a message says that nothing is."""
    if find_spec("matplotlib") is None:
        logging.warning("no plot: matplotlib is missing; pip install 'duallgd[plots]'")
        return
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Letters as text, not as outlines, keep the file small.
    style = str(resources.files("duallgd_cli") / "figures.mplstyle")
    with mpl.rc_context({"svg.fonttype": "none"}, fname=style):
        styles = list(mpl.rcParams["axes.prop_cycle"])
        figure = Figure(figsize=(5.5, 5.2), layout="constrained")
        axis = figure.add_subplot()
        for name, order in rows:
            levels = results[name]["orders"][order]["noise_levels"]
            axis.plot(
                [level["t"] for level in levels],
                [level["bond_f1"] for level in levels],
                **{**styles[list(results).index(name) % len(styles)], "linestyle": _STYLES[order]},
                label=f"{SETTINGS_OF[name].title}; given: {_given(name, order)}",
            )
        axis.set_xlabel("noise step t (500 is pure noise)")
        axis.set_ylabel("F1 of typed bonds")
        axis.set_ylim(0, 1)
        figure.legend(loc="outside lower center", fontsize=7, handlelength=4)
        figure.savefig(path, metadata={"Date": None})


def _given(name: str, order: AtomOrder) -> str:
    return "any order" if SETTINGS_OF[name].atom_order == "formula" else _ORDER_TITLES[order]


def _cells(name: str, order: AtomOrder, result: Mapping[str, Any]) -> list[str]:
    judged = result["orders"][order]
    found, levels = estimates([judged["finished"]]), judged["noise_levels"]
    return [
        SETTINGS_OF[name].title,
        _given(name, order),
        str(result["steps"]),
        *(interval(found, column) for column in ("top_1", "any_sample", "tanimoto_10")),
        f"{100 * found['valid'].mean:.1f}",
        *(at_step(levels, t, "bond_f1") for t in NOISE_STEPS),
        *(at_step(levels, t, "cross_entropy") for t in (250, 500)),
    ]


if __name__ == "__main__":
    command.run(leak)
