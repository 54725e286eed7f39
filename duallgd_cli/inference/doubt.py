"""When the samples of a spectrum repeat one another: what they are told is then doubted.

An encoder can be sure of a wrong fingerprint. The denoiser then draws the same few molecules over
and over, and each further sample says nothing new. The last samples of such a spectrum are drawn
with softer probabilities: nearer to all molecules of the formula, farther from the spectrum.

Letters: S samples, N atoms, M = N (N - 1) / 2 pairs, F fingerprint bits.
"""

from typing import Final

import torch
from torch import Tensor

from duallgd_cli.diffusion.counter import scatter_

# Samples that must be drawn before it can be said whether they repeat one another.
_ENOUGH: Final = 20
# Share of the samples that are the same graph from which on they do.
_REPEATED: Final = 0.2
# What the log-odds of a doubted bit are multiplied by.
_SHARPNESS: Final = 0.25
_ROUNDS: Final = 8


def repeated(bond_class: Tensor, atom_class: Tensor) -> bool:
    """Whether too many samples are one and the same molecule, however its atoms are numbered.

    Args:
        bond_class: (S, M), in row-major order of the strict upper triangle.
        atom_class: Elements, (N,).
    """
    if len(bond_class) < _ENOUGH:
        return False
    _, counts = graph_keys(bond_class, atom_class).unique(return_counts=True)
    return bool(counts.max() >= _REPEATED * len(bond_class))


def doubted(probability: Tensor) -> Tensor:
    """Probabilities of bits, any shape, moved towards one half in log-odds."""
    return torch.sigmoid(_SHARPNESS * torch.logit(probability, 1e-9))


def graph_keys(bond_class: Tensor, atom_class: Tensor) -> Tensor:
    """Numbers that are the same for graphs that differ in the numbering of their atoms alone.

    Weisfeiler-Leman refinement: an atom's label takes up those of its neighbours, eight times; the
    sum of the last labels is the key. Few other graphs share one.

    Args:
        bond_class: int64 (S, M).
        atom_class: int64 (N,).

    Returns:
        int64 (S,).
    """
    samples, n = len(bond_class), len(atom_class)
    low, high = torch.triu_indices(n, n, 1)
    sample, pair = bond_class.nonzero(as_tuple=True)
    one, other = sample * n + low[pair], sample * n + high[pair]
    here, there = torch.cat([one, other]), torch.cat([other, one])
    kind = bond_class[sample, pair].repeat(2)
    label = scatter_(atom_class.repeat(samples))
    for _ in range(_ROUNDS):
        met = torch.zeros_like(label).index_add_(0, here, scatter_(label[there] + kind))
        label = scatter_(3 * label + met)
    return label.view(samples, n).sum(1)
