"""Incidence-constrained cross-attention between atoms and pairs (equations 4 to 6)."""

import torch
from torch import Tensor, nn

from duallgd_cli.model.line_graph import LineGraph, endpoint_atoms, incident_pairs


def _head_of(inner_width: int, heads: int) -> Tensor:
    """Sums the channels of each head, divided by sqrt(D): (inner_width, heads).

    A product with this matrix is how both modules add up within a head and spread weights over a
    head's channels; it keeps every tensor contiguous.
    """
    width = inner_width // heads
    return torch.eye(heads).repeat_interleave(width, 0).mul(width**-0.5)


class AtomsFromPairs(nn.Module):
    """Each atom attends to the N - 1 pairs it belongs to (equations 4 and 5).

    Args:
        atom_width: Channels of an atom.
        pair_width: Channels of a pair.
        inner_width: Channels of queries, keys and values, over all heads.
        heads: Number of heads.
    """

    head_of: Tensor

    def __init__(self, atom_width: int, pair_width: int, inner_width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(atom_width, inner_width)
        self.key = nn.Linear(pair_width, inner_width)
        self.value = nn.Linear(pair_width, inner_width)
        self.out = nn.Linear(inner_width, atom_width)
        self.register_buffer("head_of", _head_of(inner_width, heads), persistent=False)

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atom states.

        Args:
            atoms: (B, N, atom_width).
            pairs: (B, M, pair_width).
            mask: Incident pairs with a real other atom, bool (B, N, N - 1).
            graph: Of N atoms.

        Returns:
            (B, N, atom_width).
        """
        query = self.query(atoms).unsqueeze(2)  # (B, N, 1, H D)
        key_value = torch.cat([self.key(pairs), self.value(pairs)], -1)
        key, value = incident_pairs(key_value, graph).chunk(2, -1)  # each (B, N, N-1, H D)
        score = (query * key) @ self.head_of.to(key.dtype)  # (B, N, N-1, H)
        score = score.float().masked_fill(~mask.unsqueeze(-1), torch.finfo(torch.float32).min)
        weight = torch.softmax(score, 2) * mask.unsqueeze(-1)
        spread = weight.to(value.dtype) @ (self.head_of.T != 0).to(value.dtype)
        return self.out((spread * value).sum(2))  # type: ignore[no-any-return]


class PairsFromAtoms(nn.Module):
    """Each pair attends to its two atoms (equation 6); a softmax over two is a sigmoid.

    Args:
        atom_width: Channels of an atom.
        pair_width: Channels of a pair.
        inner_width: Channels of queries, keys and values, over all heads.
        heads: Number of heads.
    """

    head_of: Tensor

    def __init__(self, atom_width: int, pair_width: int, inner_width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(pair_width, inner_width)
        self.key = nn.Linear(atom_width, inner_width)
        self.value = nn.Linear(atom_width, inner_width)
        self.out = nn.Linear(inner_width, pair_width)
        self.register_buffer("head_of", _head_of(inner_width, heads), persistent=False)

    def forward(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Change of the pair states, (B, M, pair_width), from atoms (B, N, atom_width)."""
        low, high = endpoint_atoms(self.value(atoms), graph).unbind(2)
        first = self.first_weight(pairs, atoms, graph).to(low.dtype)
        spread = first @ (self.head_of.T != 0).to(low.dtype)
        return self.out(high + spread * (low - high))  # type: ignore[no-any-return]

    def first_weight(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Attention that each pair gives its lower atom, (B, M, H); the rest goes to the other."""
        low, high = endpoint_atoms(self.key(atoms), graph).unbind(2)
        product = self.query(pairs) * (low - high)
        return torch.sigmoid(product @ self.head_of.to(product.dtype))
