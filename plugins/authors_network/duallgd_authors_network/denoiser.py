"""The reference denoiser, written out: clean-bond logits from noisy graphs with their features.

Modules have the authors' names, so that their tensors fit as they are: "primal" is the atom stream,
"dual" the bond stream; X, E and y are atoms, edges and the global state. Padding is masked.

Letters: B graphs, N atoms, M pairs, C channels of an atom, E of an edge or a pair, L rows of
anything, H heads, D channels of a head, R random features.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    elu,
    layer_norm,
    linear,
    one_hot,
    pad,
    relu,
    scaled_dot_product_attention,
)

from duallgd_authors_network.core import (
    LineGraph,
    line_graph,
    pair_mask,
)
from duallgd_authors_network.settings import ReferenceDenoiserSettings

N_CLASSES: Final = 5
# The index of "no class at all", which the diagonal shows before the first draw.
NO_CLASS: Final = N_CLASSES
_FAR: Final = 9
_LARGEST_DEGREE: Final = 16
_LARGEST_EXPONENT: Final = 20.0
_LARGEST_SQUARE: Final = 30.0
_EPSILON: Final = 1e-8


@dataclass(frozen=True, eq=False)
class NoisyGraphs:
    """What the reference denoiser reads."""

    atoms: Tensor  # features, (B, N, atom_inputs)
    bond_class: Tensor  # noisy classes, int64 (B, M); none at padded pairs
    condition: Tensor  # projected fingerprint, (B, condition_width), or one row for all graphs
    whole: Tensor  # features of the graph and its noise level, (B, global_inputs)
    atom_mask: Tensor  # real atoms, bool (B, N)
    diagonal: int = 0  # class shown there: none after any draw, `NO_CLASS` before the first


def post_norm(x: Tensor, change: Tensor, parts: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
    """Residual and norm around an attention's change, then around a feed-forward network.

    Parts are the feed-forward network's two linear maps, then the two norms.
    """
    up, down, after_attention, after_feed = parts
    x = after_attention(x + change)
    return after_feed(x + down(relu(up(x))))


class ReferenceFilm(nn.Module):
    """Feature-wise linear modulation of a stream by the global state (equation 8)."""

    def __init__(self, global_width: int, width: int) -> None:
        super().__init__()
        self.gamma = nn.Linear(global_width, width)
        self.beta = nn.Linear(global_width, width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Modulate x (B, rows, width) by y (B, global_width)."""
        return (1 + self.gamma(y)).unsqueeze(1) * x + self.beta(y).unsqueeze(1)


