"""Whether, and how nearly, a benchmark's molecules were in a model's training data."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from duallgd_cli.errors import UsageError
from duallgd_cli.evaluation.leakage import TrainingHashes, nearest_training
from duallgd_cli.evaluation.molecules import METRIC_BITS, molecule
from duallgd_cli.evaluation.tables import Truth, read_rows

logger = logging.getLogger(__name__)

_NEAR: Final = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """What the weights were trained on, as far as it can be checked.

    Attributes:
        hashes: Molecules, None where no list came with the weights.
        data: Table of training molecules for similarities, or None.
        allow_leakage: Score molecules that the weights have seen, and say so on the result.
    """

    hashes: TrainingHashes | None = None
    data: Path | None = None
    allow_leakage: bool = False


def check_leakage(truths: Sequence[Truth], training: Training) -> tuple[str, ...]:
    """Look for test molecules among those the weights were trained on.

    Returns:
        Sentences for the report.

    Raises:
        UsageError: There are some, and that is not allowed.
    """
    if training.hashes is None:
        return ("Overlap with the weights' training molecules was not checked: no list of them.",)
    molecules = sorted({truth.molecule for truth in truths})
    seen = int(training.hashes.contains(molecules).sum())
    if not seen:
        sentence = (
            f"None of the {len(molecules)} test molecules is among the {len(training.hashes)} "
            "training molecules of the weights (InChIKey first block)."
        )
        logger.info("%s", sentence)
        return (sentence,)
    sentence = f"{seen} of the {len(molecules)} test molecules were in the weights' training data"
    if not training.allow_leakage:
        raise UsageError(
            f"{sentence}; the numbers would mean nothing. Choose other weights or another fold, "
            "or give --allow-leakage to have it stamped on the result"
        )
    return (f"LEAKAGE: {sentence}.",)


def similarities(truths: Sequence[Truth], data: Path) -> dict[str, float]:
    """Tanimoto similarity of each test molecule to the nearest molecule of a training table.

    Args:
        truths: Spectra of the test molecules.
        data: Table with a column ``smiles``; only its fold ``train`` if it has folds.

    Returns:
        By spectrum.

    Raises:
        UsageError: The table holds no training molecules.
    """
    rows = read_rows(data, required=("smiles",))
    smiles = dict.fromkeys(row["smiles"] for row in rows if row.get("fold", "train") == "train")
    training = [known.bits for text in smiles if (known := molecule(text)) is not None]
    if not training:
        raise UsageError(f"{data} holds no training molecules (column smiles, fold train)")
    asked: dict[str, NDArray[np.uint16]] = {}
    for truth in truths:
        described = molecule(truth.smiles)
        if described is not None:
            asked.setdefault(truth.molecule, described.bits)
    similarity, _ = nearest_training(list(asked.values()), training, METRIC_BITS)
    by_molecule = dict(zip(asked, similarity.tolist(), strict=True))
    near = sum(value > _NEAR for value in by_molecule.values())
    logger.info("%d of %d test molecules are near a training molecule", near, len(by_molecule))
    return {truth.spectrum_id: by_molecule[truth.molecule] for truth in truths}
