"""The reference network the plain way, as the authors' release goes about it.

It stands in for their code where that is not installed: scores and features of all pairs written
out, a dense (N, M) incidence mask, scores of the atom stream for all atom pairs at once, hop
distances by one relaxation an atom, every layer in full and outputs that nothing reads.

Letters: B graphs, N atoms, M pairs, C channels of an atom, E of an edge.
"""

import copy
from typing import Final

import torch
from plain import (
    attend,
    incidence,
    linear_attention,
    materialised_attention,
    use_own_linear,
)
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot, relu

from duallgd_cli.model.line_graph import LineGraph, line_graph
from duallgd_cli.reference.denoiser import (
    N_CLASSES,
    EdgesIn,
    GlobalIn,
    NoisyGraphs,
    PairStart,
    ReferenceDenoiser,
    ReferenceLayer,
    bonded,
)
from duallgd_cli.reference.kernels import LinearKernel, SoftmaxKernel
from duallgd_cli.reference.layers import AtomLayer, RealRows, Synchronisation

_FAR: Final = 9
_LARGEST_DEGREE: Final = 16
_EPSILON: Final = 1e-8


class PlainReferenceDenoiser(nn.Module):
    """A denoiser that computes the same numbers as the one it is made from.

    Args:
        fast: Left as it is; its parameters are shared.
    """

    def __init__(self, fast: ReferenceDenoiser) -> None:
        super().__init__()
        shared = {id(p): p for p in (*fast.parameters(), *fast.buffers())}
        network = copy.deepcopy(fast, shared)
        network.edges_in = PlainEdgesIn(network.edges_in)  # type: ignore[assignment]
        network.global_in = PlainGlobalIn(network.global_in)  # type: ignore[assignment]
        assert network.pair_start is not None
        network.pair_start = PlainPairStart(network.pair_start)  # type: ignore[assignment]
        for layer in network.layers:
            if isinstance(layer, ReferenceLayer):
                _make_plain(layer)
        use_own_linear(network)
        self.network = network

    def forward(self, graphs: NoisyGraphs) -> Tensor:
        """Logits (B, M, classes), as the fast network's."""
        network = self.network
        line = line_graph(graphs.atom_mask.shape[1], graphs.bond_class.device)
        real = RealRows.of(graphs.atom_mask, line)
        states = network.start(graphs, real)
        for layer in network.layers:
            states = layer(network.modulate(states), real)
        network.global_readout(states.y)
        change: Tensor = network.readout(states.pairs)
        return change + one_hot(graphs.bond_class, N_CLASSES)


class PlainEdgesIn(nn.Module):
    """Embeds ordered pairs one by one."""

    def __init__(self, fast: EdgesIn) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, square: Tensor) -> Tensor:
        """Edges (B, N, N, E), as in `EdgesIn`."""
        shown = one_hot(square, N_CLASSES + 1)[..., :N_CLASSES].float()
        adjacency = bonded(square)
        degree = adjacency.sum(2).clamp(max=_LARGEST_DEGREE).float() / _LARGEST_DEGREE
        both = degree.unsqueeze(2) + degree.unsqueeze(1)
        structure = torch.stack([relaxed_hops(adjacency) / _FAR, both], -1)
        edges: Tensor = relu(self.fast.classes(shown)) + self.fast.structure(structure)
        return edges


class PlainGlobalIn(nn.Module):
    """Embeds the condition anew for every graph and step."""

    def __init__(self, fast: GlobalIn) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, condition: Tensor, whole: Tensor) -> Tensor:
        """(B, global_width), as in `GlobalIn`."""
        known = condition.expand(len(whole), -1)
        return relu(self.fast.perceptron(torch.cat([known, whole], 1)))


class PlainPairStart(nn.Module):
    """First pair states from concatenated rows (B, M, E + 2 C)."""

    def __init__(self, fast: PairStart) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, atoms: Tensor, edges: Tensor, graph: LineGraph) -> Tensor:
        """(B, M, E), as in `PairStart`."""
        upper = edges[:, graph.first, graph.second]
        rows = torch.cat([upper, atoms[:, graph.first], atoms[:, graph.second]], -1)
        return self.fast.outer(gelu(self.fast.inner(rows)))  # type: ignore[no-any-return]