class Pooled(nn.Module):
    """A linear map of the mean, minimum, maximum and variance over real rows."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(4 * width, outputs)

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """(B, outputs) from (B, L, width) and real rows, bool (B, L), at least one each."""
        keep = mask.unsqueeze(-1)
        mean = masked_mean(rows, mask)
        least = rows.masked_fill(~keep, torch.inf).amin(1)
        most = rows.masked_fill(~keep, -torch.inf).amax(1)
        # Reference: its "standard deviation" is the biased variance.
        variance = masked_mean((rows - mean.unsqueeze(1)).square(), mask)
        return self.lin(torch.cat([mean, least, most, variance], -1))


class EdgeModulatedAttention(nn.Module):
    """Weights of self-attention per channel, shifted and scaled by edges and the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        atom, edge, width = settings.atom_width, settings.edge_width, settings.global_width
        self.scale = (atom // settings.heads) ** -0.5
        self.q = nn.Linear(atom, atom)
        self.k = nn.Linear(atom, atom)
        self.v = nn.Linear(atom, atom)
        self.e_add = nn.Linear(edge, atom)
        self.e_mul = nn.Linear(edge, atom)
        self.y_e_mul = nn.Linear(width, atom)
        self.y_e_add = nn.Linear(width, atom)
        self.y_x_mul = nn.Linear(width, atom)
        self.y_x_add = nn.Linear(width, atom)
        self.y_y = nn.Linear(width, width)
        self.x_y = Pooled(atom, width)
        self.e_y = Pooled(edge, width)
        self.x_out = nn.Linear(atom, atom)
        self.e_out = nn.Linear(atom, edge)
        self.y_out = perceptron(width, width, width)

    def forward(
        self, atoms: Tensor, edges: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Change of the atoms (B, N, C), edges (B, N, N, E) and global state (B, global_width)."""
        scores = (self.q(atoms) * self.scale).unsqueeze(2) * self.k(atoms).unsqueeze(1)
        scores = scores * (self.e_mul(edges) + 1) + self.e_add(edges)  # (B, N, N, C)
        gain, shift = 1 + self.y_e_mul(y), self.y_e_add(y)
        new_edges = self.e_out(shift[:, None, None] + gain[:, None, None] * scores)
        scores = scores.masked_fill(~mask[:, None, :, None], -torch.inf)
        mixed = (torch.softmax(scores, 2) * self.v(atoms).unsqueeze(1)).sum(2)
        gain, shift = 1 + self.y_x_mul(y), self.y_x_add(y)
        new_atoms = self.x_out(shift.unsqueeze(1) + gain.unsqueeze(1) * mixed)
        both = mask[:, :, None] & mask[:, None, :]  # an atom with itself included
        pooled = self.x_y(atoms, mask) + self.e_y(edges.flatten(1, 2), both.flatten(1))
        return new_atoms, new_edges, self.y_out(self.y_y(y) + pooled)


class PrimalLayer(nn.Module):
    """One post-norm block over atoms, edges and the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.self_attn = EdgeModulatedAttention(settings)
        sizes = {
            "X": (settings.atom_width, settings.atom_feed),
            "E": (settings.edge_width, settings.edge_feed),
            "_y": (settings.global_width, settings.global_feed),
        }
        for name, (width, hidden) in sizes.items():
            self.add_module(f"lin{name}1", nn.Linear(width, hidden))
            self.add_module(f"lin{name}2", nn.Linear(hidden, width))
            self.add_module(f"norm{name}1", nn.LayerNorm(width))
            self.add_module(f"norm{name}2", nn.LayerNorm(width))

    def forward(self, atoms: Tensor, edges: Tensor, y: Tensor, mask: Tensor) -> list[Tensor]:
        """New atoms (B, N, C), edges (B, N, N, E) and global state (B, global_width)."""
        changes = self.self_attn(atoms, edges, y, mask)
        parts = "lin{}1", "lin{}2", "norm{}1", "norm{}2"
        return [
            post_norm(x, change, [self.get_submodule(part.format(name)) for part in parts])
            for name, x, change in zip(("X", "E", "_y"), (atoms, edges, y), changes, strict=True)
        ]


class RandomFeatures(nn.Module):
    """Features of queries and keys whose products stand for attention weights.

    The kernel is "elu", "positive" (FAVOR+) or "waves" (sines and cosines, whose products may be
    negative).
    """

    random_features: Tensor

    def __init__(self, kernel: str, n_features: int, width: int) -> None:
        super().__init__()
        self.kernel = kernel
        if kernel != "elu":  # stored with the weights, drawn when they are converted
            self.register_buffer("random_features", torch.zeros(n_features, width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., features)."""
        if self.kernel == "elu":
            return elu(x) + 1
        n_features, width = self.random_features.shape
        score = linear(x, self.random_features * width**-0.25)
        score = score.clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        square = x.square().sum(-1, keepdim=True) * width**-0.5
        half = square.clamp(max=_LARGEST_SQUARE) / 2
        if self.kernel == "positive":
            return torch.exp(score - half) / math.sqrt(n_features)
        waves = torch.cat([torch.sin(2 * math.pi * score), torch.cos(2 * math.pi * score)], -1)
        return waves * torch.exp(half) / math.sqrt(n_features)


class StreamAttention(nn.Module):
    """Attention of one stream to another, or to itself, as far as a mask lets it see."""

    def __init__(self, width: int, other_width: int, heads: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(other_width, width)
        self.v_proj = nn.Linear(other_width, width)
        self.out_proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Change of the target (B, L, width), whose rows attend to the source (B, S, other_width).

        The mask says which they see, bool (B or 1, L or 1, S), at least one each.
        """
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, x in ((self.q_proj, target), (self.k_proj, source), (self.v_proj, source))
        )
        mixed = self.mixed(query, key, value, mask.unsqueeze(1))
        return self.out_proj(mixed.transpose(1, 2).flatten(2))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, L, D)."""
        return scaled_dot_product_attention(query, key, value, attn_mask=mask)


class KernelAttention(StreamAttention):
    """Self-attention of the bond stream by a kernel; every pair attends to every pair."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        width, heads = settings.edge_width, settings.heads
        super().__init__(width, width, heads)
        if settings.kernel != "softmax":
            self.feature_map = RandomFeatures(settings.kernel, settings.n_features, width // heads)

    def mixed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D)."""
        if not hasattr(self, "feature_map"):
            return super().mixed(query, key, value, mask)
        seen = self.feature_map(key) * mask.transpose(2, 3)
        summed = seen.transpose(2, 3) @ pad(value, (0, 1), value=1.0)  # (B, H, R, D + 1)
        mixed = self.feature_map(query) @ summed
        return mixed[..., :-1] / (mixed[..., -1:] + _EPSILON)


class DualLayer(nn.Module):
    """One pre-norm block over pairs, and its message to the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width, hidden = settings.edge_width, settings.pair_feed
        self.attn = KernelAttention(settings)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        # In the place of the third the authors drop channels while training.
        feed = (nn.Linear(width, hidden), nn.GELU(), nn.Identity(), nn.Linear(hidden, width))
        self.ffn = nn.ModuleDict({"net": nn.Sequential(*feed)})
        self.global_proj = nn.Linear(width, settings.global_width)

    def forward(self, pairs: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """New pairs (B, M, E), and the global state (B, global_width) as they see it."""
        normed = self.norm1(pairs)
        pairs = pairs + self.attn(normed, normed, mask.unsqueeze(1))
        pairs = pairs + self.ffn["net"](self.norm2(pairs))
        return pairs, y + self.global_proj(masked_mean(pairs, mask))


class ReferenceDenoiser(nn.Module):
    """The authors' dual-stream denoiser."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.settings = settings
        atom, edge, width = settings.atom_width, settings.edge_width, settings.global_width
        inputs = settings.condition_width + settings.global_inputs
        self.mlp_in_X = perceptron(settings.atom_inputs, settings.atom_hidden, atom).append(
            nn.ReLU()
        )
        self.mlp_in_E = perceptron(N_CLASSES, settings.edge_hidden, edge).append(nn.ReLU())
        self.mlp_in_y = perceptron(inputs, settings.global_hidden, width).append(nn.ReLU())
        self.primal_struct_proj = nn.Linear(2, edge)
        self.film_primal = ReferenceFilm(width, atom)
        layers = range(settings.layers)
        self.primal_layers = nn.ModuleList(PrimalLayer(settings) for _ in layers)
        self.has_pairs = settings.streams == "both"
        told = settings.synchronisation if self.has_pairs else "none"
        if self.has_pairs:
            ends = (nn.Linear(edge + 2 * atom, edge), nn.GELU(), nn.Linear(edge, edge))
            self.dual_node_init = nn.Sequential(*ends)
            self.film_dual = ReferenceFilm(width, edge)
            self.dual_layers = nn.ModuleList(DualLayer(settings) for _ in layers)
        if told in ("both", "atoms", "unmasked"):
            parts = (StreamAttention(atom, edge, settings.heads) for _ in layers)
            self.p_from_d = nn.ModuleList(parts)
        if told in ("both", "pairs", "unmasked"):
            parts = (StreamAttention(edge, atom, settings.heads) for _ in layers)
            self.d_from_p = nn.ModuleList(parts)
        self.global_fuse = nn.ModuleList(nn.Linear(2 * width + atom + edge, width) for _ in layers)
        self.global_norm = nn.ModuleList(nn.LayerNorm(width) for _ in layers)
        self.dual_out_E = perceptron(edge, settings.edge_hidden, N_CLASSES)
        # Reference: trained weights hold an output of the global state that no logit depends on.
        self.mlp_out_y = perceptron(width, settings.global_hidden, settings.condition_width)

    def forward(self, graphs: NoisyGraphs) -> Tensor:
        """Logits of the clean bond classes, (B, M, classes); meaningless at padded pairs."""
        mask = graphs.atom_mask
        line = line_graph(mask.shape[1], graphs.bond_class.device)
        real = pair_mask(mask, line)
        bond_class = graphs.bond_class.masked_fill(~real, 0)
        condition = graphs.condition.expand(len(mask), -1)
        atoms = self.mlp_in_X(graphs.atoms)
        edges = self.embedded(square_of(bond_class, graphs.diagonal, line))
        y = self.mlp_in_y(torch.cat([condition, graphs.whole], 1))
        pairs = self.first_pairs(atoms, edges, line)
        y_pairs = torch.zeros_like(y)
        for layer, primal in enumerate(self.primal_layers):
            atoms, edges, y_atoms = primal(self.film_primal(atoms, y), edges, y, mask)
            if self.has_pairs:
                pairs, y_pairs = self.dual_layers[layer](self.film_dual(pairs, y), y, real)
                atoms, pairs = self.synchronised(layer, atoms, pairs, mask, line)
            means = masked_mean(atoms, mask), masked_mean(pairs, real)
            fused = self.global_fuse[layer](torch.cat([y_atoms, y_pairs, *means], -1))
            y = self.global_norm[layer](y + fused)  # equation 7
        if self.settings.readout == "pairs":
            logits = self.dual_out_E(pairs)
        else:  # the mean of both directions
            read = self.dual_out_E(edges)
            logits = (read[:, line.first, line.second] + read[:, line.second, line.first]) / 2
        return logits + one_hot(graphs.bond_class, N_CLASSES)  # equation 9

    def embedded(self, square: Tensor) -> Tensor:
        """Ordered pairs of atoms by bond class, hop distance and degrees, (B, N, N, E).

        The square of classes, int64 (B, N, N), is symmetric; padded atoms have no bonds.
        """
        dtype = self.primal_struct_proj.weight.dtype
        shown = one_hot(square, N_CLASSES + 1)[..., :N_CLASSES].to(dtype)
        adjacency = (square.ne(0) & square.ne(NO_CLASS)).float()
        degree = adjacency.sum(2).clamp(max=_LARGEST_DEGREE) / _LARGEST_DEGREE
        both = degree.unsqueeze(2) + degree.unsqueeze(1)
        structure = torch.stack([hops(adjacency) / _FAR, both], -1).to(dtype)
        return self.mlp_in_E(shown) + self.primal_struct_proj(structure)

    def first_pairs(self, atoms: Tensor, edges: Tensor, line: LineGraph) -> Tensor:
        """First pair states from [edge, lower atom, higher atom] (equation 1), (B, M, E).

        Reference: which atom is which follows from their order, so the network is not equivariant.
        """
        upper = edges[:, line.first, line.second]
        if not self.has_pairs:
            return torch.zeros_like(upper)
        ends = [upper, atoms[:, line.first], atoms[:, line.second]]
        return self.dual_node_init(torch.cat(ends, -1))

    def synchronised(
        self, layer: int, atoms: Tensor, pairs: Tensor, mask: Tensor, line: LineGraph
    ) -> tuple[Tensor, Tensor]:
        """Cross-attention between the streams, and the paper's ablations of it.

        "both" is atoms from pairs, then pairs from the new atoms; "atoms" and "pairs" are the first
        and the second alone (the paper's B->A and A->B). "unmasked" has no incidence mask: every
        atom attends to every pair and back.
        """
        told, real = self.settings.synchronisation, pair_mask(mask, line)
        if told == "unmasked":
            # Reference: this ablation also differs in the rest. Both inputs are normalised, both
            # directions read the states from before, and each change is scaled by the root of how
            # much wider it looks.
            n_atoms = mask.sum(1).clamp_min(1).view(-1, 1, 1)
            n_pairs = real.sum(1).clamp_min(1).view(-1, 1, 1)
            normed = layer_norm(atoms, atoms.shape[-1:]), layer_norm(pairs, pairs.shape[-1:])
            to_atoms = self.p_from_d[layer](*normed, real.unsqueeze(1))
            to_pairs = self.d_from_p[layer](*reversed(normed), mask.unsqueeze(1))
            atoms = atoms + to_atoms * ((n_atoms - 1) / n_pairs).clamp(max=1).sqrt()
            return atoms, pairs + to_pairs * (2 / n_atoms).clamp(max=1).sqrt()
        touching = incidence(line)
        if told in ("both", "atoms"):
            # A padded atom, which nobody reads, sees its pairs: of nothing there is no softmax.
            seen = touching & (real.unsqueeze(1) | ~mask.unsqueeze(2))  # (B, N, M)
            atoms = atoms + self.p_from_d[layer](atoms, pairs, seen)
        if told in ("both", "pairs"):
            pairs = pairs + self.d_from_p[layer](pairs, atoms, touching.T.unsqueeze(0))
        return atoms, pairs


def masked_mean(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean over real rows, (B, L, C) and (B, L) to (B, C); zero where there is none."""
    weight = mask.to(rows.dtype).unsqueeze(-1)
    return (rows * weight).sum(1) / weight.sum(1).clamp_min(1)


def incidence(line: LineGraph) -> Tensor:
    """Which atom is in which pair, bool (N, M)."""
    atom = torch.arange(line.n_atoms, device=line.first.device).unsqueeze(1)
    return (line.first == atom) | (line.second == atom)


def square_of(bond_class: Tensor, diagonal: int, line: LineGraph) -> Tensor:
    """Classes of all ordered pairs, int64 (B, N, N), from (B, M) and one for the diagonal."""
    n = line.n_atoms
    return pad(bond_class, (0, 1), value=diagonal)[:, line.square].view(-1, n, n)


def hops(adjacency: Tensor) -> Tensor:
    """Hop distances up to 8, and 9 beyond, float (B, N, N), from 0 and 1 as float32."""
    step = adjacency + torch.eye(adjacency.shape[1], device=adjacency.device)
    reached, nearer = step, step + torch.eye(adjacency.shape[1], device=adjacency.device)
    # A pair is one hop nearer for every number of hops below nine that suffices to reach it.
    for _ in range(2, _FAR):
        reached = ((reached @ step) > 0).to(step.dtype)
        nearer = nearer + reached
    return _FAR - nearer


def perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
