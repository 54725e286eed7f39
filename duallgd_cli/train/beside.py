"""Spectra that other processes simulate while an encoder trains on them.

A GPU trains on more spectra a second than are simulated in that time, so what came once is kept, in
memory-mapped files that the processes which make batches share, and comes back many times. What is
there when depends on the machine: such a run does not repeat another to the digit.
"""

import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from duallgd_cli.chem.elements import N_ELEMENTS
from duallgd_cli.data.peaks import most_intense
from duallgd_cli.data.prepared import (
    Molecules,
    PreparedSpectra,
    load_molecules,
    spectrum_arrays,
    spectrum_row,
)
from duallgd_cli.data.simulation import Simulator
from duallgd_cli.errors import UnreadableError, WorkerDiedError
from duallgd_cli.runtime import leave_to_parent

Chunk = tuple[NDArray[np.int64], list[dict[str, Any]]]
_CHUNK: Final = 500  # spectra that a process sends at once
_AHEAD: Final = 100
_ROWS: Final = 27  # peak rows of a spectrum that room is made for, on average
_LOOK_AGAIN_S: Final = 0.1


class Pool:
    """Simulated spectra, more and more of them, as `PreparedSpectra` whose end is still empty.

    Args:
        molecules: Whose spectra they are.
        folder: For the files, made if needed; those of an earlier run are replaced.
        most: Spectra that there is room for.
    """

    def __init__(self, molecules: Molecules, folder: Path, most: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        empty = spectrum_arrays([], [])
        table = empty.pop("subformula_table")
        del empty["subformula_index"], empty["spectrum_id"]
        like = empty | {"subformula": table}
        by_row = {"subformula", "intensity", "ppm", "mz", "carrier", "share", "peak_energy_ev"}
        self._by_row, self._arrays = by_row, dict[str, NDArray[Any]]()
        for name, values in like.items():
            size = most * _ROWS if name in by_row else most + (name == "peak_offset")
            shape = (size, N_ELEMENTS) if name == "subformula" else (size,)
            (folder / f"{name}.npy").unlink(missing_ok=True)
            made = open_memmap(folder / f"{name}.npy", "w+", values.dtype, shape)
            self._arrays[name] = made
        nameless = np.zeros(most, "S1")
        self.spectra = PreparedSpectra(molecules, **self._arrays, spectrum_id=nameless)
        self._most, self._rows, self._count, self.is_full = most, 0, 0, False
        self.processes: Sequence[Any] = ()

    @property
    def count(self) -> int:
        """So many are there, from the first on.

        Raises:
            WorkerDiedError: No process makes more although there is room.
        """
        ended = self.processes and not any(process.is_alive() for process in self.processes)
        if ended and not self.is_full:
            raise WorkerDiedError(
                "the processes that simulate spectra were ended, probably for want of memory; the "
                "same command goes on, with fewer --set training.data.simulators"
            )
        return self._count

    def add(self, molecules: NDArray[np.int64], drawn: Sequence[Mapping[str, Any]]) -> bool:
        """Take spectra in, as far as there is room; False where there is none left."""
        ends = np.cumsum([len(spectrum["mz"]) for spectrum in drawn])
        fits = int(np.searchsorted(ends, len(self._arrays["mz"]) - self._rows, "right"))
        fits = min(fits, self._most - self._count)
        self.is_full = fits < len(drawn)
        drawn, molecules = drawn[:fits], molecules[:fits]
        arrays = spectrum_arrays(drawn, molecules)
        arrays["subformula"] = arrays["subformula_table"][arrays["subformula_index"]]
        rows = slice(self._rows, self._rows + len(arrays["mz"]))
        own = slice(self._count, self._count + len(drawn))
        arrays["peak_offset"] = arrays["peak_offset"][1:] + self._rows
        for name, values in self._arrays.items():
            after = 1 if name == "peak_offset" else 0
            where = rows if name in self._by_row else slice(own.start + after, own.stop + after)
            values[where] = arrays[name]
        self._rows, self._count = rows.stop, own.stop  # last: others draw from what is there
        return not self.is_full


@contextmanager
def simulated_beside(
    structures: Path, simulator: Simulator, pool: Pool, processes: int, seed: int, first: int
) -> Iterator[Pool]:
    """Fill a pool from other processes in the block, which begins when the first spectra came.

    Args:
        structures: Prepared structures, those of fold train are simulated in turn.
        simulator: Draws the spectra.
        pool: Empty.
        processes: How many.
        seed: Random seed.
        first: Spectra to wait for.

    Raises:
        WorkerDiedError: The processes were ended.
    """
    context = multiprocessing.get_context("spawn")
    chunks: Queue[Chunk] = context.Queue(_AHEAD)
    sent = pickle.dumps(simulator)
    given = [(structures, sent, (seed, number), chunks) for number in range(processes)]
    pool.processes = [context.Process(target=_simulate, args=one, daemon=True) for one in given]
    is_open = True

    def fill() -> None:
        while is_open and pool.add(*chunks.get()):
            pass

    for process in pool.processes:
        process.start()
    threading.Thread(target=fill, daemon=True).start()
    try:
        while pool.count < first and not pool.is_full:
            time.sleep(_LOOK_AGAIN_S)
        yield pool
    finally:
        is_open = False
        for process in pool.processes:
            process.kill()
            process.join()
        chunks.cancel_join_thread()


def simulated_molecules(molecules: Molecules) -> NDArray[np.int64]:
    """Rows of structures of fold train with a bond.

    Raises:
        UnreadableError: There are none.
    """
    able = molecules.in_folds("train") & (np.diff(molecules.bond_offset) > 0)
    if not able.any():
        raise UnreadableError("the prepared structures hold none of fold train to be simulated")
    return np.flatnonzero(able)


def _simulate(structures: Path, sent: bytes, seed: tuple[int, int], chunks: "Queue[Chunk]") -> None:
    """Put chunks of simulated spectra into a queue, every structure in turn, for ever."""
    leave_to_parent()
    torch.set_num_threads(1)
    simulator, molecules = pickle.loads(sent), load_molecules(structures)  # from our parent
    generator, rows = np.random.default_rng(seed), simulated_molecules(molecules)
    for _ in count():
        order = generator.permutation(rows)
        for part in np.array_split(order, -(-len(order) // _CHUNK)):
            found = [simulator.annotated(molecules, int(row), generator) for row in part]
            drawn = [spectrum_row(one, "", "train", most_intense(one.intensity)) for one in found]
            chunks.put((part, drawn))
