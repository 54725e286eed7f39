"""Where assembly runs: in this process, or in others while the next spectrum is being sampled."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Self

from duallgd_cli.inference.assembly import Matrices, Reading, read_matrices, split


class Workers:
    """Reads bond matrices with a number of processes; the result does not depend on how many."""

    def __init__(self, count: int) -> None:
        """Start `count` processes when there is work, or none if it is 1."""
        self.count = count
        self._pool: ProcessPoolExecutor | None = None

    @property
    def ahead(self) -> int:
        """How many cases may wait for assembly while another is sampled."""
        return 2 if self.count > 1 else 0

    def submit(self, matrices: Matrices) -> Callable[[], list[Reading]]:
        """Begin reading the matrices.

        Returns:
            A function that waits for what each became. It raises `OutOfTimeError` where the
            matrices' time is up, counted from when each process took up its share.
        """
        if self.count == 1:
            return lambda: read_matrices(matrices)
        pool = self._started()
        shares = [pool.submit(read_matrices, share) for share in split(matrices, self.count)]
        return lambda: [reading for share in shares for reading in _result(share)]

    def close(self) -> None:
        """Stop the processes; what they were doing is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Forking a process that holds threads of torch can hang it.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_ignore_interrupts)
        return self._pool


def _result(share: "Future[list[Reading]]") -> list[Reading]:
    return share.result()


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which stops its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
