"""Batches made ahead of the loop by processes of their own, in order, or one by one as asked for.

A batch is a function of what was planned for a step, the seed, the step and the rank alone, so who
makes it and when changes no number.
"""

import copyreg
import multiprocessing
import os
import pickle
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from duallgd_cli.errors import DuallgdError, UsageError
from duallgd_cli.model.tensors import map_tensors

_AHEAD: Final = 2  # batches under way for each process
_LOOK_FOR_PARENT_S: Final = 2.0
_MOST_BY_DEFAULT: Final = 8
_own: list["Source"] = []  # in a process that makes batches: what it makes them from


class Source(Protocol):
    """What batches are made from."""

    def plan(self, first_step: int) -> Iterator[Any]:
        """What each step is trained on, from a step on, for ever; cheap."""

    def collate(self, planned: Any, step: int) -> Any:  # noqa: ANN401
        """The batch of one step, on the CPU."""


class WorkerDiedError(DuallgdError):
    """A process that makes batches was ended from outside."""


def default_workers(device: torch.device, cores: int) -> int:
    """Processes that make batches when nobody says: none on a CPU, which has better to do."""
    return max(1, min(_MOST_BY_DEFAULT, cores - 1)) if device.type == "cuda" else 0


def batches(
    source: Source, first_step: int, device: torch.device, workers: int = 0
) -> Generator[Any, None, None]:
    """Batches on the device, from a step on, for ever; close the iterator to end the processes.

    Args:
        source: Plans steps and makes batches.
        first_step: To begin with.
        device: Where the batches shall lie; copies to CUDA devices wait for nothing.
        workers: Processes that make batches ahead; 0 makes each when it is asked for.

    Raises:
        UsageError: Processes are asked for where they cannot be forked.
        WorkerDiedError: One was killed. What one of them raises is raised here.
    """
    planned = enumerate(source.plan(first_step), first_step)
    if not workers:
        for step, one in planned:
            yield _move(source.collate(one, step), device)
        return
    pool = _forked(source, workers)
    waiting: deque[Future[bytes]] = deque()
    try:
        for step, one in planned:
            waiting.append(pool.submit(_make, one, step))
            if len(waiting) >= _AHEAD * workers:
                yield _move(pickle.loads(waiting.popleft().result()), device)  # from our own
    except BrokenProcessPool:
        raise WorkerDiedError(
            "a process that makes batches was killed, perhaps for want of memory; run the same "
            "command to go on, with fewer --set training.data.workers"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _forked(source: Source, workers: int) -> ProcessPoolExecutor:
    """Processes that share the mapped data; they never touch the device."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise UsageError("training.data.workers must be 0 on this system, which cannot fork")
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(source, os.getpid()))
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; none of ours holds a lock between two steps.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid).result()  # forks all processes, before the first step
    return pool


def _begin(source: Source, parent: int) -> None:
    """What a forked process does first."""
    _own.append(source)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    # Tensors travel as arrays: torch's way needs shared memory, which containers are short of.
    copyreg.pickle(Tensor, lambda tensor: (torch.from_numpy, (tensor.numpy(),)))

    def end_with_parent() -> None:
        while os.getppid() == parent:  # a killed parent cannot end its processes
            time.sleep(_LOOK_FOR_PARENT_S)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _make(planned: object, step: int) -> bytes:
    return pickle.dumps(_own[-1].collate(planned, step), pickle.HIGHEST_PROTOCOL)


def _move(batch: object, device: torch.device) -> object:
    if device.type == "cpu":
        return batch
    if device.type != "cuda":
        return map_tensors(batch, lambda x: x.to(device))
    # From pinned memory a copy is queued like a kernel, and the loop goes on.
    return map_tensors(batch, lambda x: x.pin_memory().to(device, non_blocking=True))
