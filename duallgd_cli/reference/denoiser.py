"""The reference denoiser: clean-bond logits from noisy graphs with their features.

Letters: B graphs, N atoms, M pairs.
"""

from dataclasses import dataclass, replace
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot, relu

from duallgd_cli.model.line_graph import LineGraph, line_graph
from duallgd_cli.model.linear import Linear
from duallgd_cli.reference.atom_stream import AtomLayer
from duallgd_cli.reference.pair_stream import PairLayer
from duallgd_cli.reference.perceptron import Film, Perceptron
from duallgd_cli.reference.rows import RealRows, masked_mean
from duallgd_cli.reference.settings import ReferenceDenoiserSettings
from duallgd_cli.reference.structure import N_CLASSES, EdgesIn, square_of
from duallgd_cli.reference.synchronise import (
    AtomsAlone,
    NoSynchronisation,
    PairsAlone,
    Synchronisation,
    UnmaskedSynchronisation,
)

_SYNCHRONISATIONS: Final = {
    "both": Synchronisation,
    "atoms": AtomsAlone,
    "pairs": PairsAlone,
    "none": NoSynchronisation,
    "unmasked": UnmaskedSynchronisation,
}


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
        pairs: The bond stream, (B, M, edge_width).
        y: The global state, (B, global_width).
    """

    atoms: Tensor
    edges: Tensor
    pairs: Tensor
    y: Tensor


class Fusion(nn.Module):
    """New global state from both streams' words and means (equation 7)."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.global_width
        self.linear = Linear(2 * width + settings.atom_width + settings.edge_width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, y: Tensor, words: list[Tensor]) -> Tensor:
        """(B, global_width) from that of the layer's start and the words, side by side."""
        return self.norm(y + self.linear(torch.cat(words, -1)))


class DualStreamLayer(nn.Module):
    """Reason over atoms, reason over bonds, synchronise, fuse."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.atoms = AtomLayer(settings)
        self.pairs = PairLayer(settings)
        self.synchronise = _SYNCHRONISATIONS[settings.synchronisation](settings)
        self.fuse = Fusion(settings)

    def forward(self, states: States, real: RealRows) -> States:
        """All states after the layer, from those after modulation."""
        y = states.y
        y_atoms = self.atoms.global_state(states.atoms, states.edges, y, real)
        atoms, edges = self.atoms(states.atoms, states.edges, y, real)
        pairs = self.pairs(states.pairs, real)
        y_pairs = self.pairs.global_state(pairs, y, real)
        atoms, pairs = self.synchronise(atoms, pairs, real)
        means = [masked_mean(atoms, real.atoms), masked_mean(pairs, real.pairs)]
        return States(atoms, edges, pairs, self.fuse(y, [y_atoms, y_pairs, *means]))

    def last_pairs(self, states: States, real: RealRows) -> Tensor:
        """Pairs after the layer, (B, M, edge_width), and nothing that they do not depend on."""
        atoms = self.atoms.atoms_alone(states.atoms, states.edges, states.y, real)
        pairs: Tensor = self.synchronise(atoms, self.pairs(states.pairs, real), real)[1]
        return pairs

    def last_edges(self, states: States, real: RealRows) -> Tensor:
        """Edges after the layer, (B, N, N, edge_width), and nothing that they do not depend on."""
        edges: Tensor = self.atoms(states.atoms, states.edges, states.y, real)[1]
        return edges


class AtomStreamLayer(nn.Module):
    """The layer of a network without a bond stream; the fusion sees zeros in its place."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.atoms = AtomLayer(settings)
        self.fuse = Fusion(settings)

    def forward(self, states: States, real: RealRows) -> States:
        """All states after the layer, from those after modulation."""
        y = states.y
        y_atoms = self.atoms.global_state(states.atoms, states.edges, y, real)
        atoms, edges = self.atoms(states.atoms, states.edges, y, real)
        no_pairs = edges.new_zeros(len(y), edges.shape[-1])
        words = [y_atoms, torch.zeros_like(y), masked_mean(atoms, real.atoms), no_pairs]
        return States(atoms, edges, states.pairs, self.fuse(y, words))

    def last_edges(self, states: States, real: RealRows) -> Tensor:
        """Edges after the layer, (B, N, N, edge_width)."""
        edges: Tensor = self.atoms(states.atoms, states.edges, states.y, real)[1]
        return edges


class PairReadout(Perceptron):
    """Logits from the bond stream."""

    def logits(self, layer: DualStreamLayer, states: States, real: RealRows) -> Tensor:
        """(B, M, classes) from the states before the last layer."""
        return self(layer.last_pairs(states, real))


