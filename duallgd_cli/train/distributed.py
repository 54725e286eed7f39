"""Several processes as one: sums over ranks, nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Group:
    """The processes that train together; of one process every sum is the value itself."""

    rank: int = 0
    world_size: int = 1

    def sum(self, *values: Tensor) -> list[Tensor]:
        """Sums over ranks of scalars."""
        packed = torch.stack([value.detach().double() for value in values])
        if self.world_size > 1:
            dist.all_reduce(packed)
        return list(packed)

    def sum_gradients(self, model: nn.Module) -> None:
        """Add up gradients; losses were divided by the global count before, so this is the mean."""
        if self.world_size == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        present = [float(p.grad is not None) for p in parameters]
        flat = torch.cat([*(g.flatten() for g in grads), grads[0].new_tensor(present)])
        dist.all_reduce(flat)
        *parts, ranks = flat.split([*(g.numel() for g in grads), len(grads)])
        for parameter, part, n_ranks in zip(parameters, parts, ranks.tolist(), strict=True):
            # What no rank used this step stays without a gradient, and so without an update.
            parameter.grad = part.view_as(parameter) if n_ranks else None


@contextmanager
def process_group(rank: int, world_size: int, backend: str) -> Iterator[Group]:
    """Join the group that torchrun describes in the environment; alone, do nothing."""
    if world_size == 1:
        yield Group()
        return
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    try:
        yield Group(rank, world_size)
    finally:
        dist.destroy_process_group()
