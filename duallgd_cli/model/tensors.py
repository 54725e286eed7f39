"""Tensors in dataclasses, some within others, and constants that lie on a device."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

B = TypeVar("B")


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
