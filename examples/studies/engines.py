"""What OpenVINO is worth to `predict` on a CPU, next to PyTorch.

    python examples/studies/engines.py --atoms 15,30,60

Draws the samples of one formula from noise with either engine in turn, on one thread, and prints
for each size and precision the processor time of both (medians), its ratio, the share of samples
whose graphs are equal, and the same share of two precisions of PyTorch.
"""

import time
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import command
import typer
from rewritten import made_condition
from rich.table import Table
from torch import Tensor

from duallgd_cli.config import SamplingSettings
from duallgd_cli.generator.network import ModelGenerator, load_model
from duallgd_cli.runtime import Runtime

_PRECISIONS = ("float32", "bfloat16")
_ENGINES = ("torch", "openvino")
Key = tuple[str, str]  # engine and precision


@dataclass(frozen=True)
class Drawn:
    """One engine in one precision.

    Attributes:
        seconds: Processor time of drawing all samples, median.
        bonds: Graphs, (S, M).
    """

    seconds: float
    bonds: Tensor


def loaded(precisions: tuple[str, ...], weights: str | None) -> dict[Key, ModelGenerator]:
    """The network on each engine in each precision, on one thread."""
    found: dict[Key, ModelGenerator] = {}
    for precision in precisions:
        for engine in _ENGINES:
            runtime = Runtime.resolve("cpu", precision, threads=1, engine=engine)
            generator = load_model(weights, runtime).generator
            assert isinstance(generator, ModelGenerator), "the authors' network has one engine"
            found[engine, precision] = generator
    return found


def draw(
    generators: dict[Key, ModelGenerator], n_atoms: int, settings: SamplingSettings, repeats: int
) -> dict[Key, Drawn]:
    """Samples of one made formula by each engine in each precision, in turn.

    Args:
        generators: From `loaded`.
        n_atoms: Heavy atoms.
        settings: Samples, steps.
        repeats: Of the whole, after one that warms up.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in generators}
    bonds = {}
    for _ in range(repeats + 1):
        for key, generator in generators.items():
            condition = made_condition(n_atoms, generator.model.settings.memory_bits)
            started = time.process_time()
            bonds[key] = generator.draw_given(condition, settings, seed=0)[0].bond_class
            seconds[key].append(time.process_time() - started)
    return {key: Drawn(median(seconds[key][1:]), bonds[key]) for key in generators}


def equal_share(one: Drawn, other: Drawn) -> float:
    """Share of samples whose graphs are equal."""
    return float((one.bonds == other.bonds).all(1).float().mean())


def main(
    atoms: Annotated[str, typer.Option(help="Heavy atoms, with commas.")] = "15,30,60",
    samples: Annotated[int, typer.Option(min=1, help="Samples of each size.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each sample.")] = 10,
    weights: Annotated[str | None, typer.Option(help="Weights file; default: shipped.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Draws of each engine.")] = 3,
) -> None:
    """Compare the engines: time and graphs."""
    settings = SamplingSettings(samples=samples, steps=steps)
    generators = loaded(_PRECISIONS, weights)
    table = Table("heavy atoms", "precision", "torch, s", "openvino, s", "times faster")
    table.add_column("equal graphs")
    table.add_column("equal to float32, torch")
    for n_atoms in (int(number) for number in atoms.split(",")):
        found = draw(generators, n_atoms, settings, repeats)
        for precision in _PRECISIONS:
            old, new = found["torch", precision], found["openvino", precision]
            shares = equal_share(old, new), equal_share(old, found["torch", "float32"])
            times = f"{old.seconds:.2f}", f"{new.seconds:.2f}", f"{old.seconds / new.seconds:.2f}"
            table.add_row(str(n_atoms), precision, *times, *(f"{100 * s:.0f} %" for s in shares))
    command.show(table)


if __name__ == "__main__":
    command.run(main)