class PlainAtomLayer(nn.Module):
    """The atom stream's block with all scores (B, N, N, C) in memory."""

    def __init__(self, fast: AtomLayer) -> None:
        super().__init__()
        self.fast = fast

    def forward(
        self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows
    ) -> tuple[Tensor, Tensor]:
        """New atoms (B, N, C) and edges (B, N, N, E), as in `AtomLayer`."""
        part = self.fast.attention
        query, key = part.query(atoms) * part.scale, part.key(atoms)
        scores = query.unsqueeze(2) * key.unsqueeze(1)
        scores = scores * (part.edge_mul(edges) + 1) + part.edge_add(edges)
        gain = part.global_edge_mul(y)[:, None, None]
        change = part.edge_out(part.global_edge_add(y)[:, None, None] + (1 + gain) * scores)
        scores = scores.masked_fill(~real.atoms[:, None, :, None], -torch.inf)
        mixed = (torch.softmax(scores, 2) * part.value(atoms).unsqueeze(1)).sum(2)
        new_atoms: Tensor = self.fast.atoms(atoms, part.change_of_atoms(mixed, y))
        new_edges: Tensor = self.fast.edges(edges, change)
        return new_atoms, new_edges

    def global_state(self, atoms: Tensor, edges: Tensor, y: Tensor, real: RealRows) -> Tensor:
        """As in `AtomLayer`."""
        return self.fast.global_state(atoms, edges, y, real)


class DenseSynchronisation(nn.Module):
    """Both cross-attentions with a dense incidence mask."""

    def __init__(self, fast: Synchronisation) -> None:
        super().__init__()
        assert fast.atoms is not None
        assert fast.pairs is not None
        self.atoms, self.pairs = fast.atoms, fast.pairs

    def forward(self, atoms: Tensor, pairs: Tensor, real: RealRows) -> tuple[Tensor, Tensor]:
        """New atoms and pairs, as in `Synchronisation`."""
        seen = incidence(real.graph).unsqueeze(0) & real.pairs.unsqueeze(1)  # (B, N, M)
        atoms = atoms + attend(self.atoms, atoms, pairs, seen)
        return atoms, pairs + attend(self.pairs, pairs, atoms, seen.transpose(1, 2))


class MaterialisedKernel(nn.Module):
    """Attention over pairs with all scores or features in memory."""

    def __init__(self, fast: SoftmaxKernel | LinearKernel) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D)."""
        if isinstance(self.fast, SoftmaxKernel):
            return materialised_attention(query, key, value, mask[:, None, None, :])
        keep = mask[:, None, :, None]
        query_phi, key_phi = (self._features(x) * keep for x in (query, key))
        return linear_attention(query_phi, key_phi, value * keep, _EPSILON)

    def _features(self, x: Tensor) -> Tensor:
        features, factor = self.fast.features(x)  # type: ignore[operator]
        return features * factor


def relaxed_hops(adjacency: Tensor) -> Tensor:
    """Hop distances up to 8, and 9 beyond, by one relaxation for each atom: float (B, N, N)."""
    n = adjacency.shape[1]
    eye = torch.eye(n, dtype=torch.bool, device=adjacency.device)
    distance = torch.full(adjacency.shape, float("inf"), device=adjacency.device)
    distance = distance.masked_fill(adjacency, 1.0).masked_fill(eye, 0.0)
    for via in range(n):
        around = distance[:, :, via : via + 1] + distance[:, via : via + 1, :]
        distance = torch.minimum(distance, around)
    return distance.clamp(max=_FAR)


def _make_plain(layer: ReferenceLayer) -> None:
    """Put plain parts around a layer's own, whose parameters they use."""
    assert layer.pairs is not None
    assert layer.synchronise is not None
    layer.atoms = PlainAtomLayer(layer.atoms)  # type: ignore[assignment]
    layer.pairs.attention.kernel = MaterialisedKernel(layer.pairs.attention.kernel)  # type: ignore[assignment]
    layer.synchronise = DenseSynchronisation(layer.synchronise)  # type: ignore[assignment]
