"""The line graph of the complete graph on N atoms, and the parts of one dual-stream layer.

Every unordered pair of atoms is one node, stored once in row-major order of the strict upper
triangle. Because each pair has two atoms and each atom N - 1 pairs, the incidence matrix of the
paper is an index, never an (N, M) mask: gathering costs O(N^2). Atoms and pairs attend to each
other along it (equations 4 to 6).

Letters: B graphs, N atoms, M = N(N-1)/2 pairs, C channels, H heads, K fingerprint bits.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from duallgd_cli.model.settings import DenoiserSettings
from duallgd_cli.model.tensors import (
    LayerNorm,
    Linear,
    cast_once,
    favor_attention,
    linear,
    orthogonal_features,
    projection,
    same_head,
    softmax_attention,
)


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


def _others(n_atoms: int, device: torch.device) -> Tensor:
    """For each atom all others in ascending order, int64 (N, N - 1)."""
    atom = torch.arange(n_atoms, device=device)
    return atom[:-1] + (atom[:-1] >= atom[:, None]).long()


def pair_mask(atom_mask: Tensor, graph: LineGraph) -> Tensor:
    """Which pairs have two real atoms, bool (B, N) to (B, M)."""
    return atom_mask[:, graph.first] & atom_mask[:, graph.second]


@dataclass(frozen=True, eq=False)
class Masks:
    """Which rows are real; True = keep."""

    atoms: Tensor  # bool (B, N)
    pairs: Tensor  # bool (B, M)
    incident: Tensor  # pairs at each atom with a real other one, bool (B, N, N - 1)
    attention: Tensor  # added to atom-to-atom scores, 0 or -inf at padded keys, (B, 1, 1, N)

    @classmethod
    def of(cls, atom_mask: Tensor, graph: LineGraph) -> "Masks":
        """All masks from that of the atoms, bool (B, N)."""
        scores = torch.zeros_like(atom_mask, dtype=torch.float32)
        scores = scores.masked_fill(~atom_mask, -torch.inf)[:, None, None, :]
        incident = atom_mask[:, _others(graph.n_atoms, atom_mask.device)]
        return cls(atom_mask, pair_mask(atom_mask, graph), incident, scores)


class FeedForward(nn.Module):
    """Two-layer feed-forward network with ReLU, which is the cheapest activation on a CPU."""

    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.norm = LayerNorm(width)
        self.up = Linear(width, factor * width)
        self.down = Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Change of x, any shape ending in the width."""
        return self.down(self.up.relu(self.norm(x)))


