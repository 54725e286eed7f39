"""What a noisy bond graph shows at a glance: hops, short walks, valences, cycles.

Everything is a polynomial in the adjacency matrix, so it needs no eigenvectors and is the same on
every machine. Letters: B graphs, N atoms, M pairs.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from duallgd_cli.chem.elements import LOWEST_VALENCES, N_BOND_CLASSES, N_HEAVY
from duallgd_cli.model.line_graph import LineGraph
from duallgd_cli.model.tensors import constants

MAX_HOPS: Final = 6
N_PAIR_TOKENS: Final = N_BOND_CLASSES * (MAX_HOPS + 1)
N_WALKS: Final = 4
N_ATOM_FEATURES: Final = 8
N_GLOBAL_FEATURES: Final = 6

# Bond order of each class; an aromatic bond counts one and a half.
BOND_ORDERS: Final = (0.0, 1.0, 2.0, 3.0, 1.5)
# Usual valence of each heavy element, in the order of `chem.elements.HEAVY`.
USUAL_VALENCES: Final = tuple(float(valence) for valence in LOWEST_VALENCES[:N_HEAVY])


@dataclass(frozen=True, eq=False)
class GraphFeatures:
    """Features of noisy graphs.

    Attributes:
        pair_token: Bond class and hop distance as one index, int64 (B, M).
        walks: log(1 + number of walks of 2 to 5 steps) between the two atoms, (B, M, N_WALKS).
        atoms: Degree, valence, free valence, aromatic bonds, closed walks, (B, N, N_ATOM_FEATURES).
        totals: Bonds, order, free valence against hydrogens, components, (B, N_GLOBAL_FEATURES).
    """

    pair_token: Tensor
    walks: Tensor
    atoms: Tensor
    totals: Tensor


def graph_features(
    bond_class: Tensor, atom_class: Tensor, atom_mask: Tensor, hydrogens: Tensor, graph: LineGraph
) -> GraphFeatures:
    """Compute the features; padded atoms have no bonds and count nowhere.

    Args:
        bond_class: Noisy classes, int64 (B, M); none at padded pairs.
        atom_class: Elements, int64 (B, N).
        atom_mask: Real atoms, bool (B, N).
        hydrogens: Hydrogen atoms of the formula, float (B,).
        graph: Line graph of N atoms.
    """
    order, aromatic, adjacency = _matrices(bond_class, graph)
    powers = [adjacency]
    for _ in range(N_WALKS):
        powers.append(powers[-1] @ adjacency)
    hops = _hops(adjacency)
    degree, valence = adjacency.sum(2), order.sum(2)
    usual = constants(USUAL_VALENCES, order.device)[atom_class]
    free = (usual - valence) * atom_mask
    closed = [_diagonal(powers[2]), _diagonal(powers[3]), _diagonal(powers[4])]
    closed.append((powers[2] * powers[2]).sum(2))
    atoms = torch.stack(
        [degree, valence, free, aromatic.sum(2), *(torch.log1p(c) for c in closed)], 2
    )
    walks = torch.stack([torch.log1p(_upper(p, graph)) for p in powers[1:]], 2)
    pair_token = bond_class * (MAX_HOPS + 1) + _upper(hops, graph)
    return GraphFeatures(pair_token, walks, atoms, _totals(order, free, hydrogens, atom_mask, hops))


def _matrices(bond_class: Tensor, graph: LineGraph) -> tuple[Tensor, Tensor, Tensor]:
    n = graph.n_atoms
    square = pad(bond_class, (0, 1))[:, graph.square].unflatten(1, (n, n))
    order = constants(BOND_ORDERS, bond_class.device)[square]
    aromatic = (square == N_BOND_CLASSES - 1).to(order.dtype)
    return order, aromatic, (square != 0).to(order.dtype)


def _hops(adjacency: Tensor) -> Tensor:
    """Hop distances, int64 (B, N, N), capped at MAX_HOPS; the diagonal is not used."""
    eye = torch.eye(adjacency.shape[1], device=adjacency.device)
    step = adjacency + eye
    reached = step
    hops = torch.full_like(adjacency, MAX_HOPS)
    hops -= adjacency * (MAX_HOPS - 1)
    for distance in range(2, MAX_HOPS):
        now = ((reached @ step) > 0).to(adjacency.dtype)
        hops -= (now - (reached > 0).to(adjacency.dtype)) * (MAX_HOPS - distance)
        reached = now
    return hops.long()


def _totals(
    order: Tensor, free: Tensor, hydrogens: Tensor, atom_mask: Tensor, hops: Tensor
) -> Tensor:
    n = atom_mask.sum(1).to(order.dtype)
    both = atom_mask[:, :, None] & atom_mask[:, None, :]
    far = ((hops >= MAX_HOPS) & both).sum((1, 2)) / n.square()
    bonds = (order > 0).sum((1, 2)) / 2
    isolated = ((order.sum(2) == 0) & atom_mask).sum(1)
    return torch.stack(
        [
            bonds / n,
            order.sum((1, 2)) / (2 * n),
            (free.sum(1) - hydrogens) / n,
            free.clamp(max=0).sum(1) / n,
            far,
            isolated / n,
        ],
        1,
    )


def _upper(square: Tensor, graph: LineGraph) -> Tensor:
    return square[:, graph.first, graph.second]


def _diagonal(square: Tensor) -> Tensor:
    return square.diagonal(dim1=1, dim2=2)
