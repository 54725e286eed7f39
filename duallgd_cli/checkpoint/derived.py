"""Weights made from other weights, to train on from: their mean."""

from collections.abc import Mapping
from pathlib import Path

import torch

from duallgd_cli.checkpoint.format import Checkpoint
from duallgd_cli.checkpoint.lineage import lineage
from duallgd_cli.errors import WeightsError


def average(checkpoints: Mapping[Path, Checkpoint]) -> Checkpoint:
    """Mean of all weights, without evidence and ranking, which were fitted to one network.

    Networks that were trained on from the same weights lie in one basin, and the middle of it
    generalises better than its rim (M. Wortsman and others, 2022, arXiv:2203.05482). Networks
    without a common past have no such mean.

    Args:
        checkpoints: By the file each came from, at least two; settings are those of the first.

    Returns:
        Its record names its parts ``mean_1``, ``mean_2``... and holds the records of all ancestors.

    Raises:
        WeightsError: Fewer than two, or their tensors differ in name or shape.
    """
    if len(checkpoints) < 2:
        raise WeightsError("a mean takes at least two different weights files")
    (first_path, first), *others = checkpoints.items()
    for path, other in others:
        if _shapes(other) != _shapes(first):
            raise WeightsError(
                f"{path} and {first_path} hold networks of different sizes; their mean means "
                "nothing, average networks that were trained on from the same weights"
            )
    parts = list(checkpoints.values())
    tensors = {
        name: torch.stack([part.tensors[name] for part in parts]).mean(0) for name in first.tensors
    }
    origin = {f"mean_{number}": part.record for number, part in enumerate(parts, 1)}
    return Checkpoint(first.settings, tensors, lineage(origin))


def _shapes(checkpoint: Checkpoint) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
