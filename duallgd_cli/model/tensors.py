"""Batches are dataclasses of tensors, some within others; this goes through all of them."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

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