class Film(nn.Module):
    """Feature-wise linear modulation of one stream by the global state (equation 8)."""

    def __init__(self, global_width: int, width: int) -> None:
        super().__init__()
        self.linear = Linear(global_width, 2 * width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Modulate x (B, rows, width) by y (B, global_width)."""
        gamma, beta = self.linear(y).unsqueeze(1).chunk(2, -1)
        return torch.addcmul(beta, 1 + gamma, x)


class AtomAttention(nn.Module):
    """Self-attention of the atoms, its scores shifted by the pair states (edge modulation)."""

    def __init__(self, settings: DenoiserSettings) -> None:
        super().__init__()
        width = settings.atom_width
        self.heads = settings.atom_heads
        self.norm = LayerNorm(width)
        self.qkv = Linear(width, 3 * width)
        self.bias = Linear(settings.pair_width, self.heads)
        self.out = Linear(width, width)

    def forward(self, atoms: Tensor, pairs: Tensor, masks: Masks, graph: LineGraph) -> Tensor:
        """Change of the atoms, (B, N, atom_width)."""
        qkv = self.qkv(self.norm(atoms)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, N, D)
        bias = to_square(self.bias(pairs), graph).permute(0, 3, 1, 2) + masks.attention
        # On CUDA the fused kernels take a bias only if its last dimension is contiguous.
        bias = bias.to(query.dtype).contiguous()
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(mixed.transpose(1, 2).flatten(2))


class BitAttention(nn.Module):
    """Each atom looks up the fingerprint bits that may describe its surroundings.

    Keys and values depend on the spectrum alone, so they are computed once per spectrum and
    shared by all steps and candidates.
    """

    def __init__(self, settings: DenoiserSettings) -> None:
        super().__init__()
        width = settings.atom_width
        self.heads = settings.atom_heads
        self.norm = LayerNorm(width)
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.out = Linear(width, width)

    def memory(self, bits: Tensor) -> Tensor:
        """Keys and values of embedded bits, (B, K, atom_width) to (2, B, H, K, D)."""
        both = self.key_value(bits).unflatten(-1, (2, self.heads, -1))
        return both.permute(2, 0, 3, 1, 4)

    def forward(self, atoms: Tensor, memory: Tensor, log_prob: Tensor) -> Tensor:
        """Change of the atoms (B, N, atom_width).

        The memory (2, B or 1, H, K, D), with the log-probabilities by which bits are weighted
        (B or 1, 1, 1, K), is of each graph, or of one spectrum for all.
        """
        key, value = memory
        query = self.query(self.norm(atoms)) * key.shape[-1] ** -0.5
        # The candidates of one spectrum are rows of the same products.
        rows = query.reshape(len(key), -1, self.heads, key.shape[-1]).transpose(1, 2)
        # Written out: for a few dozen tokens this beats the fused kernel on a CPU.
        score = rows @ key.transpose(2, 3) + log_prob
        mixed = torch.softmax(score, -1).to(value.dtype) @ value
        return self.out(mixed.transpose(1, 2).reshape(atoms.shape))


class PairAttention(nn.Module):
    """Global self-attention of the bond stream (equation 2), FAVOR+ or exact softmax."""

    features: Tensor

    def __init__(self, settings: DenoiserSettings, layer: int) -> None:
        super().__init__()
        width = settings.pair_width
        self.heads = settings.pair_heads
        self.norm = LayerNorm(width)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        generator = torch.Generator().manual_seed(settings.feature_seed + layer)
        drawn = [
            orthogonal_features(settings.pair_features, width // self.heads, generator)
            for _ in range(self.heads)
        ]
        self.register_buffer("features", torch.stack(drawn))
        self.prepared: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, pairs: Tensor, masks: Masks) -> Tensor:
        """Change of the pairs, (B, M, pair_width)."""
        normed = self.norm(pairs)
        if not self.features.shape[1]:
            query, key, value = self.qkv(normed).chunk(3, -1)
            return self.out(softmax_attention(query, key, value, masks.pairs, self.heads))
        weight, bias, project = self.prepared or self._maps()
        width = normed.shape[-1]
        query, key, value = linear(normed, weight, bias).split((len(project), width, width), -1)
        mixed = favor_attention(query, linear(key, project), key, value, masks.pairs, self.heads)
        return self.out(mixed)

    @torch.no_grad()
    def prepare(self) -> None:
        """Compute once what depends on the weights alone, which must not change or move after."""
        if self.features.shape[1]:
            self.prepared = self._maps()

    def _maps(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weight and bias of projected queries, keys and values; weight that projects keys."""
        project = projection(self.features, self.qkv.weight.dtype)
        width = len(self.qkv.bias) // 3
        weight, bias = (
            torch.cat([project @ own[:width], own[width:]])
            for own in (self.qkv.weight, self.qkv.bias)
        )
        return weight, bias, project


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


class Fusion(nn.Module):
    """New global state from both streams' means (equation 7).

    The paper's y_P and y_L are linear in those means and in y, so W_g absorbs them.
    """

    def __init__(self, settings: DenoiserSettings) -> None:
        super().__init__()
        width = settings.global_width
        self.inner = Linear(width + settings.atom_width + settings.pair_width, width)
        self.outer = Linear(width, width)
        self.norm = LayerNorm(width)

    def forward(self, y: Tensor, atoms: Tensor, pairs: Tensor, masks: Masks) -> Tensor:
        """(B, global_width) from y, atoms (B, N, atom_width) and pairs (B, M, pair_width)."""
        means = []
        for rows, mask in ((atoms, masks.atoms), (pairs, masks.pairs)):
            weight = mask.to(rows.dtype).unsqueeze(-1)
            means.append((rows * weight).sum(1) / weight.sum(1))
        change = self.outer(self.inner.relu(torch.cat([y, *means], -1)))
        return self.norm(y + change)


class DualStreamLayer(nn.Module):
    """One layer: modulate, reason over atoms, reason over bonds, synchronise both."""

    def __init__(self, settings: DenoiserSettings, layer: int) -> None:
        super().__init__()
        atom, pair = settings.atom_width, settings.pair_width
        cross = (settings.cross_width, settings.cross_heads)
        self.film_atoms = Film(settings.global_width, atom)
        self.film_pairs = Film(settings.global_width, pair)
        # Every other layer looks the bits up: enough to plan by, and a sixth fewer parameters.
        self.bit_attention = BitAttention(settings) if layer % 2 == 0 else None
        self.atom_attention = AtomAttention(settings)
        self.atom_feed = FeedForward(atom, 2)
        self.pair_attention = PairAttention(settings, layer)
        self.pair_feed = FeedForward(pair, settings.pair_feed)
        self.atoms_from_pairs = AtomsFromPairs(atom, pair, *cross)
        self.pairs_from_atoms = PairsFromAtoms(pair, atom, *cross)
        self.cross_norm_atoms = LayerNorm(atom)
        self.cross_norm_pairs = LayerNorm(pair)

    def forward(
        self,
        atoms: Tensor,
        pairs: Tensor,
        y: Tensor,
        memory: tuple[Tensor, Tensor] | None,
        masks: Masks,
        graph: LineGraph,
    ) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, atom_width) and pairs (B, M, pair_width).

        The memory is this layer's keys and values of the fingerprint bits, and their log-weights;
        None where the layer does not look them up.
        """
        y = cast_once(y)
        atoms = self.film_atoms(atoms, y)
        pairs = self.film_pairs(pairs, y)
        if self.bit_attention is not None and memory is not None:
            atoms = atoms + self.bit_attention(atoms, *memory)
        atoms = atoms + self.atom_attention(atoms, pairs, masks, graph)
        atoms = atoms + self.atom_feed(atoms)
        pairs = pairs + self.pair_attention(pairs, masks)
        pairs = pairs + self.pair_feed(pairs)
        # New atoms from their pairs, then new pairs from those atoms (equations 4 to 6).
        normed, query = cast_once(self.cross_norm_pairs(pairs)), self.cross_norm_atoms(atoms)
        atoms = atoms + self.atoms_from_pairs(query, normed, masks.incident, graph)
        source = cast_once(self.cross_norm_atoms(atoms))
        return atoms, pairs + self.pairs_from_atoms(normed, source, graph)
