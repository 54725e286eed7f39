"""Prepared data: a folder of memory-mapped arrays, written once with rdkit, read with numpy alone.

A folder holds ``NAME.npy`` for every array and ``manifest.json`` with the format version, the
SHA-256 of each array, the settings and hashes of the sources, and how many rows were rejected for
which reason. Ragged values are stored flat beside an ``*_offset`` array of length rows + 1.

Letters: G molecules, S spectra, N atoms of one molecule, M = N(N-1)/2 pairs, K peak rows.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from duallgd_cli.chem.elements import N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.errors import MissingInputError, UnreadableError, clip, counted
from duallgd_cli.files import replaced, sha256, write_atomically
from duallgd_cli.spectra.annotation import index_ranges
from duallgd_cli.spectra.types import AnnotatedSpectrum, carrier_indices, instrument_index

T = TypeVar("T")
FORMAT_VERSION: Final = 1
BLOCK: Final = 20_000  # molecules or spectra that are in memory at once where many are made
_MOST_LISTED: Final = 100_000  # rows that are left out; and of what is said of them
_MOST_REASONS, _MOST_LINES = 4, 3
FOLDS: Final = ("train", "val", "test", "dev")

MANIFEST: Final = "manifest.json"
DECOY_OF: Final = "decoy_of"  # array of the molecule that each decoy is of, ascending
# Offsets of ragged rows, and the arrays that they cut into rows.
RAGGED: Final = {"bond_offset": ("bond_pair", "bond_type"), "bit_offset": ("bits",)}


@dataclass(frozen=True, eq=False)
class Molecules:
    """Structures as the network sees them: element-sorted atoms and typed bonds."""

    atom_counts: NDArray[np.uint8]  # of elements, (G, N_ELEMENTS)
    charge: NDArray[np.int8]  # net, (G,)
    bond_offset: NDArray[np.int64]  # bonds of molecule g are rows offset[g]:offset[g + 1], (G + 1,)
    bond_pair: NDArray[np.uint8]  # atom rows i < j in the element-sorted order, (bonds, 2)
    bond_type: NDArray[np.uint8]  # class 1 to 4, (bonds,)
    bit_offset: NDArray[np.int64]  # (G + 1,)
    bits: NDArray[np.uint16]  # on-bits of the Morgan fingerprint (radius 2, 4096 bits)
    fold: NDArray[np.uint8]  # index into `FOLDS`, (G,)
    inchikey: NDArray[np.bytes_]  # first blocks, S14 (G,)
    n_heavy: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        if (shape := self.atom_counts.shape[1:]) != (N_ELEMENTS,):
            expected = f"expected {N_ELEMENTS}; prepare the data again with this version"
            raise UnreadableError(f"prepared molecules count {shape} elements, {expected}")
        heavy = self.atom_counts[:, :N_HEAVY].sum(1, dtype=np.int64)
        object.__setattr__(self, "n_heavy", heavy)

    def __len__(self) -> int:
        return len(self.fold)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of them, by the names of `MOLECULE_ARRAYS`."""
        return {name: np.asarray(getattr(self, name)) for name in MOLECULE_ARRAYS}

    def take(self, rows: NDArray[np.int64]) -> "Molecules":
        """Some of them, in this order."""
        kept = self.arrays()
        for name, parts in RAGGED.items():
            start, stop = kept[name][rows], kept[name][rows + 1]
            _, index = index_ranges(start, stop)
            kept |= {part: kept[part][index] for part in parts} | {name: offsets(stop - start)}
        whole = kept.keys() - {*RAGGED, *chain(*RAGGED.values())}
        return Molecules(**kept | {name: kept[name][rows] for name in whole})

    def formula(self, molecule: int) -> Formula:
        """All atoms of one molecule, with its charge."""
        return Formula(tuple(self.atom_counts[molecule].tolist()), int(self.charge[molecule]))

    def in_folds(self, *names: str) -> NDArray[np.bool_]:
        """Which molecules belong to one of these folds, (G,)."""
        return np.isin(self.fold, [FOLDS.index(name) for name in names])

    def bits_of(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """On-bits of some molecules, ascending in each, after its place among the rows."""
        owner, index = index_ranges(self.bit_offset[rows], self.bit_offset[rows + 1])
        return owner, self.bits[index].astype(np.int64)


MOLECULE_ARRAYS: Final = tuple(one.name for one in fields(Molecules) if one.init)


@dataclass(frozen=True, eq=False)
class PreparedSpectra:
    """Annotated spectra of prepared molecules; see `spectra.types.AnnotatedSpectrum`."""

    molecules: Molecules
    molecule: NDArray[np.int32]
    peak_offset: NDArray[np.int64]
    subformula: NDArray[np.uint8]
    intensity: NDArray[np.float16]
    ppm: NDArray[np.float16]
    mz: NDArray[np.float32]
    carrier: NDArray[np.int8]
    share: NDArray[np.float16]
    peak_energy_ev: NDArray[np.float16]
    adduct: NDArray[np.int8]
    instrument: NDArray[np.int8]
    energy_ev: NDArray[np.float16]
    spectrum_fold: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.molecule)


