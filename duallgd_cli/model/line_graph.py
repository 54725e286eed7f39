"""The line graph of the complete graph on N atoms: which pairs touch which atoms.

Every unordered pair of atoms is one node, stored once in row-major order of the strict upper
triangle. Because each pair has two atoms and each atom N - 1 pairs, the incidence matrix of the
paper is an index, never an (N, M) mask: gathering costs O(N^2). Atoms and pairs attend to each
other along it (equations 4 to 6).

Letters: B graphs, N atoms, M = N(N-1)/2 pairs, C channels.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from duallgd_cli.model.tensors import Linear, linear, same_head


@dataclass(frozen=True, eq=False)
class LineGraph:
    """Index tensors for one number of atoms, on one device."""

    n_atoms: int  # N
    first: Tensor  # lower atom of each pair, int64 (M,)
    second: Tensor  # higher atom of each pair, int64 (M,)
    both: Tensor  # lower and higher atom of each pair in turn, int64 (2 M,)
    square: Tensor  # pair of two atoms, M on the diagonal, int64 (N * N,)
    incident: Tensor  # pairs at each atom, ordered by the other atom, int64 (N * (N - 1),)
    at: Tensor  # index into `incident` of each pair at its lower and its higher atom, int64 (2, M)
    endpoint: Tensor  # index of each `incident` entry in a list of 2 M endpoints, int64 (N, N - 1)

    @property
    def n_pairs(self) -> int:
        """M."""
        return self.first.numel()


@cache  # never dropped: captured CUDA graphs know these tensors by their address alone
@torch.inference_mode(False)  # kept for training too, whichever asks first
def line_graph(n_atoms: int, device: torch.device) -> LineGraph:
    """The index tensors for N atoms (N >= 2); cached, as every batch of that size uses them."""
    first, second = torch.triu_indices(n_atoms, n_atoms, offset=1)
    n_pairs = first.numel()
    square = torch.full((n_atoms, n_atoms), n_pairs)
    square[first, second] = square[second, first] = torch.arange(n_pairs)
    # Row i of `incident` skips atom i itself, so the column of atom j is j - 1 where j > i.
    incident = square.gather(1, _others(n_atoms, square.device)).flatten()
    at = torch.stack([first * (n_atoms - 1) + second - 1, second * (n_atoms - 1) + first])
    endpoint = incident * 2
    endpoint[at[1]] += 1
    both = torch.stack([first, second], 1).flatten()
    endpoint = endpoint.unflatten(0, (n_atoms, n_atoms - 1))
    parts = (first, second, both, square.flatten(), incident, at, endpoint)
    return LineGraph(n_atoms, *(part.to(device) for part in parts))


class _Gather(torch.autograd.Function):
    """Rows by an index. The gradient of a row is a sum over the places that it went to."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, back: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(back)
        return rows.index_select(1, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (back,) = ctx.saved_tensors
        summed = grad.index_select(1, back.flatten()).unflatten(1, back.shape).sum(2)
        return summed, None, None


def _gathered(rows: Tensor, index: Tensor, back: Tensor, last: int) -> Tensor:
    """Rows (B, R, C) by an index (I,), (B, I / last, last, C); `back` says where each row goes."""
    if torch.is_grad_enabled():
        flat: Tensor = _Gather.apply(rows, index, back)  # type: ignore[no-untyped-call]
    else:
        flat = rows.index_select(1, index)
    return torch.unflatten(flat, 1, (-1, last))


def incident_pairs(pairs: Tensor, graph: LineGraph) -> Tensor:
    """States of the pairs at every atom, (B, M, C) to (B, N, N - 1, C).

    Entry k of atom i belongs to its k-th other atom in ascending order.
    """
    return _gathered(pairs, graph.incident, graph.at.T, graph.n_atoms - 1)


def endpoint_atoms(atoms: Tensor, graph: LineGraph) -> Tensor:
    """States of the two atoms of every pair, (B, N, C) to (B, M, 2, C)."""
    return _gathered(atoms, graph.both, graph.endpoint, 2)


def to_square(pairs: Tensor, graph: LineGraph) -> Tensor:
    """Symmetric matrix with a zero diagonal, (B, M, C) to (B, N, N, C)."""
    padded = torch.nn.functional.pad(pairs, (0, 0, 0, 1))
    return torch.unflatten(padded.index_select(1, graph.square), 1, (graph.n_atoms, -1))


def incident_mask(atom_mask: Tensor, graph: LineGraph) -> Tensor:
    """Which incident pairs have a real other atom, bool (B, N) to (B, N, N - 1)."""
    return atom_mask[:, _others(graph.n_atoms, atom_mask.device)]


def _others(n_atoms: int, device: torch.device) -> Tensor:
    """For each atom all others in ascending order, int64 (N, N - 1)."""
    atom = torch.arange(n_atoms, device=device)
    return atom[:-1] + (atom[:-1] >= atom[:, None]).long()


def pair_mask(atom_mask: Tensor, graph: LineGraph) -> Tensor:
    """Which pairs have two real atoms, bool (B, N) to (B, M)."""
    return atom_mask[:, graph.first] & atom_mask[:, graph.second]


class CrossAttention(nn.Module):
    """The linear maps of one stream's attention to the other.

    Its own stream attends and is changed; queries, keys and values are wide over all heads.
    """

    def __init__(self, own_width: int, other_width: int, inner_width: int, heads: int) -> None:
        super().__init__()
        self.query = Linear(own_width, inner_width)
        self.key = Linear(other_width, inner_width)
        self.value = Linear(other_width, inner_width)
        self.out = Linear(inner_width, own_width)
        self.heads = heads

    def within_heads(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Weights that add up the channels of each head, (H, H D), and that spread over them."""
        width, kept = like.shape[-1] // self.heads, (like.device, like.dtype)
        return same_head(self.heads, 1, width, *kept), same_head(self.heads, width, 1, *kept)


class AtomsFromPairs(CrossAttention):
    """Each atom attends to the N - 1 pairs it belongs to (equations 4 and 5)."""

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atom states, (B, N, atom_width), from pairs (B, M, pair_width).

        The mask is of incident pairs with a real other atom, bool (B, N, N - 1).
        """
        key = incident_pairs(self.key(pairs), graph)  # (B, N, N-1, H D)
        value = incident_pairs(self.value(pairs), graph)
        add, spread = self.within_heads(key)
        query = self.query(atoms).unsqueeze(2) * (self.heads / add.shape[1]) ** 0.5
        score = linear(query * key, add).float()  # (B, N, N-1, H)
        score = score.masked_fill(~mask.unsqueeze(-1), torch.finfo(torch.float32).min)
        # A softmax written out: over a dimension that is not the last, PyTorch's own is slower.
        weight = torch.exp(score - score.detach().amax(2, keepdim=True)) * mask.unsqueeze(-1)
        total = weight.sum(2).clamp_min(torch.finfo(torch.float32).tiny)
        weight, total = weight.to(value.dtype), total.to(value.dtype)
        mixed = (linear(weight, spread) * value).sum(2) / linear(total, spread)
        return self.out(mixed)


class PairsFromAtoms(CrossAttention):
    """Each pair attends to its two atoms (equation 6); a softmax over two is a sigmoid."""

    def forward(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Change of the pair states, (B, M, pair_width), from atoms (B, N, atom_width)."""
        low, high = endpoint_atoms(self.value(atoms), graph).unbind(2)
        key, other_key = endpoint_atoms(self.key(atoms), graph).unbind(2)
        product = self.query(pairs) * (key - other_key)
        add, spread = self.within_heads(product)
        # What the lower atom does not get goes to the other.
        first = torch.sigmoid(linear(product, add) * (self.heads / add.shape[1]) ** 0.5)
        spread = spread.to(low.dtype)
        return self.out(torch.addcmul(high, linear(first.to(low.dtype), spread), low - high))
