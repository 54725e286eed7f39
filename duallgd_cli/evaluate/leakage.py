"""Whether, and how nearly, test molecules were in a model's training data.

The list of training molecules that ships with weights has a 34-bit BLAKE2b hash of the first block
of each one's InChIKey (14 ASCII letters): the last 34 bits of a digest of 5 bytes, highest bits
first. The file is a compressed ``.npz`` archive, whatever its name, with one array ``hashes``. Of
700,000 molecules 4 in 100,000 that were not seen are mistaken for some that were.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.chem.identity import BLOCK_LENGTH, most_alike, parse_smiles
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.errors import (
    MissingInputError,
    MoleculeError,
    UnreadableError,
    UsageError,
    counted,
)
from duallgd_cli.evaluate.tables import METRIC_BITS, EvaluationInputs
from duallgd_cli.files import DAMAGED_ARRAYS, replaced
from duallgd_cli.tables import table_rows

_HASH_BYTES: Final = 5
_HASH_BITS: Final = 34
NEAR: Final = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class TrainingHashes:
    """Molecules of a training set, as hashes: sorted, distinct, below 2^34, uint64 (n,)."""

    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, blocks: Iterable[str]) -> "TrainingHashes":
        """Hash InChIKeys or their first blocks; the rest of a key is ignored."""
        return cls(np.unique(_hashed(blocks)))

    @classmethod
    def read(cls, path: Path) -> "TrainingHashes":
        """Read a file of hashes; MissingInputError or UnreadableError if it is none."""
        if not path.is_file():
            raise MissingInputError(f"there is no list of training molecules {path}")
        try:
            with path.open("rb") as stream:
                hashes = np.load(stream, allow_pickle=False)["hashes"]
            if hashes.dtype != np.uint64 or hashes.ndim != 1 or (hashes[1:] <= hashes[:-1]).any():
                raise ValueError("no sorted hashes")
        except DAMAGED_ARRAYS as error:
            raise UnreadableError(
                f"{path} is no list of training molecules, or damaged, or made by another version "
                f"({error}); copy it again together with its weights"
            ) from None
        return cls(hashes)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        with replaced(path) as partial, partial.open("wb") as stream:
            np.savez_compressed(stream, hashes=self.hashes)

    def joined(self, other: "TrainingHashes") -> "TrainingHashes":
        """Molecules of either list."""
        return TrainingHashes(np.union1d(self.hashes, other.hashes))

    def __len__(self) -> int:
        return len(self.hashes)

    def contains(self, blocks: Sequence[str]) -> NDArray[np.bool_]:
        """Which molecules were trained on, by InChIKeys or their first blocks, bool (B,)."""
        return np.isin(_hashed(blocks), self.hashes)


def leave_out_trained(
    inputs: EvaluationInputs,
    lists: Mapping[str, TrainingHashes | None],
    tables: Sequence[Path],
) -> None:
    """Leave test molecules out that weights were trained on, and say how near the others are.

    Lists hold molecules that may not be tested, by what they are called in sentences (None where
    no list of them came), tables training molecules for similarities. Remarks go to `inputs`.
    """
    truths = inputs.truths
    molecules = sorted({truth.molecule for truth in truths})
    many = f"the {len(molecules)} test molecules"
    seen: set[str] = set()
    remarks: list[str] = []
    for name, hashes in lists.items():
        if hashes is None:
            remarks.append(f"Overlap with {name} was not checked: no list of them.")
            continue
        known = set(compress(molecules, hashes.contains(molecules).tolist()))
        seen |= known
        remarks.append(
            f"{len(known)} of {many} are among {name}."
            if known
            else f"None of {many} is among {name}: {len(hashes)} first blocks of InChIKeys."
        )
    if seen:
        inputs.truths = [truth for truth in truths if truth.molecule not in seen]
        inputs.left_out = sorted(seen)
        n_left_out = len(truths) - len(inputs.truths)
        remarks.append(
            f"LEFT OUT: {counted(len(seen), 'molecule')} trained on or given, with "
            f"{counted(n_left_out, 'spectrum', 'spectra')}: {', '.join(inputs.left_out)}."
        )
    if not inputs.truths:
        raise UsageError("every test molecule was trained on; choose other weights or another fold")
    if tables:
        nearest = similarities({truth.molecule: truth.smiles for truth in inputs.truths}, tables)
        noted = {truth.spectrum_id: nearest[truth.molecule] for truth in inputs.truths}
        inputs.notes["nearest_training"] = noted
        near = sum(value > NEAR for value in nearest.values())
        remarks.append(
            f"{near} of the {len(nearest)} test molecules have a training molecule above "
            f"Tanimoto {NEAR} in {', '.join(table.name for table in tables)} "
            "(Morgan radius 2, 2048 bits)."
        )
    inputs.remark(*remarks)


def similarities(tested: Mapping[str, str], tables: Sequence[Path]) -> dict[str, float]:
    """Tanimoto similarity of each SMILES, by name, to the nearest training molecule.

    Tables have a column ``smiles``; of one with folds only ``train`` counts.
    """

    def molecules(smiles: Iterable[str]) -> Iterator[Mol]:
        for text in smiles:
            with suppress(MoleculeError):
                yield parse_smiles(text)

    queries, best = list(molecules(tested.values())), np.zeros(len(tested))
    for table in tables:
        rows = table_rows(table, required=("smiles",))
        trained = (row["smiles"] for row in rows if row.get("fold", "train") == "train")
        known = molecules(dict.fromkeys(trained))
        first = next(known, None)
        if first is None:
            raise UsageError(f"{table} holds no training molecules (column smiles, fold train)")
        best = np.maximum(best, most_alike(queries, chain([first], known), METRIC_BITS))
    return dict(zip(tested, best.tolist(), strict=True))


def _hashed(blocks: Iterable[str]) -> NDArray[np.uint64]:
    """Hashes of InChIKeys or their first blocks, in their order."""
    digests = (
        hashlib.blake2b(block[:BLOCK_LENGTH].encode(), digest_size=_HASH_BYTES).digest()
        for block in blocks
    )
    values = (int.from_bytes(digest, "big") & ((1 << _HASH_BITS) - 1) for digest in digests)
    return np.fromiter(values, dtype=np.uint64)
