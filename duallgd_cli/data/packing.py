"""Prepared data as one small file, to be carried to a machine that has neither rdkit nor a network.

A file is a line of JSON and then xz streams. Every array is laid out so
that xz finds what repeats (bonds as degrees and steps, fingerprint bits as gaps between ranks by
frequency), and comes back with the very bytes it had: the checksums of the manifest are compared.

Letters: G molecules, F fingerprint bits.
"""

import hashlib
import itertools
import json
import lzma
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.elements import N_HEAVY
from duallgd_cli.data.prepared import (
    FOLDS,
    MANIFEST,
    load_array,
    read_manifest,
    record_of,
    take,
    write,
)
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.files import replaced

PACK_VERSION: Final = 1
_FILTER: Final = {"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 0}
_DICTIONARY_BYTES: Final = (1 << 12, 1 << 26)
_SMALL_GAP: Final = 192
_LOW_BITS: Final = 6

Arrays = dict[str, NDArray[Any]]


def pack(
    folder: Path,
    output: Path,
    max_atoms: int | None = None,
    limit: int | None = None,
    keys: bool = True,
) -> dict[str, Any]:
    """Write a prepared folder, or a part of its structures, as one file.

    Args:
        folder: Made by `duallgd data`.
        output: The file.
        max_atoms: Leave larger molecules out.
        limit: Keep so many molecules of fold train, chosen by a hash of their InChIKeys.
        keys: Keep the InChIKeys, a fifth of the file; training needs none.

    Returns:
        The manifest that unpacking will write.

    Raises:
        UsageError: A part is asked for of spectra, which belong together.
        MissingInputError: No prepared data there.
    """
    manifest = read_manifest(folder)
    arrays = {name: np.asarray(load_array(folder, name)) for name in manifest["arrays"]}
    part = {"max_atoms": max_atoms, "limit": limit, "keys": keys}
    if max_atoms is not None or limit is not None:
        if "molecule" in arrays:
            raise UsageError(f"{folder} holds spectra, of which no part can be packed")
        arrays = take(arrays, _chosen(arrays, max_atoms, limit))
    if not keys:
        arrays["inchikey"] = np.zeros_like(arrays["inchikey"])
    record = record_of(manifest)
    if part != {"max_atoms": None, "limit": None, "keys": True}:
        record |= {"molecules": len(arrays["fold"]), "packed": part}
    _save(output, arrays, record)
    return record


def unpack(path: Path, folder: Path) -> dict[str, object]:
    """Write the prepared folder that a file holds.

    Args:
        path: Made by `pack`.
        folder: Created if needed.

    Returns:
        The manifest.

    Raises:
        MissingInputError: No such file.
        UnreadableError: It is no such file, or broken.
    """
    header, content = _read(path)
    try:
        with ThreadPoolExecutor() as pool:  # xz lets go of the interpreter
            unpacked = pool.map(lzma.decompress, (content[a:b] for a, b in _bounds(header)))
            streams = {
                name: np.frombuffer(raw, about["dtype"]).reshape(about["shape"])
                for (name, about), raw in zip(header["streams"].items(), unpacked, strict=True)
            }
        arrays = _decoded(streams)
    except (lzma.LZMAError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UnreadableError(f"{path} is broken ({error}); pack the data again") from None
    manifest = write(folder, {name: arrays[name] for name in header["sha256"]}, header["record"])
    described: Any = manifest["arrays"]
    wrong = [name for name, digest in header["sha256"].items() if _digest(arrays[name]) != digest]
    if wrong or described.keys() != header["sha256"].keys():
        (folder / MANIFEST).unlink()
        raise UnreadableError(f"{path} does not match its checksums ({wrong}); pack the data again")
    return manifest


def _chosen(arrays: Arrays, max_atoms: int | None, limit: int | None) -> NDArray[np.int64]:
    """Rows to keep, in their order."""
    n_heavy = arrays["atom_counts"][:, :N_HEAVY].sum(1, dtype=np.int64)
    fits = n_heavy <= (n_heavy.max(initial=0) if max_atoms is None else max_atoms)
    train = arrays["fold"] == FOLDS.index("train")
    rows = np.flatnonzero(fits & train)
    if limit is not None and limit < len(rows):
        hashes = [hashlib.blake2b(key, digest_size=8).digest() for key in arrays["inchikey"][rows]]
        rows = rows[np.argsort(np.array(hashes, "S8"), kind="stable")[:limit]]
    return np.sort(np.concatenate([rows, np.flatnonzero(fits & ~train)]))


def _save(output: Path, arrays: Arrays, record: Mapping[str, object]) -> None:
    streams = _encoded(arrays)
    with ThreadPoolExecutor() as pool:
        packed = list(pool.map(_compressed, streams.values()))
    header = {
        "pack_version": PACK_VERSION,
        "record": record,
        "sha256": {name: _digest(values) for name, values in arrays.items()},
        "streams": {
            name: {"dtype": stream.dtype.str, "shape": stream.shape, "bytes": len(content)}
            for (name, stream), content in zip(streams.items(), packed, strict=True)
        },
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    with replaced(output) as partial:
        partial.write_bytes(b"".join([json.dumps(header).encode(), b"\n", *packed]))


def _compressed(stream: NDArray[Any]) -> bytes:
    low, high = _DICTIONARY_BYTES
    filters = [_FILTER | {"dict_size": min(max(stream.nbytes, low), high)}]
    return lzma.compress(np.ascontiguousarray(stream).tobytes(), filters=filters)


def _digest(values: NDArray[Any]) -> str:
    content = np.ascontiguousarray(values)
    about = f"{content.dtype.str} {content.shape} ".encode()
    return hashlib.sha256(about + content.tobytes()).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    if not path.is_file():
        raise MissingInputError(f"{path} does not exist; make it with 'duallgd data pack'")
    first, _, content = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(first)
        if header["pack_version"] != PACK_VERSION:
            raise ValueError(f"pack version {header['pack_version']}, expected {PACK_VERSION}")
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{path} holds no packed data ({error}); pack it again") from None
    return header, content


def _bounds(header: Mapping[str, Any]) -> list[tuple[int, int]]:
    sizes = [about["bytes"] for about in header["streams"].values()]
    stop = np.cumsum([0, *sizes]).tolist()
    return list(itertools.pairwise(stop))


def _encoded(arrays: Arrays) -> Arrays:
    """Streams that compress well; an array that its layout would not bring back goes as it is."""
    streams: Arrays = {}
    for name, values in arrays.items():
        coder = _CODERS.get(name)
        coded = None if coder is None else coder[0](values, arrays)
        if coded is not None and coder is not None:
            own = {part: np.ascontiguousarray(stream) for part, stream in coded.items()}
            back = coder[1](own, arrays)
            if back.dtype == values.dtype and np.array_equal(back, values):
                streams |= {f"{name}/{part}": stream for part, stream in own.items()}
                continue
        streams[name] = values
    return streams


def _decoded(streams: Arrays) -> Arrays:
    arrays: Arrays = {name: stream for name, stream in streams.items() if "/" not in name}
    for name, (_, decode) in _CODERS.items():  # offsets first: the others need them
        own = {key.partition("/")[2]: key for key in streams if key.startswith(f"{name}/")}
        if own:
            arrays[name] = decode({part: streams[key] for part, key in own.items()}, arrays)
    return arrays


def _offset_out(values: NDArray[Any], arrays: Arrays) -> Arrays | None:
    del arrays
    count = np.diff(values)
    fits = len(count) and count.min() >= 0 and count.max() < 1 << 16
    return {"count": count.astype(np.uint16)} if fits else None


def _offset_in(streams: Arrays, arrays: Arrays) -> NDArray[Any]:
    del arrays
    return np.concatenate([[0], np.cumsum(streams["count"], dtype=np.int64)])


def _pairs_out(values: NDArray[Any], arrays: Arrays) -> Arrays | None:
    """How many bonds each atom has to later ones, and the steps between those."""
    first_atom, owner = _atoms(arrays)
    low, high = values.T.astype(np.int64)
    degree = np.bincount(first_atom[owner] + low, minlength=int(first_atom[-1]))
    begins = _begins(owner, low)
    step = np.where(begins, high - low, high - np.concatenate([[0], high[:-1]]))
    if len(values) and (degree.max() > 255 or step.min() < 0 or step.max() > 255):
        return None
    return {"degree": degree.astype(np.uint8), "step": step.astype(np.uint8)}


def _pairs_in(streams: Arrays, arrays: Arrays) -> NDArray[Any]:
    first_atom, owner = _atoms(arrays)
    low = np.repeat(np.arange(len(streams["degree"])), streams["degree"]) - first_atom[owner]
    begins = _begins(owner, low)
    step = np.where(begins, low, 0) + streams["step"].astype(np.int64)
    total = np.cumsum(step)
    # Each run of bonds of one atom starts anew.
    before = np.concatenate([[0], total[:-1]])[begins]
    run = np.cumsum(begins) - 1
    return np.stack([low, total - before[run]], 1).astype(np.uint8)


def _atoms(arrays: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place of each molecule's first atom among all atoms (G + 1,), and molecule of each bond."""
    n_heavy = arrays["atom_counts"][:, :N_HEAVY].sum(1, dtype=np.int64)
    count = np.diff(arrays["bond_offset"])
    return np.concatenate([[0], np.cumsum(n_heavy)]), np.repeat(np.arange(len(count)), count)


def _begins(owner: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a run of equal values within one molecule starts."""
    changed = (owner[1:] != owner[:-1]) | (value[1:] != value[:-1])
    return np.concatenate([np.ones(min(1, len(owner)), bool), changed])


def _bits_out(values: NDArray[Any], arrays: Arrays) -> Arrays | None:
    """Gaps between the ranks of a molecule's bits by frequency: most fit a byte."""
    if not len(values):
        return None
    frequency = np.bincount(values)
    order = np.argsort(-frequency, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    owner = np.repeat(np.arange(len(arrays["bit_offset"]) - 1), np.diff(arrays["bit_offset"]))
    own = rank[values]
    own = own[np.lexsort((own, owner))]
    same = np.concatenate([[False], owner[1:] == owner[:-1]])
    gap = own - np.where(same, np.concatenate([[0], own[:-1]]), 0)
    large = gap >= _SMALL_GAP
    if gap.max() >> _LOW_BITS > 255 - _SMALL_GAP:
        return None
    return {
        "order": order.astype(values.dtype),
        "gap": np.where(large, _SMALL_GAP + (gap >> _LOW_BITS), gap).astype(np.uint8),
        "low": (gap[large] & ((1 << _LOW_BITS) - 1)).astype(np.uint8),
    }


def _bits_in(streams: Arrays, arrays: Arrays) -> NDArray[Any]:
    gap = streams["gap"].astype(np.int64)
    large = gap >= _SMALL_GAP
    gap[large] = ((gap[large] - _SMALL_GAP) << _LOW_BITS) + streams["low"]
    offset = arrays["bit_offset"]
    total = np.concatenate([[0], np.cumsum(gap)])
    owner = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    bit: NDArray[Any] = streams["order"][total[1:] - total[offset[:-1]][owner]]
    in_order = np.lexsort((bit, owner))
    return bit[in_order]


_CODERS: Final = {
    "bond_offset": (_offset_out, _offset_in),
    "bit_offset": (_offset_out, _offset_in),
    "peak_offset": (_offset_out, _offset_in),
    "bond_pair": (_pairs_out, _pairs_in),
    "bits": (_bits_out, _bits_in),
}
