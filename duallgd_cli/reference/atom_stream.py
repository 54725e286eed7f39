"""The atom stream of the reference: attention per channel, which the edges modulate.

A score has no sum over channels, so all of them are as large as (B, N, N, C). They are computed for
a few rows of atoms at a time, with everything that depends on them, and stay in the cache.
Letters: B graphs, N atoms, R rows of atoms in a chunk, C channels of an atom, E of an edge.
"""

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor, nn

from duallgd_cli.model.linear import Linear, linear
from duallgd_cli.reference.perceptron import Perceptron, PostNorm
from duallgd_cli.reference.rows import RealRows, pooled, pooled_whole
from duallgd_cli.reference.settings import ReferenceDenoiserSettings

# Numbers in one chunk of scores: what a core's cache holds, or what keeps an accelerator busy.
_CHUNK_CPU: Final = 1 << 19
_CHUNK_DEVICE: Final = 1 << 28


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
        flat = edges.flatten(1, 2)
        if real.padded:
            seen = pooled(atoms, real.atoms), pooled(flat, real.edges.flatten(1))
        else:
            seen = pooled_whole(atoms), pooled_whole(flat)
        change = self.atom_global(seen[0]) + self.edge_global(seen[1])
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
        self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows
    ) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and edges (B, N, N, E)."""
        value = self.attention.value(atoms)
        matrix, bias = self.attention.edge_map(y)
        new_edges, mixed = [], []
        for rows, scores in self.attention.scores(atoms, edges):
            mixed.append(self.attention.mixed(scores, value, real))
            change = _by_graph(scores.flatten(1, 2), matrix, bias)
            new_edges.append(self.edges(edges[:, rows], change.unflatten(1, scores.shape[1:3])))
        change = self.attention.change_of_atoms(torch.cat(mixed, 1), y)
        return self.atoms(atoms, change), torch.cat(new_edges, 1)

    def atoms_alone(self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows) -> Tensor:
        """New atoms, as `forward` gives them, where nothing reads the new edges."""
        value = self.attention.value(atoms)
        mixed = [
            self.attention.mixed(scores, value, real)
            for _, scores in self.attention.scores(atoms, edges)
        ]
        change = self.attention.change_of_atoms(torch.cat(mixed, 1), y)
        return self.atoms(atoms, change)

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
