"""Inputs of the measured networks, made from a seed: formula, noisy bonds, states of pairs.

Letters: B graphs, N atoms, M pairs, E channels of a pair.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from duallgd_cli.bench.speed.cells import Cell
from duallgd_cli.chem.elements import HYDROGEN, INDEX, N_ELEMENTS, N_HEAVY
from duallgd_cli.diffusion.schedule import alpha_bar
from duallgd_cli.diffusion.transition import draw_classes
from duallgd_cli.model.condition import Condition, keep_bits
from duallgd_cli.runtime import Runtime

# A single evaluation is measured halfway between noise and molecule.
HALFWAY: Final = 2


@dataclass(frozen=True, eq=False)
class Job:
    """What is run at one cell.

    Attributes:
        run: Does the work once; its tensor is what both paths are compared by.
        measured: Module whose parameters the work reads.
        at_once: Candidates in one evaluation of the network.
    """

    run: Callable[[], Tensor]
    measured: nn.Module
    at_once: int


def recorded_at_first(run: Callable[[], Tensor], runtime: Runtime) -> Callable[[], Tensor]:
    """A function that is recorded at its first call, where a runtime records at all.

    Args:
        run: As `Runtime.record` takes it.
        runtime: Of the device.
    """
    made: list[Callable[[], Tensor]] = []

    def replay() -> Tensor:
        if not made:
            made.append(runtime.record(run))
        return made[0]()

    return replay if runtime.records else run


def element_counts(n_atoms: int) -> Tensor:
    """A formula of N heavy atoms in about the proportions of natural products, int64."""
    counts = torch.zeros(N_ELEMENTS, dtype=torch.long)
    counts[INDEX["N"]], counts[INDEX["O"]] = n_atoms // 15, n_atoms // 4
    counts[INDEX["C"]] = n_atoms - counts.sum()
    counts[HYDROGEN] = n_atoms
    return counts


def atom_classes(n_atoms: int) -> Tensor:
    """Heavy atoms of that formula sorted by element, int64 (N,)."""
    return torch.arange(N_HEAVY).repeat_interleave(element_counts(n_atoms)[:N_HEAVY])


def condition_of(cell: Cell, fingerprint_bits: int, memory_bits: int) -> Condition:
    """What the default network is told: that formula, and bits most of which are unlikely."""
    generator = torch.Generator().manual_seed(cell.subject.seed)
    probability = torch.rand(1, fingerprint_bits, generator=generator).pow(8)
    atom_class = atom_classes(cell.atoms)[None]
    return Condition(
        atom_class,
        torch.ones_like(atom_class, dtype=torch.bool),
        element_counts(cell.atoms)[None].float(),
        torch.zeros(1),
        *keep_bits(probability, memory_bits),
    )


def noisy_bonds(cell: Cell, marginal: tuple[float, ...], n_steps: int) -> Tensor:
    """Classes of a chain of atoms under noise halfway to the end, int64 (B, M)."""
    low, high = torch.triu_indices(cell.atoms, cell.atoms, 1)
    chain = (high - low == 1).long().expand(cell.samples, -1)
    keep = alpha_bar(n_steps)[n_steps // HALFWAY]
    generator = torch.Generator().manual_seed(cell.subject.seed)
    uniform = torch.rand(2, *chain.shape, generator=generator)
    redrawn = draw_classes(torch.tensor(marginal).expand(*chain.shape, -1), uniform[1])
    return torch.where(uniform[0] < keep, chain, redrawn)


def pair_states(cell: Cell, width: int) -> Tensor:
    """States of pairs, standard normal, float32 (B, M, E)."""
    generator = torch.Generator().manual_seed(cell.subject.seed)
    return torch.randn(cell.samples, cell.pairs, width, generator=generator)
