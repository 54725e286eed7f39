"""What layers are made of: linear maps, attention, constants, and batches that hold tensors.

PyTorch gives float32 products on a CPU to MKL, which keeps CPUs of other makers at AVX2. oneDNN,
part of the same package, takes what the CPU has: on an AMD CPU with AVX-512 it is 2.2 times faster,
and bias and ReLU are added on the way. Both round differently, by about one unit in the last place.

Attention is exact softmax or FAVOR+ random features, same shapes in and out. Letters: B graphs,
H heads, M tokens, D channels of a head, R random features of a head.
"""

import platform
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Final, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

B = TypeVar("B")

# A denoiser as the sampler sees it: noisy classes (c, M) and one step t to logits (c, M, C).
Denoise = Callable[[Tensor, int], Tensor]

_ONEDNN: Final = (
    torch.backends.mkldnn.is_available()
    and platform.machine().lower() in {"x86_64", "amd64"}
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
# What it multiplies in; many processors have no arithmetic in bfloat16, and there it refuses.
_HAS_BFLOAT16: Final = _ONEDNN and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
_FAST: Final = (torch.float32, torch.bfloat16) if _HAS_BFLOAT16 else (torch.float32,)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    relu: bool = False,
    onto: Tensor | None = None,
) -> Tensor:
    """X W^T + b (..., L) of x (..., K), weight (L, K) and bias (L,), in the precision of autocast.

    Followed by ReLU, or added ``onto`` something, (..., L).
    """
    dtype = x.dtype
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    is_for_onednn = x.device.type == "cpu" and x.numel() and not torch.is_grad_enabled()
    if _ONEDNN and is_for_onednn and dtype == weight.dtype and dtype in _FAST:
        if x.dtype != weight.dtype:
            x = x.to(weight.dtype)
        if onto is not None:
            # By its full name: looking for the overload prints the tensors into an error first.
            add = torch.ops.mkldnn._linear_pointwise.binary
            return add(x, onto, weight, bias, "add")
        after, plain = "relu" if relu else "none", torch.ops.mkldnn._linear_pointwise.default
        return plain(x, weight, bias, after, [], "")
    product = functional.linear(x, weight, bias)
    if onto is not None:
        return product + onto
    return functional.relu(product) if relu else product


class Linear(nn.Linear):
    """`torch.nn.Linear` through `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return linear(input, self.weight, self.bias)

    def relu(self, x: Tensor) -> Tensor:
        """The map followed by ReLU."""
        return linear(x, self.weight, self.bias, relu=True)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` that stays in bfloat16 under autocast on a GPU.

    Autocast would write float32 for the next linear map to read and cast: three times the traffic,
    and the same numbers but for the rounding of scale and shift.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The same shape, normalised over the last dimension."""
        if not (input.is_cuda and input.dtype == torch.bfloat16):
            return super().forward(input)
        scale, shift = self.weight.to(input.dtype), self.bias.to(input.dtype)
        with torch.autocast("cuda", enabled=False):
            return functional.layer_norm(input, self.normalized_shape, scale, shift, self.eps)


def cast_once(x: Tensor) -> Tensor:
    """An input of several linear maps in the precision of autocast, which each would cast anew.

    While gradients are wanted each still does, so that they add up in the input's own precision.
    """
    device = x.device.type
    if torch.is_grad_enabled() or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))


def map_tensors(batch: B, change: Callable[[Tensor], Tensor]) -> B:
    """The same with every tensor changed, those of inner dataclasses and tuples included."""
    if isinstance(batch, Tensor):
        return change(batch)  # type: ignore[return-value]
    if isinstance(batch, tuple):
        return tuple(map_tensors(part, change) for part in batch)  # type: ignore[return-value]
    if is_dataclass(batch) and not isinstance(batch, type):
        parts = {f.name: map_tensors(getattr(batch, f.name), change) for f in fields(batch)}
        return replace(batch, **parts)
    return batch


class Movable:
    """A dataclass of tensors that goes from device to device as one."""

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return map_tensors(self, lambda tensor: tensor.to(device))


