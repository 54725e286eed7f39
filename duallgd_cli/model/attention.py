"""Attention kernels: exact softmax and FAVOR+ random features, same shapes in and out.

Letters: B graphs, H heads, M tokens, D channels of a head, R random features of a head.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from duallgd_cli.model.linear import linear


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int
) -> Tensor:
    """Exact softmax attention over real tokens.

    Args:
        query: (B, M, H D).
        key: (B, M, H D).
        value: (B, M, H D).
        mask: Real tokens, bool (B, M); every graph needs at least one.
        heads: H.

    Returns:
        (B, M, H D).
    """
    split = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value)]
    mixed = scaled_dot_product_attention(
        split[0], split[1], split[2], attn_mask=mask[:, None, None, :]
    )
    return mixed.transpose(1, 2).flatten(2)


def favor_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, features: Tensor
) -> Tensor:
    r"""FAVOR+ attention with positive orthogonal random features, O(M R) per head.

    .. math:: \phi(x) = \exp(w^\top x - |x|^2 / 2),\quad x \leftarrow x D^{-1/4}

    The exponent never exceeds |w|^2 / 2, about D / 2, so no maximum has to be subtracted. Heads lie
    side by side in the channels and meet only block-diagonal matrices: for the few channels of a
    pair that is faster than moving the heads to a dimension of their own.

    Args:
        query: (B, M, H D).
        key: (B, M, H D).
        value: (B, M, H D).
        mask: Real tokens, bool (B, M).
        features: Rows w of norm about sqrt(D), one set for each head, (H, R, D).

    Returns:
        (B, M, H D).
    """
    heads, n_features, width = features.shape
    dtype, scale = value.dtype, width**-0.25
    kind = (features.device, dtype)
    own = same_head(heads, n_features, width, *kind)  # (H R, H D)
    project = (features * scale).flatten(0, 1).to(dtype).repeat(1, heads) * own
    half_norm = same_head(heads, 1, width, *kind) * (scale * scale / 2)  # (H, H D)

    def phi(x: Tensor) -> Tensor:
        exponent = linear(x, project).unflatten(-1, (heads, n_features))
        return torch.exp(exponent - linear(x.square(), half_norm).unsqueeze(-1)).flatten(-2)

    key_phi, query_phi = phi(key) * mask.unsqueeze(-1), phi(query)
    summed = (key_phi.transpose(1, 2) @ value) * own  # (B, H R, H D)
    weighted = query_phi * key_phi.sum(1, keepdim=True)
    share = linear(weighted, same_head(heads, 1, n_features, *kind)) + 1e-6  # (B, M, H)
    mixed = (query_phi @ summed).unflatten(-1, (heads, width))
    return torch.flatten(mixed / share.unsqueeze(-1), -2)


def orthogonal_features(n_features: int, width: int, generator: torch.Generator) -> Tensor:
    """Random features for FAVOR+: blocks of orthogonal rows, each of the norm of a Gaussian row.

    Args:
        n_features: R; may be 0.
        width: D, channels of a head.
        generator: Source of randomness; record its seed beside the weights.

    Returns:
        float32 (R, D).
    """
    blocks = [torch.empty(0, width)]
    for _ in range(-(-n_features // width)):
        gaussian = torch.randn(width, width, generator=generator)
        direction, upper = torch.linalg.qr(gaussian)
        direction = direction * upper.diagonal().sign()  # else LAPACK's signs favour one side
        norm = torch.randn(width, width, generator=generator).norm(dim=1, keepdim=True)
        blocks.append(direction.T * norm)
    return torch.cat(blocks)[:n_features]


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # kept for training too, whichever asks first
def same_head(
    heads: int, rows: int, columns: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Block-diagonal matrix of ones, (heads * rows, heads * columns).

    As the weight of a linear map it adds up within each head (rows = 1), or spreads one number over
    a head's channels (columns = 1); every tensor stays contiguous.
    """
    row = torch.arange(heads * rows, device=device) // rows
    column = torch.arange(heads * columns, device=device) // columns
    return (row[:, None] == column).to(dtype)
