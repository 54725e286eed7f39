"""Where drawing and assembly run: here, or beside each other while the next spectrum is read."""

import contextvars
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.predict import stages
from duallgd_cli.predict.candidates import AssemblyResult, assemble_matrices
from duallgd_cli.predict.generation import Generated, OutOfTimeError, RefusedError
from duallgd_cli.runtime import leave_to_parent

T = TypeVar("T")


class Workers:
    """Assembles molecules with a number of processes; the result does not depend on how many."""

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
        """How many hypotheses may be under way while the next is begun."""
        return 2 * (self.count > 1) + (self._drawing is not None)

    def draw(self, work: Callable[[], T]) -> "Future[T]":
        """Do the network's work on a spectrum now, or begin it in the drawing thread."""
        if self._drawing is not None:
            return self._drawing.submit(contextvars.copy_context().run, work)
        done: Future[T] = Future()
        try:
            done.set_result(work())
        except (OutOfTimeError, RefusedError) as error:
            done.set_exception(error)
        return done

    def assemble(
        self,
        formula: Formula,
        generated: Generated,
        chosen: NDArray[np.int64],
        timeout_s: float | None = None,
        guide: Guide | None = None,
    ) -> Callable[[], list[AssemblyResult]]:
        """Begin to turn bond matrices into molecules.

        Args:
            formula: All molecules have it.
            generated: What was drawn.
            chosen: A sample of each distinct matrix, (U,).
            timeout_s: Seconds each process may take, or None.
            guide: What the molecules must be like, or None.

        Returns:
            A function that waits for what each became. It raises `OutOfTimeError` where the time is
            up, counted from when each process took up its share.
        """
        log_prob = generated.bond_log_prob
        shares = [
            partial(
                assemble_matrices,
                formula,
                generated.bond_class[rows],
                None if log_prob is None else log_prob[rows],
                generated.scorer,
                timeout_s,
                guide,
            )
            for rows in np.array_split(chosen, self.count)
            if rows.size
        ]
        if self.count == 1:
            (share,) = shares
            return share
        if self._pool is None:
            # Forking a process that holds threads of torch can hang it.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=leave_to_parent)
        return partial(_joined, [self._pool.submit(_timed, share) for share in shares])

    def close(self, *, wait: bool = True) -> None:
        """Stop threads and processes; what they were doing is dropped."""
        for pool in (self._drawing, self._pool):
            if pool is not None:
                pool.shutdown(wait=wait, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever pressed Ctrl-C does not wait for work that is dropped.
        self.close(wait=kind is not KeyboardInterrupt)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def _joined(
    shares: "list[Future[tuple[list[AssemblyResult], float]]]",
) -> list[AssemblyResult]:
    results: list[AssemblyResult] = []
    for share in shares:
        part, seconds = share.result()
        results += part
        stages.add(stages.ELSEWHERE, seconds)
    return results
