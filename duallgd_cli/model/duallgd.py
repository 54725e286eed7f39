"""The whole network: spectrum encoder and denoiser, joined by the predicted fingerprint."""

import re
from collections import Counter
from typing import Final

from torch import nn

from duallgd_cli.errors import WeightsError, quote
from duallgd_cli.model.denoiser import Denoiser
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import FULL, ModelSettings

_LAYER_NUMBER: Final = re.compile(r"\.\d+(?=\.|$)")


class DualLGD(nn.Module):
    """Encoder and denoiser of one checkpoint.

    Args:
        settings: Sizes and process.

    Raises:
        WeightsError: They are those of a study's network.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        if settings.variant != FULL:
            raise WeightsError(
                f"the network {quote(settings.variant)} belongs to the studies examples/studies/"
                "ablations.py and leak.py, which alone can run it; use other weights"
            )
        self.settings = settings
        bits = settings.encoder.fingerprint_bits
        self.encoder = FormulaTransformer(settings.encoder)
        self.denoiser = Denoiser(settings.denoiser, bits, settings.diffusion.n_steps)


def parameter_counts(module: nn.Module, depth: int = 3) -> dict[str, int]:
    """Trainable parameters by part of a network, in its order.

    Args:
        module: The network.
        depth: Parts of a name that are told apart; layers of one stack are counted together.
    """
    counts: Counter[str] = Counter()
    for name, parameter in module.named_parameters():
        parts = _LAYER_NUMBER.sub("", name).split(".")[:-1]
        counts[".".join(parts[:depth])] += parameter.numel()
    return dict(counts)
