"""Tensors that say they lie on a CUDA device and hold nothing, for machines that have none.

Shapes, types, devices and operations are those of a real device; values are not there, so whatever
asks for one fails. Forward passes without gradients only: autograd needs a device to be linked.
"""

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from duallgd_cli.runtime import Runtime

CUDA = torch.device("cuda:0")
# Rooms whose functions keep tensors, which must not be kept of a device that is not there.
ROOMS = tuple(f"duallgd_cli.{room}." for room in ("model", "diffusion", "data", "train", "predict"))
NOT_LINKED = "not linked with support for cuda"


class Operations(TorchDispatchMode):
    """Counts operations, and those between devices, which make the host wait.

    Attributes:
        counts: Calls by operation.
        moved: Operations whose results lie elsewhere than their inputs.
    """

    def __init__(self):
        super().__init__()
        self.counts = Counter()
        self.moved = []

    @property
    def kernels(self):
        """How many calls have work for the device: neither views nor questions about a tensor."""
        return sum(n for op, n in self.counts.items() if op.namespace == "aten" and not op.is_view)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "aten":  # within inference mode composite ones arrive whole
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        self.counts[func] += 1
        inputs, outputs = devices((args, kwargs)), devices(result)
        if inputs and outputs and inputs != outputs:
            self.moved.append(str(func))
        return result


def devices(values):
    return {value.device.type for value in tree_leaves(values) if isinstance(value, torch.Tensor)}


class Unlinked(TorchFunctionMode):
    """Methods of a tensor that ask for its device's driver first are replaced by operations."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if NOT_LINKED not in str(error):
                raise
        if func is torch.Tensor.__getitem__:
            return indexed(*args)
        name = {"__invert__": "bitwise_not"}.get(func.__name__, func.__name__)
        return getattr(torch.ops.aten, name)(*args, **kwargs)


def indexed(x, key):
    """x[key], dimension by dimension."""
    key = key if isinstance(key, tuple) else (key,)
    if not any(part is Ellipsis for part in key):
        key = (*key, Ellipsis)
    free = x.dim() - sum(part is not None and part is not Ellipsis for part in key)
    index = []
    for part in key:
        if part is Ellipsis:
            index += [None] * free
        elif part is None:
            x = x.unsqueeze(len(index))
            index.append(None)
        elif isinstance(part, int):
            x = x.select(len(index), part)
        elif isinstance(part, slice):
            x = torch.ops.aten.slice(x, len(index), part.start, part.stop, part.step or 1)
            index.append(None)
        else:
            index.append(part)
    return x if all(part is None for part in index) else torch.ops.aten.index(x, index)


def moved_by_hand(module, target):
    """`module.to(target)`, which would try to exchange tensors in place."""
    for part in module.modules():
        for name, tensor in part._parameters.items():
            if tensor is not None:
                there = tensor.detach().to(target)
                part._parameters[name] = torch.nn.Parameter(there, requires_grad=False)
        for name, tensor in part._buffers.items():
            if tensor is not None:
                part._buffers[name] = tensor.to(target)
    return module


@contextmanager
def autocast(dtype):
    """`torch.autocast` on CUDA, which PyTorch refuses where there is no such device."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", dtype is not None)
    torch.set_autocast_dtype("cuda", dtype or before[1])
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(True)
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def keeping():
    """Every function that keeps its results, of modules that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith(ROOMS)]
    values = [value for module in modules for value in vars(module).values()]
    return [value for value in values if hasattr(value, "cache_clear")]


@contextmanager
def fake_cuda(monkeypatch):
    """Yields the `Operations` of what runs inside on `CUDA`."""
    monkeypatch.setattr(torch.nn.Module, "to", moved_by_hand)
    monkeypatch.setattr(Runtime, "autocast", lambda runtime: autocast(runtime.autocast_dtype))
    with ExitStack() as stack:
        for function in keeping():
            function.cache_clear()
            stack.callback(function.cache_clear)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        operations = stack.enter_context(Operations())
        stack.enter_context(Unlinked())
        yield operations
