"""Where drawing and assembly run: here, or beside each other while the next spectrum is read."""

import contextvars
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

from duallgd_cli.predict import stages
from duallgd_cli.predict.candidates import AssemblyResult, Matrices, read_matrices, split
from duallgd_cli.runtime import Runtime, available_cores

T = TypeVar("T")

# What a GPU draws in a second keeps about so many processes busy.
_MOST: Final = 16


def default_count(runtime: Runtime) -> int:
    """Assembling processes if nobody says: none beside a network that needs the cores itself."""
    if runtime.device.type == "cpu":
        return 1
    return max(1, min(_MOST, available_cores() - 1))


class Workers:
    """Reads bond matrices with a number of processes; the result does not depend on how many."""

    def __init__(self, count: int, *, draws_aside: bool = False) -> None:
        """Start `count` processes when there is work, or none if it is 1.

        Args:
            count: Assembling processes.
            draws_aside: Whether the network has a thread of its own, for networks that leave this
                process idle while they run.
        """
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._drawing = ThreadPoolExecutor(1, "draw") if draws_aside else None

    @property
    def ahead(self) -> int:
        """How many cases may be under way while the next is begun."""
        return 2 * (self.count > 1) + (self._drawing is not None)

    def draw(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do the network's work on a spectrum now, or begin it in the drawing thread.

        Returns:
            A function that waits for the result, and raises what the work raised in the thread.
        """
        if self._drawing is not None:
            return self._drawing.submit(contextvars.copy_context().run, work).result
        result = work()
        return lambda: result

    def submit(self, matrices: Matrices) -> Callable[[], list[AssemblyResult]]:
        """Begin reading the matrices.

        Returns:
            A function that waits for what each became. It raises `OutOfTimeError` where the
            matrices' time is up, counted from when each process took up its share.
        """
        if self.count == 1:
            return lambda: read_matrices(matrices)
        pool = self._started()
        shares = [pool.submit(_timed, share) for share in split(matrices, self.count)]
        return lambda: [reading for share in shares for reading in _result(share)]

    def close(self) -> None:
        """Stop the processes; what they were doing is dropped."""
        self._stop(wait=True)

    def _stop(self, *, wait: bool) -> None:
        if self._drawing is not None:
            self._drawing.shutdown(wait=wait, cancel_futures=True)
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever pressed Ctrl-C does not wait for work that is dropped.
        self._stop(wait=kind is not KeyboardInterrupt)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Forking a process that holds threads of torch can hang it.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_begin)
        return self._pool


def _timed(matrices: Matrices) -> tuple[list[AssemblyResult], float]:
    started = time.perf_counter()
    return read_matrices(matrices), time.perf_counter() - started


def _result(share: "Future[tuple[list[AssemblyResult], float]]") -> list[AssemblyResult]:
    readings, seconds = share.result()
    stages.add(stages.ELSEWHERE, seconds)
    return readings


def _begin() -> None:
    """Leave Ctrl-C to the parent, which stops its workers itself; end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """However the parent ends, killed included: nobody is left to take what this process makes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