@dataclass(frozen=True, eq=False)
class Decoys:
    """Of each of G prepared molecules itself, then others of its formula; or nothing."""

    molecules: Molecules
    start: NDArray[np.int64]  # of the rows of each, and the end, (G + 1,)

    def rows(self, molecule: int) -> NDArray[np.int64]:
        """Rows of one molecule and its decoys."""
        return np.arange(*self.start[molecule : molecule + 2])


def offsets(sizes: Iterable[int]) -> NDArray[np.int64]:
    """Offsets of ragged rows of these sizes into their flat array, one longer than the rows."""
    return np.concatenate([[0], np.cumsum(np.fromiter(sizes, np.int64))]).astype(np.int64)


def join(one: Molecules, other: Molecules) -> Molecules:
    """Two collections, one after the other."""
    both = one.arrays(), other.arrays()
    joined = {name: np.concatenate([part[name] for part in both]) for name in both[0]}
    for name in RAGGED:
        joined[name] = offsets(np.concatenate([np.diff(part[name]) for part in both]))
    return Molecules(**joined)


def spectrum_row(
    found: AnnotatedSpectrum, fold: str, rows: NDArray[np.int64] | slice = slice(None)
) -> dict[str, Any]:
    """One annotated spectrum by the names of the arrays it goes to; see `spectrum_arrays`.

    Its energy is kept if there is one for all peaks. Of its peaks some rows may be kept.
    """
    hypothesis = found.hypothesis
    energies = {spectrum.collision_energy_ev for spectrum in hypothesis.feature.spectra}
    energy = energies.pop() if len(energies) == 1 else None
    return {
        "subformula": found.subformula[rows].astype(np.uint8),
        "intensity": found.intensity[rows].astype(np.float16),
        "ppm": found.ppm[rows].astype(np.float16),
        "mz": found.mz[rows].astype(np.float32),
        "carrier": carrier_indices(hypothesis.adduct)[found.carrier][rows].astype(np.int8),
        "share": found.share[rows].astype(np.float16),
        "peak_energy_ev": found.energy_ev[rows].astype(np.float16),
        "adduct": np.int8(hypothesis.adduct.index),
        "instrument": np.int8(instrument_index(hypothesis.feature.first.instrument)),
        "energy_ev": np.float16(np.nan if energy is None else energy),
        "spectrum_fold": np.uint8(FOLDS.index(fold)),
    }


