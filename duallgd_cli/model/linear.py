"""Linear maps: PyTorch's own path, and a faster one for CPUs where no gradient is wanted.

PyTorch gives float32 products on a CPU to MKL, which keeps CPUs of other makers at AVX2. oneDNN,
part of the same package, takes what the CPU has: on an AMD CPU with AVX-512 it is 2.2 times faster,
and bias and ReLU are added on the way. Both round differently, by about one unit in the last place.
"""

import platform
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

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
