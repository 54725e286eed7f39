"""The parts of one layer of the reference: masks, perceptrons, both streams, what joins them.

In the atom stream a score has no sum over channels, so all of them are as large as (B, N, N, C).
They are computed for a few rows of atoms at a time, with everything that depends on them, and stay
in the cache. Letters: B graphs, N atoms, M pairs, R rows of atoms in a chunk, L rows of anything,
H heads, D channels of a head, C channels of an atom, E of an edge or a pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

from duallgd_cli.model.line_graph import (
    AtomsFromPairs,
    CrossAttention,
    LineGraph,
    PairsFromAtoms,
    incident_mask,
    incident_pairs,
    pair_mask,
)
from duallgd_cli.model.tensors import Linear, linear
from duallgd_cli.reference.kernels import kernel_of
from duallgd_cli.reference.settings import ReferenceDenoiserSettings

# Numbers in one chunk of scores: what a core's cache holds, or what keeps an accelerator busy.
_CHUNK_CPU: Final = 1 << 19
_CHUNK_DEVICE: Final = 1 << 28


@dataclass(frozen=True, eq=False)
class RealRows:
    """Masks of one batch; True = keep. None of them changes within a forward pass.

    Attributes:
        graph: Line graph of N atoms.
        atoms: bool (B, N).
        edges: Ordered pairs of real atoms, an atom with itself included, bool (B, N, N).
        pairs: bool (B, M).
        incident: Pairs at each atom that have a real other atom, bool (B, N, N - 1).
        padded: Whether any atom of the batch is padding.
    """

    graph: LineGraph
    atoms: Tensor
    edges: Tensor
    pairs: Tensor
    incident: Tensor
    padded: bool

    @classmethod
    def of(cls, atom_mask: Tensor, graph: LineGraph) -> "RealRows":
        """All masks from that of the atoms, bool (B, N)."""
        edges = atom_mask[:, :, None] & atom_mask[:, None, :]
        pairs, incident = pair_mask(atom_mask, graph), incident_mask(atom_mask, graph)
        return cls(graph, atom_mask, edges, pairs, incident, not bool(atom_mask.all()))


def masked_mean(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean over real rows, (B, L, C) and (B, L) to (B, C); zero where there is none."""
    weight = mask.to(rows.dtype).unsqueeze(-1)
    return (rows * weight).sum(1) / weight.sum(1).clamp_min(1)


def pooled(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Mean, minimum, maximum and biased variance over real rows.

    Args:
        rows: (B, L, C).
        mask: Real rows, bool (B, L), at least one of each graph; None where all are, which takes a
            fifth of the time.

    Returns:
        (B, 4 C). Reference: its "standard deviation" is the variance.
    """
    if mask is None:
        mean, least, most = rows.mean(1), rows.amin(1), rows.amax(1)
        variance = (rows - mean.unsqueeze(1)).square().mean(1)
    else:
        keep = mask.unsqueeze(-1)
        mean = masked_mean(rows, mask)
        least = rows.masked_fill(~keep, torch.inf).amin(1)
        most = rows.masked_fill(~keep, -torch.inf).amax(1)
        variance = masked_mean((rows - mean.unsqueeze(1)).square(), mask)
    return torch.cat([mean, least, most, variance], -1)


class Perceptron(nn.Module):
    """Two linear layers with a ReLU between them.

    Args:
        inputs: Input channels.
        hidden: Channels between the layers.
        outputs: Output channels.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.inner = Linear(inputs, hidden)
        self.outer = Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return self.outer(self.inner.relu(x))


class PostNorm(nn.Module):
    """Residual and norm around an attention's change, then around a feed-forward network.

    Args:
        width: Channels.
        hidden: Channels of the feed-forward network.
        dropout: Share of channels dropped while training.
    """

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)
        self.norm_mixed = nn.LayerNorm(width)
        self.norm_fed = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """New states, (..., width) each."""
        x = self.norm_mixed(x + self.dropout(change))
        fed = self.down(self.dropout(self.up.relu(x)))
        return self.norm_fed(x + self.dropout(fed))


