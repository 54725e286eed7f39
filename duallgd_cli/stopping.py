"""How a command that is stopped ends: Ctrl-C, or a polite kill."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from duallgd_cli.errors import InterruptedRunError

if TYPE_CHECKING:
    from types import FrameType

_ENDING_S: Final = 10.0  # that a stopped run has to tell what it keeps; it takes a second or two


@contextmanager
def loading() -> Iterator[None]:
    """Ctrl-C inside ends the process at once and says so: nothing is kept that could be lost.

    Libraries that are interrupted while they load end in errors of their own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _end_loading) for number in stops}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_loading(*_: object) -> NoReturn:
    os.write(2, b"error: stopped before anything was computed\n")
    os._exit(InterruptedRunError.exit_code)


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C inside ends the command with one sentence: what is `kept` and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped; {kept}") from None


@contextmanager
def stoppable() -> Iterator[None]:
    """Ctrl-C or a polite kill (SIGTERM) inside ends a command in seconds, whatever it is at.

    RDKit takes Ctrl-C for itself while it compares molecules, and then only cuts the comparison
    short. So both signals are kept from all threads but one, which hands them on to the main
    thread. For commands, which end with their process: other programs have handlers of their own.
    """
    handler = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not hasattr(signal, "sigwait") or handler is not signal.default_int_handler:
        yield  # Windows, or a shell that started the command deaf to Ctrl-C
        return

    def hand_on(number: int, frame: "FrameType | None") -> None:
        del number
        if callable(current := signal.getsignal(signal.SIGINT)):
            current(signal.SIGINT, frame)

    def listen() -> None:
        while True:
            signal.sigwait(stops)
            if signal.getsignal(signal.SIGINT) is _end_loading:
                _end_loading()  # the main thread may be at something that takes long
            signal.pthread_kill(main, signal.SIGURG)  # wakes it where it waits, too
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                time.sleep(_ENDING_S)
                os.write(2, b"error: stopped\n")
                end_at_once()

    main, stops = threading.get_ident(), {signal.SIGINT, signal.SIGTERM}
    signal.signal(signal.SIGURG, hand_on)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    threading.Thread(target=listen, name="ctrl-c", daemon=True).start()
    yield


def end_at_once() -> NoReturn:
    """End a command that was stopped: threads that still compute are not waited for.

    Semaphores of pools are given back first, or Python would say that they leaked.
    """
    if (pools := sys.modules.get("multiprocessing.util")) is not None:
        pools._run_finalizers(0)
    os._exit(InterruptedRunError.exit_code)