def spectrum_arrays(
    spectra: Sequence[Mapping[str, Any]], molecule: Sequence[int] | NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Spectra that `spectrum_row` gave, and the row of each one's molecule, as arrays."""
    columns = {name: [spectrum[name] for spectrum in spectra] for name in spectra[0]}
    return {
        "molecule": np.asarray(molecule, np.int32),
        "peak_offset": offsets(map(len, columns["mz"])),
        **{n: np.concatenate(c) if c[0].ndim else np.array(c) for n, c in columns.items()},
    }


def in_blocks(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of as many items as may be in memory at once, in their order."""
    remaining = iter(items)
    while block := list(islice(remaining, BLOCK)):
        yield block


def write_blocks(
    folder: Path,
    blocks: Iterable[Mapping[str, NDArray[Any]]],
    record: Callable[[], Mapping[str, object]],
) -> dict[str, object]:
    """Write arrays that come in blocks of rows, of which one is in memory at a time.

    Offsets of ragged rows begin at 0 in every block, and an array need not be in each. Until the
    last block is there, nothing that the folder held is touched; the manifest, which describes the
    arrays beside the record of sources, settings and counts, is written last, so that a broken run
    is not mistaken for a whole one.
    """
    streams: dict[str, IO[bytes]] = {}
    shapes: dict[str, tuple[np.dtype[Any], int, tuple[int, ...]]] = {}
    ends: dict[str, int] = {}
    with ExitStack() as stack:
        for arrays in blocks:
            folder.mkdir(parents=True, exist_ok=True)
            for name, values in arrays.items():
                if name not in streams:
                    # Replaced, not overwritten: another process may have the old array mapped.
                    partial = stack.enter_context(replaced(folder / f"{name}.npy"))
                    streams[name] = stack.enter_context(partial.open("wb"))
                    shapes[name] = values.dtype, 0, values.shape[1:]
                    _write_header(streams[name], *shapes[name])
                elif name.endswith("_offset"):
                    values = values[1:] + ends[name]
                if name.endswith("_offset"):
                    ends[name] = int(values[-1])
                dtype, rows, inner = shapes[name]
                shapes[name] = dtype, rows + len(values), inner
                np.ascontiguousarray(values, dtype).tofile(streams[name])
        for name, stream in streams.items():
            stream.seek(0)
            _write_header(stream, *shapes[name])
        (folder / MANIFEST).unlink(missing_ok=True)
    described = {}
    for name, (dtype, rows, inner) in shapes.items():
        digest = sha256(folder / f"{name}.npy")
        described[name] = {"shape": [rows, *inner], "dtype": str(dtype), "sha256": digest}
    manifest = {"format_version": FORMAT_VERSION, "arrays": described, **record()}
    write_atomically(folder / MANIFEST, [json.dumps(manifest, indent=1), "\n"])
    return manifest


def _write_header(
    stream: IO[bytes], dtype: np.dtype[Any], rows: int, inner: tuple[int, ...]
) -> None:
    """The header of an array's file, which is as long whatever the number of rows."""
    described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False}
    npy.write_array_header_1_0(stream, described | {"shape": (rows, *inner)})


class Screen:
    """Rows that do not become data, so that none is lost in silence.

    Attributes:
        reasons: How many there are, by reason.
        rows: Reasons and cells of the first of them.
    """

    def __init__(self) -> None:
        self.reasons = Counter[str]()
        self.rows: list[tuple[str, Sequence[object]]] = []

    def refuse(self, reason: str, *cells: object) -> None:
        """Leave out a row; of its cells the first says where it stands."""
        self.reasons[reason] += 1
        if len(self.rows) < _MOST_LISTED:
            self.rows.append((reason, cells))

    def counts(self) -> dict[str, int]:
        """Reasons with their numbers, the most frequent first."""
        return dict(self.reasons.most_common())

    def write(self, path: Path, *columns: str) -> None:
        """List the rows in a table."""
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
            writer.writerows([columns, *(cells for _, cells in self.rows)])

    def left_out(self, noun: str, plural: str = "") -> str:
        """The most frequent reasons in words, with their first lines, and how many others."""
        counts, clauses = self.reasons, list[str]()
        first = sorted(counts, key=lambda reason: (-counts[reason], reason))[:_MOST_REASONS]
        for reason in first:
            cells = (cells for why, cells in self.rows if why == reason and cells)
            lines = [str(line) for line, *_ in islice(cells, _MOST_LINES)]
            place = f" in {'line' if counts[reason] == 1 else 'lines'} {', '.join(lines)}"
            more = " and others" * (len(lines) < counts[reason])
            said = f"{counted(counts[reason], noun, plural)} left out ({clip(reason)})"
            clauses.append(f"{said}{place}{more}" if lines else said)
        if others := counts.total() - sum(counts[reason] for reason in first):
            clauses.append(f"{others} for other reasons")
        return "; ".join(clauses)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the manifest of a prepared folder, which may be missing, broken or old."""
    path = folder / MANIFEST
    if not path.is_file():
        raise MissingInputError(
            f"{folder} holds no prepared data ({MANIFEST} is missing); "
            "let 'duallgd train RECIPE' make it"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise UnreadableError(f"{path} is broken; prepare the data again")
    if (version := manifest.get("format_version")) != FORMAT_VERSION:
        reads = f"this version reads {FORMAT_VERSION}; prepare the data again"
        raise UnreadableError(f"{folder} has format version {version}, {reads}")
    return manifest


def load_molecules(folder: Path) -> Molecules:
    """Memory-map the molecules of a prepared folder."""
    read_manifest(folder)
    return Molecules(**{name: load_array(folder, name) for name in MOLECULE_ARRAYS})


def load_spectra(folder: Path) -> PreparedSpectra:
    """Memory-map the spectra of a prepared folder and their molecules; see `read_manifest`."""
    molecules = load_molecules(folder)
    names = [one.name for one in fields(PreparedSpectra)][1:]
    return PreparedSpectra(molecules, **{name: load_array(folder, name) for name in names})


def load_decoys(folder: Path, n_molecules: int) -> Decoys:
    """Memory-map the decoys of so many prepared molecules."""
    molecules, owner = load_molecules(folder), load_array(folder, DECOY_OF)
    return Decoys(molecules, np.searchsorted(owner, np.arange(n_molecules + 1)))


def load_array(folder: Path, name: str) -> NDArray[Any]:
    """Memory-map one array of a prepared folder, which may be missing or broken."""
    path = folder / f"{name}.npy"
    if not path.is_file():
        raise UnreadableError(f"{path} is missing; prepare the data again")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        raise UnreadableError(f"{path} is broken ({error}); prepare the data again") from None
