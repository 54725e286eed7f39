"""Processes that share work which takes minutes."""

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from threading import Event, Semaphore
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_AHEAD: Final = 4  # chunks under way for each process
_AT_A_TIME: Final = 500  # items that a process takes at once


def nothing() -> None:
    """What a process does first by default."""


def in_order(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    begin: Callable[..., None] = nothing,
    own: tuple[Any, ...] = (),
    at_a_time: int = 0,
) -> Iterator[R]:
    """What work on each item gives, in their order.

    The processes leave Ctrl-C to the parent, which ends them: their tracebacks say nothing.

    Args:
        work: A function of a module, so that other processes find it.
        items: What there is to do.
        workers: Processes; with one, the work is done here.
        begin: What each process does first.
        own: What that is given.
        at_a_time: Items that a process takes at once; 0 for many, which suits small ones.
    """
    if workers <= 1:
        begin(*own)
        yield from map(work, items)
        return
    size = at_a_time or _AT_A_TIME
    room, ended = Semaphore(_AHEAD * size * workers), Event()  # what is done must not pile up

    def admitted() -> Iterator[T]:
        for item in items:
            room.acquire()
            if ended.is_set():
                return
            yield item

    with get_context("spawn").Pool(workers, _begin, (begin, own)) as processes:
        try:
            for done in processes.imap(work, admitted(), size):
                room.release()
                yield done
        finally:
            ended.set()
            room.release()


def _begin(begin: Callable[..., None], own: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin(*own)
