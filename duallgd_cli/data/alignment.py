"""Which atom of one molecule is which of another: the labelling under which most bonds agree.

The best labelling is a quadratic assignment, which nobody solves exactly in milliseconds. Here
atoms are paired one by one, each time the two that look most alike and have most neighbours paired
already; then pairs swap as long as that makes more bonds agree. The best of a few tries is taken.

Letters: N atoms.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_TRIES: Final = 4
# Bonds from an atom up to which its neighbourhood is compared.
_RADIUS: Final = 4
# What a bond to a pair of atoms that are paired already is worth, next to a radius alike; half of
# it if the two bonds are of different kinds.
_BOND_WORTH: Final = 3.0
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)


def aligned(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    atom_class: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Label the atoms of a graph so that its bonds agree with those of another.

    Args:
        one: Bond classes to agree with, symmetric, (N, N).
        other: Bond classes of the graph to label, symmetric, (N, N).
        atom_class: Elements of the atoms, the same of both, (N,).
        generator: Every try but the first takes what looks equally alike, or nearly, at random.

    Returns:
        For each atom of `one` an atom of `other` of the same element, (N,); a permutation.
    """
    alike = _alike(one, other, atom_class)
    n = len(atom_class)
    tries = [alike, *(alike + generator.random((n, n)) for _ in range(_TRIES - 1))]
    found = [_swapped(one, other, atom_class, _paired(one, other, worth)) for worth in tries]
    return max(found, key=lambda chosen: _agreeing(one, other, chosen))


def _agreeing(one: NDArray[np.int64], other: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
    return int(((one > 0) & (one == other[np.ix_(chosen, chosen)])).sum())


def _paired(
    one: NDArray[np.int64], other: NDArray[np.int64], alike: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Pairs one by one, the most alike first."""
    n, worth = len(one), alike.copy()
    bonded = [np.flatnonzero(row) for row in one], [np.flatnonzero(row) for row in other]
    chosen = np.empty(n, np.int64)
    for _ in range(n):
        i, j = divmod(int(worth.argmax()), n)
        chosen[i] = j
        worth[i], worth[:, j] = -np.inf, -np.inf
        here, there = bonded[0][i], bonded[1][j]
        same = one[i, here][:, None] == other[j, there]
        worth[np.ix_(here, there)] += _BOND_WORTH * np.where(same, 1.0, 0.5)
    return chosen


def _alike(
    one: NDArray[np.int64], other: NDArray[np.int64], atom_class: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Radii up to which the neighbourhoods of two atoms are the same; -inf for two elements."""
    apart = atom_class[:, None] != atom_class
    worth = np.where(apart, -np.inf, 0.0)
    labels = [_mixed(atom_class.astype(np.uint64) + np.uint64(1)) for _ in range(2)]
    weights = [_mixed(graph.astype(np.uint64)) * (graph > 0) for graph in (one, other)]
    for _ in range(_RADIUS):
        labels = [
            _mixed(label + (weight * label).sum(1, dtype=np.uint64))
            for label, weight in zip(labels, weights, strict=True)
        ]
        worth += labels[0][:, None] == labels[1]
    return worth


def _swapped(
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    atom_class: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Pairs swapped, the best swap first, as long as more bonds agree."""
    kinds = [kind for kind in np.unique(one) if kind]
    mine = [(one == kind).astype(np.float32) for kind in kinds]
    apart = atom_class[:, None] != atom_class
    for _ in chosen:
        now = other[np.ix_(chosen, chosen)]
        theirs = [(now == kind).astype(np.float32) for kind in kinds]
        # Bonds of atom i that would agree if it were paired with what j is paired with now.
        agree = sum((a @ b for a, b in zip(mine, theirs, strict=True)), np.zeros(one.shape))
        own = agree.diagonal()
        gain = agree + agree.T - own[:, None] - own
        # A bond between the two is counted as agreeing with itself; it stays as it is.
        gain += 2 * ((one == now) & (one > 0))
        gain[apart] = 0
        i, j = divmod(int(gain.argmax()), len(one))
        if gain[i, j] <= 0:
            break
        chosen[[i, j]] = chosen[[j, i]]
    return chosen


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread over all bits, so that sums of different values are hardly ever the same."""
    value = (value ^ (value >> np.uint64(31))) * _MIXER
    return value ^ (value >> np.uint64(29))
