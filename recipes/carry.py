"""Prepared structures in a file to carry to a machine with a GPU: some 50 bytes each.

    python recipes/carry.py pack run/alike alike.pack
    python recipes/carry.py unpack alike.pack run/alike        # needs numpy alone

In the folder of a run, what is unpacked counts as all data of its recipe, for the decoder stage;
so does run/large beside it.
Molecules are stored by their counts of atoms, fingerprint bits by how common they are, and both as
differences, which LZMA packs best. InChIKeys stay behind: hold-outs were applied before, and the
machine that trains needs none.
"""

import json
import lzma
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray

from duallgd_cli.data.prepared import MANIFEST, load_molecules, offsets, read_manifest, write_blocks
from duallgd_cli.errors import DuallgdError, UnreadableError
from duallgd_cli.files import sha256

_HEAD: Final = 4  # bytes of the length of what describes the streams
Folder = Annotated[Path, typer.Argument(help="Folder of prepared structures.")]
Pack = Annotated[Path, typer.Argument(help="The file to carry.")]
app = typer.Typer(help=__doc__)


def _differences(values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each value less the one before it in its row."""
    changed = np.diff(values.astype(np.int64), prepend=0)
    changed[starts] = values[starts]
    return changed


def _sums(changed: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.int64]:
    """What `_differences` were taken of, of rows of these sizes."""
    total = np.cumsum(changed.astype(np.int64))
    before = np.concatenate([[0], total])[offsets(sizes.astype(np.int64))[:-1]]
    return total - np.repeat(before, sizes)


@app.command()
def pack(folder: Folder, file: Pack) -> None:
    """Pack prepared structures."""
    molecules = load_molecules(folder)
    arrays = molecules.take(np.lexsort(np.asarray(molecules.atom_counts).T)).arrays()
    common = np.argsort(-np.bincount(arrays["bits"]), kind="stable")
    rank = np.argsort(common)[arrays["bits"]]
    owner = np.repeat(np.arange(len(molecules)), np.diff(arrays["bit_offset"]))
    rank = _differences(rank[np.lexsort((rank, owner))], arrays["bit_offset"][:-1])
    low, high = arrays["bond_pair"].astype(np.int16).T
    streams = {
        "common": common.astype(np.uint16),
        "rank_low": (rank & 255).astype(np.uint8),
        "rank_high": (rank >> 8).astype(np.uint8),
        "n_bits": np.diff(arrays["bit_offset"]).astype(np.uint16),
        "n_bonds": np.diff(arrays["bond_offset"]).astype(np.uint16),
        "low": _differences(low, arrays["bond_offset"][:-1]).astype(np.int8),
        "gap": (high - low).astype(np.uint8),
        "atom_counts": np.ascontiguousarray(arrays["atom_counts"].T),
        **{name: arrays[name] for name in ("bond_type", "charge", "fold")},
    }
    with ThreadPoolExecutor() as pool:
        packed = [*pool.map(lambda stream: lzma.compress(stream.tobytes()), streams.values())]
    described = {
        name: [len(data), str(stream.dtype), stream.shape]
        for (name, stream), data in zip(streams.items(), packed, strict=True)
    }
    record = {
        "manifest_sha256": sha256(folder / MANIFEST),
        "holdout_keys": read_manifest(folder).get("holdout_keys"),
    }
    head = json.dumps([described, record]).encode()
    file.write_bytes(len(head).to_bytes(_HEAD, "little") + head + b"".join(packed))
    typer.echo(f"{len(molecules)} molecules, {file.stat().st_size} bytes in {file}", err=True)


@app.command()
def unpack(file: Pack, folder: Folder) -> None:
    """Unpack structures that were packed."""
    raw = file.read_bytes()
    at = _HEAD + int.from_bytes(raw[:_HEAD], "little")
    streams: dict[str, NDArray[Any]] = {}
    try:
        described, record = json.loads(raw[_HEAD:at])
        for name, (length, dtype, shape) in described.items():
            data = lzma.decompress(raw[at : at + length])
            streams[name] = np.frombuffer(data, dtype).reshape(shape)
            at += length
    except (ValueError, lzma.LZMAError) as error:
        raise UnreadableError(f"{file} is damaged ({error}); pack the structures again") from None
    rank = streams["rank_low"] | streams["rank_high"].astype(np.int64) << 8
    low = _sums(streams["low"], streams["n_bonds"])
    bits = streams["common"][_sums(rank, streams["n_bits"])]
    owner = np.repeat(np.arange(len(streams["n_bits"])), streams["n_bits"])
    arrays = {
        "atom_counts": np.ascontiguousarray(streams["atom_counts"].T),
        "bond_offset": offsets(streams["n_bonds"].astype(np.int64)),
        "bond_pair": np.stack([low, low + streams["gap"]], 1).astype(np.uint8),
        "bit_offset": offsets(streams["n_bits"].astype(np.int64)),
        "bits": bits[np.lexsort((bits, owner))],
        "inchikey": np.zeros(len(streams["fold"]), "S14"),
        **{name: streams[name] for name in ("bond_type", "charge", "fold")},
    }
    made = {"kind": "structures", "molecules": len(streams["fold"]), "made_from": record}
    write_blocks(folder, [arrays], lambda: made)
    (folder.parent / "done").mkdir(exist_ok=True)
    for stage in ("spectra", "structures", "select", "simulate", "encoder"):
        (folder.parent / "done" / f"{stage}.json").write_text("{}\n", encoding="utf-8")
    typer.echo(f"{len(streams['fold'])} molecules in {folder}", err=True)


if __name__ == "__main__":
    try:
        app()
    except DuallgdError as error:
        raise SystemExit(f"error: {error}") from None
