"""A prepared folder of simulated spectra: structures, and one spectrum that each might give."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.data.peaks import PeakRows
from duallgd_cli.data.pool import pool
from duallgd_cli.data.prepared import (
    FOLDS,
    Molecules,
    load_molecules,
    offsets,
    read_manifest,
    take,
    write,
)
from duallgd_cli.data.simulation import Simulator, ion_mz
from duallgd_cli.errors import UnreadableError

_CHUNK: Final = 200  # molecules that a process takes at a time
# What a process draws with, once it has begun.
_own: Final[list[tuple[Molecules, Simulator, int]]] = []


@dataclass(frozen=True, slots=True)
class Selection:
    """Which structures get a spectrum.

    Attributes:
        limit: So many at random, or None for all.
        max_atoms: Larger ones are left out.
        seed: Of the choice and of the spectra: a spectrum depends on it and its structure's row.
    """

    limit: int | None = None
    max_atoms: int = 50
    seed: int = 1


def prepare_simulated(
    structures: Path,
    simulator: Simulator,
    out: Path,
    record: dict[str, object],
    selection: Selection = Selection(),
    *,
    workers: int = 1,
    advance: Callable[[int], None] = lambda spectra: None,
) -> dict[str, object]:
    """Simulate one spectrum each for structures of fold train.

    Args:
        structures: Folder made by `duallgd data structures`.
        simulator: Draws the spectra.
        out: Folder for the arrays.
        record: Of the fragment model, kept in the manifest.
        selection: Of structures.
        workers: Processes.
        advance: Told how many spectra were drawn.

    Returns:
        The manifest.

    Raises:
        UnreadableError: No structure of fold train can be simulated.
    """
    molecules = load_molecules(structures)
    rows = _chosen(molecules, selection)
    if not len(rows):
        raise UnreadableError(f"{structures} holds no structure of fold train with a bond")
    spectra: list[PeakRows] = []
    for drawn in _work(structures, simulator, rows, selection.seed, workers):
        spectra += drawn
        advance(len(drawn))
    arrays = take(molecules.arrays(), rows) | _spectrum_arrays(spectra, rows)
    source = read_manifest(structures)
    about: dict[str, object] = {
        "kind": "spectra",
        "source": {"simulated": source.get("source"), "model": record},
        "molecules": len(rows),
        "spectra": len(rows),
        "peak_rows": len(arrays["mz"]),
        "settings": asdict(selection),
        "holdout_keys": source.get("holdout_keys", 0),
        "holdout_removed": source.get("holdout_removed", 0),
    }
    return write(out, arrays, about)


def _chosen(molecules: Molecules, selection: Selection) -> NDArray[np.int64]:
    """Rows of structures, ascending."""
    train = molecules.in_folds("train")
    able = train & (molecules.n_heavy <= selection.max_atoms)
    rows = np.flatnonzero(able & (np.diff(molecules.bond_offset) > 0))
    if selection.limit is not None and selection.limit < len(rows):
        generator = np.random.default_rng(selection.seed)
        rows = np.sort(generator.choice(rows, selection.limit, replace=False))
    return rows


def _work(
    structures: Path, simulator: Simulator, rows: NDArray[np.int64], seed: int, workers: int
) -> Iterator[list[PeakRows]]:
    chunks = [rows[start : start + _CHUNK].tolist() for start in range(0, len(rows), _CHUNK)]
    if workers <= 1:
        molecules = load_molecules(structures)
        yield from (_draw(molecules, simulator, seed, chunk) for chunk in chunks)
        return
    # As bytes: torch's own way to other processes needs shared memory, and this is done once.
    own = pickle.dumps((structures, simulator, seed))
    with pool(workers, _begin, (own,)) as processes:
        yield from processes.imap(_draw_own, chunks)


def _begin(own: bytes) -> None:
    """What a process does first."""
    torch.set_num_threads(1)
    structures, simulator, seed = pickle.loads(own)  # from our own parent
    _own.append((load_molecules(structures), simulator, seed))


def _draw_own(rows: list[int]) -> list[PeakRows]:
    return _draw(*_own[-1], rows)


def _draw(molecules: Molecules, simulator: Simulator, seed: int, rows: list[int]) -> list[PeakRows]:
    return [simulator.spectrum(molecules, row, np.random.default_rng((seed, row))) for row in rows]


def _spectrum_arrays(
    spectra: Sequence[PeakRows], rows: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    counts = np.concatenate([s.subformula for s in spectra]).astype(np.uint8)
    table, index = np.unique(counts, axis=0, return_inverse=True)
    numbers = np.concatenate([s.numbers for s in spectra])
    adduct = np.array([s.adduct for s in spectra], np.int8)
    charge = np.array([a.charge for a in ADDUCTS])[adduct]
    parent = np.stack([s.parent for s in spectra])
    energy = np.array([s.numbers[0, 4] for s in spectra])
    return {
        "molecule": np.arange(len(rows), dtype=np.int32),
        "peak_offset": offsets(len(s.carrier) for s in spectra),
        "subformula_table": table,
        "subformula_index": index.reshape(-1).astype(np.uint32),
        "intensity": numbers[:, 0].astype(np.float16),
        "ppm": numbers[:, 1].astype(np.float16),
        "mz": numbers[:, 2].astype(np.float32),
        "carrier": np.zeros(len(numbers), np.int8),
        "share": numbers[:, 3].astype(np.float16),
        "peak_energy_ev": numbers[:, 4].astype(np.float16),
        "adduct": adduct,
        "instrument": np.array([s.instrument for s in spectra], np.int8),
        "energy_ev": energy.astype(np.float16),
        "precursor_mz": ion_mz(parent, charge).astype(np.float32),
        "spectrum_fold": np.full(len(rows), FOLDS.index("train"), np.uint8),
        "spectrum_id": np.array([f"simulated-{row}".encode() for row in rows]),
    }
