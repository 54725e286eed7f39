"""Incidence-constrained cross-attention between atoms and pairs (equations 4 to 6)."""

import math

import torch
from torch import Tensor, nn

from duallgd_cli.model.line_graph import LineGraph, endpoint_atoms, incident_pairs


class AtomsFromPairs(nn.Module):
    """Each atom attends to the N - 1 pairs it belongs to (equations 4 and 5).

    Args:
        atom_width: Channels of an atom.
        pair_width: Channels of a pair.
        inner_width: Channels of queries, keys and values, over all heads.
        heads: Number of heads.
    """

    def __init__(self, atom_width: int, pair_width: int, inner_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(atom_width, inner_width)
        self.key = nn.Linear(pair_width, inner_width)
        self.value = nn.Linear(pair_width, inner_width)
        self.out = nn.Linear(inner_width, atom_width)

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
        query = self.query(atoms).unflatten(-1, (self.heads, -1)).unsqueeze(2)  # (B, N, 1, H, D)
        key = incident_pairs(self.key(pairs), graph).unflatten(-1, (self.heads, -1))
        value = incident_pairs(self.value(pairs), graph).unflatten(-1, (self.heads, -1))
        score = (query * key).sum(-1) * query.shape[-1] ** -0.5  # (B, N, N-1, H)
        score = score.masked_fill(~mask.unsqueeze(-1), torch.finfo(score.dtype).min)
        weight = torch.softmax(score, 2) * mask.unsqueeze(-1)
        gathered = (weight.unsqueeze(-1).to(value.dtype) * value).sum(2)  # (B, N, H, D)
        return self.out(gathered.flatten(2))  # type: ignore[no-any-return]


class PairsFromAtoms(nn.Module):
    """Each pair attends to its two atoms (equation 6); a softmax over two is a sigmoid.

    Args:
        atom_width: Channels of an atom.
        pair_width: Channels of a pair.
        inner_width: Channels of queries, keys and values, over all heads.
        heads: Number of heads.
    """

    def __init__(self, atom_width: int, pair_width: int, inner_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(pair_width, inner_width)
        self.key = nn.Linear(atom_width, inner_width)
        self.value = nn.Linear(atom_width, inner_width)
        self.out = nn.Linear(inner_width, pair_width)

    def forward(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Change of the pair states, (B, M, pair_width), from atoms (B, N, atom_width)."""
        value = endpoint_atoms(self.value(atoms), graph).unflatten(-1, (self.heads, -1))
        low, high = value.unbind(2)  # (B, M, H, D)
        gathered = high + self.first_weight(pairs, atoms, graph).unsqueeze(-1) * (low - high)
        return self.out(gathered.flatten(2))  # type: ignore[no-any-return]

    def first_weight(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Attention that each pair gives its lower atom, (B, M, H); the rest goes to the other."""
        query = self.query(pairs).unflatten(-1, (self.heads, -1))
        low, high = endpoint_atoms(self.key(atoms), graph).unbind(2)
        difference = (low - high).unflatten(-1, (self.heads, -1))
        return torch.sigmoid((query * difference).sum(-1) / math.sqrt(query.shape[-1]))
