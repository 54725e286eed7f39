"""Spectra that other processes simulate while an encoder trains on them.

A GPU trains on more spectra a second than are simulated in that time, so what came once is kept, in
prepared folders, and comes back many times. What is there when depends on the machine: such a run
does not repeat another to the digit.
"""

import multiprocessing
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from duallgd_cli.data.prepared import MANIFEST, PreparedSpectra, load_molecules, load_spectra
from duallgd_cli.data.simulation import Selection, Simulator, prepare_simulated
from duallgd_cli.errors import UnreadableError, WorkerDiedError
from duallgd_cli.runtime import leave_to_parent

_PART: Final = 5_000  # spectra of a folder
_FIRST: Final = 20_000  # spectra to wait for
_SEEDS: Final = 1_000_000  # parts of one seed
_LARGEST: Final = 100  # heavy atoms
_LOOK_AGAIN_S: Final = 0.1


class Pool:
    """Numbered folders of simulated spectra, more and more of them.

    Args:
        folder: That holds them; what an earlier run left there counts.
        most: Spectra to make.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.size = folder, min(_PART, most)
        self.most = -(-most // self.size)  # in parts, as all that follows
        self.processes: list[Any] = []
        self._count = 0

    @property
    def count(self) -> int:
        """Parts that are there, from the first on.

        Raises:
            WorkerDiedError: No process makes more although there is room.
        """
        while (self.folder / str(self._count) / MANIFEST).is_file():
            self._count += 1
        ended = self.processes and not any(process.is_alive() for process in self.processes)
        if ended and self._count < self.most:
            raise WorkerDiedError(
                "the processes that simulate spectra were ended, probably for want of memory; the "
                "same command goes on, with fewer --set training.data.simulators"
            )
        return self._count

    def part(self, number: int) -> PreparedSpectra:
        """The spectra of a part."""
        return _loaded(self.folder / str(number))


@lru_cache(maxsize=64)
def _loaded(folder: Path) -> PreparedSpectra:
    return load_spectra(folder)


@contextmanager
def simulated_beside(
    structures: Path, simulator: Simulator, pool: Pool, processes: int, seed: int
) -> Iterator[Pool]:
    """Fill a pool from other processes in the block, which begins when the first spectra came.

    Args:
        structures: Prepared structures; spectra are made of those of fold train.
        simulator: Draws the spectra.
        pool: To fill.
        processes: How many.
        seed: Random seed.

    Raises:
        UnreadableError: No structure can be simulated.
        WorkerDiedError: The processes were ended.
    """
    molecules = load_molecules(structures)
    if not (molecules.in_folds("train") & (np.diff(molecules.bond_offset) > 0)).any():
        raise UnreadableError("the prepared structures hold none of fold train to be simulated")
    context, sent = multiprocessing.get_context("spawn"), pickle.dumps(simulator)
    for number in range(processes):
        numbers = range(number, pool.most, processes)
        given = (structures, sent, pool.folder, numbers, pool.size, seed)
        pool.processes.append(context.Process(target=_simulate, args=given, daemon=True))
        pool.processes[-1].start()
    try:
        while pool.count < min(-(-_FIRST // pool.size), -(-pool.most // 2)):
            time.sleep(_LOOK_AGAIN_S)
        yield pool
    finally:
        for process in pool.processes:
            process.kill()
            process.join()


def _simulate(
    structures: Path, sent: bytes, folder: Path, numbers: range, size: int, seed: int
) -> None:
    """Make those of some parts that are not there, each of structures at random."""
    leave_to_parent()
    torch.set_num_threads(1)
    simulator = pickle.loads(sent)  # from our parent
    for number in numbers:
        out = folder / str(number)
        if not (out / MANIFEST).is_file():
            selection = Selection(size, _LARGEST, seed * _SEEDS + number)
            prepare_simulated(structures, simulator, out, {}, selection)
