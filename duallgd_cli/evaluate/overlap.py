"""Whether, and how nearly, a benchmark's molecules were in a model's training data."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.leakage import TrainingHashes, nearest_training
from duallgd_cli.evaluate.molecules import METRIC_BITS, metric_fingerprint, molecule
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Truth, read_rows

logger = logging.getLogger(__name__)

NEAR: Final = 0.7
_CHUNK: Final = 8192
_LEAKAGE: Final = "LEAKAGE: "


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Spectra after the check.

    Attributes:
        truths: Those to score.
        remarks: Sentences for the report.
        left_out: Molecules that were dropped, by the first block of the InChIKey.
        nearest: Similarity to the nearest training molecule by spectrum; empty without tables.
    """

    truths: tuple[Truth, ...]
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    nearest: Mapping[str, float] = field(default_factory=dict)


def check_leakage(
    truths: Sequence[Truth],
    lists: Mapping[str, TrainingHashes | None],
    settings: EvaluateSettings,
) -> Checked:
    """Look for test molecules among those that weights were trained on, exactly and nearly.

    Args:
        truths: Spectra of the test molecules.
        lists: Training molecules of each model, by what it is called in sentences; None where no
            list came with it.
        settings: What to do where there are some, and tables for similarities.

    Raises:
        UsageError: There are some and that is not allowed, nothing is left without them, or they
            are to be left out and a list of them is missing.
    """
    unlisted = [name for name, hashes in lists.items() if hashes is None]
    if settings.drop_leaked and unlisted:
        raise UsageError(
            f"--drop-leaked needs a list of the training molecules of {' and '.join(unlisted)}; "
            "make one beside them with 'duallgd weights hashes', or leave the option out"
        )
    molecules = sorted({truth.molecule for truth in truths})
    seen: set[str] = set()
    remarks = []
    for name, hashes in lists.items():
        found = _among(molecules, hashes)
        seen |= found
        remarks.append(_sentence(name, len(found), len(molecules), hashes))
        if found and not (settings.allow_leakage or settings.drop_leaked):
            raise UsageError(
                f"{remarks[-1].removeprefix(_LEAKAGE)[:-1]}; the numbers would mean nothing. "
                "Choose other weights or another fold, give --drop-leaked to leave them out, or "
                "--allow-leakage to have it stamped on the result"
            )
    kept: tuple[Truth, ...] = tuple(truths)
    left_out: tuple[str, ...] = ()
    if seen and settings.drop_leaked:
        kept = tuple(truth for truth in truths if truth.molecule not in seen)
        left_out = tuple(sorted(seen))
        remarks = [sentence for sentence in remarks if not sentence.startswith(_LEAKAGE)]
        remarks.append(_left_out(left_out, len(truths) - len(kept)))
    if not kept:
        raise UsageError("every test molecule was trained on; choose other weights or another fold")
    nearest = similarities(kept, settings.train_data) if settings.train_data else {}
    if nearest:
        remarks.append(_near(kept, nearest, settings.train_data))
    for sentence in remarks:
        logger.info("%s", sentence)
    return Checked(kept, tuple(remarks), left_out, nearest)


def similarities(truths: Sequence[Truth], tables: Sequence[Path]) -> dict[str, float]:
    """Tanimoto similarity of each test molecule to the nearest training molecule.

    Args:
        truths: Spectra of the test molecules.
        tables: Each with a column ``smiles``; of one with folds only ``train`` counts.

    Returns:
        By spectrum.

    Raises:
        UsageError: A table holds no training molecules.
    """
    asked: dict[str, NDArray[np.uint16]] = {}
    for truth in truths:
        described = molecule(truth.smiles)
        if described is not None:
            asked.setdefault(truth.molecule, described.bits)
    best = np.zeros(len(asked))
    for table in tables:
        empty = True
        for part in _fingerprints(table):
            empty = False
            best = np.maximum(best, nearest_training(list(asked.values()), part, METRIC_BITS)[0])
        if empty:
            raise UsageError(f"{table} holds no training molecules (column smiles, fold train)")
    by_molecule = dict(zip(asked, best.tolist(), strict=True))
    return {truth.spectrum_id: by_molecule[truth.molecule] for truth in truths}


def _fingerprints(table: Path) -> Iterator[list[NDArray[np.uint16]]]:
    """Set bits of the distinct training molecules of a table, in parts."""
    rows = read_rows(table, required=("smiles",))
    distinct = dict.fromkeys(row["smiles"] for row in rows if row.get("fold", "train") == "train")
    part = []
    for smiles in distinct:
        bits = metric_fingerprint(smiles)
        if bits is not None:
            part.append(bits)
        if len(part) == _CHUNK:
            yield part
            part = []
    if part:
        yield part


def _among(molecules: Sequence[str], hashes: TrainingHashes | None) -> set[str]:
    if hashes is None:
        return set()
    seen = hashes.contains(molecules)
    return {molecule for molecule, is_seen in zip(molecules, seen, strict=True) if is_seen}


def _sentence(name: str, found: int, of: int, hashes: TrainingHashes | None) -> str:
    if hashes is None:
        return f"Overlap with the training molecules of {name} was not checked: no list of them."
    if found:
        return f"{_LEAKAGE}{found} of the {of} test molecules were in the training data of {name}."
    return (
        f"None of the {of} test molecules is among the {len(hashes)} training molecules of {name} "
        "(InChIKey first block)."
    )


def _left_out(blocks: Sequence[str], spectra: int) -> str:
    return (
        f"LEFT OUT: {len(blocks)} molecules that were trained on, with {spectra} spectra: "
        f"{', '.join(blocks)}."
    )


def _near(truths: Sequence[Truth], nearest: Mapping[str, float], tables: Sequence[Path]) -> str:
    by_molecule = {truth.molecule: nearest[truth.spectrum_id] for truth in truths}
    near = sum(value > NEAR for value in by_molecule.values())
    return (
        f"{near} of the {len(by_molecule)} test molecules have a training molecule above Tanimoto "
        f"{NEAR} in {', '.join(table.name for table in tables)} (Morgan radius 2, 2048 bits)."
    )
