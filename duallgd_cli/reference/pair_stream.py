"""The bond stream of the reference. Letters: B graphs, M pairs, E channels of a pair."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from duallgd_cli.model.linear import Linear, linear
from duallgd_cli.reference.kernels import (
    EluKernel,
    PositiveKernel,
    SoftmaxKernel,
    WaveKernel,
)
from duallgd_cli.reference.rows import RealRows, masked_mean
from duallgd_cli.reference.settings import ReferenceDenoiserSettings


def _kernel(settings: ReferenceDenoiserSettings) -> nn.Module:
    width = settings.edge_width // settings.heads
    match settings.kernel:
        case "positive":
            return PositiveKernel(settings.n_features, width)
        case "waves":
            return WaveKernel(settings.n_features, width)
        case "elu":
            return EluKernel()
        case "softmax":
            return SoftmaxKernel()


class PairAttention(nn.Module):
    """Self-attention of the bond stream; every pair attends to every pair."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.edge_width
        self.heads = settings.heads
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        self.kernel = _kernel(settings)

    def forward(self, pairs: Tensor, real: RealRows) -> Tensor:
        """Change of the pairs, (B, M, E)."""
        parts = (self.query, self.key, self.value)
        weight, bias = torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
        split = [
            x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for x in linear(pairs, weight, bias).chunk(3, -1)
        ]
        mixed: Tensor = self.kernel(*split, real.pairs)
        return self.out(mixed.transpose(1, 2).flatten(2))


class PairLayer(nn.Module):
    """One pre-norm block over pairs, and its word to the global state."""

    def __init__(self, settings: ReferenceDenoiserSettings) -> None:
        super().__init__()
        width = settings.edge_width
        self.attention = PairAttention(settings)
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
