"""Attention of the bond stream, as the reference computes it, in memory that does not grow with M.

A kernel maps queries and keys to features whose products stand for attention weights. Letters:
B graphs, H heads, M pairs, D channels of a head, R random features, F features of a kernel.
"""

import math
from abc import ABC, abstractmethod
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad, scaled_dot_product_attention

from duallgd_cli.model.linear import linear

_LARGEST_EXPONENT: Final = 20.0
_LARGEST_SQUARE: Final = 30.0
_EPSILON: Final = 1e-8
# Numbers in one chunk of features: what a core's cache holds, or what keeps an accelerator busy.
_CHUNK_CPU: Final = 1 << 20
_CHUNK_DEVICE: Final = 1 << 27


class SoftmaxKernel(nn.Module):
    """Exact softmax attention."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D)."""
        return scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])


class LinearKernel(nn.Module, ABC):
    """Attention whose weights are products of features, in chunks of graphs and pairs.

    What all features of a row have in common is a factor of its own: it multiplies values and
    results, which are a dozen times fewer.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D)."""
        with_one = pad(value, (0, 1), value=1.0) * mask[:, None, :, None]  # (B, H, M, D + 1)
        graphs, pairs = self._chunk(query)
        mixed = [
            self._attend(*part, pairs)
            for part in zip(
                query.split(graphs), key.split(graphs), with_one.split(graphs), strict=True
            )
        ]
        return torch.cat(mixed)

    @abstractmethod
    def features(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Features of queries or keys, (..., D) to (..., F), and a factor of each row (..., 1)."""

    @abstractmethod
    def n_features(self, width: int) -> int:
        """F, for D channels of a head."""

    def _attend(self, query: Tensor, key: Tensor, with_one: Tensor, pairs: int) -> Tensor:
        # Both products have the many features or pairs as columns: three times as fast on a CPU.
        summed = query.new_zeros(())
        for k, v in zip(key.split(pairs, 2), with_one.split(pairs, 2), strict=True):
            features, factor = self.features(k)
            summed = summed + (v * factor).transpose(2, 3) @ features  # (B, H, D + 1, F)
        parts = []
        for q in query.split(pairs, 2):
            features, factor = self.features(q)
            parts.append((summed @ features.transpose(2, 3)).transpose(2, 3) * factor)
        mixed = torch.cat(parts, 2)  # (B, H, M, D + 1)
        total: Tensor = mixed[..., -1:] + _EPSILON
        return mixed[..., :-1] / total

    def _chunk(self, query: Tensor) -> tuple[int, int]:
        """Graphs and pairs that are worked on at a time."""
        _, heads, n_pairs, width = query.shape
        budget = _CHUNK_CPU if query.device.type == "cpu" else _CHUNK_DEVICE
        each = heads * self.n_features(width)
        pairs = min(n_pairs, max(1, budget // each))
        return max(1, budget // (each * n_pairs)), pairs


class EluKernel(LinearKernel):
    """Linear attention with the features elu(x) + 1."""

    def features(self, x: Tensor) -> tuple[Tensor, float]:
        """(..., D) to (..., D)."""
        return elu(x) + 1, 1.0

    def n_features(self, width: int) -> int:
        """D."""
        return width


class RandomKernel(LinearKernel):
    """Features from a random projection that is stored with the weights.

    Args:
        n_features: R.
        width: D.
    """

    projection: Tensor

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.register_buffer("projection", torch.zeros(n_features, width))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Products with the random rows, (..., R), and half the squared length, (..., 1)."""
        width = x.shape[-1]
        score = linear(x.reshape(-1, width), self.projection * width**-0.25)
        score = score.clamp_(-_LARGEST_EXPONENT, _LARGEST_EXPONENT).view(*x.shape[:-1], -1)
        square = x.square().sum(-1, keepdim=True) * width**-0.5
        return score, square.clamp(max=_LARGEST_SQUARE) / 2


class PositiveKernel(RandomKernel):
    """FAVOR+ with positive features."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) to (..., R)."""
        score, half = self.projected(x)
        return score.exp_(), torch.exp(-half) / math.sqrt(len(self.projection))

    def n_features(self, width: int) -> int:
        """R, whatever the D."""
        return len(self.projection)


class WaveKernel(RandomKernel):
    """Sines and cosines of the projection; weights may be negative."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(..., D) to (..., 2 R)."""
        score, half = self.projected(x)
        angle = 2 * math.pi * score
        factor = torch.exp(half) / math.sqrt(len(self.projection))
        return torch.cat([angle.sin(), angle.cos()], -1), factor

    def n_features(self, width: int) -> int:
        """2 R, whatever the D."""
        return 2 * len(self.projection)


def draw_projection(n_features: int, width: int, generator: torch.Generator) -> Tensor:
    """Random rows at the reference's scale: orthogonal blocks, the whole divided once more.

    Reference: its rows have norm 1/4 (for 128 features of width 8) instead of about sqrt(width),
    which makes the kernel nearly independent of the query. Weights trained with it need it.

    Args:
        n_features: R.
        width: D.
        generator: Source of randomness; record its seed beside the weights.

    Returns:
        float32 (R, D).
    """
    whole, rest = divmod(n_features, width)
    blocks = []
    for _ in range(whole + (rest > 0)):
        direction, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
        blocks.append(direction.T)
    return torch.cat(blocks)[:n_features] / math.sqrt(whole + rest / width)
