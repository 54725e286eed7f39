"""Weights made from other weights, to train on from: their mean, or a narrower network."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

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


def narrow_pair_feed(checkpoint: Checkpoint, factor: int) -> Checkpoint:
    """Keep the hidden channels that move the pairs most, `factor * pair_width` in each layer.

    Training again from nothing costs hours; a network that lost its least used hidden channels
    gets back to where it was within minutes. A channel counts by the norm of what goes in times
    the norm of what comes out.

    Args:
        checkpoint: Of a wider network.
        factor: The new `DenoiserSettings.pair_feed`.

    Raises:
        WeightsError: The network is not wider than that.
    """
    denoiser = checkpoint.settings.denoiser
    if not 1 <= factor < denoiser.pair_feed:
        raise WeightsError(
            f"pair_feed is {denoiser.pair_feed} there; narrow it to 1 to {denoiser.pair_feed - 1}, "
            f"not {factor}"
        )
    tensors = dict(checkpoint.tensors)
    for layer in range(denoiser.layers):
        _narrow(tensors, f"denoiser.layers.{layer}.pair_feed.", factor * denoiser.pair_width)
    settings = replace(checkpoint.settings, denoiser=replace(denoiser, pair_feed=factor))
    record = {"narrowed": {"pair_feed": factor}, "from": checkpoint.record}
    return Checkpoint(settings, tensors, record)  # its ranking was fitted to another network


def _narrow(tensors: dict[str, Tensor], prefix: str, channels: int) -> None:
    up, bias, down = (tensors[prefix + name] for name in ("up.weight", "up.bias", "down.weight"))
    strength = torch.cat([up, bias[:, None]], 1).norm(dim=1) * down.norm(dim=0)
    kept = strength.topk(channels).indices.sort().values
    tensors[prefix + "up.weight"] = up[kept]
    tensors[prefix + "up.bias"] = bias[kept]
    tensors[prefix + "down.weight"] = down[:, kept]
