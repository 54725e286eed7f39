"""Processes that share work which takes minutes."""

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from typing import Any, TypeVar

C = TypeVar("C")
R = TypeVar("R")


def nothing() -> None:
    """What a process does first by default."""


def in_order(
    work: Callable[[C], R],
    chunks: Iterable[C],
    workers: int,
    begin: Callable[..., None] = nothing,
    own: tuple[Any, ...] = (),
) -> Iterator[R]:
    """What work on each chunk gives, in their order.

    The processes leave Ctrl-C to the parent, which ends them: their tracebacks say nothing.

    Args:
        work: A function of a module, so that other processes find it.
        chunks: The work, cut into what a process takes at a time.
        workers: Processes; with one, the work is done here.
        begin: What each process does first.
        own: What that is given.
    """
    if workers <= 1:
        begin(*own)
        yield from map(work, chunks)
        return
    with get_context("spawn").Pool(workers, _begin, (begin, own)) as processes:
        yield from processes.imap(work, chunks)


def _begin(begin: Callable[..., None], own: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin(*own)
