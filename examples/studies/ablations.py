"""What each part of the network is worth: one part replaced, the same budget for all.

    python examples/studies/ablations.py --data prepared/structures --budget 5m -o ablations

Trains every variant on fold train of prepared structures ('duallgd data structures'), atoms sorted
by element and nothing of the answer in the input, and judges by finished samples on fold dev, given
true fingerprints. Prints the paper's table of ablations beside ours, as it stands in
examples/benchmarks/ablations.md with how to read it. The same command again goes on with an
interrupted study. Weights of a variant, in its model.safetensors, are run by this study alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import command
import typer
from arms import Arm, Budget, Result, Study, at_step, estimates, interval, plain, write_table
from judging import HeldOut, even_jumps

from duallgd_cli.cli import options
from duallgd_cli.config import assigned, dump, merge, parse
from duallgd_cli.evaluate.intervals import Estimate
from duallgd_cli.runtime import Runtime
from duallgd_cli.train.settings import RunSettings, run_settings

SETTINGS: Final = Path(__file__).with_suffix(".yaml")
REFERENCE: Final = "full"
CITATION: Final = "the paper's table of ablations (label tab:ablation_crossattn), NPLIB1"


@dataclass(frozen=True, slots=True)
class Variant:
    """One network to compare.

    Attributes:
        title: In tables.
        changes: Dotted assignments, as after ``--set``.
        paper: The paper's row, or None: top-1 and top-10 in per cent, Tanimoto@10.
    """

    title: str
    changes: tuple[str, ...] = ()
    paper: tuple[float, float, float] | None = None


def _network(name: str) -> tuple[str, ...]:
    return (f"model.variant={name}",)


VARIANTS: Final = {
    "full": Variant("full network", paper=(25.53, 33.75, 0.58)),
    "single-stream": Variant(
        "without line graph (single stream)", _network("single-stream"), (2.24, 6.23, 0.35)
    ),
    "no-cross-attention": Variant(
        "without cross-attention", _network("no-cross-attention"), (0.62, 1.37, 0.22)
    ),
    "atoms-to-bonds": Variant(
        "atoms to bonds only", _network("atoms-to-bonds"), (2.37, 3.99, 0.29)
    ),
    "bonds-to-atoms": Variant(
        "bonds to atoms only", _network("bonds-to-atoms"), (0.00, 1.00, 0.19)
    ),
    "no-incidence-mask": Variant(
        "without incidence mask", _network("no-incidence-mask"), (0.25, 1.00, 0.20)
    ),
    "softmax": Variant("exact softmax for FAVOR+", ("model.denoiser.pair_features=0",)),
    "no-bit-attention": Variant("without bit attention", _network("no-bit-attention")),
    "no-positions": Variant("no positions", _network("no-positions")),
    # Positions that are seen while the noise is high, and not where chemistry is decided.
    "fading-positions": Variant(
        "positions that fade with the noise",
        ("model.denoiser.fade_from=100", "model.denoiser.fade_to=300"),
    ),
    "random-labels": Variant("random labels", ("training.data.shuffle_share=1.0",)),
    "mixed-labels": Variant("half of the labels random", ("training.data.shuffle_share=0.5",)),
    "narrow": Variant(
        "two thirds of the width",
        (
            "model.denoiser.atom_width=128",
            "model.denoiser.pair_width=48",
            "model.denoiser.cross_width=48",
        ),
    ),
    "muon": Variant("Muon for the matrices", ("training.optimiser.matrices=muon",)),
}


def ablations(
    data: command.Data,
    output: command.Output,
    budget: command.TimeBudget = None,
    steps: command.Steps = None,
    variants: Annotated[
        str | None, typer.Option(help="Some of the variants, with commas; all if absent.")
    ] = None,
    encoder: Annotated[
        Path | None,
        typer.Option(help="Weights whose encoder the checkpoints take along, for 'evaluate'."),
    ] = None,
    molecules: command.Molecules = 300,
    samples: command.Samples = 20,
    config: command.Config = str(SETTINGS),
    overrides: options.Assignments = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    threads: options.Threads = None,
) -> None:
    """What each part of the network is worth: one part replaced, the same budget for all.

    Trains every variant on fold train of prepared structures, atoms sorted by element, and judges
    by finished samples on fold dev, given true fingerprints. Prints the paper's table beside ours.
    """
    study = Study(
        output,
        Budget.parse(budget, steps),
        run_settings(config, overrides or []),
        even_jumps(samples),
        molecules,
        Runtime.resolve(device, precision, compile="off", threads=threads),
    )
    names = command.names_in(variants, "variant", VARIANTS)
    write_ablations(study, trained(study, data, names, encoder))


def trained(
    study: Study, data: Path, names: Sequence[str], encoder: Path | None = None
) -> dict[str, Result]:
    """Train and judge every variant that is not finished yet; what was found, by name."""
    held_out = HeldOut(data, limit=study.molecules, max_atoms=study.max_atoms)
    held_out.structures()  # nothing is trained that could not be judged
    init = {} if encoder is None else {"encoder": encoder}
    return {name: study.run(arm_of(study, data, name, init), (held_out,)) for name in names}


def arm_of(study: Study, data: Path, name: str, init: dict[str, Path]) -> Arm:
    """The training of one variant."""
    changes = assigned(list(VARIANTS[name].changes))
    settings = parse(RunSettings, merge(dump(study.settings_of(data)), changes))
    return Arm(name, VARIANTS[name].title, settings, data, init=init)


def write_ablations(study: Study, results: Mapping[str, Result]) -> None:
    """Write and print our figures beside the paper's."""
    differences = {name: minus_full(results, name) for name in results}
    found = {name: estimates([_finished(one)]) for name, one in results.items()}
    rows = [_cells(name, results[name], found[name], differences[name]) for name in results]
    record = [
        {
            "name": name,
            "title": VARIANTS[name].title,
            "changes": list(VARIANTS[name].changes),
            "steps": result["steps"],
            "parameters": result["parameters"],
            "noise_levels": result["orders"]["formula"]["noise_levels"],
            "estimates": plain(found[name]),
            "minus_full": plain(differences[name]),
            "paper": VARIANTS[name].paper,  # top-1, top-10, Tanimoto@10
        }
        for name, result in results.items()
    ]
    caption = (
        f"{study.caption(next(iter(results.values())))} Honest protocol: atoms sorted by element. "
        f"Right of it {CITATION}: from spectra, trained in full, with the atoms of the true "
        "molecule in the order of its SMILES; compare the orders of rows, not the numbers."
    )
    header = (
        "variant", "parameters", "steps", "top-1 / %", "top-10 / %", "Tanimoto@10",
        "less full network", "valid / %", "NLL t=50", "250", "500",
        "paper top-1 / %", "paper top-10 / %", "paper Tanimoto@10",
    )  # fmt: skip
    write_table(
        study.output / "ablations",
        ("What each part of the network is worth", caption),
        header,
        rows,
        lambda cells: (cells[0], *cells[3:6], *cells[11:]),
        study.record(record),
    )


def minus_full(results: Mapping[str, Result], name: str) -> dict[str, Estimate]:
    """Differences to the full network, molecule by molecule; empty without it."""
    full = results.get(REFERENCE)
    return {} if full is None else estimates([_finished(results[name]), _finished(full)])


def _finished(result: Result) -> dict[str, list[float]]:
    """Figures of finished samples by column, a number a molecule."""
    finished: dict[str, list[float]] = result["orders"]["formula"]["finished"]
    return finished


def _cells(
    name: str, result: Result, found: dict[str, Estimate], difference: dict[str, Estimate]
) -> list[str]:
    levels = result["orders"]["formula"]["noise_levels"]
    paper = VARIANTS[name].paper
    return [
        VARIANTS[name].title,
        f"{result['parameters']:,}",
        str(result["steps"]),
        *(interval(found, column) for column in ("top_1", "top_10", "tanimoto_10")),
        interval(difference, "tanimoto_10") if difference else "",
        f"{100 * found['valid'].mean:.1f}",
        *(at_step(levels, t, "cross_entropy") for t in (50, 250, 500)),
        *([""] * 3 if paper is None else (f"{value:.2f}" for value in paper)),
    ]


if __name__ == "__main__":
    command.run(ablations)
