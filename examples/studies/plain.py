"""The default network the plain way: the same parameters, nothing clever.

Every pair's two atoms are a dense (N, M) mask, attention over pairs writes out its scores or its
features, and what depends on the condition alone is computed again at every step. It is what the
fast path is tested against, and what its speed is a multiple of.

Letters: B graphs, N atoms, M pairs, H heads, D channels of a head, R random features.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from duallgd_cli.model.duallgd import Condition, Denoiser
from duallgd_cli.model.layers import DualStreamLayer, Masks, PairAttention
from duallgd_cli.model.line_graph import AtomsFromPairs, CrossAttention, LineGraph, PairsFromAtoms
from duallgd_cli.model.tensors import Linear, map_tensors


@dataclass(frozen=True, eq=False)
class PlainContext:
    """A condition of which nothing has been computed yet.

    Attributes:
        condition: Of one spectrum, or repeated.
    """

    condition: Condition

    def expand(self, samples: int) -> "PlainContext":
        """The condition of one spectrum, copied for several candidates."""
        return map_tensors(self, lambda tensor: tensor.repeat_interleave(samples, 0))


class PlainDenoiser(nn.Module):
    """A denoiser that computes the same numbers as the one it is made from.

    Args:
        fast: Left as it is; its parameters are shared.
    """

    def __init__(self, fast: Denoiser) -> None:
        super().__init__()
        # Parameters are shared, the modules that hold them are not.
        shared = {id(p): p for p in (*fast.parameters(), *fast.buffers())}
        self.denoiser = copy.deepcopy(fast, shared)
        for layer in self.denoiser.layers:
            if isinstance(layer, DualStreamLayer):
                # Plain parts around a layer's own, whose parameters they use.
                layer.pair_attention = MaterialisedPairAttention(layer.pair_attention)  # type: ignore[assignment]
                layer.atoms_from_pairs = DenseAtomsFromPairs(layer.atoms_from_pairs)  # type: ignore[assignment]
                layer.pairs_from_atoms = DensePairsFromAtoms(layer.pairs_from_atoms)  # type: ignore[assignment]
        use_own_linear(self.denoiser)

    def context(self, condition: Condition) -> PlainContext:
        """Nothing yet."""
        return PlainContext(condition)

    def forward(self, bond_class: Tensor, t: Tensor, context: PlainContext) -> Tensor:
        """Logits (B, M, classes), as the fast network's."""
        known = self.denoiser.context(context.condition)
        logits: Tensor = self.denoiser(bond_class, t, known)
        return logits


class PlainLinear(Linear):
    """A linear map through PyTorch's own path."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return functional.linear(input, self.weight, self.bias)

    def relu(self, x: Tensor) -> Tensor:
        """The map, then ReLU."""
        return functional.relu(self(x))


def use_own_linear(module: nn.Module) -> None:
    """Put `PlainLinear` in the place of all faster linear maps, with their parameters."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear):
                plain = PlainLinear(child.in_features, child.out_features, device="meta")
                plain.weight, plain.bias = child.weight, child.bias
                setattr(parent, name, plain)


class MaterialisedPairAttention(nn.Module):
    """Attention over pairs that writes out all scores (B, H, M, M) or features (B, H, M, R)."""

    def __init__(self, fast: PairAttention) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, pairs: Tensor, masks: Masks) -> Tensor:
        """Change of the pairs, as in `PairAttention`."""
        qkv = self.fast.qkv(self.fast.norm(pairs)).chunk(3, -1)
        query, key, value = (split_heads(x, self.fast.heads) for x in qkv)
        features = self.fast.features
        if features.shape[1]:
            scale = features.shape[2] ** -0.25
            # The fast path leaves the norm of a query out, which cancels, but for this.
            least = 1e-6 * torch.exp(-(query * scale).square().sum(-1, keepdim=True) / 2)
            mixed = linear_attention(
                _phi(query * scale, features),
                _phi(key * scale, features) * masks.pairs[:, None, :, None],
                value,
                epsilon=least,
            )
        else:
            mixed = materialised_attention(query, key, value, masks.pairs[:, None, None, :])
        return self.fast.out(join_heads(mixed))  # type: ignore[no-any-return]


class DenseAtomsFromPairs(nn.Module):
    """Each atom scores all pairs, and a mask hides those it is not in."""

    def __init__(self, fast: AtomsFromPairs) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, atoms: Tensor, pairs: Tensor, mask: Tensor, graph: LineGraph) -> Tensor:
        """Change of the atoms, as in `AtomsFromPairs`."""
        seen = incidence(graph).unsqueeze(0)  # (1, N, M)
        real = torch.zeros_like(seen).expand(len(atoms), -1, -1).clone()
        own = graph.incident.view(1, graph.n_atoms, -1).expand(len(atoms), -1, -1)
        real = real.scatter(2, own, mask)
        return attend(self.fast, atoms, pairs, seen & real)


class DensePairsFromAtoms(nn.Module):
    """Each pair scores all atoms, and a mask hides all but its two."""

    def __init__(self, fast: PairsFromAtoms) -> None:
        super().__init__()
        self.fast = fast

    def forward(self, pairs: Tensor, atoms: Tensor, graph: LineGraph) -> Tensor:
        """Change of the pairs, as in `PairsFromAtoms`."""
        return attend(self.fast, pairs, atoms, incidence(graph).T.unsqueeze(0))


def attend(module: CrossAttention, target: Tensor, source: Tensor, mask: Tensor) -> Tensor:
    """Masked attention of all targets to all sources with a cross-attention's own projections.

    Args:
        module: Holds query, key, value and out.
        target: (B, L, .).
        source: (B, S, .).
        mask: Sources that a target may see, bool (B or 1, L, S).

    Returns:
        (B, L, .); rows that may see nothing get the output's bias alone.
    """
    query = split_heads(module.query(target), module.heads)
    key = split_heads(module.key(source), module.heads)
    value = split_heads(module.value(source), module.heads)
    mixed = materialised_attention(query, key, value, mask.unsqueeze(1))
    return module.out(join_heads(mixed))  # type: ignore[no-any-return]


def materialised_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention with all scores (B, H, L, S) in memory; nothing visible gives zero."""
    score = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    score = score.masked_fill(~mask, torch.finfo(score.dtype).min)
    weight = torch.softmax(score, -1) * mask
    return weight.to(value.dtype) @ value


def linear_attention(query_phi: Tensor, key_phi: Tensor, value: Tensor, epsilon: Tensor) -> Tensor:
    """Attention whose weights are products of features (B, H, M, R); keys masked by the caller."""
    key_phi, query_phi = key_phi.to(value.dtype), query_phi.to(value.dtype)
    summed = key_phi.transpose(2, 3) @ value  # (B, H, R, D)
    total = query_phi @ key_phi.sum(2).unsqueeze(-1)  # (B, H, M, 1)
    return (query_phi @ summed) / (total + epsilon)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, H D) to (B, H, L, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]


def join_heads(x: Tensor) -> Tensor:
    """(B, H, L, D) to (B, L, H D)."""
    return x.transpose(1, 2).flatten(2)


def incidence(graph: LineGraph) -> Tensor:
    """Which atom is in which pair, bool (N, M)."""
    atom = torch.arange(graph.n_atoms, device=graph.first.device).unsqueeze(1)
    return (graph.first == atom) | (graph.second == atom)


def _phi(x: Tensor, features: Tensor) -> Tensor:
    projected = x @ features.transpose(1, 2).to(x.dtype)
    return torch.exp(projected - x.square().sum(-1, keepdim=True) / 2)
