"""Processes that share work which takes minutes."""

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_AT_A_TIME: Final = 500  # items that a process takes at once


def nothing() -> None:
    """What a process does first by default."""


def in_order(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    begin: Callable[..., None] = nothing,
    own: tuple[Any, ...] = (),
) -> Iterator[R]:
    """What work on each item gives, in their order.

    The processes leave Ctrl-C to the parent, which ends them: their tracebacks say nothing.

    Args:
        work: A function of a module, so that other processes find it.
        items: What there is to do.
        workers: Processes; with one, the work is done here.
        begin: What each process does first.
        own: What that is given.
    """
    if workers <= 1:
        begin(*own)
        yield from map(work, items)
        return
    with get_context("spawn").Pool(workers, _begin, (begin, own)) as processes:
        yield from processes.imap(work, items, _AT_A_TIME)


def _begin(begin: Callable[..., None], own: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin(*own)
