"""Where the atoms of a known core stand among those of a formula.

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

# Molecules that are made up for a core, and how much the network's log-probabilities count among
# their places: less than all, since it expects bonds one by one.
_MADE_UP: Final = 400
_WEIGHT: Final = 0.5
_LEAST: Final = 1e-6


def in_templates(
    graphs: Sequence[MolecularGraph], core: "Core", formula: Formula, samples: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Graphs of a formula to start samples from, and a core's bonds in them, both int64 (S, M).

    Args:
        graphs: Of known molecules that hold the core, at least one.
        core: Its atoms are never cut off.
        formula: Of the unknown.
        samples: S; they take the molecules in turn.
        seed: Of what is cut off.
    """
    generator, atoms = np.random.default_rng(seed), formula.atom_class
    matches = list(map(core.found, graphs))
    begun, places = [], []
    for sample in range(samples):
        graph, match = graphs[sample % len(graphs)], matches[sample % len(graphs)]
        place = placed(graph, atoms, generator, match)
        begun.append(bonds_between(graph, place, len(atoms)))
        places.append(place[match])
    return torch.from_numpy(np.stack(begun)), _held(core, formula, np.stack(places))


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
    return _held(core, formula, places[order[np.arange(samples) % len(order)]])


def _held(core: "Core", formula: Formula, places: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(core.held(formula, places)).long()
