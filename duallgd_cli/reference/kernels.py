"""Attention of the bond stream, as the reference computes it, in memory that does not grow with M.

A kernel maps queries and keys to features whose products stand for attention weights. Letters:
B graphs, H heads, M pairs, D channels of a head, R random features, F features of a kernel.
"""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad, scaled_dot_product_attention

from duallgd_cli.model.tensors import linear
from duallgd_cli.reference.settings import ReferenceDenoiserSettings

_LARGEST_EXPONENT: Final = 20.0
_LARGEST_SQUARE: Final = 30.0
_EPSILON: Final = 1e-8
# Numbers in one chunk of features: what a core's cache holds, or what keeps an accelerator busy.
_CHUNK_CPU: Final = 1 << 20
_CHUNK_DEVICE: Final = 1 << 27


class SoftmaxKernel(nn.Module):
    """Exact softmax attention."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D), from three such tensors and real pairs, bool (B, M)."""
        return scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])


class LinearKernel(nn.Module):
    """Attention whose weights are products of features, in chunks of graphs and pairs.

    What all features of a row have in common is a factor of its own: it multiplies values and
    results, which are a dozen times fewer.

    Args:
        name: One of "elu", "positive" and "waves"; see `ReferenceDenoiserSettings.kernel`.
        n_features: R; "elu" has none.
        width: D.
    """

    projection: Tensor

    def __init__(self, name: str, n_features: int, width: int) -> None:
        super().__init__()
        self._features_of = _FEATURES[name]
        self.n_features = {"elu": width, "positive": n_features, "waves": 2 * n_features}[name]
        if name != "elu":  # stored with the weights
            self.register_buffer("projection", torch.zeros(n_features, width))

    def features(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """Features of queries or keys, (..., D) to (..., F), and a factor of each row (..., 1)."""
        return self._features_of(x, self._buffers.get("projection"))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attended values, (B, H, M, D), from three such tensors and real pairs, bool (B, M)."""
        with_one = pad(value, (0, 1), value=1.0) * mask[:, None, :, None]  # (B, H, M, D + 1)
        graphs, pairs = self._chunk(query)
        parts = zip(*(x.split(graphs) for x in (query, key, with_one)), strict=True)
        return torch.cat([self._attend(q, k, v, pairs) for q, k, v in parts])

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
        return mixed[..., :-1] / (mixed[..., -1:] + _EPSILON)

    def _chunk(self, query: Tensor) -> tuple[int, int]:
        """Graphs and pairs that are worked on at a time."""
        _, heads, n_pairs, _ = query.shape
        budget = _CHUNK_CPU if query.device.type == "cpu" else _CHUNK_DEVICE
        each = heads * self.n_features
        return max(1, budget // (each * n_pairs)), min(n_pairs, max(1, budget // each))


def kernel_of(settings: ReferenceDenoiserSettings) -> SoftmaxKernel | LinearKernel:
    """The kernel that settings name, its random features still zero."""
    if settings.kernel == "softmax":
        return SoftmaxKernel()
    width = settings.edge_width // settings.heads
    return LinearKernel(settings.kernel, settings.n_features, width)


def _elu_features(x: Tensor, _: Tensor | None) -> tuple[Tensor, float]:
    return elu(x) + 1, 1.0


def _positive_features(x: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Those of FAVOR+."""
    score, half = _projected(x, projection)
    return score.exp_(), torch.exp(-half) / math.sqrt(len(projection))


def _wave_features(x: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Sines and cosines, whose products may be negative."""
    score, half = _projected(x, projection)
    angle = 2 * math.pi * score
    factor = torch.exp(half) / math.sqrt(len(projection))
    return torch.cat([angle.sin(), angle.cos()], -1), factor


def _projected(x: Tensor, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Products with the random rows, (..., R), and half the squared length, (..., 1)."""
    width = x.shape[-1]
    score = linear(x.reshape(-1, width), projection * width**-0.25)
    score = score.clamp_(-_LARGEST_EXPONENT, _LARGEST_EXPONENT).view(*x.shape[:-1], -1)
    square = x.square().sum(-1, keepdim=True) * width**-0.5
    return score, square.clamp(max=_LARGEST_SQUARE) / 2


_FEATURES: Final[dict[str, Callable[..., tuple[Tensor, Tensor | float]]]] = {
    "elu": _elu_features,
    "positive": _positive_features,
    "waves": _wave_features,
}


def draw_projection(
    n_features: int, width: int, generator: torch.Generator, *, orthogonal: bool = True
) -> Tensor:
    """Random rows at the reference's scale: orthogonal blocks, the whole divided once more.

    Reference: its rows have norm 1/4 (for 128 features of width 8) instead of about sqrt(width),
    which makes the kernel nearly independent of the query. Weights trained with it need it.

    Args:
        n_features: R.
        width: D.
        generator: Source of randomness; record its seed beside the weights.
        orthogonal: Without it the rows are plain Gaussian ones, which the authors call "iid".

    Returns:
        float32 (R, D).
    """
    if not orthogonal:
        return torch.randn(n_features, width, generator=generator)
    whole, rest = divmod(n_features, width)
    blocks = []
    for _ in range(whole + (rest > 0)):
        direction, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
        blocks.append(direction.T)
    return torch.cat(blocks)[:n_features] / math.sqrt(whole + rest / width)
