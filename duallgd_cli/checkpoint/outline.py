"""Shapes of a network's tensors without the memory that they would take.

A broken file may name sizes for which there is no memory. What it holds is therefore compared with
what such a network would hold before one is built. PyTorch's own device for this, ``meta``, imports
its compiler on the way, which takes seconds.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from duallgd_cli.errors import WeightsError, quote

_FILLING: Final = frozenset({"zero_", "fill_", "normal_", "uniform_"})


class _NoMemory(TorchFunctionMode):
    """New tensors are one number, repeated; filling them does nothing."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Answer a call of a function of PyTorch."""
        del types
        kwargs = kwargs or {}
        if func is torch.empty:
            shape = torch.empty(*args, **{**kwargs, "device": "meta"}).shape
            return torch.zeros(()).expand(shape)
        if getattr(func, "__module__", None) == nn.init.__name__ or func.__name__ in _FILLING:
            return args[0] if args else None
        return func(*args, **kwargs)


def shapes_of(make: Callable[[], nn.Module]) -> dict[str, torch.Size]:
    """Shape of each tensor in the state of the module that `make` would build."""
    with _NoMemory():
        return {name: tensor.shape for name, tensor in make().state_dict().items()}


def require_same_shapes(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor]) -> None:
    """Compare tensors with the names and shapes that a network has.

    Raises:
        WeightsError: Names or shapes differ; the message lists the first of them.
    """
    missing = sorted(shapes.keys() - tensors.keys())
    unused = sorted(tensors.keys() - shapes.keys())
    other = sorted(n for n in shapes.keys() & tensors.keys() if shapes[n] != tensors[n].shape)
    if missing or unused or other:
        raise WeightsError(
            f"weights do not fit: {len(missing)} missing {quote(missing[:3])}, {len(unused)} "
            f"unused {quote(unused[:3])}, {len(other)} of another shape {quote(other[:3])}"
        )
