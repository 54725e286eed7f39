"""Where the time of a run goes: seconds by stage, measured only while somebody watches."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")

READ, CLEAN, ANNOTATE, ENCODE = "read", "clean", "annotate", "encode"
SAMPLE, ASSEMBLE, RANK, WRITE = "sample", "assemble", "rank", "write"
# What the processes that assemble took together, beside the time that was waited for them.
ELSEWHERE: Final = "assemble in workers"
STAGES: Final = (READ, CLEAN, ANNOTATE, ENCODE, SAMPLE, ASSEMBLE, RANK, WRITE)


_watched: ContextVar[defaultdict[str, float] | None] = ContextVar("watched", default=None)
# Seconds of the stages inside the one that is going on, as a list of one; none outside of all.
_inside: ContextVar[list[float]] = ContextVar("inside")


@contextmanager
def watched() -> Iterator[Mapping[str, float]]:
    """Measure the stages that this thread, or a copy of its context, goes through inside.

    Yields:
        Seconds of each stage that was entered; a stage inside another counts for itself alone.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    token = _watched.set(seconds)
    try:
        yield seconds
    finally:
        _watched.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What happens inside belongs to this stage."""
    seconds = _watched.get()
    if seconds is None:
        yield
        return
    around, own = _inside.get([]), [0.0]
    token = _inside.set(own)
    started = time.perf_counter()
    try:
        yield
    finally:
        passed = time.perf_counter() - started
        _inside.reset(token)
        seconds[name] += passed - own[0]
        if around:
            around[0] += passed


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
    watch = _watched.get()
    if watch is not None:
        watch[name] += seconds
