"""What layers are made of: linear maps, constants on a device, and batches that hold tensors.

PyTorch gives float32 products on a CPU to MKL, which keeps CPUs of other makers at AVX2. oneDNN,
part of the same package, takes what the CPU has: on an AMD CPU with AVX-512 it is 2.2 times faster,
and bias and ReLU are added on the way. Both round differently, by about one unit in the last place.
"""

import platform
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Final, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

B = TypeVar("B")

_ONEDNN: Final = (
    torch.backends.mkldnn.is_available()
    and platform.machine().lower() in {"x86_64", "amd64"}
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
_FAST: Final = (torch.float32, torch.bfloat16)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    relu: bool = False,
    onto: Tensor | None = None,
) -> Tensor:
    """X W^T + b, then ReLU if asked for, or added to another tensor.

    Args:
        x: (..., K).
        weight: (L, K).
        bias: (L,), or None.
        relu: Whether negative results become zero.
        onto: What the product is added to, (..., L); without ReLU.

    Returns:
        (..., L), in the precision of autocast where that is on.
    """
    dtype = x.dtype
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    is_for_onednn = x.device.type == "cpu" and x.numel() and not torch.is_grad_enabled()
    if _ONEDNN and is_for_onednn and dtype == weight.dtype and dtype in _FAST:
        if x.dtype != weight.dtype:
            x = x.to(weight.dtype)
        if onto is not None:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, onto, weight, bias, "add")
            return product
        after = "relu" if relu else "none"
        product = torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, [], "")
        return product
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


def cast_once(x: Tensor) -> Tensor:
    """An input of several linear maps in the precision of autocast, which each would cast anew.

    While gradients are wanted each still does, so that they add up in the input's own precision.
    """
    device = x.device.type
    if torch.is_grad_enabled() or not torch.is_autocast_enabled(device):
        return x
    return x.to(torch.get_autocast_dtype(device))


def map_tensors(batch: B, change: Callable[[Tensor], Tensor]) -> B:
    """The same batch with every tensor changed; other values stay as they are.

    Args:
        batch: A dataclass, or a tuple of some; inner ones are gone through too.
        change: Applied to each tensor.
    """
    return _changed(batch, change)  # type: ignore[return-value]


def _changed(value: object, change: Callable[[Tensor], Tensor]) -> object:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _changed(getattr(value, f.name), change) for f in fields(value)}
        return replace(value, **own)
    return value


@cache  # never dropped: captured CUDA graphs know these tensors by their address alone
@torch.inference_mode(False)  # kept for training too, whichever asks first
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, moved there once, float32."""
    return torch.tensor(values, device=device)
