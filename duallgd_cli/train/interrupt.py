"""Ctrl-C and a polite kill as requests that are answered between two steps."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

_ONE_REQUEST_S: Final = 1.0


@dataclass
class Interrupt:
    """Whether somebody asked to stop."""

    asked: bool = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Take SIGINT and SIGTERM as requests to stop; asked again a second later, stop at once.

    Python raises KeyboardInterrupt anywhere, and half-way through an optimiser's step there is no
    state worth saving. Outside the main thread signals are left alone.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    first_s = 0.0

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        nonlocal first_s
        # `timeout` and terminals send one request more than once.
        if interrupt.asked and time.monotonic() - first_s > _ONE_REQUEST_S:
            raise KeyboardInterrupt
        if not interrupt.asked:
            interrupt.asked, first_s = True, time.monotonic()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
