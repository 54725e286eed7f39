"""What a noisy graph shows of itself to the edges: hop distances and degrees.

Letters: B graphs, N atoms, M pairs, E channels of an edge.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from duallgd_cli.model.line_graph import LineGraph
from duallgd_cli.reference.perceptron import Perceptron
from duallgd_cli.reference.settings import ReferenceDenoiserSettings

N_CLASSES: Final = 5
# The index of "no class at all", which the diagonal shows before the first draw.
NO_CLASS: Final = N_CLASSES
_FAR: Final = 9
_LARGEST_DEGREE: Final = 16


class EdgesIn(nn.Module):
    """Embeds ordered pairs of atoms by bond class, hop distance and degrees.

    The perceptron sees nothing but a class and the distance is one of ten, so both are looked up in
    a table of sixty rows.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.edge_width
        self.classes = Perceptron(N_CLASSES, settings.edge_hidden, width)
        self.structure = nn.Linear(2, width)

    def forward(self, square: Tensor) -> Tensor:
        """Edges, (B, N, N, E).

        Args:
            square: Class of every ordered pair or `NO_CLASS`, int64 (B, N, N), symmetric; padded
                atoms have no bonds.
        """
        weight = self.structure.weight
        shown = torch.eye(N_CLASSES + 1, N_CLASSES, dtype=weight.dtype, device=weight.device)
        distance = torch.arange(_FAR + 1, device=weight.device).to(weight.dtype) / _FAR
        table = relu(self.classes(shown)).unsqueeze(1) + distance[:, None] * weight[:, 0]
        adjacency = bonded(square).float()
        token = square * (_FAR + 1) + hops(adjacency)
        degree = adjacency.sum(2).clamp(max=_LARGEST_DEGREE).to(weight.dtype) / _LARGEST_DEGREE
        both = (degree.unsqueeze(2) + degree.unsqueeze(1)).unsqueeze(-1)
        base = table.flatten(0, 1) + self.structure.bias
        return torch.addcmul(base[token], both, weight[:, 1])


def square_of(bond_class: Tensor, diagonal: int, graph: LineGraph) -> Tensor:
    """Classes of all ordered pairs.

    Args:
        bond_class: int64 (B, M).
        diagonal: Class of an atom with itself, or `NO_CLASS`.
        graph: Of N atoms.

    Returns:
        int64 (B, N, N).
    """
    n = graph.n_atoms
    flat = pad(bond_class, (0, 1), value=diagonal)[:, graph.square]
    return flat.view(-1, n, n)


def bonded(square: Tensor) -> Tensor:
    """Which ordered pairs are bonded, bool (B, N, N)."""
    return square.ne(0) & square.ne(NO_CLASS)


def hops(adjacency: Tensor) -> Tensor:
    """Hop distances up to 8, and 9 beyond, int64 (B, N, N), from 0 and 1 as float32."""
    eye = torch.eye(adjacency.shape[1], device=adjacency.device)
    step = adjacency + eye
    reached = step
    # A pair is one hop nearer for every number of hops below nine that suffices to reach it.
    nearer = eye + reached
    for _ in range(2, _FAR):
        reached = ((reached @ step) > 0).to(step.dtype)
        nearer = nearer + reached
    return _FAR - nearer.long()
