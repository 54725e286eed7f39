"""Cores that are given to the network while it trains: a connected part of a molecule's atoms.

Half of them are what a chemist is likely to know: rings with what links them, whole or in part. The
others are any part. Letters: B graphs, N atoms (padded).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_RING_SHARE: Final = 0.5
_WHOLE_SHARE: Final = 0.5
_LEAST_SHARE: Final = 0.2
_GROWS: Final = 0.7
_CLOSED_SHARE: Final = 0.25


def known_pairs(
    bond_class: NDArray[np.int64], n_heavy: NDArray[np.int64], generator: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """A core of each molecule.

    Args:
        bond_class: Classes between all atoms, (B, N, N).
        n_heavy: Real atoms of each, (B,).
        generator: Chooses.

    Returns:
        Atoms of the core, (B, N), and pairs whose class is known, (B, N, N): those inside it and,
        for some molecules, all pairs of core atoms that nothing else is bonded to.
    """
    bonded, n_graphs = bond_class > 0, len(bond_class)
    allowed = np.arange(bonded.shape[1]) < n_heavy[:, None]
    rings = _without_ends(bonded, allowed)
    in_rings = (generator.random(n_graphs) < _RING_SHARE) & rings.any(1)
    allowed = np.where(in_rings[:, None], rings, allowed)
    share = generator.uniform(_LEAST_SHARE, 1, n_graphs)
    share[generator.random(n_graphs) < _WHOLE_SHARE * in_rings] = 1
    core = _grown(bonded, allowed, np.ceil(share * allowed.sum(1)), generator)
    is_open = (bonded & core[:, :, None] & ~core[:, None]).any(2)
    closed = core & ~is_open & (generator.random(n_graphs) < _CLOSED_SHARE)[:, None]
    known = core[:, :, None] & core[:, None]
    return core, known | closed[:, :, None] | closed[:, None]


def _without_ends(bonded: NDArray[np.bool_], atoms: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Atoms left when chains are taken off end by end, (B, N): rings and what links them."""
    while True:
        left: NDArray[np.bool_] = atoms & ((bonded & atoms[:, None]).sum(2) > 1)
        if (left == atoms).all():
            return left
        atoms = left


def _grown(
    bonded: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    size: NDArray[np.float64],
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Connected atoms among those allowed, at least as many as `size` where they reach, (B, N)."""
    first = np.where(allowed, generator.random(allowed.shape), -1).argmax(1)
    core: NDArray[np.bool_] = np.arange(allowed.shape[1]) == first[:, None]
    while True:
        near = (bonded & core[:, None]).any(2) & allowed & ~core
        near[core.sum(1) >= size] = False
        if not near.any():
            return core
        core |= near & (generator.random(near.shape) < _GROWS)
