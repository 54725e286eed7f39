"""Incidence-constrained cross-attention between atoms and pairs (equations 4 to 6)."""

import torch
from torch import Tensor, nn

from duallgd_cli.model.attention import same_head
from duallgd_cli.model.line_graph import LineGraph, endpoint_atoms, incident_pairs
from duallgd_cli.model.linear import Linear, linear


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
        self.query = Linear(atom_width, inner_width)
        self.key = Linear(pair_width, inner_width)
        self.value = Linear(pair_width, inner_width)
        self.out = Linear(inner_width, atom_width)
        self.heads = heads

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atom states.

        Args:
            atoms: (B, N, atom_width).
            pairs: (B, M, pair_width).
            mask: Incident pairs with a real other atom, bool (B, N, N - 1).
            graph: Line graph of N atoms.

        Returns:
            (B, N, atom_width).
        """
        key = incident_pairs(self.key(pairs), graph)  # (B, N, N-1, H D)
        value = incident_pairs(self.value(pairs), graph)
        add, spread = _within_heads(self.heads, key)
        query = self.query(atoms).unsqueeze(2) * (self.heads / add.shape[1]) ** 0.5
        score = linear(query * key, add).float()  # (B, N, N-1, H)
        score = score.masked_fill(~mask.unsqueeze(-1), torch.finfo(torch.float32).min)
        # A softmax written out: over a dimension that is not the last, PyTorch's own is slower.
        weight = torch.exp(score - score.detach().amax(2, keepdim=True)) * mask.unsqueeze(-1)
        total = weight.sum(2).clamp_min(torch.finfo(torch.float32).tiny)
        weight, total = weight.to(value.dtype), total.to(value.dtype)
        mixed = (linear(weight, spread) * value).sum(2) / linear(total, spread)
        return self.out(mixed)


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
        self.query = Linear(pair_width, inner_width)
        self.key = Linear(atom_width, inner_width)
        self.value = Linear(atom_width, inner_width)
        self.out = Linear(inner_width, pair_width)
        self.heads = heads

    def forward(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Change of the pair states, (B, M, pair_width), from atoms (B, N, atom_width)."""
        low, high = endpoint_atoms(self.value(atoms), graph).unbind(2)
        first = self.first_weight(pairs, atoms, graph).to(low.dtype)
        spread = linear(first, _within_heads(self.heads, low)[1])
        return self.out(torch.addcmul(high, spread, low - high))

    def first_weight(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Attention that each pair gives its lower atom, (B, M, H); the rest goes to the other."""
        low, high = endpoint_atoms(self.key(atoms), graph).unbind(2)
        product = self.query(pairs) * (low - high)
        add, _ = _within_heads(self.heads, product)
        return torch.sigmoid(linear(product, add) * (self.heads / add.shape[1]) ** 0.5)


def _within_heads(heads: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that add up the channels of each head, (H, H D), and that spread over them."""
    width = like.shape[-1] // heads
    kept = (like.device, like.dtype)
    return same_head(heads, 1, width, *kept), same_head(heads, width, 1, *kept)
