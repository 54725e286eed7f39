"""Attention kernels: exact softmax and FAVOR+ random features, same shapes in and out.

Letters: B graphs, H heads, M tokens, D channels of a head, R random features.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def softmax_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Exact softmax attention over real tokens.

    Args:
        query: (B, H, M, D).
        key: (B, H, M, D).
        value: (B, H, M, D).
        mask: Real tokens, bool (B, M); every graph needs at least one.

    Returns:
        (B, H, M, D).
    """
    return scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])


def favor_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, features: Tensor
) -> Tensor:
    r"""FAVOR+ attention with positive orthogonal random features, O(M R) per head.

    .. math:: \phi(x) = \exp(w^\top x - |x|^2 / 2),\quad x \leftarrow x D^{-1/4}

    Maxima are subtracted before the exponential (per query and per head), which cancels in the
    ratio and keeps it finite.

    Args:
        query: (B, H, M, D).
        key: (B, H, M, D).
        value: (B, H, M, D).
        mask: Real tokens, bool (B, M).
        features: Rows w of norm about sqrt(D), (R, D).

    Returns:
        (B, H, M, D).
    """
    scale = query.shape[-1] ** -0.25
    projection = (features * scale).to(query.dtype).transpose(0, 1)
    key_log = _feature_log(key, projection, scale).masked_fill(~mask[:, None, :, None], -math.inf)
    query_log = _feature_log(query, projection, scale)
    key_phi = torch.exp(key_log - key_log.amax((2, 3), keepdim=True)).to(value.dtype)
    query_phi = torch.exp(query_log - query_log.amax(3, keepdim=True)).to(value.dtype)
    summed = key_phi.transpose(2, 3) @ value
    total = query_phi @ key_phi.sum(2, keepdim=True).transpose(2, 3)
    return (query_phi @ summed) / (total + 1e-6)


def orthogonal_features(n_features: int, width: int, generator: torch.Generator) -> Tensor:
    """Random features for FAVOR+: blocks of orthogonal rows, each of the norm of a Gaussian row.

    Args:
        n_features: R.
        width: D, channels of a head.
        generator: Source of randomness; record its seed beside the weights.

    Returns:
        float32 (R, D).
    """
    blocks = []
    for _ in range(-(-n_features // width)):
        gaussian = torch.randn(width, width, generator=generator)
        direction, _ = torch.linalg.qr(gaussian)
        norm = torch.randn(width, width, generator=generator).norm(dim=1, keepdim=True)
        blocks.append(direction.T * norm)
    return torch.cat(blocks)[:n_features]


def _feature_log(x: Tensor, projection: Tensor, scale: float) -> Tensor:
    norm = (x * scale).square().sum(-1, keepdim=True)
    return x @ projection - norm / 2
