"""The reference denoiser: clean-bond logits from noisy graphs with their features.

Letters: B graphs, N atoms, M pairs, E channels of an edge.
"""

from dataclasses import dataclass, replace
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot, pad, relu

from duallgd_cli.model.line_graph import LineGraph, line_graph
from duallgd_cli.model.tensors import Linear
from duallgd_cli.reference.layers import (
    AtomLayer,
    PairLayer,
    Perceptron,
    RealRows,
    ReferenceFilm,
    Synchronisation,
    masked_mean,
)
from duallgd_cli.reference.settings import ReferenceDenoiserSettings

N_CLASSES: Final = 5
# The index of "no class at all", which the diagonal shows before the first draw.
NO_CLASS: Final = N_CLASSES
_FAR: Final = 9
_LARGEST_DEGREE: Final = 16


@dataclass(frozen=True, eq=False)
class NoisyGraphs:
    """What the reference denoiser reads.

    Attributes:
        atoms: Atom features, (B, N, atom_inputs).
        bond_class: Noisy classes, int64 (B, M); none at padded pairs.
        condition: Projected fingerprint, (B, condition_width), or one row for all graphs.
        whole: Features of the graph and its noise level, (B, global_inputs).
        atom_mask: Real atoms, bool (B, N).
        diagonal: Bond class shown on the diagonal: none after any draw, `NO_CLASS` before the
            first.
    """

    atoms: Tensor
    bond_class: Tensor
    condition: Tensor
    whole: Tensor
    atom_mask: Tensor
    diagonal: int = 0


@dataclass(frozen=True, eq=False)
class States:
    """States of all streams between layers.

    Attributes:
        atoms: (B, N, atom_width).
        edges: Ordered pairs of the atom stream, (B, N, N, edge_width).
        pairs: The bond stream, (B, M, edge_width); zeros where the network has none.
        y: The global state, (B, global_width).
    """

    atoms: Tensor
    edges: Tensor
    pairs: Tensor
    y: Tensor


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


class GlobalIn(nn.Module):
    """Embeds the condition and the features of the whole graph.

    The condition's product with its columns is computed once where all graphs share it.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        inputs = settings.condition_width + settings.global_inputs
        self.perceptron = Perceptron(inputs, settings.global_hidden, settings.global_width)

    def forward(self, condition: Tensor, whole: Tensor) -> Tensor:
        """(B, global_width) from (B or 1, condition_width) and (B, global_inputs)."""
        inner, outer = self.perceptron.inner, self.perceptron.outer
        known, seen = inner.weight.split([condition.shape[1], whole.shape[1]], 1)
        hidden = nn.functional.linear(condition, known, inner.bias) + whole @ seen.T
        return relu(outer(relu(hidden)))


class PairStart(nn.Module):
    """First pair states from [edge, lower atom, higher atom] (equation 1).

    Reference: which atom is which follows from their order, so the network is not equivariant.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.widths = [settings.edge_width, settings.atom_width, settings.atom_width]
        self.inner = Linear(sum(self.widths), settings.edge_width)
        self.outer = Linear(settings.edge_width, settings.edge_width)

    def forward(self, atoms: Tensor, edges: Tensor, graph: LineGraph) -> Tensor:
        """(B, M, edge_width) from (B, N, atom_width) and (B, N, N, edge_width)."""
        of_edge, of_low, of_high = self.inner.weight.split(self.widths, 1)
        upper = edges[:, graph.first, graph.second] @ of_edge.T + self.inner.bias
        low = (atoms @ of_low.T).index_select(1, graph.first)
        high = (atoms @ of_high.T).index_select(1, graph.second)
        return self.outer(gelu(upper + low + high))


class ReferenceFusion(nn.Module):
    """New global state from what both streams say of it and from their means (equation 7)."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.global_width
        self.linear = Linear(2 * width + settings.atom_width + settings.edge_width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, y: Tensor, parts: list[Tensor]) -> Tensor:
        """(B, global_width) from that of the layer's start and the parts, side by side."""
        return self.norm(y + self.linear(torch.cat(parts, -1)))