@cache  # never dropped: captured CUDA graphs know these tensors by their address alone
@torch.inference_mode(False)  # kept for training too, whichever asks first
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, moved there once, float32."""
    return torch.tensor(values, device=device)


# Keeps the weights of one query finite in float32 and bfloat16, whatever the states.
LARGEST_EXPONENT: Final = 60.0
LEAST_TOTAL: Final = 1e-6


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int
) -> Tensor:
    """Exact softmax attention over real tokens, (B, M, H D) each.

    The mask of real tokens is bool (B, M); every graph needs at least one.
    """
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
    return mixed.transpose(1, 2).flatten(2)


def favor_attention(
    projected_query: Tensor,
    projected_key: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    heads: int,
) -> Tensor:
    r"""FAVOR+ attention with positive orthogonal random features, O(M R) per head.

    .. math:: \phi(x) = \exp(w^\top x - |x|^2 / 2),\quad x \leftarrow x D^{-1/4}

    Queries and keys come projected on the random features, w x (B, M, H R), see `projection`, so
    that a caller can make that a part of its own linear maps. Keys, values and the result are
    (B, M, H D), the mask of real tokens is bool (B, M). A query's :math:`|x|^2 / 2` scales all its
    weights alike and is left out. A key's exponent never exceeds :math:`|w|^2 / 2`, about D / 2, so
    no maximum has to be subtracted. Heads stay side by side in the channels, with zeros where they
    would meet: four times the products cost no more than moving heads of a few channels about.
    """
    rows, width = projected_key.shape[-1] // heads, key.shape[-1] // heads
    like = (value.device, value.dtype)
    # Autocast on a GPU would take exponentials to float32 and back, for the same numbers.
    with torch.autocast(value.device.type, enabled=False):
        query_phi = torch.exp(projected_query.clamp_max(LARGEST_EXPONENT)).to(value.dtype)
        own = same_head(heads, rows, width, key.device, key.dtype)
        half_norm = linear(key.square(), own * (width**-0.5 / 2))  # (B, M, H R)
        key_phi = torch.exp(projected_key - half_norm) * mask[..., None]
        summed = (key_phi.transpose(1, 2) @ value) * own.to(value.dtype)  # (B, H R, H D)
        total = key_phi.sum(1).to(summed.dtype).unsqueeze(-1) * same_head(heads, rows, 1, *like)
        weight = query_phi @ total + LEAST_TOTAL  # (B, M, H)
        return (query_phi @ summed) / linear(weight, same_head(heads, width, 1, *like))


def projection(features: Tensor, dtype: torch.dtype) -> Tensor:
    """Weight of the linear map from queries or keys to w x, (H R, H D), block-diagonal.

    Heads lie side by side in the channels: for the few channels of a pair one product with blocks
    of zeros is faster than moving the heads to a dimension of their own.
    """
    heads, n_features, width = features.shape
    own = same_head(heads, n_features, width, features.device, dtype)
    rows: Tensor = (features * width**-0.25).flatten(0, 1).to(dtype)
    return rows.repeat(1, heads) * own


def orthogonal_features(n_features: int, width: int, generator: torch.Generator) -> Tensor:
    """Random features for FAVOR+, float32 (R, D), R may be 0.

    Blocks of orthogonal rows, each of the norm of a Gaussian row. Record the generator's seed
    beside the weights.
    """
    blocks = [torch.empty(0, width)]
    for _ in range(-(-n_features // width)):
        gaussian = torch.randn(width, width, generator=generator)
        direction, upper = torch.linalg.qr(gaussian)
        direction = direction * upper.diagonal().sign()  # else LAPACK's signs favour one side
        norm = torch.randn(width, width, generator=generator).norm(dim=1, keepdim=True)
        blocks.append(direction.T * norm)
    return torch.cat(blocks)[:n_features]


@cache  # never dropped: captured CUDA graphs know these tensors by their address alone
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


def minimum(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Where a smooth convex function of a vector is least, by L-BFGS."""
    at = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [at], max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss(at)
        value.backward()
        return value

    optimiser.step(closure)
    return at.detach()
