"""What the rewritten network of `predict` is worth on a CPU, next to the modules it stands for.

    python examples/studies/rewritten.py --atoms 15,30,60,100

Prints, for each size and precision, how much longer one evaluation of a chunk takes the modules
(median of interleaved pairs of processor time, one thread), the largest difference of their logits,
and how far each is from the modules in float32 (root mean square).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import command
import torch
import typer
from rich.table import Table
from torch import Tensor

from duallgd_cli.checkpoint import resolve_weights
from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import chunk_size, formula_condition
from duallgd_cli.model.duallgd import Condition
from duallgd_cli.model.rewritten import for_inference, rewritten_for
from duallgd_cli.runtime import Runtime

_STEP = 250
_BIT_SHARE = 30  # exponent that makes uniform numbers as sparse as predicted bits
_BONDS = torch.tensor([0.92, 0.046, 0.007, 0.001, 0.026])  # none, single, double, triple, aromatic


@dataclass(frozen=True)
class Compared:
    """One size in one precision.

    Attributes:
        ratio: Processor time of the modules over that of the rewritten network.
        difference: Largest between their logits.
        modules: Root mean square of the modules' distance from float32.
        rewritten: The same of the rewritten network.
    """

    ratio: float
    difference: float
    modules: float
    rewritten: float


def compare(n_atoms: int, precision: str, weights: Path, pairs: int) -> Compared:
    """Evaluate both on the same noisy graphs of one formula, in turn.

    Args:
        n_atoms: Heavy atoms.
        precision: float32 or bfloat16.
        weights: Weights file.
        pairs: Evaluations of each.
    """
    runtime = Runtime.resolve("cpu", precision, threads=1)
    exact, model = (load(weights).build().eval() for _ in range(2))
    fast = rewritten_for(model, runtime)
    assert fast is not None, "these weights have no random features, so nothing is rewritten"
    model = for_inference(model, runtime)
    generator = torch.Generator().manual_seed(0)
    condition = made_condition(n_atoms, model.settings.memory_bits)
    n_pairs = n_atoms * (n_atoms - 1) // 2
    settings = SamplingSettings()
    samples = chunk_size(n_pairs, settings.samples, settings, runtime.device)
    drawn = torch.multinomial(_BONDS, samples * n_pairs, replacement=True, generator=generator)
    bonds, steps = drawn.view(samples, n_pairs), torch.full((samples,), _STEP)
    truth = exact.denoiser(bonds, steps, exact.denoiser.context(condition).expand(samples))
    with runtime.autocast():
        context = model.denoiser.context(condition)
    repeated, bound = context.expand(samples), fast.bound(context, samples)

    def modules() -> Tensor:
        with runtime.autocast():
            return model.denoiser(bonds, steps, repeated).float()

    def rewritten() -> Tensor:
        return bound(bonds, _STEP)

    old, new = modules(), rewritten()
    return Compared(
        ratio=median(_seconds(modules) / _seconds(rewritten) for _ in range(pairs)),
        difference=float((old - new).abs().max()),
        modules=float((old - truth).square().mean().sqrt()),
        rewritten=float((new - truth).square().mean().sqrt()),
    )


def made_condition(n_atoms: int, memory_bits: int) -> Condition:
    """A formula, three quarters carbon, the rest oxygen and nitrogen, with a made fingerprint."""
    others = n_atoms // 4
    formula = Formula.parse(f"C{n_atoms - others}H{n_atoms}N{others // 2}O{others - others // 2}")
    fingerprint = torch.rand(4096, generator=torch.Generator().manual_seed(0)) ** _BIT_SHARE
    return formula_condition(formula, fingerprint, memory_bits)


def _seconds(evaluate: Callable[[], Tensor]) -> float:
    started = time.process_time()
    evaluate()
    return time.process_time() - started


@torch.inference_mode()
def main(
    atoms: Annotated[str, typer.Option(help="Heavy atoms, with commas.")] = "15,30,60,100",
    precisions: Annotated[str, typer.Option(help="float32, bfloat16.")] = "float32,bfloat16",
    weights: Annotated[str | None, typer.Option(help="Weights file; default: shipped.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved pairs of evaluations.")] = 5,
) -> None:
    """Compare the rewritten network with the modules: time and logits."""
    torch.set_num_threads(1)
    table = Table("precision", "heavy atoms", "times faster", "largest difference", "rms, modules")
    table.add_column("rms, rewritten")
    for precision in command.names_in(precisions, "precision", {"float32": 0, "bfloat16": 0}):
        for n_atoms in (int(number) for number in atoms.split(",")):
            found = compare(n_atoms, precision, resolve_weights(weights), pairs)
            figures = (found.difference, found.modules, found.rewritten)
            row = (f"{found.ratio:.2f}", *(f"{figure:.2g}" for figure in figures))
            table.add_row(precision, str(n_atoms), *row)
    command.show(table)


if __name__ == "__main__":
    command.run(main)
