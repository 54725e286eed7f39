"""Where the atoms of a known core or part stand among those of a formula.

The network learnt molecules whose atoms of one element stand in the order of the canonical SMILES.
In a known molecule that holds the core the order is known. Otherwise it is guessed: of places in
made-up molecules those are taken whose bonds the network expects by itself.

All places are different where there are many.

S samples, A atoms of the core, N heavy atoms, M = N (N - 1) / 2 pairs, C bond classes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from duallgd_cli.chem.formula import Formula
from duallgd_cli.data.molecular_graph import MolecularGraph
from duallgd_cli.generator.templates import bonds_between, placed

if TYPE_CHECKING:  # the network is measured where no rdkit is
    from duallgd_cli.chem.guide import Core

FREE: Final = -1  # a bond that is not held
# Molecules that are made up for a core, and how much the network's log-probabilities count among
# their places: less than all, since it expects bonds one by one.
_MADE_UP: Final = 400
_WEIGHT: Final = 0.5
_LEAST: Final = 1e-6


def in_templates(
    known: Sequence[tuple[MolecularGraph, NDArray[np.int64]]],
    formula: Formula,
    samples: int,
    seed: int,
    core: "Core | None" = None,
) -> tuple[Tensor, Tensor]:
    """Graphs of a formula to start samples from, and the bonds to hold, both int64 (S, M).

    Args:
        known: Molecules, at least one, and those of their atoms that are never cut off.
        formula: Of the unknown.
        samples: S; they take the molecules in turn.
        seed: Of what is cut off.
        core: Its bonds are held between these atoms, which are in its order; None for the
            molecule's own bonds between them.
    """
    generator, atoms = np.random.default_rng(seed), formula.atom_class
    begun, held = [], []
    for sample in range(samples):
        graph, match = known[sample % len(known)]
        place = placed(graph, atoms, generator, match)
        bonds = bonds_between(graph, place, len(atoms))
        begun.append(bonds)
        if core is None:
            inside = np.isin(np.stack(np.triu_indices(len(atoms), 1)), place[match]).all(0)
            held.append(np.where(inside, bonds, FREE))
        else:
            held.append(core.held(formula, place[None, match])[0].astype(np.int64))
    return torch.from_numpy(np.stack(begun)), torch.from_numpy(np.stack(held))


def likely_places(
    core: "Core", formula: Formula, probability: NDArray[np.float32], samples: int, seed: int
) -> Tensor:
    """A core's bonds between the atoms of a formula, int64 (S, M), those in likelier places first.

    Args:
        core: A substructure.
        formula: That has all its atoms.
        probability: Of the bonds, as the network expects them without knowing the core, (M, C).
        samples: S.
        seed: Of the molecules that are made up, and of the choice.
    """
    places = core.places(formula, _MADE_UP, seed)
    n, (first, second) = formula.n_heavy, np.triu_indices(len(core.element), 1)
    square = np.zeros((n, n, probability.shape[-1]))
    rows, columns = np.triu_indices(n, 1)
    square[rows, columns] = square[columns, rows] = np.log(np.maximum(probability, _LEAST))
    bonds = core.bonds[0][first, second]
    known = bonds >= 0
    pairs = places[:, first[known]], places[:, second[known]]
    score = _WEIGHT * square[(*pairs, bonds[known])].sum(1)
    chance = np.random.default_rng(seed).gumbel(size=len(places))
    order = np.argsort(-(score + chance), kind="stable")
    chosen = places[order[np.arange(samples) % len(order)]]
    return torch.from_numpy(core.held(formula, chosen)).long()
