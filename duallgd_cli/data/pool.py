"""Processes that share work which takes minutes."""

import signal
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from multiprocessing import get_context
from threading import Event, Semaphore
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_AHEAD: Final = 4  # chunks under way for each process
_AT_A_TIME: Final = 500  # items that a process takes at once


def in_order(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    begin: Callable[[], None] | None = None,
    at_a_time: int = _AT_A_TIME,
) -> Iterator[R]:
    """What work on each item gives, in their order.

    The processes leave Ctrl-C to the parent, which ends them: their tracebacks say nothing.

    Args:
        work: A function of a module, so that other processes find it.
        items: What there is to do.
        workers: Processes; with one, the work is done here.
        begin: What each process does first.
        at_a_time: Items that a process takes at once.
    """
    if workers <= 1:
        if begin is not None:
            begin()
        return map(work, items)
    return _shared(work, items, workers, begin, at_a_time)


def _shared(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    begin: Callable[[], None] | None,
    size: int,
) -> Iterator[R]:
    room, ended = Semaphore(_AHEAD * size * workers), Event()  # what is done must not pile up
    admitted = takewhile(lambda _: room.acquire() and not ended.is_set(), items)
    with get_context("spawn").Pool(workers, _begin, (begin,)) as processes:
        try:
            for done in processes.imap(work, admitted, size):
                room.release()
                yield done
        finally:
            ended.set()
            room.release()


def _begin(begin: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if begin is not None:
        begin()
