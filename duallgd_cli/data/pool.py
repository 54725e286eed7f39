"""Processes that share work which takes minutes."""

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.pool import Pool
from typing import Any


def pool(workers: int, begin: Callable[..., None] | None = None, own: tuple[Any, ...] = ()) -> Pool:
    """Processes that leave Ctrl-C to the parent, which ends them: their tracebacks say nothing.

    Args:
        workers: How many.
        begin: What each does first, or None.
        own: What it is given.
    """
    return get_context("spawn").Pool(workers, _begin, (begin, own))


def _begin(begin: Callable[..., None] | None, own: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if begin is not None:
        begin(*own)