class EdgeReadout(Perceptron):
    """Logits from the edges of the atom stream, the mean of both directions."""

    def logits(
        self, layer: DualStreamLayer | AtomStreamLayer, states: States, real: RealRows
    ) -> Tensor:
        """(B, M, classes) from the states before the last layer."""
        square: Tensor = self(layer.last_edges(states, real))
        low, high = real.graph.first, real.graph.second
        return (square[:, low, high] + square[:, high, low]) / 2


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

    Reference: the two atoms are told apart by their order, so the network is not equivariant.
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


class ReferenceDenoiser(nn.Module):
    """The authors' dual-stream denoiser.

    Args:
        settings: Sizes and variant.
    """

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        self.settings = settings
        atom, edge, width = settings.atom_width, settings.edge_width, settings.global_width
        self.atoms_in = Perceptron(settings.atom_inputs, settings.atom_hidden, atom)
        self.edges_in = EdgesIn(settings)
        self.global_in = GlobalIn(settings)
        self.film_atoms = Film(width, atom)
        self._add_pair_parts(settings)
        hidden = settings.edge_hidden
        readout = PairReadout if settings.readout == "pairs" else EdgeReadout
        self.readout = readout(edge, hidden, N_CLASSES)
        # Reference: trained weights hold an output of the global state that no logit depends on.
        self.global_readout = Perceptron(width, settings.global_hidden, settings.condition_width)

    def _add_pair_parts(self, settings: ReferenceDenoiserSettings) -> None:
        self.pair_start = PairStart(settings)
        self.film_pairs = Film(settings.global_width, settings.edge_width)
        self.layers = nn.ModuleList(DualStreamLayer(settings) for _ in range(settings.layers))

    def forward(self, graphs: NoisyGraphs) -> Tensor:
        """Logits of the clean bond classes.

        Args:
            graphs: Noisy graphs with their features.

        Returns:
            (B, M, classes); meaningless at padded pairs.
        """
        with torch.inference_mode(False):  # what is cached here serves training too
            line = line_graph(graphs.atom_mask.shape[1], graphs.bond_class.device)
        real = RealRows.of(graphs.atom_mask, line)
        states = self.start(graphs, real)
        for layer in self.layers[:-1]:
            states = layer(self.modulate(states), real)
        last = cast("DualStreamLayer", self.layers[-1])
        change = self.readout.logits(last, self.modulate(states), real)
        return change + one_hot(graphs.bond_class, N_CLASSES)  # equation 9

    def start(self, graphs: NoisyGraphs, real: RealRows) -> States:
        """States before the first layer."""
        bond_class = graphs.bond_class.masked_fill(~real.pairs, 0)
        atoms = relu(self.atoms_in(graphs.atoms))
        edges = self.edges_in(square_of(bond_class, graphs.diagonal, real.graph))
        y = self.global_in(graphs.condition, graphs.whole)
        return States(atoms, edges, self.start_pairs(atoms, edges, real), y)

    def start_pairs(self, atoms: Tensor, edges: Tensor, real: RealRows) -> Tensor:
        """The bond stream before the first layer, (B, M, edge_width)."""
        return self.pair_start(atoms, edges, real.graph)

    def modulate(self, states: States) -> States:
        """States as the global state lets a layer see them; all layers share the modulation."""
        atoms = self.film_atoms(states.atoms, states.y)
        return replace(states, atoms=atoms, pairs=self.film_pairs(states.pairs, states.y))


class AtomStreamDenoiser(ReferenceDenoiser):
    """The ablation without line graph: no bond stream, logits from the edges."""

    def _add_pair_parts(self, settings: ReferenceDenoiserSettings) -> None:
        self.layers = nn.ModuleList(AtomStreamLayer(settings) for _ in range(settings.layers))

    def start_pairs(self, atoms: Tensor, edges: Tensor, real: RealRows) -> Tensor:
        """No states at all, (B, 0, edge_width)."""
        del real
        return edges.new_zeros(len(atoms), 0, edges.shape[-1])

    def modulate(self, states: States) -> States:
        """Atoms alone are modulated."""
        return replace(states, atoms=self.film_atoms(states.atoms, states.y))


def build(settings: ReferenceDenoiserSettings) -> ReferenceDenoiser:
    """The denoiser of a variant, with untrained weights."""
    return {"both": ReferenceDenoiser, "atoms": AtomStreamDenoiser}[settings.streams](settings)