class ReferenceLayer(nn.Module):
    """Reason over atoms, reason over bonds, synchronise, fuse.

    In a network without bond stream the fusion sees zeros instead.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        both = settings.streams == "both"
        self.atoms = AtomLayer(settings)
        self.pairs = PairLayer(settings) if both else None
        self.synchronise = Synchronisation(settings) if both else None
        self.fuse = ReferenceFusion(settings)

    def forward(self, states: States, real: RealRows) -> States:
        """All states after the layer, from those after modulation."""
        y, pairs, y_pairs = states.y, states.pairs, torch.zeros_like(states.y)
        y_atoms = self.atoms.global_state(states.atoms, states.edges, y, real)
        atoms, edges = self.atoms(states.atoms, states.edges, y, real)
        if self.pairs is not None and self.synchronise is not None:
            pairs = self.pairs(pairs, real)
            y_pairs = self.pairs.global_state(pairs, y, real)
            atoms, pairs = self.synchronise(atoms, pairs, real)
        means = [masked_mean(atoms, real.atoms), masked_mean(pairs, real.pairs)]
        return States(atoms, edges, pairs, self.fuse(y, [y_atoms, y_pairs, *means]))

    def last(self, states: States, real: RealRows, readout: str) -> Tensor:
        """What logits are read from after the layer, and nothing that it does not depend on.

        Pairs, (B, M, edge_width), or edges, (B, N, N, edge_width).
        """
        as_edges = readout == "edges"
        atoms, edges = self.atoms(states.atoms, states.edges, states.y, real, edges_too=as_edges)
        if as_edges or self.pairs is None or self.synchronise is None:
            return edges
        pairs: Tensor = self.synchronise(atoms, self.pairs(states.pairs, real), real)[1]
        return pairs


class ReferenceDenoiser(nn.Module):
    """The authors' dual-stream denoiser.

    Args:
        settings: Sizes and variant.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.settings = settings
        atom, edge, width = settings.atom_width, settings.edge_width, settings.global_width
        both = settings.streams == "both"
        self.atoms_in = Perceptron(settings.atom_inputs, settings.atom_hidden, atom)
        self.edges_in = EdgesIn(settings)
        self.global_in = GlobalIn(settings)
        self.film_atoms = ReferenceFilm(width, atom)
        self.pair_start = PairStart(settings) if both else None
        self.film_pairs = ReferenceFilm(width, edge) if both else None
        self.layers = nn.ModuleList(ReferenceLayer(settings) for _ in range(settings.layers))
        self.readout = Perceptron(edge, settings.edge_hidden, N_CLASSES)
        # Reference: trained weights hold an output of the global state that no logit depends on.
        self.global_readout = Perceptron(width, settings.global_hidden, settings.condition_width)

    def forward(self, graphs: NoisyGraphs) -> Tensor:
        """Logits of the clean bond classes.

        Args:
            graphs: Noisy graphs with their features.

        Returns:
            (B, M, classes); meaningless at padded pairs.
        """
        line = line_graph(graphs.atom_mask.shape[1], graphs.bond_class.device)
        real = RealRows.of(graphs.atom_mask, line)
        states = self.start(graphs, real)
        for layer in self.layers[:-1]:
            states = layer(self.modulate(states), real)
        change = self.read(self.modulate(states), real)
        return change + one_hot(graphs.bond_class, N_CLASSES)  # equation 9

    def start(self, graphs: NoisyGraphs, real: RealRows) -> States:
        """States before the first layer."""
        bond_class = graphs.bond_class.masked_fill(~real.pairs, 0)
        atoms = relu(self.atoms_in(graphs.atoms))
        edges = self.edges_in(square_of(bond_class, graphs.diagonal, real.graph))
        y = self.global_in(graphs.condition, graphs.whole)
        if self.pair_start is None:
            pairs = edges.new_zeros(*bond_class.shape, edges.shape[-1])
        else:
            pairs = self.pair_start(atoms, edges, real.graph)
        return States(atoms, edges, pairs, y)

    def modulate(self, states: States) -> States:
        """States as the global state lets a layer see them; all layers share the modulation."""
        atoms, pairs = self.film_atoms(states.atoms, states.y), states.pairs
        if self.film_pairs is not None:
            pairs = self.film_pairs(pairs, states.y)
        return replace(states, atoms=atoms, pairs=pairs)

    def read(self, states: States, real: RealRows) -> Tensor:
        """Change of the logits, (B, M, classes), from the states before the last layer.

        That of edges is the mean of both directions.
        """
        last, readout = cast("ReferenceLayer", self.layers[-1]), self.settings.readout
        logits = self.readout(last.last(states, real, readout))
        if readout == "pairs":
            return logits
        low, high = real.graph.first, real.graph.second
        return (logits[:, low, high] + logits[:, high, low]) / 2


def square_of(bond_class: Tensor, diagonal: int, graph: LineGraph) -> Tensor:
    """Classes of all ordered pairs.

    Args:
        bond_class: int64 (B, M).
        diagonal: Class of an atom with itself, or `NO_CLASS`.
        graph: Line graph of N atoms.

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
