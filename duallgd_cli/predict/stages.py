"""Where the time of a run goes: seconds by stage, measured only while somebody watches."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

READ, CLEAN, ANNOTATE, ENCODE = "read", "clean", "annotate", "encode"
SAMPLE, ASSEMBLE, RANK, WRITE = "sample", "assemble", "rank", "write"
# What the processes that assemble took together, beside the time that was waited for them.
ELSEWHERE: Final = "assemble in workers"
STAGES: Final = (READ, CLEAN, ANNOTATE, ENCODE, SAMPLE, ASSEMBLE, RANK, WRITE)


@dataclass(slots=True)
class Stopwatch:
    """Seconds by stage; a stage inside another counts for itself alone.

    Attributes:
        seconds: Of each stage that was entered.
    """

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class _Open:
    """A stage that is going on, and the time that stages inside it took."""

    inside: float = 0.0


_watch: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)
_open: ContextVar[_Open | None] = ContextVar("open_stage", default=None)


@contextmanager
def watched() -> Iterator[Stopwatch]:
    """Measure the stages that this thread, or a copy of its context, goes through inside."""
    stopwatch = Stopwatch()
    token = _watch.set(stopwatch)
    try:
        yield stopwatch
    finally:
        _watch.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What happens inside belongs to this stage."""
    stopwatch = _watch.get()
    if stopwatch is None:
        yield
        return
    around, own = _open.get(), _Open()
    token = _open.set(own)
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - started
        _open.reset(token)
        stopwatch.seconds[name] += seconds - own.inside
        if around is not None:
            around.inside += seconds


def each(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items; making each belongs to the stage, what is done with it does not."""
    remaining = iter(items)
    while True:
        with stage(name):
            try:
                item = next(remaining)
            except StopIteration:
                return
        yield item


def add(name: str, seconds: float) -> None:
    """Count seconds that something else measured."""
    stopwatch = _watch.get()
    if stopwatch is not None:
        stopwatch.seconds[name] += seconds
