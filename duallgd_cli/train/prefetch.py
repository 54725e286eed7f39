"""Batches made ahead by processes of torch's DataLoader, in the order of their steps.

A batch is a function of what was planned for a step, the seed, the step and the rank alone, so who
makes it and when changes no number.
"""

import atexit
import os
import pickle
import signal
import warnings
from collections.abc import Generator, Iterator
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from duallgd_cli.model.tensors import map_tensors
from duallgd_cli.runtime import Runtime, available_cores

_AHEAD: Final = 2  # batches under way for each process
_MOST_BY_DEFAULT: Final = 8


class Task(Protocol):
    """What is trained: batches, their loss, and what is looked at."""

    def plan(self, first_step: int) -> Iterator[Any]:
        """What each step is trained on, from a step on, for ever; cheap."""

    def collate(self, planned: Any, step: int) -> Any:  # noqa: ANN401
        """The batch of one step, on the CPU, with the number of its cases as ``n_samples``."""

    def loss(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """Summed loss and the number it is to be divided by, both scalars."""

    def validate(self, model: Any) -> dict[str, float]:  # noqa: ANN401
        """Figures on held-out data."""


class _Batches(Dataset[bytes]):
    """Batches by step and plan."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, item: tuple[int, Any]) -> bytes:
        step, planned = item
        # As bytes: torch's own way between processes needs shared memory, which containers lack.
        return pickle.dumps(self.task.collate(planned, step), pickle.HIGHEST_PROTOCOL)


def default_workers(runtime: Runtime) -> int:
    """Processes that make batches by default: none on a CPU, which has better to do."""
    cores = available_cores() // runtime.world_size
    return max(1, min(_MOST_BY_DEFAULT, cores - 1)) if runtime.device.type == "cuda" else 0


def batches(
    task: Task, first_step: int, device: torch.device, workers: int = 0
) -> Generator[Any, None, None]:
    """Batches on the device, from a step on, for ever; close the iterator to end the processes.

    So many processes make them ahead; without one, each is made when it is asked for.
    """
    workers = workers if hasattr(os, "fork") else 0
    with warnings.catch_warnings():
        # Of forking beside threads (none of ours holds a lock between two steps), and of more
        # processes than cores.
        warnings.simplefilter("ignore")
        loader = DataLoader(
            _Batches(task),
            batch_size=None,
            sampler=enumerate(task.plan(first_step), first_step),
            num_workers=workers,
            prefetch_factor=_AHEAD if workers else None,
            multiprocessing_context="fork" if workers else None,  # shares the mapped data
            worker_init_fn=_leave_signals_to_parent,
            generator=torch.Generator(),  # not the global one
        )
        made = iter(loader)
    # Without it PyTorch asks processes to stop at the end, to which they do not listen, and waits.
    end = getattr(made, "_shutdown_workers", lambda: None)
    atexit.register(end)
    try:
        for pickled in made:
            batch = pickle.loads(pickled)  # from our own
            if device.type == "cuda":
                # From pinned memory a copy is queued like a kernel, and the loop goes on.
                batch = map_tensors(batch, lambda x: x.pin_memory().to(device, non_blocking=True))
            elif device.type != "cpu":
                batch = map_tensors(batch, lambda x: x.to(device))
            yield batch
    finally:
        end()
        atexit.unregister(end)


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C, and a polite kill of the whole group, are for the parent to answer."""
    del worker
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
