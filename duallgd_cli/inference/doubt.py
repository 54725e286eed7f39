"""When the samples of a spectrum repeat one another: what they are told is then doubted.

An encoder can be sure of a wrong fingerprint. The denoiser then draws the same few molecules over
and over, and each further sample says nothing new. The last samples of such a spectrum are drawn
with softer probabilities: nearer to all molecules of the formula, farther from the spectrum.

Letters: S samples, N atoms, M = N (N - 1) / 2 pairs, F fingerprint bits.
"""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Samples that must be drawn before it can be said whether they repeat one another.
_ENOUGH: Final = 20
# Share of the samples that are the same graph from which on they do.
_REPEATED: Final = 0.2
# What the log-odds of a doubted bit are multiplied by.
_SHARPNESS: Final = 0.25
_ROUNDS: Final = 8


def repeated(bond_class: NDArray[np.int64], atom_class: NDArray[np.int64]) -> bool:
    """Whether too many samples are one and the same molecule, however its atoms are numbered.

    Args:
        bond_class: (S, M), in row-major order of the strict upper triangle.
        atom_class: Elements, (N,).
    """
    if len(bond_class) < _ENOUGH:
        return False
    _, counts = np.unique(graph_keys(bond_class, atom_class), return_counts=True)
    return bool(counts.max() >= _REPEATED * len(bond_class))


def doubted(probability: Tensor) -> Tensor:
    """Probabilities of bits, any shape, moved towards one half in log-odds."""
    return torch.sigmoid(_SHARPNESS * torch.logit(probability, 1e-9))


def graph_keys(bond_class: NDArray[np.int64], atom_class: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers that are the same for graphs that differ in the numbering of their atoms alone.

    Weisfeiler-Leman refinement: an atom's label takes up those of its neighbours, eight times; the
    sum of the last labels is the key. Few other graphs share one.

    Args:
        bond_class: (S, M).
        atom_class: (N,).

    Returns:
        (S,).
    """
    n = len(atom_class)
    low, high = np.triu_indices(n, 1)
    square = np.zeros((len(bond_class), n, n), np.uint64)
    square[:, low, high] = square[:, high, low] = bond_class
    bonded = square > 0
    label = np.broadcast_to(_mixed(atom_class.astype(np.uint64)), square.shape[:2])
    for _ in range(_ROUNDS):
        met = np.where(bonded, _mixed(label[:, None, :] + square), 0)
        label = _mixed(3 * label + met.sum(2, dtype=np.uint64))
    keys: NDArray[np.uint64] = label.sum(1, dtype=np.uint64)
    return keys


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scattered over 64 bits, so that sums tell sets apart (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