class ReferenceFilm(nn.Module):
    """Feature-wise linear modulation by the global state (equation 8).

    Args:
        global_width: Channels of the global state.
        width: Channels of the stream.
    """

    def __init__(self, global_width: int, width: int) -> None:
        super().__init__()
        self.gain = Linear(global_width, width)
        self.shift = Linear(global_width, width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Modulate x (B, rows, width) by y (B, global_width)."""
        return (1 + self.gain(y)).unsqueeze(1) * x + self.shift(y).unsqueeze(1)


class EdgeModulatedAttention(nn.Module):
    """Weights of self-attention per channel, shifted and scaled by edges and the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        atom, edge, width = settings.atom_width, settings.edge_width, settings.global_width
        self.scale = (atom // settings.heads) ** -0.5
        self.query = Linear(atom, atom)
        self.key = Linear(atom, atom)
        self.value = Linear(atom, atom)
        self.edge_add = Linear(edge, atom)
        self.edge_mul = Linear(edge, atom)
        self.global_edge_mul = Linear(width, atom)
        self.global_edge_add = Linear(width, atom)
        self.global_atom_mul = Linear(width, atom)
        self.global_atom_add = Linear(width, atom)
        self.global_global = Linear(width, width)
        self.atom_global = Linear(4 * atom, width)
        self.edge_global = Linear(4 * edge, width)
        self.atom_out = Linear(atom, atom)
        self.edge_out = Linear(atom, edge)
        self.global_out = Perceptron(width, width, width)

    def scores(self, atoms: Tensor, edges: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Rows of atoms and their scores against all atoms, (B, R, N, C), chunk by chunk.

        Args:
            atoms: (B, N, C).
            edges: (B, N, N, E).
        """
        query = self.query(atoms) * self.scale
        key = self.key(atoms).unsqueeze(1)
        weight = torch.cat([self.edge_mul.weight, self.edge_add.weight])
        bias = torch.cat([self.edge_mul.bias + 1, self.edge_add.bias])
        for rows in _chunks(atoms):
            # Contiguous rows make one product of matrices instead of one for each atom.
            gain, shift = linear(edges[:, rows].contiguous(), weight, bias).chunk(2, -1)
            yield rows, torch.addcmul(shift, query[:, rows].unsqueeze(2) * key, gain)

    def mixed(self, scores: Tensor, value: Tensor, real: RealRows) -> Tensor:
        """Values weighted by a softmax over real atoms in each channel, (B, R, C)."""
        if real.padded:
            scores = scores.masked_fill(~real.atoms[:, None, :, None], -torch.inf)
        return (torch.softmax(scores, 2) * value.unsqueeze(1)).sum(2)

    def change_of_atoms(self, mixed: Tensor, y: Tensor) -> Tensor:
        """(B, N, C) from attended values (B, N, C) and the global state."""
        gain, shift = self.global_atom_mul(y).unsqueeze(1), self.global_atom_add(y).unsqueeze(1)
        return self.atom_out(shift + (1 + gain) * mixed)

    def edge_map(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix (B, C, E) and bias (B, 1, E) that turn scores into the change of the edges.

        The global state scales and shifts every score in the same way, so its part and the output
        projection are one matrix for each graph.
        """
        gain, shift = 1 + self.global_edge_mul(y), self.global_edge_add(y)
        matrix = gain.unsqueeze(2) * self.edge_out.weight.T
        return matrix, self.edge_out(shift).unsqueeze(1)

    def change_of_global(self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows) -> Tensor:
        """(B, global_width) from the states before attention."""
        of_atoms = pooled(atoms, real.atoms if real.padded else None)
        of_edges = pooled(edges.flatten(1, 2), real.edges.flatten(1) if real.padded else None)
        change = self.atom_global(of_atoms) + self.edge_global(of_edges)
        return self.global_out(self.global_global(y) + change)


class AtomLayer(nn.Module):
    """One post-norm block over atoms, edges and the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        drop = settings.dropout
        self.attention = EdgeModulatedAttention(settings)
        self.atoms = PostNorm(settings.atom_width, settings.atom_feed, drop)
        self.edges = PostNorm(settings.edge_width, settings.edge_feed, drop)
        self.whole = PostNorm(settings.global_width, settings.global_feed, drop)

    def forward(
        self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows, *, edges_too: bool = True
    ) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and edges (B, N, N, E), which stay as they are if not asked for."""
        value = self.attention.value(atoms)
        matrix, bias = self.attention.edge_map(y)
        new_edges, mixed = [], []
        for rows, scores in self.attention.scores(atoms, edges):
            mixed.append(self.attention.mixed(scores, value, real))
            if edges_too:
                change = _by_graph(scores.flatten(1, 2), matrix, bias)
                new_edges.append(self.edges(edges[:, rows], change.unflatten(1, scores.shape[1:3])))
        change = self.attention.change_of_atoms(torch.cat(mixed, 1), y)
        return self.atoms(atoms, change), torch.cat(new_edges, 1) if edges_too else edges

    def global_state(self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows) -> Tensor:
        """New global state (B, global_width) from the states before the layer."""
        return self.whole(y, self.attention.change_of_global(atoms, edges, y, real))


def _by_graph(rows: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """Each graph's rows (B, L, C) times its own matrix (B, C, E) plus its own bias (B, 1, E)."""
    if rows.device.type != "cpu":
        return torch.baddbmm(bias, rows, matrix)
    graphs = zip(rows, matrix, bias, strict=True)  # one by one, for the faster linear map
    return torch.stack([linear(own, weight.T, shift[0]) for own, weight, shift in graphs])


def _chunks(atoms: Tensor) -> Iterator[slice]:
    graphs, n_atoms, width = atoms.shape
    budget = _CHUNK_CPU if atoms.device.type == "cpu" else _CHUNK_DEVICE
    step = max(1, budget // (graphs * n_atoms * width))
    for start in range(0, n_atoms, step):
        yield slice(start, start + step)


class KernelAttention(nn.Module):
    """Self-attention of the bond stream; every pair attends to every pair."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.edge_width
        self.heads = settings.heads
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        self.kernel = kernel_of(settings)

    def forward(self, pairs: Tensor, real: RealRows) -> Tensor:
        """Change of the pairs, (B, M, E)."""
        parts = (self.query, self.key, self.value)
        weight, bias = torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
        split = [
            x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for x in linear(pairs, weight, bias).chunk(3, -1)
        ]
        mixed = self.kernel(*split, real.pairs)
        return self.out(mixed.transpose(1, 2).flatten(2))


class PairLayer(nn.Module):
    """One pre-norm block over pairs, and its message to the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.edge_width
        self.attention = KernelAttention(settings)
        self.norm_attention = nn.LayerNorm(width)
        self.norm_feed = nn.LayerNorm(width)
        self.up = Linear(width, settings.pair_feed)
        self.down = Linear(settings.pair_feed, width)
        self.to_global = Linear(width, settings.global_width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, pairs: Tensor, real: RealRows) -> Tensor:
        """New pairs, (B, M, E)."""
        pairs = pairs + self.dropout(self.attention(self.norm_attention(pairs), real))
        hidden = self.dropout(gelu(self.up(self.norm_feed(pairs))))
        return pairs + self.dropout(self.down(hidden))

    def global_state(self, pairs: Tensor, y: Tensor, real: RealRows) -> Tensor:
        """The global state as the new pairs see it, (B, global_width)."""
        return y + self.to_global(masked_mean(pairs, real.pairs))


class WideAtomsFromPairs(AtomsFromPairs):
    """Each atom attends to its pairs, where the heads together are wider than a pair.

    The same function of the same parameters: the key and value projections move from the pairs to
    the queries and to the attended sums, of which there are (N - 1) / 2 times fewer. The key's bias
    adds the same to every score of a query, which a softmax does not see.
    """

    def __init__(self, atom_width: int, pair_width: int, heads: int) -> None:
        super().__init__(atom_width, pair_width, atom_width, heads)

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atom states, as in `AtomsFromPairs`."""
        query = self.query(atoms).unflatten(-1, (self.heads, -1))  # (B, N, H, D)
        key_weight = self.key.weight.unflatten(0, (self.heads, -1))  # (H, D, E)
        value_weight = self.value.weight.unflatten(0, (self.heads, -1))
        query = torch.einsum("bnhd,hde->bnhe", query * query.shape[-1] ** -0.5, key_weight)
        near = incident_pairs(pairs, graph)  # (B, N, N-1, E)
        score = query @ near.transpose(2, 3)  # (B, N, H, N-1)
        score = score.to(torch.promote_types(score.dtype, torch.float32))
        keep = mask.unsqueeze(2)
        weight = torch.softmax(score.masked_fill(~keep, torch.finfo(score.dtype).min), 3) * keep
        seen = weight.to(near.dtype) @ near  # (B, N, H, E)
        mixed = torch.einsum("bnhe,hde->bnhd", seen, value_weight)
        share = weight.sum(3, keepdim=True).to(mixed.dtype)  # zero for an atom without pairs
        mixed = mixed + share * self.value.bias.unflatten(0, (self.heads, -1))
        return self.out(mixed.flatten(2))


class Synchronisation(nn.Module):
    """Cross-attention between the streams, and the paper's ablations of it.

    "both" is atoms from pairs, then pairs from the new atoms; "atoms" and "pairs" are the first and
    the second alone (the paper's B->A and A->B). "unmasked" has no incidence mask: every atom
    attends to every pair and back.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        atom, pair, heads = settings.atom_width, settings.edge_width, settings.heads
        asked = settings.synchronisation
        self.unmasked = asked == "unmasked"
        wide = asked in ("both", "atoms", "unmasked")
        self.atoms = WideAtomsFromPairs(atom, pair, heads) if wide else None
        narrow = asked in ("both", "pairs", "unmasked")
        self.pairs = PairsFromAtoms(pair, atom, pair, heads) if narrow else None

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and pairs (B, M, E)."""
        if self.unmasked:
            return self._unmasked(atoms, pairs, real)
        if self.atoms is not None:
            atoms = atoms + self.atoms(atoms, pairs, real.incident, real.graph)
        if self.pairs is not None:
            pairs = pairs + self.pairs(pairs, atoms, real.graph)
        return atoms, pairs

    def _unmasked(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """Both directions at once.

        Reference: this ablation also differs in the rest. Both inputs are normalised, both
        directions read the states from before, and each change is scaled by the root of how much
        wider it looks.
        """
        assert self.atoms is not None
        assert self.pairs is not None
        n_atoms = real.atoms.sum(1).clamp_min(1).view(-1, 1, 1)
        n_pairs = real.pairs.sum(1).clamp_min(1).view(-1, 1, 1)
        normed_atoms = layer_norm(atoms, atoms.shape[-1:])
        normed_pairs = layer_norm(pairs, pairs.shape[-1:])
        to_atoms = attend_all(self.atoms, normed_atoms, normed_pairs, real.pairs)
        to_pairs = attend_all(self.pairs, normed_pairs, normed_atoms, real.atoms)
        atoms = atoms + to_atoms * ((n_atoms - 1) / n_pairs).clamp(max=1).sqrt()
        return atoms, pairs + to_pairs * (2 / n_atoms).clamp(max=1).sqrt()


def attend_all(part: CrossAttention, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    """What a part would do without incidence: attend to every row.

    Args:
        part: Whose weights are used.
        target: Rows that attend, (B, L, .).
        source: Rows that they attend to, (B, S, .).
        mask: Real rows of the source, bool (B, S).

    Returns:
        Change of the target, (B, L, .).
    """
    query, key, value = (
        project(x).unflatten(-1, (part.heads, -1)).transpose(1, 2)
        for project, x in ((part.query, target), (part.key, source), (part.value, source))
    )
    mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
    return part.out(mixed.transpose(1, 2).flatten(2))
