"""Processes, each of which predicts a feature at a time with a network of its own."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Self, TypeVar

from duallgd_cli.errors import UsageError
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.runtime import ELSEWHERE, Processes, add_seconds

T = TypeVar("T")

_GO_ON: Final = "finished work is kept, and --resume with fewer --workers goes on"


class Workers:
    """Processes that predict, each a feature at a time; results do not depend on their number.

    Attributes:
        count: Processes.
        again: Loads the network for each of them; None where all is predicted in this process.
    """

    def __init__(self, count: int, *, again: Callable[[], LoadedModel] | None = None) -> None:
        """Start `count` processes when there is work, or none if it is 1.

        Args:
            count: Processes.
            again: Loads the network once more, or None.
        """
        self.count, self.again = count, again if count > 1 else None
        self._pool: Processes | None = None

    def predict(self, work: Callable[[LoadedModel], T]) -> Callable[[], T]:
        """Begin work with the network in a process that has its own; see `again`.

        Returns:
            A function that waits for what it gives.
        """
        return self._submit(partial(_with_network, work, self.again))

    def _submit(self, work: Callable[[], T]) -> Callable[[], T]:
        if self._pool is None:
            self._pool = Processes(self.count, _GO_ON)
        submitted: Callable[[], tuple[T, float]] = self._pool.submit(_timed, work)

        def wait() -> T:
            result, seconds = submitted()
            add_seconds(ELSEWHERE, seconds)
            return result

        return wait

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, *error)
        self._pool = None  # its semaphores are given back before the process ends


_networks: Final = list[LoadedModel]()  # of a process that predicts


def _with_network(work: Callable[[LoadedModel], T], again: Callable[[], LoadedModel] | None) -> T:
    if again is not None and not _networks:
        try:
            _networks.append(again())
        except RuntimeError as error:  # the GPU is full, or takes one process alone
            why = str(error).partition("\n")[0]
            raise UsageError(f"a process cannot load the network ({why}); {_GO_ON}") from None
    return work(_networks[0])


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started
