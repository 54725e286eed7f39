"""Weights for a network with narrower feed-forward layers of the pairs, to train on from.

Training again from nothing costs hours; a network that lost its least used hidden channels gets
back to where it was within minutes of training.
"""

from dataclasses import replace

import torch
from torch import Tensor

from duallgd_cli.checkpoint.format import Checkpoint
from duallgd_cli.errors import WeightsError


def narrow_pair_feed(checkpoint: Checkpoint, factor: int) -> Checkpoint:
    """Keep the hidden channels that move the pairs most, `factor * pair_width` in each layer.

    A channel counts by the norm of what goes in times the norm of what comes out.

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
